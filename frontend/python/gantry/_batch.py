"""Batch jobs, until they are attached to."""

from __future__ import annotations

from collections.abc import Callable

from gantry_backend import TIMEOUT

from . import _native
from ._app import App
from ._block import Block


class Batch(Block):
    """A batch job that was submitted. This object owns it until :meth:`attach` or :meth:`detach`.

    As a context manager it cancels the job at the end, unless it was attached to or detached from. The same happens when
    the object is deleted or the process ends.
    """

    def __init__(self, native: _native.Batch) -> None:
        self._native = native

    @property
    def job(self) -> str:
        """Its name, as the workload manager's own commands know it."""
        return self._native.job()

    @property
    def wlm(self) -> str:
        """Name of its workload manager."""
        return self._native.wlm()

    def attach(
        self,
        *,
        queue_timeout: float | None = None,
        on_wait: Callable[[str, str], None] | None = None,
        timeout: float | None = TIMEOUT,
    ) -> App:
        """Waits until it has ranks, and attaches to them. They are not stopped.

        A job that has no ranks when a timeout expires, or when Ctrl-C ends the wait, is cancelled. After other errors it
        may be in good order, and is left as it is; the :class:`Error` says so.

        :param queue_timeout: seconds that it may wait for nodes, apart from ``timeout``; by default no limit
        :param on_wait: called with the name of the job, and what it waits for
        :param timeout: seconds for all the rest
        """
        return App(self._native.attach(queue_timeout, on_wait, timeout))

    def detach(self) -> None:
        """Lets it go on without this process."""
        self._native.detach()

    def cancel(self, timeout: float | None = TIMEOUT) -> None:
        """Cancels it, and waits until the workload manager has confirmed that."""
        self._native.cancel(timeout)

    def _close(self) -> None:
        self.cancel()
