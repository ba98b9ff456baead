"""Natural questions beside a load: random token ids cannot show that a server has begun to talk nonsense."""

import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

import httpx

from settings.source import BadInput
from settings.suite import BenchProfile, DecodeSuite
from settings.words import Verdict
from tasks.deadline import Deadline
from tasks.decode import decode
from tasks.host import HostError
from tasks.pure.record import LoadSample
from tasks.runlog import log

__all__ = ["Sampler", "UnderLoad", "WentBad"]

_LEAVE_S = 10.0  # for a question under way when the load is over


@dataclass(frozen=True, slots=True)
class WentBad:
    """The server went bad under load: what it was, and the moment."""

    kind: str
    why: str


@dataclass(slots=True)
class UnderLoad:
    """What is known of a server under load; it outlives the step that found it, which a lost connection begins anew."""

    began: float = field(default_factory=time.monotonic)
    samples: list[LoadSample] = field(default_factory=list)
    bad: WentBad | None = None
    ended_it: bool = False  # it went bad, and we ended it


class Sampler:
    """Asks the suite's first probe every so many seconds while a `with` block runs; `every_s` None asks nothing.

    NaN counts at once. Any other bad reply counts when the same question, asked again at once, is bad too; an answer
    that did not come in time under a full load, or a server that is gone, is for others to judge.
    """

    def __init__(self, client: httpx.Client, suite: DecodeSuite, every_s: float | None, found: UnderLoad) -> None:
        first = suite.probe[0].model_copy(update={"repeat": 1, "batch": 1})
        self._client, self._suite, self._every_s = client, suite.model_copy(update={"probe": (first,)}), every_s
        self._found, self._over = found, threading.Event()
        self._thread = threading.Thread(target=self._ask_on, name="sampler", daemon=True)
        self._beside: BenchProfile | None = None

    def __enter__(self) -> "Sampler":
        if self._every_s is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(timeout=_LEAVE_S)

    def beside(self, profile: BenchProfile | None) -> None:
        """The run that goes on now; None: none, and nothing is asked."""
        self._beside = profile

    def _ask_on(self) -> None:
        try:
            while self._found.bad is None and not self._over.wait(self._every_s):
                profile = self._beside
                if profile is not None and self._is_bad(profile, again=False) and self._found.bad is None:
                    self._is_bad(profile, again=True)
        except (HostError, BadInput) as e:  # the load itself meets it too, and says so
            log.warning("host.lost", while_="sampling", why=str(e))

    def _is_bad(self, profile: BenchProfile, *, again: bool) -> bool:
        into_s = round(time.monotonic() - self._found.began, 1)
        report = decode(self._client, self._suite, deadline=Deadline.after(self._suite.request_s))
        verdict = report.verdicts[0]
        if report.server_gone or verdict.verdict == "not_run" or any(c.lost for c in report.calls):
            return False
        sample = LoadSample(
            at=datetime.now(UTC), into_s=into_s, profile=profile.name, concurrency=profile.concurrency,
            verdict=Verdict(verdict.verdict), why=report.why if report.kind else "",
        )  # fmt: skip
        self._found.samples.append(sample)
        log.info("load.sampled", **sample.model_dump(include={"into_s", "verdict", "why"}))
        if report.kind is not None and (again or report.kind == "nan"):
            moment = f"{into_s:.1f} s into the load test ({profile.name}, {profile.concurrency} at once)"
            self._found.bad = WentBad(report.kind, f"{moment}: {report.why}")
        return report.kind is not None
