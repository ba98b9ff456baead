"""Reads logs from files or standard input and has them diagnosed."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from settings.catalogue import Catalogue
from settings.milestones import Milestones
from settings.source import BadInput
from tasks.pure.diagnose import Diagnoser
from tasks.pure.record import Diagnosis

__all__ = ["CHUNK", "diagnose_file", "excerpt"]

CHUNK = 1024 * 1024  # bytes per read; fits the second-level cache of the machines measured


def diagnose_file(name: str, catalogue: Catalogue, milestones: Milestones, *, engine: str | None = None) -> Diagnosis:
    """The verdict on a whole log; `-` is standard input. Raises: BadInput when it cannot be read."""
    diagnoser = Diagnoser(catalogue, milestones, engine=engine, file=name)
    with _opened(name) as log:
        for chunk in _chunks(log, name):
            diagnoser.feed(chunk)
    return diagnoser.diagnosis(ended=True)


def excerpt(name: str, line: int, *, around: int = 4) -> list[tuple[int, bytes]]:
    """The lines about a line of a file, with their numbers; none for standard input, which cannot be read twice."""
    if name == "-":
        return []
    first, last, shown = max(1, line - around), line + around, []
    with _opened(name) as log:
        number = 1
        while number <= last and (raw := log.readline(CHUNK)):
            if number >= first:
                shown.append((number, raw.rstrip(b"\n")))
            number += raw.endswith(b"\n")
    return shown


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    if name == "-":
        yield sys.stdin.buffer
        return
    with _refusals(name), Path(name).open("rb") as log:
        yield log


@contextmanager
def _refusals(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        raise BadInput(name, "", f"cannot be read: {e.strerror or e}") from e


def _chunks(log: BinaryIO, name: str) -> Iterator[bytes]:
    with _refusals(name):
        while chunk := log.read(CHUNK):
            yield chunk
