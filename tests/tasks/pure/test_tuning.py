"""Variations around a winner: one at a time, kept only when measurably better, and never at the cost of the winner."""

import tomllib
from typing import Any

import pytest

from settings.ladder import Ladder
from settings.words import AttemptOutcome, Phase, RunOutcome, Stage
from tasks.pure.record import Attempt, BenchPoint, Diagnosis, LoadFigure, LoadSummary
from tasks.pure.tuning import again, better, incumbent, loses, next_step
from tasks.pure.walker import End, Try

LADDER = Ladder.model_validate(
    tomllib.loads("""
start = "auto"
budget = { attempts = 5, wall_s = 100 }
[base.args]
tp-size = 8
[rung.auto]
why = "first"
on = [{ kind = "nan", goto = "second" }]
[rung.second]
why = "second"
args = { kv-cache-dtype = "bfloat16" }
[vary.chunks]
why = "longer prefill chunks"
args = { chunked-prefill-size = 16384 }
[vary.requests]
why = "more requests at once"
args = { max-running-requests = 64 }
[default]
on = [{ stop = "no edge for this" }]
""")
)


def summary(rate: float, mad: float = 0.0, capacity: dict[str, int | None] | None = None, **more: Any) -> LoadSummary:
    figure = LoadFigure(
        profile="a", concurrency=16, runs=3, median={"output_tokens_per_s": rate},
        mad={"output_tokens_per_s": mad}, **more,
    )  # fmt: skip
    return LoadSummary(figures=(figure,), capacity=capacity or {})


def attempt(
    n: int, rung: str = "second", variation: str | None = None, rate: float = 100.0, kind: str | None = None,
    outcome: AttemptOutcome = AttemptOutcome.PASSED, **load: Any,
) -> Attempt:  # fmt: skip
    cause = Diagnosis(kind=kind, phase=Phase.DECODE, stage=Stage.DECODE) if kind else None
    return Attempt(
        n=n, id=str(n), rung=rung, variation=variation, outcome=outcome, diagnosis=cause, load=summary(rate, **load)
    )  # fmt: skip


def failed(n: int, rung: str, variation: str | None = None) -> Attempt:
    return attempt(n, rung, variation, kind="nan", outcome=AttemptOutcome.FAILED)


WALK = [failed(1, "auto"), attempt(2)]


def then(trail: list[Attempt], spent_s: float = 0.0) -> Try | End:
    return next_step(LADDER, trail, spent_s=spent_s).then


def test_before_anything_passes_the_walk_is_the_ladders_own() -> None:
    step = next_step(LADDER, WALK[:1])
    assert isinstance(step.then, Try)
    assert ("second", None) == (step.then.rung, step.then.variation)


def test_after_the_pass_the_first_variation_is_tried_on_the_rung_that_passed() -> None:
    step = next_step(LADDER, WALK)
    assert isinstance(step.then, Try)
    assert step.move is not None
    assert ("vary", "chunks", "vary.chunks") == (step.move.move, step.move.to, step.move.edge)
    assert {"tp-size": 8, "kv-cache-dtype": "bfloat16", "chunked-prefill-size": 16384} == step.then.args


@pytest.mark.parametrize(
    ("first", "args"),
    [
        (attempt(3, variation="chunks", rate=110), {"chunked-prefill-size", "max-running-requests"}),
        (attempt(3, variation="chunks", rate=101), {"max-running-requests"}),  # within the margin
        (attempt(3, variation="chunks", rate=110, mad=12.0), {"max-running-requests"}),  # within the spread
        (failed(3, "second", "chunks"), {"max-running-requests"}),  # a fault takes no edge
        (attempt(3, variation="chunks", rate=900, kind="nan", outcome=AttemptOutcome.FAILED), {"max-running-requests"}),
    ],
)
def test_only_what_is_measurably_better_and_sound_is_kept_for_the_next(first: Attempt, args: set[str]) -> None:
    found = then([*WALK, first])
    assert isinstance(found, Try)
    assert args == set(found.args) - {"tp-size", "kv-cache-dtype"}


def test_in_the_end_the_best_wins_and_is_what_would_be_launched_again() -> None:
    trail = [*WALK, attempt(3, variation="chunks", rate=120), attempt(4, variation="requests", rate=90)]
    end = then(trail)
    assert isinstance(end, End)
    assert (RunOutcome.SERVING, 3, "best of 3: 'second' with chunks") == (end.outcome, end.winner, end.halt.reason)
    found, best = again(LADDER, trail), incumbent(LADDER, trail)
    assert found is not None
    assert best is not None
    assert (3, {"tp-size": 8, "kv-cache-dtype": "bfloat16", "chunked-prefill-size": 16384}) == (best.n, found.args)


def test_a_spent_budget_keeps_the_winner_and_says_what_was_not_tried() -> None:
    end = then(WALK, spent_s=100)
    assert isinstance(end, End)
    assert (RunOutcome.SERVING, 2) == (end.outcome, end.winner)
    assert "best of 1: 'second'; chunks, requests not tried, the budget is 100 s" == end.halt.reason


@pytest.mark.parametrize(
    ("kind", "outcome", "varied"),
    [("slo_missed", RunOutcome.SERVING_BELOW_SLO, True), ("bench_client", RunOutcome.SERVING_UNMEASURED, False)],
)
def test_what_could_not_be_measured_is_not_varied_and_what_is_too_slow_is(
    kind: str, outcome: RunOutcome, varied: bool
) -> None:
    found = then([attempt(1, "auto", kind=kind)])
    assert varied == isinstance(found, Try)
    ended = then([attempt(1, "auto", kind=kind)], spent_s=100)
    assert isinstance(ended, End)
    assert outcome is ended.outcome


@pytest.mark.parametrize(
    ("new", "old", "won"),
    [
        (summary(50, capacity={"a": 32}), summary(100, capacity={"a": 16}), True),  # the SLO comes before throughput
        (summary(500, capacity={"a": 8}), summary(100, capacity={"a": 16}), False),
        (summary(100, capacity={"a": 1}), summary(100, capacity={"a": None}), True),
        (summary(120, capacity={"a": 16}), summary(100, capacity={"a": 16}), True),
        (summary(0), summary(100), False),
        (None, summary(100), False),
    ],
)
def test_the_capacity_under_the_slo_decides_before_throughput(
    new: LoadSummary | None, old: LoadSummary, won: bool
) -> None:
    assert won == better(new, old, 0.03)


@pytest.mark.parametrize(
    ("new", "old", "lost"),
    [
        (summary(80), summary(100), True),
        (summary(95), summary(100), False),
        (summary(80, slo_met=True), summary(100, capacity={"a": 16}), False),
        (summary(99, slo_met=False), summary(100, capacity={"a": 16}), True),
        (summary(99, slo_met=False), summary(100, capacity={"a": 8}), False),  # the incumbent misses it there, too
    ],
)
def test_a_variation_that_cannot_win_any_more_is_stopped_at_the_point_that_shows_it(
    new: LoadSummary, old: LoadSummary, lost: bool
) -> None:
    point = BenchPoint(profile="a", valid=True, asked=1, concurrency=16)
    assert lost == bool(loses(old, [point], new.figures))
    assert "" == loses(old, [point.model_copy(update={"valid": False})], new.figures)
