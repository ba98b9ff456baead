"""Code, host, noise or unclear: told from two further runs, and only where they say so."""

from datetime import UTC, datetime

import pytest

from settings.words import AttemptOutcome, Phase, RunOutcome, Stage
from tasks.pure.comparison import Comparison, Finding
from tasks.pure.confirm import confirmation, unconfirmable
from tasks.pure.record import (
    Attempt,
    Build,
    Diagnosis,
    Halt,
    HostSummary,
    LadderRef,
    LoadFigure,
    LoadSummary,
    RunRecord,
)
from tasks.pure.record import Source as From


def finding(what: str, now: str | float, kind: str = "branch") -> Finding:
    return Finding.model_validate(
        {"kind": kind, "what": what, "direction": "worse", "was": "passed", "now": now, "said": f"{what}: {now}"}
    )


NAN, OOM = finding("rung auto", "nan (attention) in decode"), finding("rung auto", "oom_graph (graph) in ready")
OTHER = finding("rung bf16", "hang (unknown) in ready")
LOST = finding("outcome", "exhausted")
SLOW = finding("chat at 16: output_tokens_per_s", 640.0, "figure")


def run(name: str, *worse: Finding, outcome: str = "serving", decided: bool = True, **changes: object) -> RunRecord:
    figure = LoadFigure(profile="chat", concurrency=16, runs=1, median={"output_tokens_per_s": 800.0})
    passed = Attempt(
        n=1, id="1", rung="auto", outcome=AttemptOutcome.PASSED, load=LoadSummary(figures=(figure,))
    )
    base = RunRecord(
        run_id=name, started_at=datetime(2026, 11, 1, tzinfo=UTC), target="t", ladder=LadderRef(name="l", sha256="1"),
        build=Build(engine="sglang"), host=HostSummary(name="h"), lease_s=9, outcome=RunOutcome(outcome), winner=1,
        halt=Halt(reason="because", by="host"), attempts=(passed,),
        compared=Comparison(last_good="good", nights=9, findings=worse) if decided else None,
        source=From(ref="main", commit=name * 10, folder=name, freeze=(f"torch=={name}", "numpy==2")),
    )  # fmt: skip
    return base.model_copy(update=changes)


GOOD = run("good")
NOT_INSTALLED = From(ref="main", folder="k", diagnosis=Diagnosis(kind="unknown", phase=Phase.ARGS, means="no wheel"))
NO_ROOM = From(ref="main", folder="k", diagnosis=Diagnosis(kind="disk", phase=Phase.ARGS, means="no room"))
REFUSED = (
    Attempt(
        n=1, id="1", rung="auto", outcome=AttemptOutcome.FAILED, failed_stage=Stage.PREFLIGHT,
        diagnosis=Diagnosis(kind="gpu_busy", phase=Phase.ARGS, means="pid 7 holds 70 GB"),
    ),
)  # fmt: skip


@pytest.mark.parametrize(
    ("tonight", "a", "b", "verdict"),
    [
        ((NAN, LOST), run("A"), run("B", NAN, LOST), "code"),
        ((NAN,), run("A"), run("B", NAN), "code"),   # another rung serves
        ((LOST,), run("A"), run("B", LOST), "code"),   # e.g. an install that fails
        ((SLOW,), run("A"), run("B", SLOW.model_copy(update={"now": 650.0})), "code"),
        ((NAN, LOST), run("A", NAN, LOST), None, "host"),
        ((NAN, LOST), run("A", OOM, LOST), None, "host"),
        ((SLOW,), run("A", SLOW), None, "host"),
        ((NAN, LOST), run("A"), run("B"), "noise"),
        ((SLOW,), run("A"), run("B"), "noise"),
        ((SLOW,), run("A"), run("B", finding("chat at 64: ttft_p99_ms", 9.0, "figure")), "noise"),
        ((NAN, LOST), run("A"), run("B", OOM, LOST), "unclear"),
        ((NAN, LOST), run("A"), run("B", LOST), "unclear"),
        ((SLOW,), run("A", NAN), None, "unclear"),
        ((SLOW,), run("A"), run("B", NAN, LOST), "unclear"),
        ((NAN, LOST), run("A", LOST), None, "unclear"),   # nothing was launched
        ((NAN, LOST), run("A", LOST, source=NOT_INSTALLED, role="A"), None, "unclear"),
        ((SLOW,), run("A"), run("B", attempts=()), "unclear"),   # not measured is not recovered
        ((NAN, LOST), run("A", LOST, attempts=REFUSED, winner=None), None, "unclear"),   # its GPUs were taken
        ((NAN, LOST), run("A"), run("B", LOST, attempts=REFUSED, winner=None), "unclear"),
        ((LOST,), run("A"), run("B", LOST, source=NO_ROOM, winner=None), "unclear"),   # a full disk is no code
        ((NAN,), run("A", outcome="host_busy", decided=False), None, "unclear"),
        ((NAN,), run("A"), run("B", outcome="budget", decided=False), "unclear"),
    ],
)  # fmt: skip
def test_the_verdict_follows_from_both_runs(
    tonight: tuple[Finding, ...], a: RunRecord, b: RunRecord | None, verdict: str
) -> None:
    record = run("bad", *tonight)
    found = confirmation(record, GOOD, a, b)
    assert found is not None
    assert verdict == found.verdict, found.why
    assert ("good" * 10, "bad" * 10, ("torch good -> bad",)) == (found.good, found.bad, found.moved)
    assert {"A": "A"} | ({"B": "B"} if b else {}) == found.runs


def test_a_verdict_needs_the_last_good_build_and_then_this_one() -> None:
    assert None is confirmation(run("bad", NAN), GOOD, None, None)
    assert None is confirmation(run("bad", NAN), GOOD, run("A"), None)


def test_one_build_that_was_good_and_bad_in_turn_accuses_no_commit() -> None:
    found = confirmation(run("good", NAN), GOOD, run("A"), run("B", NAN))
    assert found is not None
    assert ("unclear", True) == (found.verdict, "the same build" in found.why)


def test_what_is_undecided_says_why() -> None:
    found = confirmation(run("bad", NAN), GOOD, run("A", outcome="host_busy", decided=False), None)
    assert found is not None
    assert "came to no decision (host_busy: because)" in found.why


def test_only_builds_that_a_run_installed_can_be_had_again() -> None:
    bad = run("bad", NAN)
    assert None is unconfirmable(bad, GOOD)
    for record, good in ((bad, None), (bad, run("good", source=None)), (run("bad", NAN, source=None), GOOD)):
        assert unconfirmable(record, good)
