"""What no declared value may be, whatever its field: a truth value for a number, a size beyond all use, a bad name."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args, get_origin

__all__ = ["LARGEST", "LONGEST_S", "check_env", "check_name", "refuse_size", "refuse_truth"]

LONGEST_S = 31_536_000  # a year; fields whose names end in _s count seconds
LARGEST = 10**12

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def refuse_truth(annotation: Any, value: Any) -> None:
    """Raises: ValueError for true or false where only a number is meant: pydantic would take them for 1 and 0."""
    if isinstance(value, Mapping) and get_origin(annotation) is not dict:
        return  # a model of its own, which looks at its own fields
    if any(isinstance(each, bool) for each in _flat(value)) and not _takes_truth(annotation):
        raise ValueError("true and false are no numbers")


def refuse_size(field: str, value: Any) -> None:
    """Raises: ValueError for a number that nobody can mean; some of them make a wait fail that is given them."""
    for each in _flat(value):
        if isinstance(each, bool) or not isinstance(each, int | float):
            continue
        if field.endswith("_s") and each > LONGEST_S:
            raise ValueError(f"{each:g} seconds are more than a year ({LONGEST_S})")
        if abs(each) > LARGEST:
            raise ValueError(f"is beyond all use: at most {LARGEST:,}")


def check_name(kind: str, name: str) -> str:
    """The name, which goes into file names and tables. Raises: ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"a {kind}'s name is made of letters, digits, '.', '_' and '-', 64 at most")
    return name


def check_env(env: Mapping[str, str]) -> None:
    """Raises: ValueError for what no process can be given."""
    for name, text in env.items():
        if not name or "=" in name or "\0" in name + text or not name.isprintable():
            raise ValueError(f"{name!r} and its value cannot stand in an environment")


def _flat(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else (value,)


def _takes_truth(annotation: Any) -> bool:
    return any(part is bool or isinstance(part, bool) or part is Any for part in _parts(annotation))


def _parts(annotation: Any) -> Iterator[Any]:
    yield annotation
    for inner in get_args(annotation):
        yield from _parts(inner)
