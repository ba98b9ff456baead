"""The load test of one attempt: many points on one launch, the server asked beside them, and what it all came to."""

import threading
import time
from dataclasses import dataclass, field, replace

from settings.suite import BenchProfile
from settings.words import AttemptOutcome, Stage
from tasks.bench import BenchReport
from tasks.bench import bench as run_bench
from tasks.faults import StageReport, Step, doomed, end_server, gone, out_of_budget, reported, settled
from tasks.host import DeadlinePassed, HostError
from tasks.pure import cause
from tasks.pure.record import BenchPoint, LoadFigure, LoadSummary
from tasks.pure.sweep import TRIES, capacity, figures, next_run, peaks_unmeasured
from tasks.pure.tuning import loses
from tasks.runlog import log
from tasks.sampler import Sampler
from tasks.session import Progress, Server, Session

__all__ = ["bench"]


def bench(session: Session, server: Server) -> StageReport:
    """Sweep, repeats and search. A fault of the client is repeated on the same server; one of the server ends it."""
    return _Load(session, server, Step(Stage.BENCH, server.n, server.rung)).go()


@dataclass(slots=True)
class _Load:
    session: Session
    server: Server
    step: Step
    points: list[BenchPoint] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    ended: str = ""
    client_failed: int = 0  # runs in a row
    lost: bool = False  # a variation that cannot win any more

    def go(self) -> StageReport:
        test = self.session.load_test
        every_s = test.sample_every_s
        with Sampler(self.server.client, self.session.recheck_suite, every_s) as sampler:
            report = self._measure(sampler)
        found = figures(test, self.session.profiles, self.points, self.ended)
        summary = LoadSummary(
            figures=found, samples=sampler.samples, capacity=self._capacity(found), said=self._said(found),
            slo=test.slo.model_dump(exclude_none=True) if test.slo else {}, ended=self.ended,
        )  # fmt: skip
        report = report or self._judged(found, summary)
        return replace(report, bench=tuple(self.points), load=summary)

    def _measure(self, sampler: Sampler) -> StageReport | None:
        """All runs. A report when the server failed or nothing can be measured; None: the figures are to be judged."""
        session = self.session
        while True:
            then = next_run(session.load_test, session.profiles, self.points, time.monotonic() - self.began)
            if then.profile is None or session.deadline.passed:
                self.ended = then.why or "the budget of the whole run is spent"
                return None
            try:
                report, ended_by_us = self._run(then.profile, then.repeat, sampler)
            except DeadlinePassed as e:
                return self._out_of_time(str(e))
            failed = self._server_failed(report, sampler, ended_by_us)
            if failed:
                self.ended = "the server failed"
                return failed
            rival = session.rival
            found = figures(session.load_test, session.profiles, self.points, "")
            if rival and (why := loses(rival, self.points, found)):
                self.ended, self.lost = f"stopped early: {why}", True
                return None
            self.client_failed = self.client_failed + 1 if report.kind == "bench_client" else 0
            if report.nan_signs or self.client_failed == TRIES:  # signs of NaN are the recheck's to judge, and at once
                self.ended = report.why
                diagnosis = cause.unmeasured(report.kind or "bench_invalid", report.why)
                return self.step.failed(diagnosis, outcome=AttemptOutcome.PASSED)

    def _out_of_time(self, why: str) -> StageReport:
        self.ended = why
        pulse = self.server.watch.look(self.session.call())
        if not pulse.alive:
            return gone(self.step, self.session, self.server, pulse)
        if pulse.fatal:
            return doomed(self.step, self.session, self.server)
        if self.session.deadline.passed:
            return out_of_budget(self.step, self.session, pulse)
        return self.step.failed(cause.unmeasured("bench_invalid", why), outcome=AttemptOutcome.PASSED)

    def _run(self, profile: BenchProfile, repeat: int, sampler: Sampler) -> tuple[BenchReport, bool]:
        """One run of bench_serving; whether we ended the server under it, because a sample was bad."""
        session, server = self.session, self.server
        text = f"load test {profile.name}, {profile.concurrency} at once, run {repeat}"
        sampler.beside(profile)
        with _Looking(session, server, sampler, text) as looking:
            report = run_bench(
                session.host, profile, python=session.target.python, port=server.plan.port, model=session.target.model,
                folder=session.supervisor.state_dir, deadline=session.deadline.sooner(session.settings.bench_s),
                gpus=session.target.gpus, slo=session.load_test.slo,
            )  # fmt: skip
        sampler.beside(None)
        name = f"{server.n:02d}-{len(self.points) + 1}"
        raw = report.raw and session.folder.write_raw(f"{name}.jsonl", report.raw)
        session.folder.write_raw(f"{name}.out", report.out.encode())
        self.points.append(report.point.model_copy(update={"raw": raw or None}))
        shown = report.point.model_dump(include={"profile", "concurrency", "valid", "why", "output_tokens_per_s"})
        log.info("load.measured", run=repeat, **shown)
        return report, looking.ended_it

    def _server_failed(self, report: BenchReport, sampler: Sampler, ended_by_us: bool) -> StageReport | None:
        """The log's first fatal cause, else what the samples showed, else the server's end without a word."""
        bad = sampler.bad
        if bad and ended_by_us:
            return self.step.failed(cause.judged(bad.kind, bad.why, Stage.BENCH))
        suspicious = report.kind is not None and not report.client_fault
        pulse = settled(self.session, self.server, suspicious=suspicious)
        if not pulse.alive:
            return gone(self.step, self.session, self.server, pulse)
        if pulse.fatal:
            return doomed(self.step, self.session, self.server)
        if bad:
            return self.step.failed(cause.judged(bad.kind, bad.why, Stage.BENCH))
        told = reported(self.server)
        return self.step.failed(told.model_copy(update={"stage": Stage.BENCH})) if told else None

    def _judged(self, found: tuple[LoadFigure, ...], summary: LoadSummary) -> StageReport:
        unmeasured = peaks_unmeasured(found)
        if unmeasured and not self.lost:
            first = unmeasured[0]
            why = f"{first.profile} with {first.concurrency} at once: {first.why}"
            return self.step.failed(cause.unmeasured("bench_invalid", why), outcome=AttemptOutcome.PASSED)
        if summary.capacity and None in summary.capacity.values():
            return self.step.failed(cause.below_slo(summary.said), outcome=AttemptOutcome.PASSED)
        return self.step.passed(summary.said)

    def _capacity(self, found: tuple[LoadFigure, ...]) -> dict[str, int | None]:
        """By profile; empty without an SLO."""
        met: dict[str, dict[int, bool]] = {}
        for figure in found:
            if figure.slo_met is not None:
                met.setdefault(figure.profile, {})[figure.concurrency] = figure.slo_met
        return {profile: capacity(by_concurrency) for profile, by_concurrency in met.items()}

    def _said(self, found: tuple[LoadFigure, ...]) -> str:
        said = []
        for profile, highest in self._capacity(found).items():
            mine = [f for f in found if f.profile == profile and f.slo_met is not None]
            if highest is None:
                easiest = min(mine, key=lambda f: f.concurrency)
                tried = ", ".join(str(f.concurrency) for f in mine)
                said.append(
                    f"{profile}: none meets the SLO (tried {tried} at once); with {easiest.concurrency}, {easiest.why}"
                )
            else:
                top = highest == max(f.concurrency for f in mine)
                more = ", the most that was tried" if top else ""
                said.append(f"{profile}: up to {highest} at once meet the SLO{more}")
        return "; ".join(said)


class _Looking:
    """Looks at the server while a load runs: the log is read, a fatal line gets its own time, and a server whose
    samples went bad is ended, so that nobody waits for the rest of its figures."""

    def __init__(self, session: Session, server: Server, sampler: Sampler, text: str) -> None:
        self._session, self._server, self._sampler, self._text = session, server, sampler, text
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name=f"look-{server.id}", daemon=True)
        self.ended_it = False

    def __enter__(self) -> "_Looking":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(timeout=self._session.settings.call_s)

    def _look(self) -> None:
        began = time.monotonic()
        line = ""
        while not self._over.wait(self._session.settings.poll_s):
            waited = f"{self._text}, {time.monotonic() - began:.0f} s"
            self._session.show(Progress(self._server.n, self._server.rung, Stage.BENCH, waited, line=line))
            try:
                pulse = self._server.watch.look(self._session.call())
                line = pulse.progress.line
                if self._sampler.bad and pulse.alive and not pulse.fatal:
                    self.ended_it = True
                    end_server(self._session, self._server)
                    return
            except HostError as e:  # the step itself meets it too, and says so
                log.warning("host.lost", while_="looking", why=str(e))
                return
