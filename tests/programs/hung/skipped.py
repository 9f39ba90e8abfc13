# Rank 1 still trains, while all others are in a collective call.
import os
import signal
from array import array

from mpi4py import MPI

freed = False


def be_freed(number, frame):
    global freed
    freed = True


class Trainer:
    def step(self):
        while not freed: pass  # odd


def train():
    trainer = Trainer()
    for trial in [1]:
        trainer.step()


def main():
    signal.signal(signal.SIGUSR1, be_freed)
    signal.signal(signal.SIGALRM, lambda number, frame: os._exit(9))
    signal.alarm(300)
    world = MPI.COMM_WORLD
    os.write(1, b"there\n")
    if world.rank == 1:
        train()
    mine, total = array("i", [1]), array("i", [0])
    world.Allreduce(mine, total)  # others
    os.write(1, b"result %d\n" % (7 if total[0] == world.size else 0))


main()
