"""Whatever stands in place of a value of a shipped file: it is taken, or refused in one sentence with file and key."""

import copy
import tomllib
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from settings.accuracy import AccuracyGate
from settings.inputs import load_ladder
from settings.load_test import LoadTest
from settings.recipe import load_recipe
from settings.source import SETTINGS_DIR, BadInput, load
from settings.story import load_story
from settings.suite import BenchProfile, DecodeSuite
from settings.target import load_target

ODD: tuple[Any, ...] = (
    True, -1, 0, 10**30, 1e308, float("inf"), float("nan"), "", "\n", "\0", "~nobody-of-that-name/x", "x" * 5_000,
    "-", "../..", [], [[]], {}, {"": ""}, [True], date(2026, 1, 1),
)  # fmt: skip
NEVER = (True, 10**30, 1e308, float("inf"), float("nan"))  # no field of numbers takes these
FILES: dict[str, Callable[[str], Any]] = {
    "targets/rehearsal": load_target,
    "ladders/rehearsal-load": load_ladder,
    "rehearsals/varied": load_story,
    "recipes/sglang": load_recipe,
    "suites/quick": lambda name: load(DecodeSuite, Path(name)),
    "suites/load/interactive": lambda name: load(LoadTest, Path(name)),
    "suites/bench/1k1k": lambda name: load(BenchProfile, Path(name)),
    "suites/accuracy/gsm8k": lambda name: load(AccuracyGate, Path(name)),
}


def _leaves(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to all that stands in a file, tables included; of an array the first member stands for all."""
    if way:
        yield way
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, (*way, key))
    elif isinstance(value, list) and value:
        yield from _leaves(value[0], (*way, 0))


def _put(values: dict[str, Any], way: tuple[Any, ...], odd: Any) -> Any:
    """Change the value at that place; what stood there."""
    here: Any = values
    for step in way[:-1]:
        here = here[step]
    stood, here[way[-1]] = here[way[-1]], odd
    return stood


@pytest.mark.parametrize("name", FILES)
def test_an_odd_value_is_taken_or_told(name: str, tmp_path: Path) -> None:
    shipped = tomllib.loads((SETTINGS_DIR / f"{name}.toml").read_text(encoding="utf-8"))
    path, taken = tmp_path / "odd.toml", []
    for way in list(_leaves(shipped)):
        for odd in ODD:
            values = copy.deepcopy(shipped)
            stood = _put(values, way, odd)
            path.write_text(tomli_w.dumps(values), encoding="utf-8")
            told = _told(FILES[name], path)
            assert told is None or 1 == len(told.splitlines()), f"{way} = {odd!r}: {told}"
            if told is None and _is_number(stood) and any(odd is never for never in NEVER):
                taken.append((way, odd))
    # What an engine is given, and what a simulated one is to have been given, is the engine's own to refuse.
    assert [] == [(way, odd) for way, odd in taken if not {"args", "when"} & set(way)]


def _told(load_it: Callable[[str], Any], path: Path) -> str | None:
    try:
        load_it(str(path))
    except BadInput as e:
        return str(e)
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
