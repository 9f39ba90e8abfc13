"""Apps that run, of any tool of this user."""

from __future__ import annotations

import json
from typing import Any

from gantry_backend import TIMEOUT

from ._any_app import AnyApp
from ._data import Rank, build_rank
from ._native import RemoteApp as Native
from ._streams import Stream, build_events


class RemoteApp(AnyApp):
    """An app of any tool of this user, such as one that the command ``gantry`` has. It stays with its owner."""

    _native: Native

    def __init__(self, native: Native) -> None:
        self._native = native

    def __repr__(self) -> str:
        return f"<gantry.RemoteApp {self.id}>"

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
