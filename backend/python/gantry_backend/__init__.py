"""For daemons of a tool on gantry: which ranks run on this node, and the channel to the tool.

A daemon in Python::

    import gantry_backend

    backend = gantry_backend.Backend()
    for rank in backend.ranks():
        print(f"on {backend.host}: rank {rank.rank} is process {rank.pid}")
    backend.channel().contribute(1, [len(backend.ranks())], filter="sum")

The tool starts it with ``Session.start_python`` of the package ``gantry``, which brings this package to the nodes.

Timeouts are in seconds. Calls that wait let other threads run.
"""

from ._errors import Error, Member, Missing, TimedOut
from ._native import decode, encode, fold_ranks
from ._node import TIMEOUT, Backend, Channel, Dirs, Rank

for error in (Error, TimedOut):
    error.__module__ = __name__

__all__ = [
    "TIMEOUT",
    "Backend",
    "Channel",
    "Dirs",
    "Error",
    "Member",
    "Missing",
    "Rank",
    "TimedOut",
    "decode",
    "encode",
    "fold_ranks",
]
