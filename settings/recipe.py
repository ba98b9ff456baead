"""How a build gets onto a host: the steps that make a fresh environment for one commit, release or wheel."""

import string
from typing import Literal

from pydantic import Field, field_validator, model_validator

from settings.source import Declared, find, load

__all__ = ["PLACEHOLDERS", "Recipe", "RecipeStep", "load_recipe"]

# {base} the target's python; {env} the new environment, {python} its interpreter; {checkout} a folder for the source;
# {source} and {package} of the recipe; {commit} of the ref; {spec} what pip installs for a release or a wheel.
PLACEHOLDERS = frozenset({"base", "env", "python", "checkout", "source", "package", "commit", "spec"})


class RecipeStep(Declared):
    """One command. It may be run again after it was cut, so it has to bear that."""

    name: str = Field(min_length=1, description="what it does, for a person")
    argv: tuple[str, ...] = Field(min_length=1, description="the command, with placeholders")
    uv: tuple[str, ...] | None = Field(None, description="the command in its place where the host has uv")
    only: Literal["git", "package"] | None = Field(None, description="for refs of git, or for releases and wheels")
    limit_s: float = Field(3600.0, gt=0, description="seconds that it may take")

    @field_validator("argv", "uv")
    @classmethod
    def _placeholders_are_known(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for word in value or ():
            for _, name, _, _ in string.Formatter().parse(word):
                if name is not None and name not in PLACEHOLDERS:
                    raise ValueError(f"'{{{name}}}' is none of {', '.join(sorted(PLACEHOLDERS))}")
        return value


class Recipe(Declared):
    """All of it. Builds are cached by commit; a changed recipe builds anew."""

    source: str = Field(description="git repository, as `git clone` takes it")
    package: str = Field(description="name of the engine's package, for releases")
    keep: int = Field(3, ge=1, description="environments left on the host; the last good one stays whatever its age")
    step: tuple[RecipeStep, ...] = Field(min_length=1, description="commands, in order")

    @model_validator(mode="after")
    def _names_differ(self) -> "Recipe":
        for only in ("git", "package"):
            names = [s.name for s in self.step if s.only in (None, only)]
            if len(set(names)) != len(names):
                raise ValueError("two steps have the same name; what is done is remembered by it")
        return self


def load_recipe(name: str) -> Recipe:
    """The recipe called `name` in settings/recipes/, or at that path. Raises: BadInput."""
    return load(Recipe, find("recipes", name))
