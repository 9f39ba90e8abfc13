"""What a tool can do with every app: its own, or that of another tool."""

from __future__ import annotations

import json
from collections.abc import Iterable

from gantry_backend import TIMEOUT

from . import _native
from ._data import Exit, build_exit
from ._session import signal_word, timed_out


class AnyApp:
    """An app of this tool or of another one."""

    _native: _native.App | _native.RemoteApp

    @property
    def id(self) -> str:
        """Its id, as ``gantry ps`` shows it."""
        return self._native.id()

    def release(self, timeout: float | None = TIMEOUT) -> None:
        """Releases held ranks, except those that a debugger traces."""
        self._native.release(timeout)

    def signal(self, signal: int | str, ranks: Iterable[int] | None = None, timeout: float | None = TIMEOUT) -> None:
        """Sends a signal (a number, or a name such as ``"SIGUSR1"``) to some ranks, or to all."""
        self._native.signal(signal_word(signal), None if ranks is None else list(ranks), timeout)

    def kill(self, timeout: float | None = TIMEOUT) -> Exit:
        """Kills all ranks and waits for their end."""
        return build_exit(json.loads(self._native.kill(timeout)))

    def wait(self, timeout: float | None = None) -> Exit:
        """Waits until all ranks have ended, and their output to files is written. Raises :class:`TimedOut`."""
        exit = self._native.wait(timeout)
        if exit is None:
            raise timed_out(f"app {self.id} has not ended", timeout)
        return build_exit(json.loads(exit))
