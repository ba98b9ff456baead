"""Writes the five logs of more than 200 kB, which are long because the same few lines come thousands of times.

A skeleton in huge/ holds the rare lines as they are. `@= text` names a frequent line, and `@@ n` stands for the next n
of those named last, in turn: the numbers of all lines are those of the labelled log.

usage: huge.py    (writes what is missing into logs/)
"""

from itertools import cycle, islice
from pathlib import Path

__all__ = ["logs", "unfolded"]

HERE = Path(__file__).resolve().parent


def unfolded(skeleton: str) -> str:
    """The whole log that a skeleton stands for."""
    whole: list[str] = []
    named: list[str] = []
    frequent = cycle(named)
    for line in skeleton.split("\n"):
        if line.startswith("@= "):
            named.append(line[3:])
        elif line.startswith("@@ "):
            if named:
                frequent, named = cycle(named), []
            whole += islice(frequent, int(line[3:]))
        else:
            whole.append(line)
    return "\n".join(whole)


def logs() -> Path:
    """The folder with all logs, the huge ones made when they are missing."""
    for skeleton in sorted((HERE / "skeletons").glob("*.txt")):
        log = HERE / "logs" / f"{skeleton.stem}.log"
        if not log.exists():
            part = log.with_suffix(f".{id(skeleton)}")
            text = skeleton.read_bytes().decode("utf-8", "surrogateescape")
            part.write_bytes(unfolded(text).encode("utf-8", "surrogateescape"))
            part.replace(log)  # several test workers may come here at once
    return HERE / "logs"


if __name__ == "__main__":
    logs()
