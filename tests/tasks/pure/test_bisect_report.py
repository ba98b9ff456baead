"""The page names the commit, or the few that it is among; shows the failure; and keeps the text of others inert."""

from datetime import UTC, datetime

from settings.words import AttemptOutcome, Component, Phase, RunOutcome, Stage, Verdict
from tasks.pure.bisect import Answer, Bisection, Commit, Probe, Question
from tasks.pure.bisect_report import bisect_report, verdict_of
from tasks.pure.record import (
    Attempt,
    Build,
    Diagnosis,
    Evidence,
    HostSummary,
    LadderRef,
    ReplyVerdict,
    RunRecord,
    Source,
)

HOSTILE = "<script>alert(1)</script> | `x`"
ASKED = Question(rung="auto", until=Stage.DECODE, failed="nan (attention) in decode", said="rung auto broke")
COMMITS = tuple(Commit(sha=f"{n}" * 40, subject=f"commit {n} {HOSTILE}") for n in range(1, 6))


def run(name: str, commit: str, torch: str) -> RunRecord:
    cause = Diagnosis(
        kind="nan", component=Component.ATTENTION, phase=Phase.DECODE, stage=Stage.DECODE, means=f"NaN of {commit[0]}.",
        evidence=Evidence(line=2, text=HOSTILE, around=((1, "before"), (2, HOSTILE))),
    )  # fmt: skip
    failed = Attempt(
        n=1, id="1", rung="auto", outcome=AttemptOutcome.FAILED, diagnosis=cause, failed_stage=Stage.DECODE,
        argv=("python", "-m", "sglang.launch_server", "--tp-size", "8"),
        decode=(ReplyVerdict(id="capital", verdict=Verdict.NAN, why="log-probabilities are null", reply="!!!!"),),
    )  # fmt: skip
    return RunRecord(
        run_id=name, started_at=datetime(2026, 11, 1, tzinfo=UTC), target="t", ladder=LadderRef(name="l", sha256="1"),
        build=Build(engine="sglang", version="0.5.9", commit=commit), host=HostSummary(name="h"), lease_s=9,
        outcome=RunOutcome.EXHAUSTED, attempts=(failed,),
        source=Source(ref="main", commit=commit, folder="k", freeze=(f"torch=={torch}",)),
    )  # fmt: skip


def searched(**answers: Answer) -> Bisection:
    probes = tuple(
        Probe(commit=name[1] * 40, answer=answer, run=name, why=HOSTILE) for name, answer in answers.items()
    )
    return Bisection(
        bad_run="bad", good_run="good", good="0" * 40, bad="5" * 40, question=ASKED, commits=COMMITS, probes=probes
    )


def test_the_first_bad_commit_is_named_with_its_own_failure_and_what_moved() -> None:
    found = searched(c3="bad", c1="good", c2="good")
    runs = {r.run_id: r for r in (run("c3", "3" * 40, "2.9"), run("c1", "1" * 40, "2.7"), run("c2", "2" * 40, "2.8"))}
    page = bisect_report(found, run("bad", "5" * 40, "3.0"), runs)
    assert "333333333333 is the first bad commit: commit 3" in verdict_of(found)
    for said in (
        "# rung auto broke", "python -m sglang.launch_server --tp-size 8", "NaN of 3.",
        "- capital: nan: log-probabilities are null", "torch 2.8 -&gt; 2.9",
        "commit 3333333333", "| 222222222222 |",
    ):  # fmt: skip
        assert said in page


def test_commits_that_could_not_be_judged_are_listed_and_none_is_accused() -> None:
    found = searched(c3="skip", c2="good", c4="bad")
    assert "one of 2 commits" in verdict_of(found)
    page = bisect_report(found, run("bad", "5" * 40, "3.0"), {})
    assert "first bad commit:" not in page
    for sha in ("- 333333333333", "- 444444444444"):
        assert sha in page
    assert "NaN of 5." in page   # no record of a probe is left: the night's own failure is shown


def test_a_search_under_way_says_so() -> None:
    assert "not found yet: 1 of the 5 commits were run" == verdict_of(searched(c3="good"))


def test_text_of_others_is_shown_and_never_interpreted() -> None:
    page = bisect_report(searched(c3="bad"), run("bad", "5" * 40, "3.0"), {"c3": run("c3", "3" * 40, "2.9")})
    outside_code = "\n".join(line for line in page.splitlines() if not line.startswith("    "))
    assert "<script>" not in outside_code
    assert "`x`" not in outside_code
