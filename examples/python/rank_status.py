"""Shows what /proc/PID/status says of every rank of a running program: rank_status.py TARGET"""

import sys

STATUS = 1


def show_status(target: str) -> None:
    """The tool: attaches, starts the daemons, and prints what they contribute."""
    import gantry

    with gantry.attach(target) as app, app.session() as session:
        session.start_python([__file__, "--daemon"])
        gathered = session.channel.gather(STATUS, quorum=0)
        for lines in gathered.parts.values():
            print(lines.decode(), end="")
        for missing in gathered.missing:
            print(f"without {missing.host}: {missing.why}", file=sys.stderr)


def contribute_status() -> None:
    """The daemon: contributes a line for every rank of its node."""
    import gantry_backend

    node = gantry_backend.Backend()
    lines = ""
    for rank in node.ranks():
        with open(f"/proc/{rank.pid}/status") as status:
            fields = dict(line.split(":", 1) for line in status)
        wanted = ", ".join(f"{name}: {fields[name].strip()}" for name in ("State", "VmRSS", "Threads"))
        lines += f"rank {rank.rank} on {node.host}: {wanted}\n"
    node.channel().contribute(STATUS, lines.encode())


if sys.argv[1] == "--daemon":
    contribute_status()
else:
    show_status(sys.argv[1])
