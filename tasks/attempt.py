"""One attempt being written down while it happens, so that whatever ends it leaves a true entry."""

import uuid
from collections.abc import Callable

from settings.words import AttemptOutcome, Phase, Stage
from tasks.diagnose import excerpt
from tasks.faults import StageReport
from tasks.pure import cause
from tasks.pure.plan import LaunchPlan, Unspellable
from tasks.pure.record import Attempt, Diagnosis
from tasks.pure.redact import MASK, names_a_secret
from tasks.pure.walker import Try
from tasks.session import Server, Session

__all__ = ["Book", "skipped"]

_WIDEST = 500  # characters of a log line in the record; the log itself has all


class Book:
    """Gathers the reports of an attempt's steps. `attempt()` is the entry as things stand."""

    def __init__(
        self, session: Session, n: int, wanted: Try, plan: LaunchPlan, *,
        id: str | None = None, changed: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """`id`: of the attempt that is taken up again. `changed` is called after each report."""
        self.session, self.n, self.wanted, self.plan = session, n, wanted, plan
        self.id = id or f"{n:02d}-{wanted.rung}-{uuid.uuid4().hex[:6]}"
        self.taken_up, self._changed = id is not None, changed
        self.reports: list[StageReport] = []
        self.server: Server | None = None
        self.stage = Stage.PREFLIGHT  # the one under way
        self.begun = self.done = False  # of the flow that fills it
        self.error: Exception | None = None  # that ended it
        self._cut: tuple[Diagnosis, AttemptOutcome] | None = None

    @property
    def rung(self) -> str:
        return self.wanted.rung

    @property
    def launched(self) -> Server:
        """The server, once there is one."""
        if self.server is None:
            raise RuntimeError(f"attempt {self.id} has launched nothing yet")
        return self.server

    def enter(self, stage: Stage) -> None:
        """The next step begins: what cuts the attempt from here on cuts it there."""
        self.stage = stage
        self._changed()

    def add(self, report: StageReport) -> StageReport:
        self.reports.append(report)
        self.server = report.server or self.server
        self._changed()
        return report

    @property
    def failure(self) -> StageReport | None:
        """The report that decides: the first that failed the attempt, else the first that has something to say."""
        said = [r for r in self.reports if r.diagnosis is not None and r.result.stage is not Stage.STOP]
        return next((r for r in said if r.outcome is not AttemptOutcome.PASSED), said[0] if said else None)

    @property
    def outcome(self) -> AttemptOutcome:
        if self._cut is not None:
            return self._cut[1]
        return self.failure.outcome if self.failure else AttemptOutcome.PASSED

    def abort(self, kind: str, why: str) -> None:
        """We ended it ourselves, or lost sight of it. A failure that was found before stands, if only in the log."""
        if self.failure is not None and self.failure.outcome is not AttemptOutcome.PASSED:
            return
        fatal = self.server.watch.fatal if self.server else None
        if fatal is not None:
            seen = {"stage": self.stage, "also_seen": (*fatal.also_seen, why)}
            self._cut = fatal.model_copy(update=seen), AttemptOutcome.FAILED
        else:
            phase = self.server.watch.phase if self.server else Phase.ARGS
            self._cut = cause.aborted(kind, self.stage, phase, why), AttemptOutcome.ABORTED

    def under_way(self) -> Attempt:
        """The entry while it goes on: what would be true if we were killed now. A failure that was found stands."""
        if self.outcome is not AttemptOutcome.PASSED:
            return self.attempt()
        phase = self.server.watch.phase if self.server else Phase.ARGS
        cut = cause.aborted("interrupted", self.stage, phase, "it was under way when this was written")
        now = {"outcome": AttemptOutcome.ABORTED, "failed_stage": cut.stage, "diagnosis": cut}
        return self.attempt().model_copy(update=now)

    def attempt(self) -> Attempt:
        """The entry for the record."""
        failure = self.failure
        diagnosis = self._cut[0] if self._cut else (failure.diagnosis if failure else None)
        if diagnosis and diagnosis.evidence.line is not None and self.server:
            around = self._around(diagnosis.evidence.line)
            evidence = diagnosis.evidence.model_copy(update={"file": self._log(), "around": around})
            diagnosis = diagnosis.model_copy(update={"evidence": evidence})
        failed = diagnosis is not None and self.outcome is not AttemptOutcome.PASSED
        return Attempt(
            n=self.n,
            id=self.id,
            rung=self.wanted.rung,
            remedies=self.wanted.remedies,
            variation=self.wanted.variation,
            outcome=self.outcome,
            failed_stage=diagnosis.stage if failed and diagnosis else None,
            argv=self.plan.argv,
            env=_shown(self.session, self.plan),
            asked=self.plan.asked,
            expected=self.plan.doomed,
            effective=next((r.effective for r in self.reports if r.effective), {}),
            phases=self.server.watch.phases() if self.server else {},
            stages=tuple(r.result for r in self.reports),
            diagnosis=diagnosis,
            decode=tuple(v for r in self.reports for v in r.decode),
            suites=tuple(r.suite for r in self.reports if r.suite),
            replies=next((r.replies for r in reversed(self.reports) if r.replies), None),
            bench=tuple(p for r in self.reports for p in r.bench),
            accuracy=next((r.accuracy for r in self.reports if r.accuracy), None),
            load=next((r.load for r in self.reports if r.load), None),
            log=self._log() if self.server else None,
        )

    def _around(self, line: int) -> tuple[tuple[int, str], ...]:
        path = self.session.folder.path / self._log()
        found = excerpt(str(path), line) if path.exists() else []
        return tuple((number, raw.decode("utf-8", "replace")[:_WIDEST]) for number, raw in found)

    def _log(self) -> str:
        path = self.session.folder.log_path(self.n, self.wanted.rung)
        return str(path.relative_to(self.session.folder.path))


def skipped(n: int, wanted: Try, plan: LaunchPlan | Unspellable) -> Attempt:
    """The entry of a rung that is not launched: this build cannot say it, or it is expected to fail and put off."""
    if isinstance(plan, LaunchPlan):
        why, argv, asked, expected = f"expected to fail: {plan.doomed}", plan.argv, plan.asked, plan.doomed
    else:
        why, argv, asked, expected = plan.why, (), dict(wanted.args), None
    return Attempt(
        n=n, id=f"{n:02d}-{wanted.rung}-skipped", rung=wanted.rung, remedies=wanted.remedies,
        variation=wanted.variation,
        outcome=AttemptOutcome.SKIPPED, argv=argv, asked=asked, expected=expected, diagnosis=cause.unspellable(why),
    )  # fmt: skip


def _shown(session: Session, plan: LaunchPlan) -> dict[str, str]:
    """The server's environment as the record may show it: a value whose name says that it is secret is not there."""
    env = {**session.target.plain_env(), **plan.env}
    return {name: MASK if names_a_secret(name) else value for name, value in env.items()}
