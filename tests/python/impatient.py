"""A tool that gives up as soon as it hears that its launch waits for nodes."""

import sys

import gantry


class GivenUp(Exception):
    pass


def give_up(job, message):
    # It may use gantry.
    print(f"{gantry.Frontend().choice().wlm}: {job}: {message}")
    raise GivenUp(message)


try:
    gantry.launch(sys.argv[1:], on_wait=give_up)
except GivenUp:
    print("given up")
