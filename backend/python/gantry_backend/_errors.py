"""Exceptions of both packages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Member(NamedTuple):
    """An end of a session's channel: a daemon on one node."""

    node: int
    """Number of the node, from 0."""
    daemon: int
    """Number of the daemon in its app."""


class Missing(NamedTuple):
    """A daemon that did not take part in an operation."""

    member: Member
    host: str
    """Name of its node."""
    why: str
    """The reason: it has ended, its node is lost, or the timeout expired."""


class Error(Exception):
    """An error of gantry.

    ``str()`` has the message and the remedy; the attributes have them apart.
    """

    def __init__(
        self, kind: str, message: str, hint: str | None = None, missing: Sequence[Missing] = ()
    ) -> None:
        # More than the message would be an errno to TimeoutError.
        super().__init__(message)
        self.kind = kind
        """Its kind, a word of the reference of errors, such as ``"not-found"``."""
        self.message = message
        """What happened, and to whom."""
        self.hint = hint
        """The remedy, if one is known."""
        self.missing: tuple[Missing, ...] = tuple(missing)
        """The daemons that an operation on a channel lacks."""

    def __reduce__(self) -> tuple[type[Error], tuple[object, ...]]:
        return type(self), (self.kind, self.message, self.hint, self.missing)

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nhint: {self.hint}"


class TimedOut(Error, TimeoutError):
    """A timeout expired. The message names the phase and the nodes that did not answer."""


def build_missing(missing: Sequence[tuple[tuple[int, int], str, str]]) -> list[Missing]:
    """The missing daemons as the native part has them."""
    return [Missing(Member(*member), host, why) for member, host, why in missing]


def build(
    kind: str, message: str, hint: str | None, missing: Sequence[tuple[tuple[int, int], str, str]]
) -> Error:
    """The exception for an error; the native part calls this."""
    which = TimedOut if kind == "timed-out" else Error
    return which(kind, message, hint, build_missing(missing))
