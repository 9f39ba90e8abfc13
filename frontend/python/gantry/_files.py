"""Files of a tool, as the native part takes them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import IO, Any, Union

StrPath = Union[str, "os.PathLike[str]"]

File = Union[int, IO[Any]]
"""An open file, or its descriptor."""

OutputTo = Union[None, str, "tuple[File, File]"]
"""Where output goes. None: to this process's own standard output and error. ``"null"``: nowhere. ``"stream"``: to the
method ``output()``. A pair of files: to these."""


def to_words(args: Iterable[StrPath]) -> list[str]:
    """The words of a command."""
    if isinstance(args, (str, bytes, os.PathLike)):
        raise TypeError(f"a command is a list of words, not {args!r}")
    return [os.fspath(arg) for arg in args]


def descriptor(file: File) -> int:
    """The descriptor of a file. What was written to it before goes out first."""
    if isinstance(file, int):
        return file
    if not hasattr(file, "fileno"):
        raise TypeError(f"an open file or a descriptor is needed, not {file!r}")
    if file.writable():
        file.flush()
    return file.fileno()


def describe_output(output: OutputTo) -> tuple[tuple[int, int] | None, bool]:
    """Two descriptors, if output goes to files; and whether it is a stream."""
    if output is None:
        if sys.__stdout__ is None or sys.__stderr__ is None:
            return None, False
        for shown in (sys.stdout, sys.stderr):
            shown.flush()
        return (descriptor(sys.__stdout__), descriptor(sys.__stderr__)), False
    if isinstance(output, str):
        if output not in ("null", "stream"):
            raise ValueError(f'output is None, "null", "stream" or a pair of files, not {output!r}')
        return None, output == "stream"
    if not isinstance(output, (tuple, list)) or len(output) != 2:
        raise TypeError(f'output is None, "null", "stream" or a pair of files, not {output!r}')
    out, err = output
    return (descriptor(out), descriptor(err)), False
