"""Stands in for cargo while pip builds the packages: names what has been built in GANTRY_BIN_DIR already."""

import json
import os
import subprocess
import sys

args = sys.argv[1:]
if args[0] not in ("build", "rustc"):
    os.execvp("cargo", ["cargo", *args])
# What pyproject.toml asks for.
assert "--locked" in args and args[args.index("--profile") + 1] == "dist", args
manifest = os.path.abspath(args[args.index("--manifest-path") + 1])
command = ["cargo", "metadata", "--no-deps", "--offline", "--format-version=1", "--manifest-path", manifest]
metadata = json.loads(subprocess.check_output(command))
package = next(package for package in metadata["packages"] if package["manifest_path"] == manifest)
for target in package["targets"]:
    kind, name = target["kind"][0], target["name"]
    if kind in ("bin", "cdylib"):
        file = os.path.join(os.environ["GANTRY_BIN_DIR"], name if kind == "bin" else f"lib{name}.so")
        artifact = {"reason": "compiler-artifact", "package_id": package["id"], "target": {"kind": [kind]}}
        print(json.dumps({**artifact, "filenames": [file]}))
