"""Files of a tool, as the native part takes them."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import IO, Any, Literal, Union

StrPath = Union[str, "os.PathLike[str]"]

File = Union[int, IO[Any]]
"""An open file, or its descriptor."""

OutputTo = Union[None, Literal["null", "stream"], int, "tuple[File, File]"]
"""Where output goes. None: to this process's own standard output and error. ``"null"``, ``subprocess.DEVNULL``: nowhere.
``"stream"``: to the method ``output()``. A pair of files: to these."""


def to_list(items: Iterable[StrPath]) -> list[str]:
    """Words of a command, names or paths. One text would be a list of its letters."""
    if isinstance(items, (str, bytes, os.PathLike)):
        raise TypeError(f"a list is needed, not {items!r}")
    return [os.fspath(item) for item in items]


def to_variables(env: Mapping[str, StrPath] | None) -> list[tuple[str, str]]:
    """Variables of an environment."""
    for name, value in (env or {}).items():
        if not isinstance(name, str) or not isinstance(value, (str, os.PathLike)):
            raise TypeError(f"a variable and its value are text, not {name!r} and {value!r}")
    return [(name, os.fspath(value)) for name, value in (env or {}).items()]


def descriptor(file: File) -> int:
    """The descriptor of a file. What was written to it before goes out first."""
    if isinstance(file, int):
        return file
    try:
        flush(file)
        return file.fileno()
    except (AttributeError, io.UnsupportedOperation):
        raise TypeError(f"an open file or a descriptor is needed, not {file!r}") from None


def flush(file: object) -> None:
    """Writes out what a file holds back, if it is such a file."""
    if hasattr(file, "flush"):
        file.flush()


def describe_output(output: OutputTo) -> tuple[tuple[int, int] | None, bool]:
    """Two descriptors, if output goes to files; and whether it is a stream."""
    if output is None:
        if sys.__stdout__ is None or sys.__stderr__ is None:
            return None, False
        flush(sys.stdout)
        flush(sys.stderr)
        return (descriptor(sys.__stdout__), descriptor(sys.__stderr__)), False
    if output == subprocess.DEVNULL:
        return None, False
    if isinstance(output, str):
        if output not in ("null", "stream"):
            raise ValueError(f'output is None, "null", "stream" or a pair of files, not {output!r}')
        return None, output == "stream"
    if not isinstance(output, (tuple, list)) or len(output) != 2:
        raise TypeError(f'output is None, "null", "stream" or a pair of files, not {output!r}')
    out, err = output
    return (descriptor(out), descriptor(err)), False
