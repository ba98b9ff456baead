"""The load test of one attempt: many points on one launch, the server asked beside them, and what it all came to."""

import time
from dataclasses import dataclass, field, replace

from settings.suite import BenchProfile
from settings.words import AttemptOutcome, Stage
from tasks.bench import BenchReport, Load
from tasks.bench import bench as run_bench
from tasks.faults import StageReport, Step, doomed, gone, out_of_budget, reported, settled, try_to_end
from tasks.host import DeadlinePassed
from tasks.pure import cause
from tasks.pure.record import BenchPoint, LoadFigure, LoadSummary
from tasks.pure.sweep import TRIES, capacity, figures, next_run, peaks_unmeasured
from tasks.pure.tuning import loses
from tasks.runlog import log
from tasks.sampler import Sampler, UnderLoad, WentBad
from tasks.session import Progress, Server, Session

__all__ = ["bench"]


def bench(session: Session, server: Server) -> StageReport:
    """Sweep, repeats and search. A fault of the client is repeated on the same server; one of the server ends it.

    Called again after the host was away, it comes to the same points: each load is known to the host by its number.
    """
    server.under_load = server.under_load or UnderLoad()
    return _Load(session, server, Step(Stage.BENCH, server.n, server.rung), server.under_load).go()


@dataclass(slots=True)
class _Load:
    session: Session
    server: Server
    step: Step
    seen: UnderLoad
    points: list[BenchPoint] = field(default_factory=list)
    ended: str = ""
    client_failed: int = 0  # runs in a row
    lost: bool = False  # a variation that cannot win any more

    def go(self) -> StageReport:
        test = self.session.load_test
        with Sampler(self.server.client, self.session.recheck_suite, test.sample_every_s, self.seen) as sampler:
            report = self._measure(sampler)
        found = figures(test, self.session.profiles, self.points, self.ended)
        summary = LoadSummary(
            figures=found, samples=tuple(self.seen.samples), capacity=self._capacity(found), said=self._said(found),
            slo=test.slo.model_dump(exclude_none=True) if test.slo else {}, ended=self.ended,
        )  # fmt: skip
        report = report or self._judged(found, summary)
        return replace(report, bench=tuple(self.points), load=summary)

    def _measure(self, sampler: Sampler) -> StageReport | None:
        """All runs. A report when the server failed or nothing can be measured; None: the figures are to be judged."""
        session = self.session
        while True:
            if self.seen.bad and self.seen.ended_it:  # before the connection was lost
                return self._went_bad(self.seen.bad)
            then = next_run(session.load_test, session.profiles, self.points, time.monotonic() - self.seen.began)
            if then.profile is None or session.deadline.passed:
                self.ended = then.why or "the budget of the whole run is spent"
                return None
            try:
                report = self._run(then.profile, then.repeat, sampler)
            except DeadlinePassed as e:
                return self._out_of_time(str(e))
            failed = self._server_failed(report)
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
        if self.seen.bad and self.seen.ended_it:
            return self._went_bad(self.seen.bad)
        self.ended = why
        pulse = self.server.watch.look(self.session.call())
        if not pulse.alive:
            return gone(self.step, self.session, self.server, pulse)
        if pulse.fatal:
            return doomed(self.step, self.session, self.server)
        if self.seen.bad:
            return self._went_bad(self.seen.bad)
        if self.session.deadline.passed:
            return out_of_budget(self.step, self.session, pulse)
        return self.step.failed(cause.unmeasured("bench_invalid", why), outcome=AttemptOutcome.PASSED)

    def _run(self, profile: BenchProfile, repeat: int, sampler: Sampler) -> BenchReport:
        """One run of bench_serving, and a look at the server now and then while it lasts."""
        session, server, settings = self.session, self.server, self.session.settings
        text, began = f"load test {profile.name}, {profile.concurrency} at once, run {repeat}", time.monotonic()

        def look() -> bool:
            session.show(Progress(server.n, server.rung, Stage.BENCH, f"{text}, {time.monotonic() - began:.0f} s"))
            pulse = server.watch.look(session.call())
            if self.seen.bad and pulse.alive and not pulse.fatal:  # a fatal line is given its own time
                self.seen.ended_it = True
                try_to_end(session, server)
            return self.seen.ended_it

        load = Load(
            f"{server.id}-load-{len(self.points) + 1}", session.target.python, server.plan.port, session.target.model,
            env=session.target.plain_env(), look=look, call_s=settings.call_s, stop_s=settings.stop_s,
            poll_s=settings.poll_s,
        )  # fmt: skip
        sampler.beside(profile)
        report = run_bench(
            session.supervisor, profile, load, deadline=session.deadline.sooner(settings.bench_s),
            gpus=session.target.gpus, slo=session.load_test.slo,
        )  # fmt: skip
        sampler.beside(None)
        name = f"{server.n:02d}-{len(self.points) + 1}"
        raw = report.raw and session.folder.write_raw(f"{name}.jsonl", report.raw)
        session.folder.write_raw(f"{name}.out", report.out.encode())
        self.points.append(report.point.model_copy(update={"raw": raw or None}))
        shown = report.point.model_dump(include={"profile", "concurrency", "valid", "why", "output_tokens_per_s"})
        log.info("load.measured", run=repeat, **shown)
        return report

    def _went_bad(self, bad: WentBad) -> StageReport:
        self.ended = "the server failed"
        return self.step.failed(cause.judged(bad.kind, bad.why, Stage.BENCH))

    def _server_failed(self, report: BenchReport) -> StageReport | None:
        """The log's first fatal cause, else what the samples showed, else the server's end without a word."""
        bad = self.seen.bad
        if bad and self.seen.ended_it:
            return self._went_bad(bad)
        suspicious = report.kind is not None and not report.client_fault
        pulse = settled(self.session, self.server, suspicious=suspicious)
        if not pulse.alive:
            return gone(self.step, self.session, self.server, pulse)
        if pulse.fatal:
            return doomed(self.step, self.session, self.server)
        if bad:
            return self._went_bad(bad)
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
