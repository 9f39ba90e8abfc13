# mpi_steps.py KIND SECONDS: exchanges again and again for SECONDS, so that a rank is nearly always in an MPI_Allreduce.
# KIND says what a turn changes: a "local" variable, an "attribute" or a "global" variable. Prints "begun" first, and
# "hangs" at the end. Then rank 0 waits for a message that never comes, and the others in a barrier.
import os
import sys
import time
from array import array

from mpi4py import MPI

world = MPI.COMM_WORLD
mine, least = array("i", [1]), array("i", [1])
until = time.monotonic() + float(sys.argv[2])
turns = 0


class Solver:
    def __init__(self):
        self.turns = 0

    def solve(self):
        while least[0]:
            mine[0] = time.monotonic() < until
            world.Allreduce(mine, least, MPI.MIN)
            self.turns += 1


def solve():
    turns = 0
    while least[0]:
        mine[0] = time.monotonic() < until
        world.Allreduce(mine, least, MPI.MIN)
        turns += 1


def wait_for_nobody():
    world.Recv(mine, 0, 7)  # odd


os.write(1, b"begun\n")
if sys.argv[1] == "local":
    solve()
elif sys.argv[1] == "attribute":
    Solver().solve()
while least[0]:
    mine[0] = time.monotonic() < until
    world.Allreduce(mine, least, MPI.MIN)
    turns += 1
if world.rank == 0:
    os.write(1, b"hangs\n")
    wait_for_nobody()
world.Barrier()  # others
