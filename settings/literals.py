"""Which bytes a line must hold for a regular expression to fit it: one fast search can stand before many slow ones."""

import re
from collections.abc import Iterable
from functools import cache
from itertools import product
from re import _constants as op  # type: ignore[attr-defined]  # CPython's own parser, not a second one
from re import _parser  # type: ignore[attr-defined]
from typing import Any

__all__ = ["SHORTEST", "required_literals"]

SHORTEST = 4  # shorter literals are in too many ordinary lines
_MOST = 96    # alternatives that one run of a pattern may spell out


@cache
def required_literals(pattern: str) -> frozenset[str]:
    """Literals of which every match of `pattern` holds at least one; empty when there is no such set.

    Case is kept; a pattern that begins with `(?i)` has none, since the search compares bytes.
    """
    parsed = _parser.parse(pattern)
    if parsed.state.flags & re.IGNORECASE:
        return frozenset()
    return _best(_needed(parsed))


def _best(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    """The set whose shortest literal is longest: the one that is found least often by chance."""
    fit = [s for s in sets if min(map(len, s)) >= SHORTEST]
    return max(fit, key=lambda s: (min(map(len, s)), -len(s)), default=frozenset())


def _needed(sequence: Any) -> list[frozenset[str]]:
    """Sets of which a match of the whole sequence holds a member each."""
    sets: list[frozenset[str]] = []
    run = frozenset({""})
    for item in sequence:
        spelled = _spelled(item)
        if spelled is not None and len(run) * len(spelled) <= _MOST:
            run = frozenset(a + b for a, b in product(run, spelled))
            continue
        sets.append(run)
        run = frozenset({""})
        if spelled is not None:
            run = spelled
        else:
            sets += _inside(*item)
    return [*sets, run]


def _spelled(item: Any) -> frozenset[str] | None:
    """All the texts that an element can match, when they are few; None otherwise."""
    code, argument = item
    if code is op.LITERAL:
        return frozenset({chr(argument)})
    if code is op.AT:
        return frozenset({""})
    if code is op.IN:
        chars = [chr(a) for c, a in argument if c is op.LITERAL]
        return frozenset(chars) if len(chars) == len(argument) and len(chars) <= 4 else None
    if code is op.SUBPATTERN:
        return _spelled_out(argument[3])
    if code is op.BRANCH:
        branches = [_spelled_out(branch) for branch in argument[1]]
        texts = frozenset().union(*(b for b in branches if b is not None))
        return texts if None not in branches and len(texts) <= _MOST else None
    if code in {op.MAX_REPEAT, op.MIN_REPEAT} and argument[:2] == (0, 1):
        once = _spelled_out(argument[2])
        return None if once is None else once | {""}
    return None


def _spelled_out(sequence: Any) -> frozenset[str] | None:
    texts = frozenset({""})
    for item in sequence:
        spelled = _spelled(item)
        if spelled is None or len(texts) * len(spelled) > _MOST:
            return None
        texts = frozenset(a + b for a, b in product(texts, spelled))
    return texts


def _inside(code: Any, argument: Any) -> list[frozenset[str]]:
    """What an element that cannot be spelled out needs all the same."""
    if code is op.SUBPATTERN:
        return _needed(argument[3])
    if code in {op.MAX_REPEAT, op.MIN_REPEAT} and argument[0] >= 1:
        return _needed(argument[2])
    if code is op.BRANCH:
        branches = [_best(_needed(branch)) for branch in argument[1]]
        return [frozenset().union(*branches)] if all(branches) else []
    return []
