"""The decision tree as data: rungs, the edges that leave them, remedies, budget and guard (contracts §2)."""

from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from settings.sane import check_env, check_name
from settings.source import Declared
from settings.words import Action, Component, Phase, Stage

__all__ = ["ArgValue", "Base", "Budget", "Default", "Edge", "Guard", "Ladder", "Remedy", "Rung", "Variation"]

# Decimals are strings, so that argv shows 0.88 and never 0.8799999; true is a bare flag, false leaves it out.
ArgValue = bool | int | str


def _one_or_many(value: Any) -> Any:
    if isinstance(value, list | tuple) and not value:
        raise ValueError("an empty list matches nothing; leave the key out, and anything matches")
    return (value,) if isinstance(value, str) else value


def _is_decimal(value: str) -> str:
    try:
        if isinstance(value, str) and not Decimal(value).is_finite():
            raise InvalidOperation
    except InvalidOperation:
        raise ValueError(f"'{value}' is no decimal number; write it as a string, like \"-0.07\"") from None
    return value


def _named(kind: str) -> AfterValidator:
    def check(value: dict[str, Any]) -> dict[str, Any]:
        for name in value:
            check_name(kind, name)
        return value

    return AfterValidator(check)


def _can_be_set(value: dict[str, str]) -> dict[str, str]:
    check_env(value)
    return value


Variables = Annotated[dict[str, str], AfterValidator(_can_be_set)]
DecimalText = Annotated[str, BeforeValidator(_is_decimal)]
_OneOrMany = BeforeValidator(_one_or_many)


class Edge(Declared):
    """One way out of a failed rung: what it matches (absent = anything), and exactly one move."""

    kind: Annotated[tuple[str, ...], _OneOrMany] = Field((), description="failure kinds; one or a list")
    component: Annotated[tuple[Component, ...], _OneOrMany] = Field((), description="parts of the stack")
    phase: Annotated[tuple[Phase, ...], _OneOrMany] = Field((), description="the engine's phase")
    stage: Annotated[tuple[Stage, ...], _OneOrMany] = Field((), description="our step that failed")
    action: Annotated[tuple[Action, ...], _OneOrMany] = Field((), description="first step the log supports")

    goto: str | None = Field(None, description="go to this rung")
    next: Literal[True] | None = Field(None, description="go to the following rung in file order")
    remedy: str | None = Field(None, description="same rung, arguments changed by this remedy")
    retry: int | None = Field(None, ge=1, description="same rung and arguments, at most so many times per rung")
    stop: str | None = Field(None, min_length=1, description="end the run, with this reason for a person")

    @model_validator(mode="after")
    def _exactly_one_move(self) -> "Edge":
        moves = [m for m in ("goto", "next", "remedy", "retry", "stop") if getattr(self, m) is not None]
        if len(moves) != 1:
            raise ValueError(f"an edge has exactly one of goto, next, remedy, retry, stop, not {moves or 'none'}")
        return self


class Rung(Declared):
    """One configuration to try: what it asks for beyond the base, and the edges that leave it when it fails."""

    why: str = Field(min_length=1, description="why this rung is worth a launch, for a person")
    args: dict[str, ArgValue] = Field({}, description="intents (engines/*.toml) or plain flags without dashes")
    env: Variables = Field({}, description="environment of the server on this rung")
    on: tuple[Edge, ...] = Field((), description="edges, first match wins; [default] follows")


class Remedy(Declared):
    """A change of arguments that stays for the rest of the run."""

    set: dict[str, ArgValue] = Field({}, description="arguments to set")
    unset: tuple[str, ...] = Field((), description="arguments to take away")
    step: dict[str, DecimalText] = Field({}, description="arguments to add a decimal to, e.g. \"-0.07\"")
    from_log: bool = Field(False, description="start from the number that the log names, where it names one")
    floor: dict[str, DecimalText] = Field({}, description="lowest value that a step may reach")
    ceiling: dict[str, DecimalText] = Field({}, description="highest value that a step may reach")
    at_most: int = Field(1, ge=1, description="uses per run")

    @model_validator(mode="after")
    def _changes_something(self) -> "Remedy":
        if not (self.set or self.unset or self.step):
            raise ValueError("a remedy needs at least one of set, unset, step")
        for bound in ("floor", "ceiling"):
            for name in getattr(self, bound):
                if name not in self.step:
                    raise ValueError(f"{bound}.{name} bounds an argument that `step` does not change")
        if self.from_log and len(self.step) != 1:
            raise ValueError("from_log needs exactly one argument in `step`: the one whose number the log names")
        return self


class Variation(Declared):
    """A change around a rung that serves, launched and gated like any other, and kept when it is measurably better."""

    why: str = Field(min_length=1, description="what is hoped for, for a person")
    args: dict[str, ArgValue] = Field(min_length=1, description="arguments to set, as in a rung")


class Budget(Declared):
    attempts: int = Field(10, ge=1, description="launches per run; skipped rungs cost nothing")
    wall_s: float = Field(14_400, gt=0, description="seconds for the whole run")


class Guard(Declared):
    same_signature: int = Field(2, ge=2, description="attempts in a row with the same cause before the ladder gives up")
    exempt: tuple[str, ...] = Field(("nan", "garbage", "empty"), description="kinds whose frame is always the sampler")


class Base(Declared):
    args: dict[str, ArgValue] = Field({}, description="arguments of every rung")
    env: Variables = Field({}, description="environment of the server on every rung")


class Default(Declared):
    on: tuple[Edge, ...] = Field((), description="edges that follow each rung's own list")


class Ladder(Declared):
    """A decision tree. `check_ladder` (settings/ladder_check.py) validates it as a whole."""

    engine: str = Field("sglang", description="name of a file in settings/engines/")
    start: str = Field(description="the first rung")
    gates: tuple[Stage, ...] = Field(
        (Stage.READY, Stage.WARMUP, Stage.DECODE, Stage.BENCH, Stage.RECHECK), description="what a rung must pass"
    )
    doomed: Literal["try", "last", "skip"] = Field("last", description="what to do with rungs expected to fail")
    decode_suite: str = Field("quick", description="name in settings/suites/ or a path: the decode suite")
    recheck_suite: str = Field("recheck", description="the decode suite after the load test")
    accuracy_suite: str = Field("gsm8k", description="name in settings/suites/accuracy/ or a path, for that gate")
    bench_suite: str = Field("smoke", description="name in settings/suites/load/ or a path: the load test")
    budget: Budget = Budget()
    guard: Guard = Guard()
    base: Base = Base()
    rung: Annotated[dict[str, Rung], _named("rung")] = Field(min_length=1)
    default: Default = Default()
    remedy: Annotated[dict[str, Remedy], _named("remedy")] = {}
    vary: Annotated[dict[str, Variation], _named("variation")] = Field(
        {}, description="tried one at a time around the winner, in file order"
    )
    vary_margin: float = Field(0.03, ge=0, lt=1, description="share by which a variation must be better to be kept")

    def edges(self, rung: str) -> Iterable[tuple[str, Edge]]:
        """Edges that apply on `rung`, in order, each with its name like `rung.auto.on[0]`."""
        for i, edge in enumerate(self.rung[rung].on):
            yield f"rung.{rung}.on[{i}]", edge
        for i, edge in enumerate(self.default.on):
            yield f"default.on[{i}]", edge

    def following(self, rung: str) -> str | None:
        """The next rung in file order."""
        names = list(self.rung)
        at = names.index(rung) + 1
        return names[at] if at < len(names) else None
