"""What comes while an app runs: events, output, messages of daemons."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from gantry_backend import Member

from ._data import Message, Output

T = TypeVar("T")


class Stream(Iterator[T], Generic[T]):
    """A stream that has an end. Several threads may read it; each piece goes to one of them."""

    def __init__(self, native: Any, build: Callable[[Any], T]) -> None:
        self._native = native
        self._build = build

    def next(self, timeout: float | None = None) -> T | None:
        """Waits for the next piece. None: the stream has ended. Raises :class:`TimedOut`."""
        piece = self._native.next(timeout)
        return None if piece is None else self._build(piece)

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        piece = self.next()
        if piece is None:
            raise StopIteration
        return piece


def build_events(native: Any) -> Stream[dict[str, Any]]:
    """Events as dictionaries, with the keys of the reference of events."""
    return Stream(native, json.loads)


def build_output(native: Any) -> Stream[Output]:
    """Pieces of output."""
    return Stream(native, lambda piece: Output(*piece))


def build_messages(native: Any) -> Stream[Message]:
    """Messages of daemons."""
    return Stream(native, lambda piece: Message(Member(*piece[0]), piece[1]))
