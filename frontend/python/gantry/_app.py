"""Apps: launched or attached to."""

from __future__ import annotations

import json
from typing import Any

from gantry_backend import TIMEOUT, Error

from ._any_app import AnyApp
from ._block import Block
from ._data import Output, Rank, build_rank
from ._native import App as Native
from ._session import Session
from ._streams import Stream, build_events, build_output


class App(AnyApp, Block):
    """A parallel program that was launched or attached to. This object owns it.

    As a context manager it closes the app at the end: that ends a launched app, and leaves an attached one as it was
    found. The same happens when the object is deleted or the process ends. :meth:`detach` lets a launched app go on.
    """

    _native: Native

    def __init__(self, native: Native) -> None:
        self._native = native

    def __repr__(self) -> str:
        try:
            return f"<gantry.App {self.id} {self.state}>"
        except Error as error:
            return f"<gantry.App: {error.message}>"

    @property
    def state(self) -> str:
        """``starting``, ``held``, ``running`` or ``ended``."""
        return self._native.state()

    @property
    def hosts(self) -> list[str]:
        """Names of its nodes."""
        return self._native.hosts()

    @property
    def ranks(self) -> list[Rank]:
        """Its ranks as they are now."""
        return [build_rank(rank) for rank in self.info()["ranks"]]

    def info(self) -> dict[str, Any]:
        """All that is known of it now: the JSON object of ``gantry ps --json``."""
        info: dict[str, Any] = json.loads(self._native.info())
        return info

    def events(self) -> Stream[dict[str, Any]]:
        """Its events: first its present state, then what happens, until it is gone.

        Each is a dictionary with the keys of the reference of events.
        """
        return build_events(self._native.events())

    def output(self) -> Stream[Output]:
        """The output of its ranks, if it was launched with ``output="stream"``. Take it once.

        A tool that takes it and does not read it stops the writers.
        """
        native = self._native.output()
        if native is None:
            raise ValueError('no output to take: launch with output="stream", and take it once')
        return build_output(native)

    def session(self, where_answered: bool = False, timeout: float | None = TIMEOUT) -> Session:
        """Makes a session on every node; with ``where_answered`` on those that give a sign of life."""
        return Session(self._native.session(where_answered, timeout))

    def detach(self, timeout: float | None = TIMEOUT) -> None:
        """Lets the app go on without this process. Its output is dropped from then on."""
        self._native.detach(timeout)

    def close(self, timeout: float | None = TIMEOUT) -> None:
        """Ends the app with its daemons and sessions, and waits until nothing is left. An attached app goes on."""
        self._native.close(timeout)

    def _close(self) -> None:
        self.close()
