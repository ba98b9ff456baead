"""The engine file: what it says of flags, values and parts of the stack agrees with itself, and slips are told."""

import json
from pathlib import Path

import pytest

from settings.engine import Engine, Illegal, load_engine
from settings.source import BadInput, validate
from settings.words import Component

SGLANG = load_engine("sglang")
PARSERS = Path(__file__).resolve().parents[2] / "tasks" / "rehearsal" / "site" / "sglang" / "parsers"


def test_every_flag_that_an_intent_may_become_is_one_of_some_release() -> None:
    spelled = {flag for intent in SGLANG.intents.values() for spelling in intent.spelling for flag in spelling.flags}
    assert spelled <= SGLANG.flags


@pytest.mark.parametrize("path", sorted(PARSERS.glob("0.*.json")), ids=lambda path: path.stem)
def test_every_choice_of_a_release_is_among_the_values_of_its_intent(path: Path) -> None:
    choices = {flag: set(a.get("choices") or ()) for a in json.loads(path.read_text()) for flag in a["flags"]}
    for name, intent in SGLANG.intents.items():
        if intent.values:
            here = set().union(*(choices.get(flag, set()) for s in intent.spelling for flag in s.flags))
            assert here <= set(intent.values), name


def test_facts_speak_of_values_that_their_intents_have() -> None:
    for fact in (*SGLANG.autos, *SGLANG.illegals):
        for case in (*fact.when, *fact.when_not):
            for intent, values in case.items():
                known = SGLANG.intents[intent].values
                assert not known or set(values) <= set(known), fact.source


def test_a_range_of_releases_or_gpus_is_not_empty() -> None:
    for fact in (*SGLANG.autos, *SGLANG.illegals):
        assert fact.sm is None or fact.sm[0] <= fact.sm[1]


@pytest.mark.parametrize(
    ("argument", "component"),
    [
        ("sparse-decode", Component.ATTENTION), ("nsa-decode-backend", Component.ATTENTION),
        ("kv-cache-dtype", Component.ATTENTION), ("moe-runner", Component.MOE), ("fp8-gemm", Component.GEMM),
        ("graphs-off", Component.GRAPH), ("static-memory", None), ("tp-size", None),
    ],
)
def test_the_part_of_the_stack_that_an_argument_changes(argument: str, component: Component | None) -> None:
    assert SGLANG.components().get(argument) == component


def test_a_fact_about_something_that_is_no_intent_is_refused() -> None:
    values = SGLANG.model_dump(by_alias=True)
    values["illegal"] = [Illegal(when=({"sparse-decod": ("fa3",)},), means="x", source="y").model_dump()]
    with pytest.raises(BadInput, match="speaks of 'sparse-decod', which is no intent"):
        validate(Engine, values, "engine.toml")


@pytest.mark.parametrize("spelling", [{}, {"flags": "--a", "env": "A"}])
def test_a_spelling_is_either_flags_or_a_variable(spelling: dict[str, str]) -> None:
    values = SGLANG.model_dump(by_alias=True) | {"intent": {"x": {"spelling": [spelling]}}, "auto": (), "illegal": ()}
    with pytest.raises(BadInput, match="either flags or env"):
        validate(Engine, values, "engine.toml")


def test_an_engine_that_is_not_shipped_is_told_with_the_nearest() -> None:
    with pytest.raises(BadInput, match="did you mean 'sglang'"):
        load_engine("sglan")
