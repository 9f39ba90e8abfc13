"""A tool that submits a batch job: attaches to its ranks and lets it go, or cancels it before it has some."""

import sys

import gantry

with gantry.submit(sys.argv[2:]) as batch:
    print(f"{batch.wlm}: job {batch.job}", flush=True)
    if sys.argv[1] == "attach":
        with batch.attach(on_wait=print) as app:
            print(f"{len(app.ranks)} ranks on {len(app.hosts)} nodes are {app.state}")
