"""Any first bad commit is found within log2 launches; what cannot be judged widens the answer and never bends it."""

import tomllib
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from settings.ladder import Ladder
from settings.words import AttemptOutcome, Component, Phase, RunOutcome, Stage
from tasks.pure.bisect import Answer, Question, Suspects, judge_probe, launches, narrowed, next_commit, question
from tasks.pure.comparison import Comparison, Finding
from tasks.pure.record import (
    Attempt,
    Build,
    Diagnosis,
    Halt,
    HostSummary,
    LadderRef,
    LoadFigure,
    LoadSummary,
    Move,
    RunRecord,
    Source,
)

LADDER = Ladder.model_validate(
    tomllib.loads(
        """
        start = "auto"
        gates = ["ready", "warmup", "decode", "bench", "recheck"]
        [base.args]
        tp-size = 8
        [rung.auto]
        why = "first"
        on = [{ kind = "oom_graph", remedy = "less" }, { goto = "bf16" }]
        [rung.bf16]
        why = "then"
        args = { kv-dtype = "bfloat16" }
        on = [{ stop = "nothing is left" }]
        [remedy.less]
        set = { static-memory = "0.8" }
        """
    )
)


def cause(kind: str = "nan", stage: Stage = Stage.DECODE) -> Diagnosis:
    return Diagnosis(kind=kind, component=Component.ATTENTION, phase=Phase.DECODE, stage=stage)


def attempt(rung: str = "auto", outcome: str = "failed", n: int = 1, **changes: object) -> Attempt:
    found = cause() if outcome != "passed" else None
    base = Attempt(
        n=n, id=str(n), rung=rung, outcome=AttemptOutcome(outcome), diagnosis=found,
        failed_stage=Stage.DECODE if outcome == "failed" else None,
    )  # fmt: skip
    return base.model_copy(update=changes)


def run(*attempts: Attempt, outcome: str = "exhausted", **changes: object) -> RunRecord:
    base = RunRecord(
        run_id="r", started_at=datetime(2026, 11, 1, tzinfo=UTC), target="t", ladder=LadderRef(name="l", sha256="1"),
        build=Build(engine="sglang"), host=HostSummary(name="h"), lease_s=9, outcome=RunOutcome(outcome),
        winner=next((a.n for a in attempts if a.outcome is AttemptOutcome.PASSED), None), attempts=attempts,
        halt=Halt(reason="because", by="rung"),
    )  # fmt: skip
    return base.model_copy(update=changes)


def found(*worse: Finding) -> Comparison:
    return Comparison(last_good="g", nights=9, findings=worse)


BROKE = Finding(
    kind="branch", what="rung auto", direction="worse", was="passed", now="nan (attention) in decode", said="auto broke"
)
SLOW = Finding(
    kind="figure", what="chat at 16: output_tokens_per_s", direction="worse", was=800.0, now=600.0, low=700.0,
    high=900.0, said="slower",
)  # fmt: skip
ASKED = Question(rung="auto", until=Stage.DECODE, failed="nan (attention) in decode", said="auto broke")
SLOWED = Question(rung="auto", until=Stage.BENCH, figure=SLOW.what, low=700.0, high=900.0, said="slower")


def search(total: int, first_bad: int, skips: frozenset[int]) -> tuple[Suspects, int, int]:
    """What is left, launches made, and those of them that were skipped."""
    commits, answers = [str(n) for n in range(total)], dict[str, Answer]()
    while isinstance(commit := next_commit(commits, answers), str):
        assert commit not in answers
        at = int(commit)
        answers[commit] = "skip" if at in skips else "bad" if at >= first_bad else "good"
    return commit, len(answers), sum(answer == "skip" for answer in answers.values())


@given(st.integers(1, 400).flatmap(lambda total: st.tuples(st.just(total), st.integers(0, total - 1))))
def test_any_first_bad_commit_is_found_within_log2_launches(case: tuple[int, int]) -> None:
    total, first_bad = case
    left, made, _ = search(total, first_bad, frozenset())
    assert Suspects((str(first_bad),)) == left
    assert made <= launches(total)


@given(
    st.integers(1, 120).flatmap(
        lambda total: st.tuples(
            st.just(total), st.integers(0, total - 1), st.frozensets(st.integers(0, total - 1), max_size=total)
        )
    )
)
def test_commits_that_cannot_be_judged_never_make_a_wrong_one_the_answer(case: tuple[int, int, frozenset[int]]) -> None:
    total, first_bad, skips = case
    left, made, skipped = search(total, first_bad, skips)
    assert str(first_bad) in left.commits
    assert made <= launches(total, skipped)
    doubtful = {int(c) for c in left.commits} - {first_bad}
    assert all(n in skips or n + 1 in skips or n - 1 in skips for n in doubtful)
    if not skips & {first_bad, first_bad - 1}:
        assert 1 == len(left.commits)   # where its neighbourhood can be judged, it is named


def test_two_thousand_commits_take_eleven_launches() -> None:
    assert 11 == launches(2000)
    assert 0 == launches(1)


def test_a_rung_that_broke_is_asked_up_to_the_stage_that_failed() -> None:
    assert ASKED == question(run(attempt()), found(SLOW, BROKE), LADDER)


def test_a_figure_is_asked_with_its_band() -> None:
    served = run(attempt(outcome="passed"), outcome="serving")
    assert SLOWED == question(served, found(SLOW), LADDER)


def test_a_rung_that_the_build_cannot_say_is_asked_for_its_start_only() -> None:
    skipped = BROKE.model_copy(update={"now": "skipped: no such flag"})
    asked = question(run(attempt(outcome="skipped")), found(skipped), LADDER)
    assert isinstance(asked, Question)
    assert (Stage.READY, "skipped: no such flag") == (asked.until, asked.failed)
    assert "skip" == narrowed(LADDER, run(attempt(outcome="skipped")), asked).doomed


@pytest.mark.parametrize(
    ("record", "worse"),
    [
        (run(), (Finding(kind="branch", what="outcome", direction="worse", was="a", now="b", said=""),)),
        (run(attempt(failed_stage=None)), (BROKE,)),
        (run(attempt()), ()),
    ],
)
def test_what_no_launch_can_answer_is_said(record: RunRecord, worse: tuple[Finding, ...]) -> None:
    assert isinstance(question(record, found(*worse), LADDER), str)


def test_a_probe_has_one_rung_as_it_was_the_gates_up_to_the_failure_and_no_way_on() -> None:
    move = Move(move="remedy", to="less", edge="rung.auto.on[0]", set={"static-memory": "0.8"}, why="oom")
    bad = run(attempt(move=move), attempt(n=2))
    probe = narrowed(LADDER, bad, ASKED)
    assert (Stage.READY, Stage.WARMUP, Stage.DECODE) == probe.gates
    assert ["auto"] == [*probe.rung]
    assert {"tp-size": 8, "static-memory": "0.8"} == probe.rung["auto"].args
    assert () == probe.rung["auto"].on
    other = narrowed(LADDER, run(attempt(), attempt("bf16", n=2)), ASKED.model_copy(update={"rung": "bf16"}))
    assert {"tp-size": 8, "kv-dtype": "bfloat16"} == other.rung["bf16"].args


def measured(rate: float) -> RunRecord:
    figure = LoadFigure(profile="chat", concurrency=16, runs=1, median={"output_tokens_per_s": rate})
    return run(attempt(outcome="passed", load=LoadSummary(figures=(figure,))), outcome="serving")


NOT_BUILT = Source(ref="c", commit="c", folder="k", diagnosis=cause())


@pytest.mark.parametrize(
    ("record", "asked", "answer"),
    [
        (run(attempt(outcome="passed"), outcome="serving"), ASKED, "good"),
        (run(attempt()), ASKED, "bad"),
        (run(attempt(diagnosis=cause("oom_graph", Stage.READY))), ASKED, "skip"),
        (run(attempt(outcome="skipped")), ASKED, "skip"),
        (run(outcome="stopped", source=NOT_BUILT), ASKED, "skip"),
        (run(outcome="error", halt=Halt(reason="no such flag", by="preflight")), ASKED, "skip"),
        (run(outcome="error", halt=Halt(reason="OSError: no room", by="error")), ASKED, None),
        (run(outcome="error", halt=Halt(reason="disk full", by="host")), ASKED, None),
        (run(outcome="host_busy"), ASKED, None),
        (run(attempt(outcome="aborted"), outcome="cancelled"), ASKED, None),
        (run(attempt(outcome="aborted"), outcome="budget"), ASKED, None),
        (run(attempt(failed_stage=Stage.PREFLIGHT, diagnosis=cause("gpu_busy")), outcome="stopped"), ASKED, None),
        (measured(600.0), SLOWED, "bad"),
        (measured(790.0), SLOWED, "good"),
        (measured(990.0), SLOWED, "good"),
        (run(attempt()), SLOWED, "skip"),
        (run(attempt(outcome="passed"), outcome="serving"), SLOWED, "skip"),
    ],
)  # fmt: skip
def test_a_run_says_good_bad_cannot_be_judged_or_nothing_at_all(
    record: RunRecord, asked: Question, answer: str | None
) -> None:
    said = judge_probe(record, asked)
    assert answer == (said and said[0]), said


def test_a_skipped_rung_is_bad_where_that_is_what_is_looked_for() -> None:
    asked = ASKED.model_copy(update={"failed": "skipped: no --nsa-decode-backend"})
    said = judge_probe(run(attempt(outcome="skipped")), asked)
    assert "bad" == (said and said[0])
