"""A tool and its daemon in one file: holds a program, adds up the ranks that the daemons see, kills the program."""

import sys

import gantry_backend


def contribute():
    backend = gantry_backend.Backend()
    backend.channel().contribute(1, [sum(rank.rank for rank in backend.ranks())], filter="sum")


def show(args):
    import gantry

    with gantry.launch(args, hold=True) as app:
        print(f"{app.info()['wlm']}: {len(app.ranks)} ranks on {len(app.hosts)} nodes are {app.state}")
        with app.session() as session:
            session.start_python([__file__, "--daemon"])
            total = session.channel.reduce(1, "sum")
            print(f"their sum is {total.value[0]}, told by {total.contributed} daemons")


if sys.argv[1:] == ["--daemon"]:
    contribute()
else:
    show(sys.argv[1:])
