"""The lines by which an engine tells where it is, so that the phase of a failure can be read from its log."""

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from settings.literals import required_literals
from settings.source import SETTINGS_DIR, Declared, read_toml, validate
from settings.words import Phase

__all__ = ["Milestone", "Milestones", "Pattern", "Regex", "shipped_milestones"]


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as e:
        raise ValueError(f"'{pattern}' is no regular expression: {e}") from None
    return pattern


def _findable(pattern: str) -> str:
    if not required_literals(pattern):
        raise ValueError(f"'{pattern}' can match lines that share no literal of four characters")
    return pattern


Regex = Annotated[str, AfterValidator(_compiles)]
# A regular expression each match of which holds one of some literals, so that the prefilter can find it.
Pattern = Annotated[str, AfterValidator(_compiles), AfterValidator(_findable)]


class Milestone(Declared):
    """One line by which the engine shows the phase that begins with it."""

    phase: Phase = Field(description="the phase from this line on")
    pattern: Pattern = Field(description="regular expression, searched in the line without its prefixes")
    example: str = Field(min_length=1, description="a line that the pattern fits")
    restart: bool = Field(False, description="a new start of the server: all phases begin again")
    ready: bool = Field(False, description="the server serves after this line")
    batch: bool = Field(False, description="printed all the time while serving: a literal, and a sign of life")
    graphs_off: bool = Field(False, description="counts only when graphs are switched off")

    @model_validator(mode="after")
    def _holds_together(self) -> "Milestone":
        if not re.search(self.pattern, self.example):
            raise ValueError(f"the pattern '{self.pattern}' does not fit its example")
        if self.batch and set(self.pattern) & set(".^$*+?{}[]\\|()"):
            raise ValueError(f"'{self.pattern}': the pattern of a batch line is a plain literal")
        return self


class Milestones(Declared):
    """The milestones of each engine, by the engine's name."""

    engines: Mapping[str, tuple[Milestone, ...]]


class _Part(Declared):
    milestone: tuple[Milestone, ...]


def shipped_milestones() -> Milestones:
    """The `[[milestone]]` tables of all files in `settings/engines/`. Raises: BadInput."""
    engines = {}
    for path in sorted((SETTINGS_DIR / "engines").glob("*.toml")):
        found = read_toml(path).get("milestone", [])
        engines[path.stem] = validate(_Part, {"milestone": found}, path).milestone
    return Milestones(engines=engines)
