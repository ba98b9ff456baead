from pathlib import Path
from typing import Any

import pytest

from settings.load_test import LoadTest, load_profiles
from settings.source import SETTINGS_DIR, BadInput, load, validate

TESTS = sorted((SETTINGS_DIR / "suites" / "load").glob("*.toml"))


@pytest.mark.parametrize("path", TESTS, ids=lambda p: p.stem)
def test_each_shipped_load_test_is_valid_and_its_profiles_are_there(path: Path) -> None:
    test = load(LoadTest, path)
    assert test.profiles == tuple(p.name for p in load_profiles(test))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"concurrency": [8, 0]}, "concurrency counts requests at once: 1 or more"),
        ({"concurrency": [8, 8]}, "a concurrency stands there twice; `repeats` says how often a point is run"),
        ({"search": True}, "`search` looks for the highest concurrency that meets the SLO: it needs [slo]"),
        ({"slo": {"ttft_mean_ms": 3}}, "slo.ttft_mean_ms: unknown key; did you mean 'ttft_p99_ms'?"),
        ({"profiles": []}, "profiles: Tuple should have at least 1 item after validation, not 0"),
    ],
)
def test_a_mistake_is_one_sentence(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput) as e:
        validate(LoadTest, {"why": "x", "profiles": ["smoke"], **values}, "l.toml")
    assert f"l.toml: {sentence}" == str(e.value)


def test_a_profile_that_is_not_there_is_named_with_the_nearest() -> None:
    with pytest.raises(BadInput, match="did you mean 'smoke'"):
        load_profiles(LoadTest(why="x", profiles=("smok",)))
