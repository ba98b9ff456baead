"""Between the last good and the first bad commit: what to run there, which commit is next, and what its run says."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log2
from typing import Literal

from settings.ladder import Base, Default, Edge, Ladder, Rung
from settings.ladder_check import GATES
from settings.words import AttemptOutcome, RunOutcome, Stage
from tasks.pure.build import DECIDED
from tasks.pure.comparison import Comparison, Finding
from tasks.pure.history import winner_of
from tasks.pure.record import Attempt, RunRecord
from tasks.pure.regression import figures_of, rungs_of
from tasks.pure.value import Value
from tasks.pure.walker import tried_as

__all__ = [
    "Bisection", "Commit", "Probe", "Question", "Suspects", "judge_probe", "launches", "narrowed", "next_commit",
    "question",
]  # fmt: skip

Answer = Literal["good", "bad", "skip"]
_TELLS_NOTHING = frozenset(RunOutcome) - DECIDED - {RunOutcome.ERROR}


class Commit(Value):
    sha: str
    subject: str


class Question(Value):
    """What is asked of each commit: one rung, up to the stage that failed, and what it was that failed there."""

    rung: str
    until: Stage
    failed: str | None = None  # signature of the failure, or why the rung was skipped
    figure: str | None = None  # or the figure that left its band, and the band
    low: float | None = None
    high: float | None = None
    said: str  # the regression in one sentence


class Probe(Value):
    """A commit that was run."""

    commit: str
    answer: Answer
    run: str
    why: str


class Bisection(Value):
    """The whole search, as it is kept between two sittings."""

    bad_run: str
    good_run: str
    good: str
    bad: str
    question: Question
    commits: tuple[Commit, ...]  # after `good`, up to and with `bad`, by first parents, the oldest first
    probes: tuple[Probe, ...] = ()

    @property
    def answers(self) -> dict[str, Answer]:
        return {probe.commit: probe.answer for probe in self.probes}


@dataclass(frozen=True, slots=True)
class Suspects:
    """One of these is the first bad commit; more than one where those between could not be judged."""

    commits: tuple[str, ...]


def question(bad: RunRecord, compared: Comparison, ladder: Ladder) -> Question | str:
    """What is to be asked, or why a bisect cannot ask it. A rung that broke comes before a figure."""
    for finding in sorted(compared.worse, key=lambda f: (f.kind != "branch", f.what == "outcome")):
        if finding.kind == "branch" and finding.what.startswith("rung "):
            return _of_rung(bad, finding)
        won = winner_of(bad)
        if finding.kind == "figure" and won is not None and won.variation is None and Stage.BENCH in ladder.gates:
            return Question(
                rung=won.rung, until=Stage.BENCH, figure=finding.what, low=finding.low, high=finding.high,
                said=finding.said,
            )  # fmt: skip
    return "no rung broke and no figure left its band: there is nothing that a launch could answer"


def _of_rung(bad: RunRecord, finding: Finding) -> Question | str:
    rung = finding.what.removeprefix("rung ")
    last = _failing(bad, rung)
    if last.outcome is AttemptOutcome.SKIPPED:
        until = Stage.READY  # where the build can say it, that it starts is the answer
    elif last.failed_stage is None:
        return f"{rung} failed before anything was launched: {finding.now}"
    else:
        until = last.failed_stage if last.failed_stage in GATES else Stage.READY
    return Question(rung=rung, until=until, failed=str(finding.now), said=finding.said)


def narrowed(ladder: Ladder, bad: RunRecord, asked: Question) -> Ladder:
    """The ladder of a probe: that rung with the remedies that it had, the gates up to that stage, and no way on."""
    attempt = _failing(bad, asked.rung) if asked.figure is None else winner_of(bad)
    before = [a for a in bad.attempts if attempt is not None and a.n < attempt.n]
    tried = tried_as(ladder, asked.rung, before)
    wanted = GATES[: GATES.index(asked.until) + 1]
    skipped = asked.failed is not None and asked.failed.startswith("skipped")
    return ladder.model_copy(
        update={
            "start": asked.rung, "gates": tuple(g for g in GATES if g in wanted and g in {*ladder.gates, asked.until}),
            "base": Base(), "remedy": {}, "vary": {}, "doomed": "skip" if skipped else "try",
            "rung": {asked.rung: Rung(why=asked.said, args=dict(tried.args), env=dict(tried.env))},
            "default": Default(on=(Edge(stop="a probe of a bisect tries nothing else"),)),
        }
    )  # fmt: skip


def judge_probe(run: RunRecord, asked: Question) -> tuple[Answer, str] | None:
    """What a commit's run says of it. None: nothing, through no fault of the commit; it is to be run again."""
    refused = run.halt is not None and run.halt.by == "preflight"  # e.g. a flag that the commit does not know
    if run.obstacle or run.outcome in _TELLS_NOTHING or (run.outcome is RunOutcome.ERROR and not refused):
        return None
    if run.source and run.source.diagnosis:
        return "skip", f"could not be built: {run.source.diagnosis.means}"
    state = rungs_of(run).get(asked.rung)
    if state is None:
        return "skip", run.halt.reason if run.halt else str(run.outcome)
    if asked.figure is not None:
        return _judge_figure(run, asked, state)
    if state == "passed":
        return "good", f"passed {asked.until}"
    if state == asked.failed or (state.startswith("skipped") and (asked.failed or "").startswith("skipped")):
        return "bad", state
    return "skip", f"failed otherwise: {state}"


def _judge_figure(run: RunRecord, asked: Question, state: str) -> tuple[Answer, str]:
    value = figures_of(run).get(asked.figure or "")
    if state != "passed" or value is None:
        return "skip", f"{asked.figure} was not measured: {state}"
    assert asked.low is not None
    assert asked.high is not None
    said = f"{asked.figure} is {value:.4g}"
    rate = (asked.figure or "").endswith("per_s")
    return ("bad" if (value < asked.low if rate else value > asked.high) else "good"), said


def next_commit(commits: Sequence[str], answers: Mapping[str, Answer]) -> str | Suspects:
    """The commit to run next; what is left where no run can narrow it further.

    `commits`: the oldest first; the one before the first is good, the last is bad. A commit that cannot be judged is
    left out, and never taken for good or for bad.
    """
    at = {commit: n for n, commit in enumerate(commits)}
    bad = min((at[c] for c, answer in answers.items() if answer == "bad" and c in at), default=len(commits) - 1)
    good = max((at[c] for c, answer in answers.items() if answer == "good" and c in at and at[c] < bad), default=-1)
    untried = [c for c in commits[good + 1 : bad] if c not in answers]
    return untried[len(untried) // 2] if untried else Suspects(tuple(commits[good + 1 : bad + 1]))


def launches(commits: int, skipped: int = 0) -> int:
    """The most runs that it takes to find the first bad one of so many commits, of which so many are skipped."""
    return (ceil(log2(commits)) if commits > 1 else 0) + skipped


def _failing(bad: RunRecord, rung: str) -> Attempt:
    """The last attempt on the rung, which decided its state."""
    return [a for a in bad.attempts if a.rung == rung and a.variation is None][-1]
