"""Launch parallel programs held, put a tool's daemons beside their ranks, and talk to them.

A tool in Python::

    import gantry

    with gantry.launch(["-n", "4", "./solver"], hold=True) as app:
        for rank in app.ranks:
            print(f"rank {rank.rank} is process {rank.pid} on {rank.host}")
        with app.session() as session:
            session.start_python(["my_daemon.py"])
            print(session.channel.reduce(1, "sum").value)
            app.release()
            print("exit code", app.wait().code)

Its daemons use the package ``gantry_backend``.

Timeouts are in seconds. Calls that wait let other threads run, and Ctrl-C ends them. An app, and what belongs to it, is
used in the process that has launched it: not in a child that ``os.fork`` makes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from gantry_backend import TIMEOUT, Dirs, Error, Member, Missing, TimedOut, fold_ranks

from ._app import App
from ._batch import Batch
from ._channel import Channel
from ._data import Choice, Ending, Exit, Gathered, Message, Output, Rank, Reduced, Staged
from ._files import File, OutputTo, StrPath
from ._frontend import ANSWER_TIMEOUT, Frontend
from ._remote import RemoteApp
from ._session import Daemon, Session
from ._streams import Stream

__all__ = [
    "TIMEOUT",
    "App",
    "Batch",
    "Channel",
    "Choice",
    "Daemon",
    "Dirs",
    "Ending",
    "Error",
    "Exit",
    "Frontend",
    "Gathered",
    "Member",
    "Message",
    "Missing",
    "Output",
    "Rank",
    "Reduced",
    "RemoteApp",
    "Session",
    "Staged",
    "Stream",
    "TimedOut",
    "apps",
    "attach",
    "find_app",
    "fold_ranks",
    "launch",
    "submit",
]


def launch(
    args: Sequence[StrPath],
    *,
    wlm: str | None = None,
    hold: bool = False,
    hold_at: str | None = None,
    linger: bool = False,
    launcher: StrPath | None = None,
    launcher_wrapper: Sequence[str] = (),
    env: Mapping[str, StrPath] | None = None,
    cwd: StrPath | None = None,
    stdin: File | None = None,
    output: OutputTo = None,
    queue_timeout: float | None = None,
    on_wait: Callable[[str, str], None] | None = None,
    timeout: float | None = TIMEOUT,
) -> App:
    """Launches a parallel program: :meth:`Frontend.launch` with default settings, or that workload manager."""
    return Frontend(wlm=wlm).launch(
        args,
        hold=hold,
        hold_at=hold_at,
        linger=linger,
        launcher=launcher,
        launcher_wrapper=launcher_wrapper,
        env=env,
        cwd=cwd,
        stdin=stdin,
        output=output,
        queue_timeout=queue_timeout,
        on_wait=on_wait,
        timeout=timeout,
    )


def attach(
    target: int | str | Iterable[int],
    *,
    wlm: str | None = None,
    on_wait: Callable[[str, str], None] | None = None,
    timeout: float | None = TIMEOUT,
) -> App:
    """Attaches to a running program: :meth:`Frontend.attach` with default settings, or that workload manager."""
    return Frontend(wlm=wlm).attach(target, on_wait=on_wait, timeout=timeout)


def submit(args: Sequence[StrPath], *, wlm: str | None = None, timeout: float | None = TIMEOUT) -> Batch:
    """Submits a batch job: :meth:`Frontend.submit` with default settings, or that workload manager."""
    return Frontend(wlm=wlm).submit(args, timeout=timeout)


def apps(*, timeout: float | None = ANSWER_TIMEOUT) -> list[RemoteApp]:
    """All apps of this user that run here: :meth:`Frontend.apps` with default settings."""
    return Frontend().apps(timeout=timeout)


def find_app(name: str | None = None) -> RemoteApp:
    """An app of this user that runs here: :meth:`Frontend.find_app` with default settings."""
    return Frontend().find_app(name)
