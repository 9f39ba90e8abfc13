"""What is known of an app: ranks, ends, output."""

from __future__ import annotations

from typing import Any, NamedTuple

from gantry_backend import Member, Missing


class Rank(NamedTuple):
    """A rank, with its node and its state."""

    rank: int
    host: str
    pid: int | None
    """Its process; None while that is not known."""
    exe: str
    """Path of its program."""
    state: str
    """``starting``, ``held``, ``running``, ``exited`` or ``lost``."""
    code: int | None
    """Its exit code, if it ended with one."""
    signal: str | None
    """Name of the signal that killed it, such as ``SIGKILL``."""


class Ending(NamedTuple):
    """How a process ended. Neither is there when the end was not seen."""

    code: int | None
    signal: str | None


class Exit(NamedTuple):
    """The end of an app."""

    code: int
    """The highest exit code of its ranks; a signal N counts as 128 + N."""
    ranks: dict[int, Ending]
    """How each rank ended."""
    cause: dict[str, Any] | None
    """Why the workload manager has ended the app, if it has: its ``cause`` and ``message``."""


class Choice(NamedTuple):
    """The workload manager that is used."""

    wlm: str
    why: str
    """Reads as "because ..."."""
    doubt: str | None
    """Why another one may be meant."""


class Output(NamedTuple):
    """A piece of output."""

    rank: int | None
    """The rank that wrote it, or None."""
    daemon: int | None
    """The daemon that wrote it, or None."""
    host: str
    stream: str
    """``stdout`` or ``stderr``."""
    data: bytes


class Message(NamedTuple):
    """A message that a daemon has sent unasked."""

    member: Member
    data: bytes


class Gathered(NamedTuple):
    """The result of a gather."""

    parts: dict[Member, bytes]
    """The contribution of each daemon."""
    missing: list[Missing]


class Reduced(NamedTuple):
    """The result of a reduction."""

    value: Any
    """The merged value, in the form of the filter: see :func:`gantry_backend.encode`."""
    contributed: int
    """Number of daemons with a contribution in it."""
    missing: list[Missing]


class Staged(NamedTuple):
    """What was sent to the nodes."""

    files: int
    """Number of files that the nodes have now."""
    files_sent: int
    """Number of files that some node lacked."""
    bytes_sent: int
    """Bytes that left this machine on each of its links."""
    nodes_sent: int
    """Number of nodes that lacked some."""


def build_rank(data: dict[str, Any]) -> Rank:
    """A rank as the JSON of events has it."""
    return Rank(
        data["rank"], data["host"], data["pid"], data["exe"], data["state"], data.get("code"), data.get("signal")
    )


def build_ending(data: dict[str, Any]) -> Ending:
    """An end as the JSON of events has it."""
    return Ending(data.get("code"), data.get("signal"))


def build_exit(data: dict[str, Any]) -> Exit:
    """The end of an app as the JSON of events has it."""
    return Exit(data["code"], {rank["rank"]: build_ending(rank) for rank in data["ranks"]}, data.get("cause"))
