"""The first calls of a tool: launch and attach."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from collections.abc import Callable, Iterable, Mapping, Sequence

from gantry_backend import TIMEOUT

from . import _native
from ._app import App
from ._batch import Batch
from ._data import Choice
from ._files import File, OutputTo, StrPath, describe_output, descriptor, to_list, to_variables
from ._remote import RemoteApp

# An editable install has this package in a clone, and gantry's programs where pip puts those of all packages.
_native.look_for_programs_in([sysconfig.get_path("scripts"), sysconfig.get_path("scripts", f"{os.name}_user")])

ANSWER_TIMEOUT = 5.0
"""Seconds that another tool may take to answer. One that is stopped must not hide the others."""


class Frontend:
    """Settings of a tool for all its apps. Apps are independent of it.

    :param wlm: name of the workload manager; by default the one that is detected
    :param stage_dir: directory for the storage of sessions on the nodes
    :param send_agent: ``auto``, ``always`` or ``never``: whether gantry's agent is sent to the nodes
    :param hosts_policy: how many hosts must be reached: ``all``, ``quorum=N``, ``quorum=P%`` or ``best-effort``
    :param reach_args: options by which :meth:`attach` reaches hosts, as for a launch
    :param rank_wrapper: name of a program that starts ranks on the nodes, such as a container's starter
    :param runtime_dir: directory of the sockets by which the command ``gantry`` finds the apps
    """

    def __init__(
        self,
        *,
        wlm: str | None = None,
        stage_dir: StrPath | None = None,
        send_agent: str | None = None,
        hosts_policy: str | None = None,
        reach_args: Iterable[str] = (),
        rank_wrapper: str | None = None,
        runtime_dir: StrPath | None = None,
    ) -> None:
        self._runtime_dir = runtime_dir
        self._native = _native.Frontend(
            {
                "wlm": wlm,
                "stage_dir": stage_dir,
                "send_agent": send_agent,
                "hosts_policy": hosts_policy,
                "reach_args": to_list(reach_args),
                "rank_wrapper": rank_wrapper,
                "runtime_dir": runtime_dir,
            }
        )

    def choice(self) -> Choice:
        """The workload manager that is used, and why."""
        return Choice(*self._native.choice())

    def launch(
        self,
        args: Sequence[StrPath],
        *,
        hold: bool = False,
        hold_at: str | None = None,
        linger: bool = False,
        launcher: StrPath | None = None,
        launcher_wrapper: Sequence[str] = (),
        env: Mapping[str, StrPath] | None = None,
        cwd: StrPath | None = None,
        stdin: File | None = None,
        output: OutputTo = None,
        queue_timeout: float | None = None,
        on_wait: Callable[[str, str], None] | None = None,
        timeout: float | None = TIMEOUT,
    ) -> App:
        """Launches a parallel program. Waits until every rank is held, or runs.

        :param args: the launcher's arguments: its options, the program, the program's arguments
        :param hold: stop every rank before its first instruction, until :meth:`App.release`
        :param hold_at: hold the first program whose path matches this pattern, behind a script or ``env``
        :param linger: let daemons and sessions outlive the ranks
        :param launcher: the launcher to use, such as ``mpiexec``; by default the workload manager's own way
        :param launcher_wrapper: a program, with its arguments, that runs the launcher
        :param env: variables that are set for the ranks, in addition to this process's own
        :param cwd: directory in which ranks start
        :param stdin: input of rank 0; by default nothing
        :param output: where ranks write to: by default this process's own standard output and error; ``"null"`` is
            nowhere, ``"stream"`` is :meth:`App.output`, a pair of files gets output and errors
        :param queue_timeout: seconds that the launch may wait for nodes, apart from ``timeout``; by default no limit
        :param on_wait: called with the name of the job, and what it waits for, while the launch waits for nodes
        :param timeout: seconds for the launch
        """
        files, stream = describe_output(output)
        launch = {
            "args": to_list(args),
            "hold": hold,
            "hold_at": hold_at,
            "linger": linger,
            "launcher": None if launcher is None else os.fspath(launcher),
            "launcher_wrapper": to_list(launcher_wrapper),
            "env": to_variables(env),
            "cwd": cwd,
            "stdin": None if stdin in (None, subprocess.DEVNULL) else descriptor(stdin),
            "output": files,
            "stream": stream,
            "queue_timeout": queue_timeout,
        }
        return App(self._native.launch(launch, on_wait, timeout))

    def attach(
        self,
        target: int | str | Iterable[int],
        *,
        on_wait: Callable[[str, str], None] | None = None,
        timeout: float | None = TIMEOUT,
    ) -> App:
        """Attaches to a running program, and waits until agents watch its ranks. The program is not stopped.

        :param target: what ``gantry attach`` takes: the process id of a launcher, a job, ``HOST:PID``; or the process
            ids of ranks of this machine, in their order
        :param on_wait: wait for a job that has no ranks yet; called with its name, and what it waits for
        """
        if not isinstance(target, (int, str)):
            target = ",".join(map(str, target))
        return App(self._native.attach(str(target), on_wait, timeout))

    def submit(self, args: Sequence[StrPath], *, timeout: float | None = TIMEOUT) -> Batch:
        """Submits a batch job, and waits until the workload manager has accepted it. :meth:`Batch.attach` follows.

        :param args: the arguments of the workload manager's own command, such as ``sbatch``
        """
        return Batch(self._native.submit(to_list(args), timeout))

    def apps(self, *, timeout: float | None = ANSWER_TIMEOUT) -> list[RemoteApp]:
        """All apps of this user that run here, of any tool, as ``gantry ps`` lists them.

        :param timeout: seconds that one tool may take to answer; an app whose tool gives no answer is there, too
        """
        return [RemoteApp(native) for native in _native.list_apps(self._runtime_dir, timeout)]

    def find_app(self, name: str | None = None) -> RemoteApp:
        """The app of this user with this id, or the beginning of one; ``pid:1234`` is that of the tool 1234.

        Without a name it is the only one. Raises :class:`Error` if none or several are meant.
        """
        return RemoteApp(_native.find_app(name, self._runtime_dir))
