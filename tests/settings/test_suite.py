from typing import Any

import pytest

from settings.source import SETTINGS_DIR, BadInput, load, validate
from settings.suite import BenchProfile, DecodeSuite
from settings.words import Verdict

SUITES = sorted((SETTINGS_DIR / "suites").glob("*.toml"))
PROFILES = sorted((SETTINGS_DIR / "suites" / "bench").glob("*.toml"))
PROBE = {"id": "a", "prompt": "x"}


@pytest.mark.parametrize("path", SUITES, ids=lambda p: p.stem)
def test_each_shipped_suite_is_valid(path: Any) -> None:
    load(DecodeSuite, path)


@pytest.mark.parametrize("name", ["quick", "full", "numbers", "recheck", "numbers-recheck"])
def test_what_kills_a_nan_server_comes_after_all_greedy_requests(name: str) -> None:
    probes = load(DecodeSuite, SETTINGS_DIR / "suites" / f"{name}.toml").probe
    first = next(n for n, p in enumerate(probes) if p.top_p is not None)
    assert all(p.top_p is not None for p in probes[first:])


@pytest.mark.parametrize("path", PROFILES, ids=lambda p: p.stem)
def test_each_shipped_load_is_valid_and_bears_the_name_of_its_file(path: Any) -> None:
    assert path.stem == load(BenchProfile, path).name


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"probe": [{"id": "a"}]}, "probe.0: a probe has one of prompt, prompts and prompt_tokens; this one has none"),
        ({"probe": [PROBE, PROBE]}, "two probes are called 'a'"),
        ({"probe": [{**PROBE, "max_tokens": 3}]}, "probe.0.max_tokens: unknown key; did you mean 'max_new_tokens'?"),
        ({"probe": [PROBE], "judge": "txt"}, "judge: 'txt' is none of 'text' or 'numbers'; did you mean 'text'?"),
    ],
)
def test_a_mistake_is_one_sentence(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput) as e:
        validate(DecodeSuite, {"why": "x", **values}, "s.toml")
    assert f"s.toml: {sentence}" == str(e.value)


def test_a_sharegpt_load_needs_its_file_for_else_one_would_be_downloaded() -> None:
    sizes = {"input_tokens": 1, "output_tokens": 1, "prompts": 1, "concurrency": 1}
    values = {"name": "x", "why": "x", "dataset": "sharegpt", **sizes}
    with pytest.raises(BadInput, match="dataset_path"):
        validate(BenchProfile, values, "b.toml")


def test_verdicts_are_ordered_as_the_labels_are() -> None:
    assert ["error", "nan", "truncated", "empty", "garbage", "ok"] == list(Verdict)


@pytest.mark.parametrize(("concurrency", "prompts"), [(16, 160), (64, 640), (1, 10), (3, 30)])
def test_a_load_at_another_concurrency_keeps_its_prompts_per_slot(concurrency: int, prompts: int) -> None:
    moved = load(BenchProfile, SETTINGS_DIR / "suites" / "bench" / "1k1k.toml").at(concurrency)
    assert (concurrency, prompts) == (moved.concurrency, moved.prompts)
