"""The failure catalogue: which text in a log shows which failure, what it means and what to do about it."""

import re
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from settings.milestones import Pattern, Regex
from settings.source import SETTINGS_DIR, Declared, load, nearest
from settings.words import LOG_KINDS, Action, Component

__all__ = ["Catalogue", "Failure", "Grade", "Hint", "Meaning", "Naming", "Ruling", "shipped_catalogue"]

# How far a text can be trusted to be the end of the server:
#   fatal      nothing serves on after it
#   reported   a cause when the server ends; nothing at all when it serves on
#   lives      a failure although the server serves on
#   stall      a failure when it comes again and again to the end of the log
#   aftermath  what others say when one has failed: counts only when the log holds nothing better
Grade = Literal["fatal", "reported", "lives", "stall", "aftermath"]


def _known(kind: str) -> str:
    if kind not in LOG_KINDS:
        hint = nearest(kind, LOG_KINDS)
        raise ValueError(f"'{kind}' is no kind" + (f"; did you mean '{hint}'?" if hint else ""))
    return kind


Kind = Annotated[str, AfterValidator(_known)]


class Meaning(Declared):
    """What a kind of failure is, and what to do about it."""

    kind: Kind = Field(description="failure kind, LABELS.md")
    component: Component = Field(description="part of the stack; see by_frame")
    action: Action = Field(description="first step that the log alone supports")
    means: str = Field(min_length=1, description="what happened, one plain sentence")
    cure: str = Field(min_length=1, alias="try", description="what to try, one plain sentence")
    source: str = Field("tests/corpus/LABELS.md", min_length=1, description="where the fact comes from")
    grade: Grade = Field("reported", description="how surely this ends the server")
    general: bool = Field(False, description="yields to a more exact text of the same event")
    by_frame: bool = Field(False, description="component and action come from the text and the innermost frames")
    by_phase: bool = Field(False, description="device memory: the kind comes from the phase")


class Ruling(Meaning):
    """What a named rule decides by place and order, or, as a last resort, by words in an unknown exception."""

    words: Regex | None = Field(None, description="regular expression, read without regard to case")


class Failure(Meaning):
    """One signature. The first entry that fits a line decides, so the more exact ones stand first."""

    pattern: Pattern = Field(description="regular expression, searched in the line without its prefixes")
    example: str = Field(min_length=1, description="a line that this pattern fits and no other entry's does")
    source: str = Field(min_length=1, description="where the fact comes from")
    raised: bool = Field(False, description="counts in an exception's line only: others use its words in passing")
    phases: tuple[str, ...] = Field((), description="counts in these phases only; empty: in all")

    @model_validator(mode="after")
    def _fits_its_example(self) -> "Failure":
        if not re.search(self.pattern, self.example):
            raise ValueError(f"the pattern '{self.pattern}' does not fit its example")
        return self


class Hint(Declared):
    """A warning that may matter: listed as also seen, never a cause."""

    says: str = Field(min_length=1)
    pattern: Pattern
    example: str = Field(min_length=1)


class Naming(Declared):
    """Words in a text or in a frame's path that name a component."""

    component: Component
    text: str = Field("", description="regular expression for an error's text")
    frame: str = Field("", description="regular expression for 'path/in/package.py:function'")
    first: bool = Field(False, description="its frames, anywhere in the traceback, are asked before any text")


class Catalogue(Declared):
    """All of failures.toml."""

    advice: tuple[Regex, ...] = Field(description="text that is cut out of a line before anything is looked for in it")
    ignored: tuple[Regex, ...] = Field(description="lines that are never evidence")
    deaths: tuple[Pattern, ...] = Field(description="lines that say the server ended of a failure, never why")
    consequences: tuple[str, ...] = Field(description="names of exceptions that only tell of another's end")
    failure: tuple[Failure, ...]
    ruling: dict[str, Ruling]
    hint: tuple[Hint, ...] = ()
    naming: tuple[Naming, ...] = ()

    @model_validator(mode="after")
    def _no_example_fits_twice(self) -> "Catalogue":
        for ours, theirs in _clashes(self.failure):
            raise ValueError(f"the example of '{ours.pattern}' also fits '{theirs.pattern}'")
        return self


def _clashes(entries: tuple[Failure, ...]) -> Iterable[tuple[Failure, Failure]]:
    compiled = [re.compile(e.pattern) for e in entries]
    for ours in entries:
        for theirs, pattern in zip(entries, compiled, strict=True):
            if theirs is not ours and pattern.search(ours.example):
                yield ours, theirs


def shipped_catalogue() -> Catalogue:
    """`settings/failures.toml`. Raises: BadInput."""
    return load(Catalogue, SETTINGS_DIR / "failures.toml")
