"""Runs a program with several numbers of ranks at once, and shows what each writes: at_once.py PROGRAM COUNT..."""

import asyncio
import sys

import gantry


async def pieces(stream):
    """The pieces of a stream, for ``async for``."""
    while (piece := await asyncio.to_thread(stream.next)) is not None:
        yield piece


async def run(program: str, count: str) -> int:
    # The end of the block ends the app, also when this task is cancelled. That ends the waits of other threads.
    with await asyncio.to_thread(gantry.launch, ["-n", count, program], output="stream") as app:
        async for piece in pieces(app.output()):
            print(f"{count}: {piece.data.decode()}", end="")
        return (await asyncio.to_thread(app.wait)).code


async def run_all(program: str, counts: "list[str]") -> int:
    return max(await asyncio.gather(*(run(program, count) for count in counts)))


if __name__ == "__main__":
    sys.exit(asyncio.run(run_all(sys.argv[1], sys.argv[2:])))
