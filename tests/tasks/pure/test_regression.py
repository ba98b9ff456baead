"""A rung that broke or works again is named; a number is news only outside the band of enough nights."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from settings.band import Band, Bands
from settings.words import AttemptOutcome, Component, Phase, RunOutcome, Stage, StageOutcome, Verdict
from tasks.pure.comparison import Comparison
from tasks.pure.record import (
    AccuracyResult,
    Attempt,
    Build,
    Diagnosis,
    HostSummary,
    LadderRef,
    LoadFigure,
    LoadSummary,
    ReplyVerdict,
    RunRecord,
    Source,
    StageResult,
    SuiteRef,
)
from tasks.pure.regression import band_of, compare_with_history, good_runs, rungs_of

BEGAN = datetime(2026, 11, 1, 2, tzinfo=UTC)
NAN = Diagnosis(kind="nan", component=Component.ATTENTION, phase=Phase.DECODE, stage=Stage.DECODE, means="NaN.")


def passed(
    rung: str = "auto", *, n: int = 1, rate: float = 800.0, ready_s: float = 100.0, right: int | None = None,
    verdict: Verdict = Verdict.OK,
) -> Attempt:  # fmt: skip
    score = None if right is None else AccuracyResult(
        benchmark="gsm8k", questions=200, questions_sha256="q", right=right, score=right / 200, low=0.0, high=1.0,
        floor=0.1,
    )  # fmt: skip
    figure = LoadFigure(profile="chat", concurrency=16, runs=3, median={"output_tokens_per_s": rate})
    return Attempt(
        n=n, id=str(n), rung=rung, outcome=AttemptOutcome.PASSED, load=LoadSummary(figures=(figure,)), accuracy=score,
        stages=(StageResult(stage=Stage.READY, outcome=StageOutcome.PASSED, started_at=BEGAN, wall_s=ready_s),),
        decode=(ReplyVerdict(id="capital", stage=Stage.DECODE, verdict=verdict),),
    )  # fmt: skip


def failed(rung: str = "auto", cause: Diagnosis = NAN, *, n: int = 1) -> Attempt:
    return Attempt(n=n, id=str(n), rung=rung, outcome=AttemptOutcome.FAILED, failed_stage=cause.stage, diagnosis=cause)


def run(day: int, *attempts: Attempt, **changes: object) -> RunRecord:
    won = next((a.n for a in attempts if a.outcome is AttemptOutcome.PASSED), None)
    base = RunRecord(
        run_id=f"day{day}", started_at=BEGAN + timedelta(days=day), winner=won, target="gpu8",
        outcome=RunOutcome.SERVING if won else RunOutcome.EXHAUSTED, ladder=LadderRef(name="l", sha256="1"),
        build=Build(engine="sglang"), lease_s=90, host=HostSummary(name="gpu8"), attempts=attempts,
        suites={"decode": SuiteRef(name="quick", sha256="1"), "bench": SuiteRef(name="smoke", sha256="1")},
    )  # fmt: skip
    return base.model_copy(update=changes)


def nights(rates: Sequence[float]) -> list[RunRecord]:
    """The newest first."""
    return [run(day, passed(rate=rate)) for day, rate in reversed(list(enumerate(rates)))]


def compare(now: RunRecord, good: Sequence[RunRecord]) -> Comparison:
    found = compare_with_history(now, good, Bands())
    assert found is not None
    return found


RATES = [800.0, 804.0, 796.0, 802.0, 798.0, 801.0]


def test_a_rung_that_broke_is_named_with_the_failures_signature() -> None:
    found = compare(run(9, failed(), passed("bf16", n=2)), [run(1, passed())])
    assert [("branch", "rung auto", "worse")] == [f.key for f in found.findings]
    assert "nan (attention) in decode" == found.findings[0].now


def test_a_rung_that_works_again_is_better() -> None:
    found = compare(run(9, passed()), [run(1, failed(), passed("bf16", n=2))])
    assert [("branch", "rung auto", "better")] == [f.key for f in found.findings]
    assert () == found.worse


def test_a_run_that_does_not_serve_is_worse_whatever_its_rungs_did() -> None:
    blame = Diagnosis(kind="version_mismatch", component=Component.HOST, phase=Phase.ARGS, stage=Stage.PREFLIGHT)
    lost = run(9, outcome=RunOutcome.STOPPED, source=Source(ref="main", folder="k", diagnosis=blame))
    found = compare(lost, [run(1, passed())])
    assert [("branch", "outcome", "worse")] == [f.key for f in found.findings]
    assert ("serving on auto", "stopped: version_mismatch (host) in preflight") == (
        found.findings[0].was, found.findings[0].now,
    )  # fmt: skip


def test_a_load_test_that_lost_its_figures_is_worse() -> None:
    found = compare(run(9, passed(), outcome=RunOutcome.SERVING_BELOW_SLO), [run(1, passed())])
    assert [("branch", "outcome", "worse")] == [f.key for f in found.findings]


def test_a_rung_counts_by_its_last_launch_and_without_its_variations() -> None:
    oom = NAN.model_copy(update={"kind": "oom_graph", "stage": Stage.READY})
    again = passed(n=2)
    varied = failed(n=3).model_copy(update={"variation": "v"})
    cut = failed("bf16", n=4).model_copy(update={"outcome": AttemptOutcome.ABORTED})
    assert {"auto": "passed"} == rungs_of(run(1, failed(cause=oom), again, varied, cut))


def test_a_rung_that_the_host_kept_from_its_launch_was_not_met() -> None:
    busy = Diagnosis(kind="gpu_busy", phase=Phase.ARGS, stage=Stage.PREFLIGHT, means="pid 7 holds 70 GB")
    assert {} == rungs_of(run(1, failed(cause=busy)))
    assert [("branch", "outcome", "worse")] == [
        f.key for f in compare(run(9, failed(cause=busy)), [run(1, passed())]).findings
    ]


def test_a_reply_that_went_bad_is_told_unless_the_questions_changed() -> None:
    last, now = run(1, passed()), run(9, passed(verdict=Verdict.GARBAGE))
    assert [("verdict", "auto: decode capital", "worse")] == [f.key for f in compare(now, [last]).findings]
    assert [("verdict", "auto: decode capital", "better")] == [
        f.key for f in compare(run(10, passed()), [now]).findings
    ]
    others = now.model_copy(update={"suites": {**now.suites, "decode": SuiteRef(name="full", sha256="2")}})
    assert () == compare(others, [last]).findings


@pytest.mark.parametrize(
    ("before", "after", "told"), [(190, 188, []), (190, 150, ["worse"]), (150, 190, ["better"])]
)
def test_accuracy_is_news_only_where_chance_does_not_explain_it(before: int, after: int, told: list[str]) -> None:
    found = compare(run(9, passed(right=after)), [run(1, passed(right=before))])
    assert told == [f.direction for f in found.findings if f.kind == "accuracy"]


@pytest.mark.parametrize(("rate", "told"), [(799.0, []), (765.0, []), (640.0, ["worse"]), (900.0, ["better"])])
def test_a_figure_is_news_only_outside_the_band_of_its_nights(rate: float, told: list[str]) -> None:
    found = compare(run(9, passed(rate=rate)), nights(RATES))
    assert told == [f.direction for f in found.findings]
    assert () == found.not_judged
    for figure in found.findings:
        assert ("figure", "chat at 16: output_tokens_per_s", 800.5, rate, "tok/s", 6) == (
            figure.kind, figure.what, figure.was, figure.now, figure.unit, figure.nights,
        )  # fmt: skip


def test_one_slow_night_moves_no_band() -> None:
    found = compare(run(9, passed(rate=700.0)), nights([*RATES, 200.0]))
    assert ["worse"] == [f.direction for f in found.findings]


def test_noisy_nights_have_a_wide_band() -> None:
    assert () == compare(run(9, passed(rate=650.0)), nights([800, 700, 900, 750, 850, 800])).findings


def test_a_later_start_is_worse_and_a_sooner_one_better() -> None:
    for seconds, told in ((110.0, []), (400.0, ["worse"]), (20.0, ["better"])):
        found = compare(run(9, passed(ready_s=seconds)), nights(RATES))
        assert told == [f.direction for f in found.findings if f.kind == "time"]


def test_too_few_nights_are_said_and_nothing_is_judged() -> None:
    found = compare(run(9, passed(rate=1.0)), nights(RATES[:4]))
    assert () == found.findings
    assert (
        "times of auto (1): at most 4 good nights to compare with, 5 are needed",
        "figures of auto (1): at most 4 good nights to compare with, 5 are needed",
    ) == found.not_judged


def test_numbers_of_another_rung_or_load_test_are_no_measure() -> None:
    other_rung = compare(run(9, failed(), passed("bf16", n=2, rate=1.0)), nights(RATES))
    assert "figures of bf16 (1): at most 0 good nights to compare with, 5 are needed" in other_rung.not_judged
    changed = run(9, passed(rate=1.0), suites={"bench": SuiteRef(name="sweep", sha256="2")})
    assert [] == [f for f in compare(changed, nights(RATES)).findings if f.kind == "figure"]


def test_an_undecided_run_and_a_first_one_have_no_comparison() -> None:
    assert None is compare_with_history(run(9, outcome=RunOutcome.HOST_LOST), [run(1, passed())], Bands())
    assert None is compare_with_history(run(9, passed()), [], Bands())


def test_history_is_what_served_before_with_the_same_target_and_ladder() -> None:
    now = run(9, passed())
    good = run(3, passed())
    others = [
        run(10, passed()), now, run(8, passed(), target="gpu9"), run(7, passed(), confirms="day9", role="A"),
        run(6, failed()), run(5, passed(), ladder=LadderRef(name="m", sha256="1")), good, run(2, passed()),
    ]  # fmt: skip
    assert [good] == good_runs(now, others, 1)
    assert ["day3", "day2"] == [r.run_id for r in good_runs(now, others, 10)]


@given(st.lists(st.floats(1, 1e6), min_size=1, max_size=10), st.floats(0.01, 0.5))
def test_the_band_holds_the_median_and_is_never_narrower_than_declared(values: list[float], change: float) -> None:
    low, high = band_of(values, Band(change=change))
    assert low < high
    middle = (low + high) / 2
    assert high - middle >= change * middle * 0.999
    assert min(values) * 0.999 <= middle <= max(values) * 1.001
