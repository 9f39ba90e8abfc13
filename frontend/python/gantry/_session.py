"""Sessions: a storage place on every node, its files and its daemons."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gantry_backend
from gantry_backend import TIMEOUT, Dirs

from . import _native
from ._block import Block
from ._channel import Channel
from ._data import Ending, Output, Staged, build_ending
from ._files import OutputTo, StrPath, describe_output, to_list, to_variables
from ._streams import Stream, build_output


START = """\
import runpy, sys
del sys.argv[0]
sys.path[0] = sys.argv[0].rpartition("/")[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a script. It imports what lies beside it in the session: on a node that only links it, too."""

FORGET_HOME = """\
import os
del os.environ["PYTHONHOME"]
"""
"""Before :data:`START`: processes that the script starts may be other interpreters."""


class Daemon:
    """A daemon of a tool: one process on each of its nodes. It belongs to its session, not to this object."""

    def __init__(self, native: _native.Daemon, session: Session) -> None:
        self._native = native
        self._session = session  # which ends its daemons when it is deleted

    @property
    def id(self) -> int:
        """Its number in the app."""
        return self._native.id()

    @property
    def pids(self) -> dict[str, int]:
        """Its process on each host."""
        return dict(self._native.processes())

    def output(self) -> Stream[Output]:
        """Its output, if it was started with ``output="stream"``. Take it once."""
        native = self._native.output()
        if native is None:
            raise ValueError('no output to take: start the daemon with output="stream", and take it once')
        return build_output(native)

    def signal(self, signal: int | str, timeout: float | None = TIMEOUT) -> None:
        """Sends a signal to it on every node where it runs."""
        self._native.signal(signal_word(signal), timeout)

    def wait(self, timeout: float | None = None) -> dict[str, Ending]:
        """Waits until it has ended on every node. Returns how, by host. Raises :class:`TimedOut`."""
        ends = self._native.wait(timeout)
        if ends is None:
            raise timed_out(f"daemon {self.id} has not ended", timeout)
        return {host: build_ending(json.loads(end)) for host, end in ends}


class Session(Block):
    """A private storage place on every node of an app. It owns the daemons that are started in it.

    As a context manager it ends its daemons and removes its storage.
    """

    def __init__(self, native: _native.Session) -> None:
        self._native = native
        self._raised: dict[str, Exception] = {}

    @property
    def id(self) -> int:
        """Its number in the app."""
        return self._native.id()

    @property
    def dirs(self) -> Dirs:
        """Its directories, the same on every node."""
        return Dirs(*map(Path, self._native.dirs()))

    @property
    def left_out(self) -> list[str]:
        """Names of the nodes that it does not include, because they gave no sign of life."""
        return self._native.left_out()

    @property
    def channel(self) -> Channel:
        """The channel to its daemons."""
        return Channel(self._native.channel(), self, self._raised)

    def send(
        self,
        *,
        files: Iterable[StrPath] = (),
        dirs: Iterable[StrPath] = (),
        libs: Iterable[StrPath] = (),
        programs: Iterable[StrPath] = (),
        dependencies: bool = True,
        allow_missing: bool = False,
        timeout: float | None = TIMEOUT,
    ) -> Staged:
        """Brings files to every node. What a node has already is linked there.

        ``files`` go to the session's root, ``dirs`` and ``libs`` to its ``lib``, ``programs`` to its ``bin``. Programs
        and libraries bring the libraries that they need, unless ``dependencies`` is False. ``allow_missing`` allows
        some of these to be missing on this machine.
        """
        wanted = files_of(files, dirs, libs, programs, dependencies, allow_missing)
        return Staged(*self._native.send(wanted, timeout))

    def start_daemon(
        self,
        args: Sequence[StrPath],
        *,
        env: Mapping[str, StrPath] | None = None,
        hosts: Iterable[str] | None = None,
        output: OutputTo = None,
        log_dir: StrPath | None = None,
        container: str | None = None,
        files: Iterable[StrPath] = (),
        dirs: Iterable[StrPath] = (),
        libs: Iterable[StrPath] = (),
        dependencies: bool = True,
        allow_missing: bool = False,
        timeout: float | None = TIMEOUT,
    ) -> Daemon:
        """Brings a program to the nodes and starts it there: on every node, or on those named by ``hosts``.

        ``args`` are the program, a path or a name that is looked up here, and its arguments. ``output`` says
        where its output goes, as in :meth:`Frontend.launch`; with ``log_dir`` it goes to files in that directory of the
        nodes. For the other arguments see :meth:`send`.
        """
        program, *rest = to_list(args) or [""]
        if log_dir is not None and output is not None:
            raise ValueError("output and log_dir say two places for the output of one daemon")
        written, stream = describe_output(output)
        start = {
            "program": program,
            "args": rest,
            "env": to_variables(env),
            "hosts": None if hosts is None else to_list(hosts),
            "output": written if log_dir is None else None,
            "stream": stream,
            "log_dir": None if log_dir is None else os.fspath(log_dir),
            "container": container,
        }
        wanted = files_of(files, dirs, libs, (), dependencies, allow_missing)
        return Daemon(self._native.start_daemon(start, wanted, timeout), self)

    def start_python(
        self,
        args: Sequence[StrPath],
        *,
        env: Mapping[str, StrPath] | None = None,
        hosts: Iterable[str] | None = None,
        output: OutputTo = None,
        log_dir: StrPath | None = None,
        container: str | None = None,
        files: Iterable[StrPath] = (),
        dirs: Iterable[StrPath] = (),
        libs: Iterable[StrPath] = (),
        dependencies: bool = True,
        allow_missing: bool = False,
        timeout: float | None = TIMEOUT,
    ) -> Daemon:
        """Starts a daemon that is a Python script, by the interpreter that runs this tool.

        ``args`` are the script and its arguments. The script, and the package ``gantry_backend``, come to the nodes.
        The nodes need the standard library of Python where this machine has it. ``dirs`` brings further packages, and
        ``files`` modules; the script imports them by name. It also finds what ``PYTHONPATH`` and the tool's virtual
        environment have, where nodes see these. For the other arguments see :meth:`start_daemon`.
        """
        script, *rest = to_list(args) or [""]
        known = {**os.environ, **(env or {})}
        inherited = os.fspath(known.get("PYTHONPATH", ""))
        paths = [os.path.abspath(path) for path in inherited.split(os.pathsep) if path]
        if sys.prefix != sys.base_prefix:
            # The daemon's interpreter is the one that the virtual environment was made of.
            paths += [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
        paths = list(dict.fromkeys([str(self.dirs.lib), *paths]))
        start, home = START, known.get("PYTHONHOME")
        if home is None:
            # A node may have a copy of an interpreter that looks for its standard library beside itself.
            start, home = FORGET_HOME + START, os.pathsep.join(dict.fromkeys([sys.base_prefix, sys.base_exec_prefix]))
        return self.start_daemon(
            [os.path.realpath(sys.executable), "-c", start, str(self.dirs.root / os.path.basename(script)), *rest],
            env={**(env or {}), "PYTHONPATH": os.pathsep.join(paths), "PYTHONHOME": home},
            files=[script, *to_list(files)],
            dirs=[os.path.dirname(gantry_backend.__file__), *to_list(dirs)],
            libs=libs,
            hosts=hosts,
            output=output,
            log_dir=log_dir,
            container=container,
            dependencies=dependencies,
            allow_missing=allow_missing,
            timeout=timeout,
        )

    def destroy(self, timeout: float | None = TIMEOUT) -> None:
        """Ends its daemons, removes its storage from every node, and waits for both."""
        self._native.destroy(timeout)

    def _close(self) -> None:
        self.destroy()


def files_of(
    files: Iterable[StrPath],
    dirs: Iterable[StrPath],
    libs: Iterable[StrPath],
    programs: Iterable[StrPath],
    dependencies: bool,
    allow_missing: bool,
) -> dict[str, Any]:
    """Files as the native part takes them."""
    return {
        "files": to_list(files),
        "directories": to_list(dirs),
        "libraries": to_list(libs),
        "programs": to_list(programs),
        "dependencies": dependencies,
        "allow_missing": allow_missing,
    }


def signal_word(signal: int | str) -> str:
    """A signal as the native part takes it."""
    return str(int(signal)) if isinstance(signal, int) else signal


def timed_out(what: str, timeout: float | None) -> gantry_backend.TimedOut:
    """The exception for a wait without a result."""
    return gantry_backend.TimedOut("timed-out", f"{what} within {timeout} s")
