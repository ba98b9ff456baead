"""The whole ladder on one build: for each rung the command that would be launched, or why it is skipped or doomed."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from settings.engine import Engine
from settings.ladder import ArgValue, Ladder
from settings.source import BadInput, nearest
from tasks.pure.capabilities import Capabilities, Parser
from tasks.pure.expect import cannot_serve
from tasks.pure.plan import LaunchPlan, Unspellable, Wanted, build_plan

__all__ = ["RungPlan", "Status", "as_json", "check_args", "plan_ladder"]

Status = Literal["planned", "skipped", "doomed"]


@dataclass(frozen=True, slots=True)
class RungPlan:
    """What a rung comes to. `why` says why it is skipped or doomed, or what others report of it."""

    name: str
    status: Status
    why: str | None = None
    plan: LaunchPlan | None = None  # None when skipped


def plan_ladder(
    ladder: Ladder, engine: Engine, capabilities: Capabilities, *, python: str, model: str
) -> tuple[RungPlan, ...]:
    """Every rung in file order, without remedies. Raises: BadInput, see `build_plan`."""
    rungs: list[RungPlan] = []
    first: dict[frozenset[tuple[str, str]], str] = {}  # what runs -> the first rung that comes to it
    for name, rung in ladder.rung.items():
        wanted = Wanted(name, {**ladder.base.args, **rung.args}, {**ladder.base.env, **rung.env})
        found = _plan_rung(wanted, engine, capabilities, python, model)
        if found.plan and found.plan.expects:
            twin = first.setdefault(_what_runs(found.plan, engine), name)
            if twin != name:
                told = f"comes to the same as `{twin}` on this build"
                found = replace(found, why=f"{found.why}; {told}" if found.why else told)
        rungs.append(found)
    return tuple(rungs)


def check_args(ladder: Ladder, engine: Engine, capabilities: Capabilities, *, file: str) -> None:
    """Refuse flags and values that neither this build nor any known release has: slips of the pen, no rungs to skip.

    Raises: BadInput with the nearest valid one.
    """
    places: list[tuple[str, Mapping[str, ArgValue]]] = [("base.args", ladder.base.args)]
    places += [(f"rung.{name}.args", rung.args) for name, rung in ladder.rung.items()]
    places += [(f"remedy.{name}.set", remedy.set) for name, remedy in ladder.remedy.items()]
    places += [(f"vary.{name}.args", variation.args) for name, variation in ladder.vary.items()]
    for where, args in places:
        for key, value in args.items():
            _check_flag(f"{where}.{key}", key, engine, capabilities.parser, file)
            _check_value(f"{where}.{key}", key, value, engine, capabilities.parser, file)


def as_json(
    rungs: tuple[RungPlan, ...], engine: Engine, capabilities: Capabilities, *, ladder: str
) -> dict[str, Any]:
    """One JSON object: the build, with the problem that no rung can cure, and the rungs in file order."""
    build = capabilities.build
    return {
        "build": {
            "engine": build.engine, "version": build.version, "commit": build.commit,
            "freeze_sha256": build.freeze_sha256, "answered": capabilities.answered, "sm": capabilities.sm,
            "gpus": len(capabilities.gpus), "architecture": capabilities.model.architecture,
            "problem": cannot_serve(engine, capabilities), "problems": list(capabilities.problems),
        },
        "ladder": ladder,
        "rungs": [
            {
                "name": rung.name, "status": rung.status,
                "argv": list(rung.plan.argv) if rung.plan else [],
                "env": rung.plan.env if rung.plan else {},
                "expects": rung.plan.expects if rung.plan else {},
                "why": rung.why,
            }
            for rung in rungs
        ],
    }


def _plan_rung(wanted: Wanted, engine: Engine, capabilities: Capabilities, python: str, model: str) -> RungPlan:
    plan = build_plan(wanted, engine, capabilities, python=python, model=model)
    if isinstance(plan, Unspellable):
        hint = f"; the nearest is `{plan.nearest}`" if plan.nearest else ""
        return RungPlan(wanted.rung, "skipped", f"{plan.why}{hint}")
    notes = "; ".join(plan.notes)
    if plan.doomed:
        return RungPlan(wanted.rung, "doomed", plan.doomed + (f"; {notes}" if notes else ""), plan)
    return RungPlan(wanted.rung, "planned", notes or None, plan)


def _what_runs(plan: LaunchPlan, engine: Engine) -> frozenset[tuple[str, str]]:
    """The arguments in effect, the expected picks of the build included."""
    asked = {engine.intent_of(key) or key: str(value) for key, value in plan.asked.items() if value is not False}
    return frozenset({**plan.env, **asked, **plan.expects}.items())


def _check_flag(where: str, key: str, engine: Engine, parser: Parser | None, file: str) -> None:
    known = {*engine.flags, *(parser.flags if parser else ())}
    if engine.flags and key != "port" and key not in engine.intents and f"--{key}" not in known:
        names = {*engine.intents, *(name.removeprefix("--") for name in known)}
        raise BadInput(file, where, "no intent, and no flag of any release", nearest(key, names))


def _check_value(where: str, key: str, value: ArgValue, engine: Engine, parser: Parser | None, file: str) -> None:
    intent = engine.intents.get(engine.intent_of(key) or "")
    if intent is None or not intent.values or isinstance(value, bool):
        return
    flags = [parser.find(name) for spelling in intent.spelling for name in spelling.flags] if parser else []
    known = {*intent.values, *(choice for flag in flags if flag for choice in flag.choices)}
    if str(value) not in known:
        raise BadInput(file, where, f"no release knows the value '{value}'", nearest(str(value), known))
