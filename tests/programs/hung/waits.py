# Rank 1 waits for a lock in a generator, below a function of the library that calls back. It needs no MPI.
import os
import signal
import threading

freed = threading.Event()
door = threading.Lock()
shut = threading.Event()


def be_freed(number, frame):
    threading.Thread(target=freed.set).start()


def keep_the_door_shut():
    with door:
        shut.set()
        freed.wait()


def entries():
    with door:  # odd
        yield 7


def balance():
    (last,) = tuple(entries())
    return last


def wait_for_the_others():
    freed.wait()  # others


def main():
    signal.signal(signal.SIGUSR1, be_freed)
    signal.signal(signal.SIGALRM, lambda number, frame: os._exit(9))
    signal.alarm(300)
    os.write(1, b"there\n")
    result = 7
    if os.environ.get("GANTRY_RANK") == "1":
        keeper = threading.Thread(target=keep_the_door_shut)
        keeper.start()
        shut.wait()
        result = balance()
        keeper.join()
    else:
        wait_for_the_others()
    os.write(1, b"result %d\n" % result)


main()
