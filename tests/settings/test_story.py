"""Stories: the shipped ones are sound, and a mistake in one becomes a sentence."""

import json
from pathlib import Path
from typing import get_args

import pytest

from settings.ladder import Ladder
from settings.source import SETTINGS_DIR, BadInput, find, load
from settings.story import Release, Trace, ladder_of, load_story
from settings.words import LOG_KINDS, OWN_KINDS, AttemptOutcome, RunOutcome

SHIPPED = sorted(path.stem for path in (SETTINGS_DIR / "rehearsals").glob("*.toml"))
STAND_IN = SETTINGS_DIR.parent / "tasks" / "rehearsal" / "site" / "sglang"
FIELDS = {"tensor_parallel_size": "tp_size"} | {
    f"{word}_{side}_backend": f"{side}_backend" for word in ("nsa", "dsa") for side in ("prefill", "decode")
}
SOUND = """
why = "a test"
release = "0.5.9"
speed = 16.0
[[fault]]
why = "a test"
at = "decode"
does = "die"
trace = "device-assert"
[expect]
outcome = "serving"
trail = [{ rung = "auto", outcome = "passed" }]
"""


def test_every_promised_story_is_there() -> None:
    promised = (
        "founding trtllm-works oom-then-nan silent-nan unsupported-assert overridden dies-under-load nan-after-load "
        "hang-in-capture port-taken slow-but-healthy same-assert-twice unknown-crash all-fail "
        "second-request-nan nan-above-2048 nan-in-large-batches nan-far-into-answers sanitised-nan nan-under-load "
        "oom-at-peak below-slo slo-search nan-check-on varied nan-without-decode nan-far-into-context fast-and-wrong"
    )
    assert sorted(promised.split()) == SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_story_speaks_of_its_ladder_and_its_release(name: str) -> None:
    story = load_story(name)
    rungs = load(Ladder, find("ladders", ladder_of(name, story))).rung
    assert [] == [a.rung for a in story.expect.trail if a.rung not in rungs]
    assert [] == [a.kind for a in story.expect.trail if a.kind and a.kind not in LOG_KINDS | OWN_KINDS]
    parser = json.loads((STAND_IN / "parsers" / f"{story.release}.json").read_text(encoding="utf-8"))
    settings = {FIELDS.get(fact["dest"], fact["dest"]) for fact in parser}
    whens = [*(fault.when for fault in story.fault), *(change.when for change in story.slower)]
    assert [] == [key for when in whens for key in when if key not in settings]


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_story_ends_as_its_trail_ends(name: str) -> None:
    expect = load_story(name).expect
    passed = any(a.outcome is AttemptOutcome.PASSED for a in expect.trail)
    assert passed == (expect.outcome in (RunOutcome.SERVING, RunOutcome.SERVING_BELOW_SLO))


def test_what_a_story_may_name_is_what_the_stand_in_has() -> None:
    assert sorted(get_args(Release)) == sorted(
        p.stem for p in (STAND_IN / "parsers").glob("*.json") if p.stem != "bench_serving"
    )
    assert sorted(get_args(Trace)) == sorted(p.stem for p in (STAND_IN / "traces").glob("*.txt"))


@pytest.mark.parametrize(
    ("old", "new", "key", "problem"),
    [
        ('"0.5.9"', '"0.5.91"', "release", "none of"),
        ('at = "decode"', 'at = "decoding"', "fault.0.at", "none of"),
        ('does = "die"', 'does = "nan"', "fault.0", "`trace` is what a dying engine logs"),
        ('at = "decode"', 'at = "bind"', "fault.0", "need each other"),
        ('at = "decode"', 'at = "after_load"', "fault.0", "only does = 'nan'"),
        ('at = "decode"', 'at = "decode"\nfrom_token = 3', "fault.0", "from_… narrows does = 'nan'"),
        ("speed = 16.0", "sped = 16.0", "", ""),
        ("speed = 16.0", "speed = 0", "speed", "greater than 0"),
        ('"device-assert"', '"device-asert"', "fault.0.trace", "none of"),
        ("speed = 16.0", "speed = inf", "speed", "finite"),
        ("speed = 16.0", "speed = true", "speed", "true and false are no numbers"),
        ("speed = 16.0", "speed = 16.0\npace = { load_s = 1e9 }", "pace.load_s", "more than a year"),
        ('does = "die"', 'does = "die"\nwhen = { kv_cache_dtyp = "x" }', "fault.0.when", "mean 'kv_cache_dtype'?"),
        ('does = "die"', 'does = "die"\nwhen = { port = ">=high" }', "fault.0.when", "compares with no number"),
        ('rung = "auto"', 'rung = "atuo"', "expect.trail.0.rung", "no rung 'atuo'; did you mean 'auto'?"),
        ('"passed" }', '"failed", kind = "nun" }', "expect.trail.0.kind", "no kind 'nun'; did you mean 'nan'?"),
        ('"passed" }', '"failed", move = "go" }', "expect.trail.0.move", "none of"),
        ('"passed" }', '"failed", stage = "decoding" }', "expect.trail.0.stage", "none of"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, old: str, new: str, key: str, problem: str) -> None:
    path = tmp_path / "story.toml"
    assert old in SOUND
    path.write_text(SOUND.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(BadInput) as caught:
        load_story(str(path))
    assert str(path) == caught.value.file
    assert problem in str(caught.value)
    assert key in caught.value.key
