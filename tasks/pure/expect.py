"""What a build will make of a set of arguments: what it picks by itself, and what it is known to refuse."""

from collections.abc import Mapping
from dataclasses import dataclass

from settings.engine import Engine, Fact
from settings.ladder import ArgValue
from tasks.pure.capabilities import Capabilities, Parser, release

__all__ = ["Outlook", "cannot_serve", "expect", "not_there", "proved_release", "release_of"]


@dataclass(frozen=True, slots=True)
class Outlook:
    effective: dict[str, str]  # by intent
    doomed: str | None = None
    notes: tuple[str, ...] = ()


def expect(asked: Mapping[str, ArgValue], engine: Engine, capabilities: Capabilities) -> Outlook:
    """The outlook for `asked` on this build, GPU and model, from the facts of the engine file.

    A fact applies only where all that it needs is known: an unknown release or GPU expects nothing.
    """
    named = ((engine.intent_of(key), value) for key, value in asked.items())
    values = {key: str(value) for key, value in named if key and not isinstance(value, bool) and value != "auto"}
    touched: set[str] = set()
    forced: list[str] = []
    here = release_of(engine, capabilities)
    for auto in engine.autos:
        if not _holds(auto, values, engine, capabilities, here):
            continue
        touched |= set(auto.picks)
        lost = {i: p for i, p in auto.picks.items() if i in values and p not in engine.alike(i, values[i])}
        if lost and auto.forced:
            what = " and ".join(f"{intent} = {values[intent]} with {pick}" for intent, pick in lost.items())
            forced.append(f"this build overwrites {what} ({auto.source})")
            values |= lost
        values |= {intent: pick for intent, pick in auto.picks.items() if intent not in values}
    doomed = [reason] if (reason := cannot_serve(engine, capabilities)) else []
    doomed += [*_too_large(asked, engine, capabilities), *forced]
    notes: list[str] = []
    for illegal in engine.illegals:
        if _holds(illegal, values, engine, capabilities, here):
            (doomed if illegal.refused else notes).append(f"{illegal.means} ({illegal.source})")
    return Outlook(
        {k: v for k, v in values.items() if k in touched}, doomed[0] if doomed else None, (*doomed[1:], *notes)
    )


def cannot_serve(engine: Engine, capabilities: Capabilities) -> str | None:
    """Why this build cannot serve the model whatever the arguments, or None."""
    architecture, here = capabilities.model.architecture, release_of(engine, capabilities)
    first = engine.first_release.get(architecture or "")
    if first and here and here < release(first):
        which = capabilities.build.version or "of this age"
        return f"{engine.name} {which} does not know {architecture}: the first release that does is {first}"
    return None


def not_there(engine: Engine, capabilities: Capabilities, *, python: str, on: str) -> str | None:
    """That this interpreter has no engine, or is none, and so nothing can be launched; None when it has one."""
    if capabilities.build.version is not None or capabilities.parser is not None:
        return None
    told = [p for p in capabilities.problems if p.startswith("probe: ")]  # the interpreter itself did not run
    if told:
        return f"{python} on {on} cannot be run ({told[0].removeprefix('probe: ')})"
    why = sorted((p for p in capabilities.problems if "parser" in p or "help" in p), key=lambda p: "parser" not in p)
    said = f"{python} on {on} has no {engine.name}"  # the import says why in fewer words than --help
    return f"{said} ({why[0]})" if why else said


def release_of(engine: Engine, capabilities: Capabilities) -> tuple[int, ...] | None:
    """The release that the facts of this build are those of, or None.

    A checkout often calls itself 0.0.0, or what it was when it was installed: what its flags prove counts as well.
    """
    stated = release(capabilities.build.version or "")
    proved = release(proved_release(capabilities.parser, engine) or "") if capabilities.parser else ()
    return max(stated if any(stated) else (), proved) or None


def proved_release(parser: Parser, engine: Engine) -> str | None:
    """The release that a build's flags prove at the least, or None."""
    seen = (
        witness.release
        for witness in engine.witnesses
        if (flag := parser.find(witness.flag)) and (witness.choice is None or witness.choice in flag.choices)
    )
    return max(seen, key=release, default=None)


def _too_large(asked: Mapping[str, ArgValue], engine: Engine, capabilities: Capabilities) -> list[str]:
    have = len(capabilities.gpus)
    wants = {key: int(str(asked[key])) for key in engine.launch.gpus if str(asked.get(key, "")).isdecimal()}
    return [f"{key} {n} needs {n} GPUs, and there {'is' if have == 1 else 'are'} {have}" for key, n in wants.items()
            if have and n > have]


def _holds(
    fact: Fact, values: Mapping[str, str], engine: Engine, capabilities: Capabilities, here: tuple[int, ...] | None
) -> bool:
    sm, model = capabilities.sm, capabilities.model
    if (fact.since or fact.until) and here is None:
        return False
    if here and ((fact.since and here < release(fact.since)) or (fact.until and here > release(fact.until))):
        return False
    if fact.sm and (sm is None or not fact.sm[0] <= sm <= fact.sm[1]):
        return False
    if model.index_topk is None or model.architecture not in (fact.architecture or engine.sparse):
        return False
    return _any_case(fact.when, values, engine, True) and _any_case(fact.when_not, values, engine, False)


def _any_case(
    cases: tuple[dict[str, tuple[str, ...]], ...], values: Mapping[str, str], engine: Engine, among: bool
) -> bool:
    """Whether some case has all its intents set, each among its list (or each outside of it)."""
    return not cases or any(
        all(
            intent in values and bool(engine.alike(intent, values[intent]) & set(listed)) is among
            for intent, listed in case.items()
        )
        for case in cases
    )
