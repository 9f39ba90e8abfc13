"""Shows the memory of the ranks of a running program once a second: memory.py TARGET SECONDS"""

import sys
import time

# Tags: a question, and its two answers.
SAMPLE, TOTAL, LARGEST = 1, 2, 3


def show_memory(target: str, seconds: int) -> None:
    """The tool: asks all daemons once a second. The answers are merged on their way."""
    import gantry

    with gantry.attach(target) as app, app.session() as session:
        session.start_python([__file__, "--daemon"])
        channel = session.channel
        for _ in range(seconds):
            channel.broadcast(SAMPLE, b"")
            total, ranks = channel.reduce(TOTAL, "sum").value
            largest = channel.reduce(LARGEST, "max").value[0]
            print(f"{ranks} ranks have {total} kB, the largest {largest} kB", flush=True)
            time.sleep(1)


def answer_questions() -> None:
    """The daemon: answers with the memory of the ranks of its node, until the session ends."""
    import gantry_backend

    node = gantry_backend.Backend()
    channel = node.channel()
    for _tag, _question in channel:
        sizes = [resident_kb(rank.pid) for rank in node.ranks() if rank.state == "running"]
        channel.contribute(TOTAL, [sum(sizes), len(sizes)], filter="sum")
        channel.contribute(LARGEST, [max(sizes, default=0)], filter="max")


def resident_kb(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as pages:
        return int(pages.read().split()[1]) * 4


if sys.argv[1] == "--daemon":
    answer_questions()
else:
    show_memory(sys.argv[1], int(sys.argv[2]))
