"""Daemons of the tests of the Python packages: the first argument says what to do."""

import sys

import gantry_backend


def tell(backend, channel):
    """Contributes what it knows to a reduction by each filter, tags 1 to 9."""
    ranks = [rank.rank for rank in backend.ranks()]
    channel.contribute(1, [len(ranks), backend.node], filter="sum")
    channel.contribute(2, [min(ranks) + 0.5], filter="min")
    channel.contribute(3, [max(ranks)], filter="max")
    channel.contribute(4, ranks, filter="ranks")
    channel.contribute(5, {b"even" if rank % 2 == 0 else b"odd": [rank] for rank in ranks}, filter="keys")
    paths = [(["main", "solve"], ranks), (["main", "solve", f"on node {backend.node}"], [])]
    paths.append((["main", f"wait {backend.node}"], ranks[:1]))
    channel.contribute(6, paths, filter="stacks")
    channel.contribute(7, backend.host.encode())
    channel.contribute(8, f"{backend.app} {backend.wlm} {backend.node_count} {backend.rank_count}".encode())
    states = sorted((rank.pid, rank.state, rank.exe) for rank in backend.ranks())
    channel.contribute(9, repr(states).encode())


def echo(backend, channel):
    """Sends a message unasked, then answers each message of the tool."""
    channel.send(1, f"here is {channel.member.node}".encode())
    for tag, message in channel:
        channel.contribute(tag, message.upper())
        if message == b"leave":
            return


def longest(backend, channel):
    """Contributes its host's name to a reduction that the tool's own filter merges, here or there."""
    channel.contribute(1, b"x" * (backend.node + 1))
    if "serve" in sys.argv:
        channel.serve_filter("longest", lambda parts: max(parts, key=len))


def fail(backend, channel):
    """Answers each message, and serves a filter that fails."""
    import threading

    filters = threading.Thread(target=channel.serve_filter, args=("failing", lambda parts: parts["no list"]))
    filters.daemon = True
    filters.start()
    for tag, _ in channel:
        channel.contribute(tag, b"x")


def save(backend, channel):
    """Waits, and writes a file at the end."""
    import pathlib
    import signal

    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        channel.contribute(1, b"ready")
        for _ in channel:
            pass
    finally:
        pathlib.Path(sys.argv[2], backend.host).touch()


def report(backend, channel):
    """Prints what it was given."""
    import os

    print(sys.argv[2:], os.environ["COLOUR"], sorted(path.name for path in backend.dirs.root.iterdir()))
    print("to standard error", file=sys.stderr)


backend = gantry_backend.Backend()
calls = {"tell": tell, "echo": echo, "longest": longest, "fail": fail, "save": save, "report": report}
calls[sys.argv[1]](backend, backend.channel())
