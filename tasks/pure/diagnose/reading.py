"""What one line can be read as: an entry of the catalogue, or what a named rule makes of it."""

from dataclasses import dataclass, replace

from settings.catalogue import Failure, Grade
from settings.words import Action, Component, Phase

__all__ = ["Cause", "Reading"]


@dataclass(frozen=True, slots=True)
class Reading:
    """A kind of failure that a text speaks of."""

    kind: str
    component: Component
    action: Action
    means: str
    cure: str
    source: str | None = None
    grade: Grade = "reported"
    general: bool = False
    by_frame: bool = False
    by_phase: bool = False

    @classmethod
    def of(cls, entry: Failure) -> "Reading":
        return cls(
            entry.kind, entry.component, entry.action, entry.means, entry.cure, entry.source,
            entry.grade, entry.general, entry.by_frame, entry.by_phase,
        )  # fmt: skip

    def but(self, **changes: object) -> "Reading":
        return replace(self, **changes)  # type: ignore[arg-type]  # the fields are checked where this is called


@dataclass(frozen=True, slots=True)
class Cause:
    """A reading at its place in the log."""

    reading: Reading
    line: int
    text: str
    phase: Phase
    rank: str | None = None
    frame: str | None = None
    raised: bool = False  # an exception's line, not one of a message's or a tool's output
    chain: int = 0  # tracebacks joined by "During handling of the above exception" share a number
