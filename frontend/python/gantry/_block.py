"""What a ``with`` block owns."""

from __future__ import annotations

from types import TracebackType
from typing import TypeVar

from gantry_backend import Error

T = TypeVar("T", bound="Block")


class Block:
    """What the end of a ``with`` block closes."""

    def _close(self) -> None:
        raise NotImplementedError

    def __enter__(self: T) -> T:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._close()
        except Error as why:
            # It may be closed already. If the block failed, its own exception counts.
            if error is None and why.kind != "gone":
                raise
