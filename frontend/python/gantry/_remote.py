"""Apps that run, of any tool of this user."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from gantry_backend import TIMEOUT

from . import _native
from ._data import Exit, Rank, build_exit, build_rank
from ._session import signal_word, timed_out
from ._streams import Stream, build_events


class RemoteApp:
    """An app of any tool of this user, such as one that the command ``gantry`` has. It stays with its owner."""

    def __init__(self, native: _native.RemoteApp) -> None:
        self._native = native

    def __repr__(self) -> str:
        return f"<gantry.RemoteApp {self.id}>"

    @property
    def id(self) -> str:
        """Its id, as ``gantry ps`` shows it."""
        return self._native.id()

    def info(self, timeout: float | None = TIMEOUT) -> dict[str, Any]:
        """All that is known of it now: the JSON object of ``gantry ps --json``."""
        info: dict[str, Any] = json.loads(self._native.info(timeout))
        return info

    def ranks(self, timeout: float | None = TIMEOUT) -> list[Rank]:
        """Its ranks as they are now."""
        return [build_rank(rank) for rank in self.info(timeout)["ranks"]]

    def events(self, timeout: float | None = TIMEOUT) -> Stream[dict[str, Any]]:
        """Its events: first its present state, then what happens, until it is gone."""
        return build_events(self._native.events(timeout))

    def release(self, timeout: float | None = TIMEOUT) -> None:
        """Releases held ranks."""
        self._native.release(timeout)

    def signal(self, signal: int | str, ranks: Iterable[int] | None = None, timeout: float | None = TIMEOUT) -> None:
        """Sends a signal (a number, or a name such as ``"SIGUSR1"``) to some ranks, or to all."""
        self._native.signal(signal_word(signal), None if ranks is None else list(ranks), timeout)

    def kill(self, timeout: float | None = TIMEOUT) -> Exit:
        """Kills all ranks and waits for their end."""
        return build_exit(json.loads(self._native.kill(timeout)))

    def wait(self, timeout: float | None = None) -> Exit:
        """Waits until all ranks have ended. Raises :class:`TimedOut`."""
        exit = self._native.wait(timeout)
        if exit is None:
            raise timed_out(f"app {self.id} has not ended", timeout)
        return build_exit(json.loads(exit))
