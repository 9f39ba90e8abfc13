"""The channel between a tool and the daemons of a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from gantry_backend import TIMEOUT, Error, Member, Missing, decode
from gantry_backend._errors import build_missing
from gantry_backend._node import as_bytes

from . import _native
from ._data import Gathered, Message, Reduced
from ._streams import Stream, build_messages


class Channel:
    """The channel of a session.

    Its members are the session's daemons that have not ended. Operations with different tags run at once, those with
    one tag one after the other. An operation that ends without all contributions still gets those: the next one of such
    a daemon with this tag is dropped. So take another tag after a timeout, or after Ctrl-C.

    ``quorum`` says how many members have to contribute: None is all of them, 0 any number. Members that do not are
    listed in ``missing``; an operation that lacks too many raises :class:`Error`, which lists them, too.
    """

    def __init__(self, native: _native.Channel, session: object, raised: MutableMapping[str, Exception]) -> None:
        self._native = native
        self._session = session  # whose end is the channel's
        self._raised = raised  # by the tool's own filters; all objects for this channel share them

    def members(self) -> list[Member]:
        """The daemons that are members now."""
        return [Member(*member) for member in self._native.members()]

    def broadcast(self, tag: int, message: bytes, timeout: float | None = TIMEOUT) -> list[Missing]:
        """Sends a message to all members. Returns those that did not get it."""
        return build_missing(self._native.broadcast(tag, as_bytes(message), timeout))

    def scatter(self, tag: int, messages: Mapping[Member, bytes], timeout: float | None = TIMEOUT) -> list[Missing]:
        """Sends each member its own message. Returns those that did not get it."""
        pairs = [(member, as_bytes(message)) for member, message in messages.items()]
        return build_missing(self._native.scatter(tag, pairs, timeout))

    def send(self, member: Member, tag: int, message: bytes, timeout: float | None = TIMEOUT) -> None:
        """Sends a message to one member."""
        self._native.send(member, tag, as_bytes(message), timeout)

    def gather(self, tag: int, quorum: int | None = None, timeout: float | None = TIMEOUT) -> Gathered:
        """Waits until each member has contributed once with this tag."""
        parts, missing = self._native.gather(tag, quorum, timeout)
        return Gathered({Member(*member): part for member, part in parts}, build_missing(missing))

    def reduce(self, tag: int, filter: str, quorum: int | None = None, timeout: float | None = TIMEOUT) -> Reduced:
        """Waits until each member has contributed once with this tag. A filter merges contributions on their way.

        The filter is ``sum``, ``min``, ``max``, ``ranks``, ``keys``, ``stacks``, ``concatenate``, or the name of one of
        your own. :func:`gantry_backend.encode` describes their values. What your own filter raises here is the cause of
        the :class:`Error`.
        """
        try:
            result, contributed, missing = self._native.reduce(tag, filter, quorum, timeout)
        except Error as error:
            cause = self._raised.pop(filter, None)
            # An earlier reduction may have left it.
            if cause is None or str(cause) not in error.message:
                raise
            raise error from cause
        return Reduced(decode(filter, result), contributed, build_missing(missing))

    def register_filter(self, name: str, merge: Callable[[list[bytes]], bytes]) -> None:
        """Registers a filter of your own. It merges the parts that no daemon has merged on their way.

        ``merge`` gets at least two parts, and returns one. Its result must not depend on the grouping and the order of
        parts. A thread of gantry calls it.
        """

        def merge_or_keep(parts: list[bytes]) -> bytes:
            try:
                return merge(parts)
            except Exception as error:
                self._raised[name] = error
                raise

        self._native.register_filter(name, merge_or_keep)

    def messages(self, tag: int) -> Stream[Message]:
        """Messages that daemons send unasked with this tag, until the session ends.

        A daemon whose messages are not taken stops after 256 KiB.
        """
        return build_messages(self._native.messages(tag))
