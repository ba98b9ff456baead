"""What a comparison with earlier runs came to, as it stands in the record."""

from typing import Literal

from tasks.pure.value import Value

__all__ = ["Comparison", "Confirmation", "Finding"]


class Finding(Value):
    """One difference to earlier good runs that is more than their own spread."""

    kind: Literal["branch", "time", "verdict", "accuracy", "figure"]
    what: str  # e.g. "rung auto", "auto: ready", "smoke at 4: output_tokens_per_s"
    direction: Literal["worse", "better"]
    was: float | str  # time and figure: the median of the nights; else the last good run's
    now: float | str
    unit: str | None = None
    low: float | None = None  # the band that is no news; for accuracy the 95 % interval of `now`
    high: float | None = None
    nights: int | None = None  # good runs that the band rests on
    said: str  # one sentence for a person

    @property
    def key(self) -> tuple[str, str, str]:
        """What two findings share when they are the same one, whatever their numbers."""
        return self.kind, self.what, self.direction


class Comparison(Value):
    """A run beside the last good one of its target and ladder, and the good ones before that."""

    last_good: str  # run id
    nights: int  # good runs looked at
    findings: tuple[Finding, ...] = ()
    not_judged: tuple[str, ...] = ()  # what could not be compared, and why

    @property
    def worse(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.direction == "worse")


class Confirmation(Value):
    """A/B/A: what running the last good build (A) and then this one (B) once more says of a regression."""

    verdict: Literal["code", "host", "noise", "unclear"]
    why: str
    runs: dict[Literal["A", "B"], str] = {}  # by role: run id
    good: str | None = None  # commit, release or wheel of the last good build
    bad: str | None = None
    moved: tuple[str, ...] = ()  # packages that differ between the two, as "torch 2.8.0 -> 2.9.0"
