"""A daemon's node, and its end of the channel to the tool."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from . import _native
from ._errors import Error, Member

TIMEOUT = 60.0
"""Seconds that a call waits unless it is told otherwise."""


class Rank(NamedTuple):
    """A rank of this node."""

    rank: int
    pid: int
    exe: str
    """Path of its program."""
    state: str
    """``starting``, ``held``, ``running``, ``exited`` or ``lost``."""
    code: int | None
    """Its exit code, if it ended with one."""
    signal: str | None
    """Name of the signal that killed it, such as ``SIGKILL``."""


class Dirs(NamedTuple):
    """Directories of a session. They have the same paths on every node, and go with the session."""

    root: Path
    """Files that the tool has sent."""
    bin: Path
    """Programs; first in a daemon's ``PATH``."""
    lib: Path
    """Libraries and directories; first in a daemon's ``LD_LIBRARY_PATH``."""
    tmp: Path
    """For files of daemons; their ``TMPDIR``."""


class Backend:
    """A daemon's view of its node. Connects to the agent that has started this process.

    Raises :class:`Error` of the kind ``not-found`` in a process that gantry has not started as a daemon.
    """

    def __init__(self) -> None:
        self._native = _native.Backend()

    @property
    def app(self) -> str:
        """The app's id, the same as in the tool."""
        return self._native.app

    @property
    def wlm(self) -> str:
        """Name of the workload manager."""
        return self._native.wlm

    @property
    def host(self) -> str:
        """Name of this node, as the workload manager knows it."""
        return self._native.host

    @property
    def node(self) -> int:
        """Number of this node among those of the app, from 0."""
        return self._native.node

    @property
    def node_count(self) -> int:
        """Number of nodes of the app."""
        return self._native.node_count

    @property
    def rank_count(self) -> int:
        """Number of ranks of the app, on all nodes."""
        return self._native.rank_count

    @property
    def dirs(self) -> Dirs:
        """Directories of the session."""
        return Dirs(*map(Path, self._native.dirs))

    def ranks(self) -> list[Rank]:
        """The ranks of this node as they are now, with those that have ended, by number."""
        return [
            Rank(rank, pid, os.fspath(exe), state, code, signal)
            for rank, pid, exe, state, code, signal in self._native.ranks()
        ]

    def channel(self) -> Channel:
        """Opens the channel to the tool. Call it once."""
        return Channel(self._native.channel())


class Channel:
    """A daemon's end of the channel to its tool.

    Several threads may use it. Iterating gives the tool's messages::

        for tag, message in channel:
            channel.contribute(tag, answer(message))

    A session ends its daemons with SIGTERM, and ten seconds later with SIGKILL. A daemon that has something to save
    handles SIGTERM: ``signal.signal(signal.SIGTERM, lambda *_: sys.exit())`` ends the loop, and ``finally`` runs. Only
    waits for messages run such a handler: call :meth:`serve_filter` on a thread of its own, and give :meth:`send` and
    :meth:`contribute` timeouts below ten seconds.
    """

    def __init__(self, native: _native.Channel) -> None:
        self._native = native

    @property
    def member(self) -> Member:
        """This daemon's number on the channel, and that of its node."""
        return Member(*self._native.member)

    def receive(self, tag: int, timeout: float | None = TIMEOUT) -> bytes:
        """Waits for the next message with this tag."""
        return self._native.receive(tag, timeout)[1]

    def receive_any(self, timeout: float | None = TIMEOUT) -> tuple[int, bytes]:
        """Waits for the next message; gives its tag and the message."""
        return self._native.receive(None, timeout)

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        while True:
            try:
                message = self._native.receive(None, None)
            except Error as error:
                if error.kind == "lost":
                    return
                raise
            yield message

    def send(self, tag: int, message: bytes, timeout: float | None = TIMEOUT) -> None:
        """Sends a message of at most 128 KiB to the tool. Waits while 256 KiB of messages wait there."""
        self._native.send(tag, as_bytes(message), timeout)

    def contribute(self, tag: int, value: Any, filter: str | None = None, timeout: float | None = TIMEOUT) -> None:
        """Contributes to the tool's next gather or reduction with this tag: at most 64 MiB.

        Without ``filter``, the value is bytes. A value for a filter has the form that :func:`encode` takes.
        """
        part = as_bytes(value) if filter is None else _native.encode(filter, value)
        self._native.contribute(tag, part, timeout)

    def serve_filter(self, name: str, merge: Callable[[list[bytes]], bytes]) -> None:
        """Merges contributions by a filter of the tool's own, until the session ends.

        ``merge`` gets at least two parts, and returns one. Its result must not depend on the grouping and the order of
        parts. Run it on a thread of its own if the daemon has other work, or handles signals. What ``merge`` raises goes
        to ``sys.unraisablehook``, which writes it to standard error; the parts go on as they are.
        """
        self._native.serve_filter(name, merge)

    def fileno(self) -> int:
        """A descriptor for ``select`` that becomes readable when something arrives."""
        return self._native.fileno()


def as_bytes(message: Any) -> bytes:
    """A message as it is sent. ``bytes(5)`` would be five zeros."""
    if isinstance(message, (bytes, bytearray, memoryview)):
        return bytes(message)
    raise TypeError(f"a message is bytes, not {type(message).__name__}: encode it, or name a filter")
