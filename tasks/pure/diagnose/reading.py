"""What a line is read as, and where it stood."""

from dataclasses import dataclass, replace
from typing import Self

from settings.catalogue import Grade, Meaning
from settings.words import Action, Component, Phase

__all__ = ["Cause", "Reading"]


@dataclass(frozen=True, slots=True)
class Reading:
    """A failure that a text speaks of: an entry of the catalogue, with what the rules know better at this place."""

    meaning: Meaning
    component: Component
    action: Action
    grade: Grade
    general: bool
    by_frame: bool

    @classmethod
    def of(cls, meaning: Meaning) -> Self:
        return cls(meaning, meaning.component, meaning.action, meaning.grade, meaning.general, meaning.by_frame)

    @property
    def kind(self) -> str:
        return self.meaning.kind

    def at(self, component: Component, action: Action) -> "Reading":
        return replace(self, component=component, action=action)


@dataclass(frozen=True, slots=True)
class Cause:
    """A reading at its place in the log."""

    reading: Reading
    line: int
    text: str
    phase: Phase
    rank: str | None = None
    frame: str | None = None  # innermost engine frame
    raised: bool = False      # an exception's line, not one of a message's or a tool's output
    chain: int = 0            # tracebacks joined by "During handling of the above exception" share a number
