"""From what a rung means to the exact command that this build understands, or the reason why it cannot say it."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from settings.engine import Engine, Spelling
from settings.ladder import ArgValue
from settings.source import BadInput, nearest
from tasks.pure.capabilities import Capabilities, Flag, Parser, release
from tasks.pure.expect import expect, release_of

__all__ = ["LaunchPlan", "Override", "Unspellable", "Wanted", "build_plan", "effective", "overridden"]

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a rung asks for: base <- rung <- remedies, as the walker merged them."""

    rung: str
    args: Mapping[str, ArgValue]
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """A command that this build's parser accepts, and what is expected of it."""

    argv: tuple[str, ...]
    env: dict[str, str]
    port: int
    asked: dict[str, ArgValue]
    expects: dict[str, str]  # by intent, what will be in effect, auto-selection included
    doomed: str | None = None  # why the engine is expected to refuse it
    notes: tuple[str, ...] = ()  # reports about other versions or models


@dataclass(frozen=True, slots=True)
class Unspellable:
    """This build has no words for it: the rung is skipped."""

    why: str
    key: str
    nearest: str | None = None


@dataclass(frozen=True, slots=True)
class Override:
    """The server runs with another value than was asked."""

    intent: str
    asked: str
    effective: str


def build_plan(
    wanted: Wanted, engine: Engine, capabilities: Capabilities, *, python: str, model: str
) -> LaunchPlan | Unspellable:
    """The launch of a rung on this build. Flags are matched exactly; a value must be among the flag's choices.

    Raises: BadInput for an argument that no ladder may set, e.g. api-key.
    """
    argv: list[str] = []
    env = dict(wanted.env)
    engine.launch.refuse_env(env, f"rung {wanted.rung}", "env")
    port = engine.launch.default_port
    for key, value in wanted.args.items():
        if reason := engine.launch.refused.get(key):
            raise BadInput(f"rung {wanted.rung}", f"args.{key}", f"may not be set in a ladder: {reason}")
        if key == "port":
            port = _port(wanted.rung, value)
            continue
        said = _say(key, value, engine, capabilities)
        if isinstance(said, _Refusal):
            return Unspellable(said.why, key, said.nearest())
        argv += said.argv
        env |= said.env
    launch = engine.launch
    head = [part.replace("{python}", python) for part in launch.argv]
    own = [launch.model, model, launch.host, HOST, launch.port, str(port)]
    outlook = expect(wanted.args, engine, capabilities)
    return LaunchPlan(
        (*head, *own, *argv), env, port, dict(wanted.args), outlook.effective, outlook.doomed, outlook.notes
    )


def overridden(asked: Mapping[str, ArgValue], server_info: Mapping[str, Any], engine: Engine) -> tuple[Override, ...]:
    """Intents that run with another value than was asked. What the server does not report is not judged."""
    runs = effective(server_info, engine)
    named = ((engine.intent_of(key), value) for key, value in asked.items() if value is not False and value != "auto")
    return tuple(
        Override(key, str(value), str(runs[key]))
        for key, value in named
        if key in runs and engine.intents[key].compare and not _same(key, value, runs[key], engine)
    )


def effective(server_info: Mapping[str, Any], engine: Engine) -> dict[str, Any]:
    """What runs, by intent, those included that the build picked by itself; unset ones are left out."""
    found: dict[str, Any] = {}
    for key, intent in engine.intents.items():
        values = (server_info.get(name) for name in intent.fields)
        value = next((v for v in values if v is not None), None)
        if value is not None:
            found[key] = value
    return found


@dataclass(frozen=True, slots=True)
class _Said:
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why one spelling is none of this build's, and what was looked for among what; comparing words takes long."""

    why: str
    word: str = ""
    among: Collection[str] = ()
    flag_is_there: bool = False

    def nearest(self) -> str | None:
        return nearest(self.word, self.among)


def _say(key: str, value: ArgValue, engine: Engine, capabilities: Capabilities) -> _Said | _Refusal:
    if value is False:
        return _Said()
    intent = engine.intents.get(key)
    if intent is None:
        meant = engine.intent_of(key)
        hint = f" (the intent `{meant}` finds the spelling of each build)" if meant else ""
        return _say_flags((f"--{key}",), (value,), capabilities.parser, hint)
    values = (value, *sorted(engine.alike(key, value) - {str(value)}))
    refusals: list[_Refusal] = []
    for spelling in intent.spelling:
        said = (
            _say_variable(spelling, engine, capabilities) if spelling.env
            else _say_flags(spelling.flags, values, capabilities.parser)
        )
        if isinstance(said, _Said):
            return said
        refusals.append(said)
    # A flag that is there but lacks the value tells more than a spelling of other releases.
    return next((refusal for refusal in refusals if refusal.flag_is_there), refusals[0])


def _say_variable(spelling: Spelling, engine: Engine, capabilities: Capabilities) -> _Said | _Refusal:
    """An unknown variable is ignored by the engine without a word, so this must be right."""
    name, here = str(spelling.env), release_of(engine, capabilities)
    if capabilities.environment is not None:
        reads = name in capabilities.environment
    elif here is None:
        reads = True
    else:
        too_old = spelling.since is not None and here < release(spelling.since)
        reads = not too_old and not (spelling.until is not None and here > release(spelling.until))
    return _Said(env={name: spelling.value}) if reads else _Refusal(f"this build does not read {name}")


def _say_flags(
    names: tuple[str, ...], values: tuple[ArgValue, ...], parser: Parser | None, hint: str = ""
) -> _Said | _Refusal:
    if parser is None:
        return _Said(tuple(word for name in names for word in _words(name, values[0], None)))
    argv: list[str] = []
    for name in names:
        flag = parser.find(name)
        if flag is None:
            return _Refusal(f"this build has no flag {name}{hint}", name, parser.flags.keys())
        if flag.takes_value and values[0] is True:
            return _Refusal(f"{name} of this build needs a value", flag_is_there=True)
        if not flag.takes_value and values[0] is not True:
            return _Refusal(f"{name} of this build takes no value ('{values[0]}' was given)", flag_is_there=True)
        value = next((v for v in values if not flag.choices or str(v) in flag.choices), None)
        if value is None:
            return _Refusal(f"this build has no `{values[0]}` for {name}", str(values[0]), flag.choices, True)
        argv += _words(name, value, flag)
    return _Said(tuple(argv))


def _words(name: str, value: ArgValue, flag: Flag | None) -> Iterable[str]:
    if value is True:
        return (name,)
    many = flag is not None and (flag.nargs in ("+", "*") or isinstance(flag.nargs, int))
    return (name, *str(value).split()) if many else (name, str(value))


def _port(rung: str, value: ArgValue) -> int:
    text = str(value)
    if value is True or not text.isdecimal() or not 1 <= int(text) <= 65_535:
        raise BadInput(f"rung {rung}", "args.port", f"'{value}' is no port (1 to 65535)")
    return int(text)


def _same(key: str, asked: ArgValue, runs: Any, engine: Engine) -> bool:
    if str(runs).lower() in {v.lower() for v in engine.alike(key, asked)}:
        return True
    try:
        return Decimal(str(asked)) == Decimal(str(runs))
    except InvalidOperation:
        return False
