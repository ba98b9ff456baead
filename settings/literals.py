"""Which bytes a line must hold for a regular expression to fit it, so that one fast search can stand before many slow ones."""

import re
from collections.abc import Iterable
from re import _constants as op  # type: ignore[attr-defined]  # CPython's own parser: no second one to keep in step
from re import _parser
from typing import Any

__all__ = ["SHORTEST", "required_literals"]

SHORTEST = 4  # shorter literals are in too many ordinary lines


def required_literals(pattern: str) -> frozenset[str]:
    """Literals of which every match of `pattern` holds at least one; empty when there is no such set.

    Case is kept; a pattern that begins with `(?i)` has none, since the search compares bytes.
    """
    parsed = _parser.parse(pattern)
    if parsed.state.flags & re.IGNORECASE:
        return frozenset()
    return _best(_alternatives(parsed))


def _best(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    """The set whose shortest literal is longest: the one that is found least often by chance."""
    return max(sets, key=lambda s: (min(len(x) for x in s), -len(s)), default=frozenset())


def _alternatives(sequence: Any) -> list[frozenset[str]]:
    """Each set of literals that a match of the whole sequence must meet."""
    sets, run = [], ""

    def flush() -> None:
        nonlocal run
        if len(run) >= SHORTEST:
            sets.append(frozenset({run}))
        run = ""

    for code, argument in sequence:
        if code is op.LITERAL:
            run += chr(argument)
            continue
        if code is op.SUBPATTERN and all(c is op.LITERAL for c, _ in argument[3]):
            run += "".join(chr(a) for _, a in argument[3])
            continue
        flush()
        sets += _inside(code, argument)
    flush()
    return sets


def _inside(code: Any, argument: Any) -> list[frozenset[str]]:
    if code is op.SUBPATTERN:
        return _alternatives(argument[3])
    if code in {op.MAX_REPEAT, op.MIN_REPEAT} and argument[0] >= 1:
        return _alternatives(argument[2])
    if code is op.BRANCH:
        branches = [_best(_alternatives(branch)) for branch in argument[1]]
        return [frozenset().union(*branches)] if all(branches) else []
    return []
