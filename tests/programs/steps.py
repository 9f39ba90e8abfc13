# steps.py SECONDS: a healthy program of Python that computes, with a short break now and then. Prints "begun" first.
import sys
import time


def compute(rounds):
    return sum(1.0 / i for i in range(1, rounds))


def main():
    print("begun", flush=True)
    end = time.monotonic() + float(sys.argv[1])
    total = 0.0
    while time.monotonic() < end:
        for _ in range(20):
            total += compute(10000)
        time.sleep(0.2)


main()
