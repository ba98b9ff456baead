"""What is known of an engine, as data: how it is launched, how releases spell each intent, what it picks by itself."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from settings.ladder import ArgValue
from settings.milestones import Milestone
from settings.source import BadInput, Declared, find, read_toml, validate
from settings.words import Component, Phase

__all__ = [
    "Auto",
    "Bench",
    "Endpoints",
    "Engine",
    "Fact",
    "Illegal",
    "Intent",
    "Launch",
    "Spelling",
    "Waiting",
    "Witness",
    "load_engine",
]


_OFF = ("", "0", "false", "no", "off")


def _tuple(value: Any) -> Any:
    return (value,) if isinstance(value, str | dict) else value


Choices = Annotated[tuple[str, ...], BeforeValidator(_tuple)]
Cases = Annotated[tuple[dict[str, Choices], ...], BeforeValidator(_tuple)]


class Launch(Declared):
    """The command line without its rung: where the model, the address and the port go."""

    argv: tuple[str, ...] = Field(description="command; {python} is the target's interpreter")
    model: str = Field(description="flag that takes the model's path")
    host: str = Field(description="flag that takes the address to listen on")
    port: str = Field(description="flag that takes the port")
    default_port: int = Field(ge=1, le=65_535)
    gpus: Choices = Field((), description="arguments whose value is a number of GPUs")
    refused: dict[str, str] = Field({}, description="arguments that no ladder may set, each with the reason")
    refused_env: dict[str, str] = Field({}, description="variables that nobody may switch on, each with the reason")

    def refuse_env(self, env: Mapping[str, str], file: str | Path, key: str) -> None:
        """Raises: BadInput for a variable that is switched on and must not be."""
        for name, reason in self.refused_env.items():
            if env.get(name, "").strip().lower() not in _OFF:
                raise BadInput(file, f"{key}.{name}", f"may not be set: {reason}")


class Endpoints(Declared):
    """Paths of the served API, the newest name first; the first that does not answer 404 is used."""

    ready: str = Field(description="200 only when requests are answered")
    server_info: tuple[str, ...] = Field(description="effective arguments")
    model_info: tuple[str, ...] = ()
    models: str = "/v1/models"
    generate: str = "/generate"
    flush_cache: str = "/flush_cache"


class Bench(Declared):
    module: str = Field(description="the engine's own load generator, run with `python -m`")


class Waiting(Declared):
    """How long silence is believed in. A quiet limit starts anew with each sign of progress (contracts §2)."""

    quiet_s: dict[Phase, float] = Field(description="seconds without progress, per phase of the engine")
    quiet_default_s: float = Field(gt=0, description="phases that `quiet_s` does not name")
    ready_total_s: float = Field(gt=0, description="seconds from launch to ready, all phases together")
    new_build_factor: float = Field(ge=1, description="limits are so much longer for a build not seen on this host")


class Spelling(Declared):
    """One way to say an intent: flags that all take the value (or are bare), or an environment variable."""

    flags: Choices = Field((), description="flags, all of which this spelling needs")
    env: str | None = Field(None, description="environment variable set to `value`, where the intent is true")
    value: str = Field("1", description="value of the environment variable")
    since: str | None = Field(None, description="first release that reads the variable")
    until: str | None = Field(None, description="last release that reads the variable")

    @model_validator(mode="after")
    def _one_of_both(self) -> "Spelling":
        if bool(self.flags) == bool(self.env):
            raise ValueError("a spelling has either flags or env")
        return self


class Intent(Declared):
    """What a ladder means, whatever this build calls it."""

    component: Component | None = Field(None, description="part of the stack it changes; the guard asks (contracts §2)")
    spelling: tuple[Spelling, ...] = Field(min_length=1, description="ways to say it, the preferred one first")
    same: tuple[Choices, ...] = Field((), description="groups of values that mean the same")
    values: Choices = Field((), description="every value that a known release accepts; empty = free")
    fields: Choices = Field((), description="its names in /server_info, the newest first")
    compare: bool = Field(True, description="false where the engine may rightly change the value that was asked")


class Fact(Declared):
    """Where and when something holds: releases (both ends included), compute capability, architecture, other values."""

    since: str | None = None
    until: str | None = None
    sm: tuple[int, int] | None = Field(None, description="lowest and highest compute capability, e.g. [100, 109]")
    architecture: Choices = Field((), description="one of these; empty = any sparse-attention architecture")
    when: Cases = Field((), description="intents with one of these values; a list of tables: any of them")
    when_not: Cases = Field((), description="intents with a value, but none of these; likewise")
    source: str = Field(min_length=1, description="where this was read")


class Auto(Fact):
    """What the build picks for intents that nobody asked for; `forced`: also over what was asked."""

    picks: dict[str, str] = Field(min_length=1)
    forced: bool = False


class Illegal(Fact):
    """A combination that the engine refuses, or that is reported to fail.

    `refused` (read in the engine's source) makes a rung doomed; a report about another version or model is only told.
    """

    means: str = Field(min_length=1, description="what happens, for a person")
    refused: bool = True


class Witness(Declared):
    """A flag, or a choice of one, that is there from a release on: it dates a build whose version is not told."""

    release: str
    flag: str
    choice: str | None = None


class Engine(Declared):
    """One file of settings/engines/."""

    model_config = ConfigDict(populate_by_name=True)

    name: str = Field(min_length=1)
    package: str = Field(description="distribution whose version is the build's version")
    modules: dict[str, str] = Field({}, description="import paths that the probe needs")
    packages: tuple[str, ...] = Field((), description="distributions whose versions matter; the probe reads them")
    launch: Launch
    endpoints: Endpoints
    bench: Bench
    waiting: Waiting
    intents: dict[str, Intent] = Field(alias="intent")
    first_release: dict[str, str] = Field({}, description="architecture = first release that can serve it")
    sparse: Choices = Field((), description="architectures with a sparse-attention indexer (where index_topk is set)")
    autos: tuple[Auto, ...] = Field((), alias="auto")
    illegals: tuple[Illegal, ...] = Field((), alias="illegal")
    milestone: tuple[Milestone, ...] = ()
    flags: frozenset[str] = Field(frozenset(), description="flags of all known releases; from <name>.flags.txt")
    witnesses: tuple[Witness, ...] = Field((), alias="witness")

    @model_validator(mode="after")
    def _facts_speak_of_intents(self) -> "Engine":
        for fact in (*self.autos, *self.illegals):
            named = {key for case in (*fact.when, *fact.when_not) for key in case}
            named |= set(fact.picks) if isinstance(fact, Auto) else set()
            if unknown := sorted(named - set(self.intents)):
                raise ValueError(f"a fact of {fact.source} speaks of '{unknown[0]}', which is no intent")
        return self

    def intent_of(self, key: str) -> str | None:
        """The intent that an argument means, be it named so or by one of its plain flags."""
        if key in self.intents:
            return key
        flag = f"--{key}"
        return next((n for n, i in self.intents.items() if any(flag in s.flags for s in i.spelling)), None)

    def components(self) -> dict[str, Component]:
        """The part of the stack that each argument changes, intents and their plain flags alike, where declared."""
        found: dict[str, Component] = {}
        for name, intent in self.intents.items():
            if intent.component:
                flags = (flag.removeprefix("--") for spelling in intent.spelling for flag in spelling.flags)
                found |= dict.fromkeys((name, *flags), intent.component)
        return found

    def alike(self, key: str, value: ArgValue) -> frozenset[str]:
        """All spellings of a value that mean the same, itself included."""
        text = str(value)
        intent = self.intent_of(key)
        groups = self.intents[intent].same if intent else ()
        return frozenset({text, *(v for group in groups if text in group for v in group)})


def load_engine(name: str) -> Engine:
    """The engine called `name` in settings/engines/, or at that path. Raises: BadInput."""
    path = find("engines", name)
    flags = path.with_suffix(".flags.txt")
    known = flags.read_text(encoding="utf-8").split() if flags.is_file() else ()
    return validate(Engine, {**read_toml(path), "flags": known}, path)
