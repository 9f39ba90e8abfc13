# spins.py LIBRARY SECONDS [end]: is nearly always in a function of LIBRARY that spins while it waits. Calls it from loops
# that change one thing each, for SECONDS each. Prints "begun" first. At the end prints "hangs" and waits for ever;
# with "end" it ends.
import collections
import ctypes
import itertools
import sys
import time

spin = ctypes.CDLL(sys.argv[1]).MPIX_Spin
SECONDS = float(sys.argv[2])
count = 0


class Plain:
    def __init__(self):
        self.name, self.count = "plain", 0


class Slotted:
    __slots__ = ("name", "count")

    def __init__(self):
        self.name, self.count = "slotted", 0


class Outer:
    def __init__(self):
        self.inner = Plain()

    def step(self):
        spin(5)
        self.inner.count += 1


def whole(end):
    number = 0
    while time.monotonic() < end:
        spin(5)
        number += 1


def real(end):
    number = 1.0
    while time.monotonic() < end:
        spin(5)
        number *= 1.001


def iterator(end):
    for _ in range(10**9):
        spin(5)
        if time.monotonic() > end:
            break


def items_of_a_list(end):
    for _ in [None] * 10**6:
        spin(5)
        if time.monotonic() > end:
            break


def tools(end):
    for _ in zip(itertools.repeat(0), enumerate(itertools.repeat(0))):
        spin(5)
        if time.monotonic() > end:
            break


def generator(end):
    def numbers():
        number = 1000
        while time.monotonic() < end:
            yield None
            number += 1

    for _ in numbers():
        spin(5)


def attribute(end):
    plain = Plain()
    while time.monotonic() < end:
        spin(5)
        plain.count += 1


def slot(end):
    slotted = Slotted()
    while time.monotonic() < end:
        spin(5)
        slotted.count += 1


def attribute_of_an_attribute(end):
    outer = Outer()
    while time.monotonic() < end:
        outer.step()


def attribute_by_name(end):
    plain = Plain()
    for name in range(100):
        setattr(plain, "of_%d" % name, 0)
    while time.monotonic() < end:
        spin(5)
        plain.of_77 += 1


def item_of_a_list(end):
    items = [0, 1, 2]
    while time.monotonic() < end:
        spin(5)
        items[1] += 1


def item_of_a_dictionary(end):
    items = {"a": 0, 7: 1, (1, 2): 2}
    while time.monotonic() < end:
        spin(5)
        items[7] += 1


def growing(end):
    items = collections.deque(maxlen=1000)
    while time.monotonic() < end:
        spin(5)
        items.append(None)


def content(end):
    items = bytearray(100)
    while time.monotonic() < end:
        spin(5)
        items[50] = (items[50] + 1) % 256


def cell(end):
    number = 0

    def step():
        nonlocal number
        spin(5)
        number += 1

    while time.monotonic() < end:
        step()


def of_the_module(end):
    global count
    while time.monotonic() < end:
        spin(5)
        count += 1


LOOPS = [
    whole,
    real,
    iterator,
    items_of_a_list,
    tools,
    generator,
    attribute,
    slot,
    attribute_of_an_attribute,
    attribute_by_name,
    item_of_a_list,
    item_of_a_dictionary,
    growing,
    content,
    cell,
    of_the_module,
]
print("begun", flush=True)
for loop in LOOPS:
    print(loop.__name__, flush=True)
    loop(time.monotonic() + SECONDS)
if len(sys.argv) < 4:
    print("hangs", flush=True)
    spin(0)
