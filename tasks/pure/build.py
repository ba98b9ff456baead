"""A build by its ref: what is asked for, where it lies, which ones may go, and why one could not be installed."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from settings.recipe import Recipe, RecipeStep
from settings.words import Action, Component, Phase, RunOutcome, Stage
from tasks.pure.record import Diagnosis, Evidence, RunRecord

__all__ = [
    "DECIDED",
    "SERVING",
    "Found",
    "Ref",
    "collectable",
    "filled",
    "is_commit",
    "key_of",
    "last_run",
    "moved",
    "parse_ref",
    "steps_for",
    "unchanged",
    "why_not_installed",
]

SERVING = frozenset({RunOutcome.SERVING, RunOutcome.SERVING_UNMEASURED, RunOutcome.SERVING_BELOW_SLO})
DECIDED = SERVING | {RunOutcome.EXHAUSTED, RunOutcome.STOPPED}
_RELEASE = re.compile(r"(?:==)?(\d+(?:\.\d+)+\w*(?:\.post\d+|\.dev\d+|rc\d+)?)")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_REQUIREMENT = r"[\"'`]?([A-Za-z0-9][\w.-]*)"
_BLAME = tuple(
    re.compile(pattern)
    for pattern in (
        rf"No matching distribution found for {_REQUIREMENT}",
        rf"satisfies the requirement {_REQUIREMENT}",
        rf"Because {_REQUIREMENT} was not found",
        rf"Because (?:only )?{_REQUIREMENT}[^\n]* (?:depends on|is available|has no)",
        rf"Failed (?:to build|building wheel for|building|to download)(?: and install)? {_REQUIREMENT}",
        rf"The user requested {_REQUIREMENT}",
        r"No module named '([\w]+)",
    )
)


@dataclass(frozen=True, slots=True)
class Ref:
    """What a person asked for. `spec`: what pip is given, for a release or a wheel."""

    kind: Literal["git", "package"]
    text: str
    spec: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """An environment on the host. `used`: UNIX time of its last use."""

    key: str
    used: float
    good: float | None = None  # UNIX time at which it last served


def parse_ref(text: str, recipe: Recipe) -> Ref:
    """A release (`0.5.9`, `==0.5.9`), a wheel (path or address), else a branch, tag or commit of the repository."""
    release = _RELEASE.fullmatch(text)
    if release:
        return Ref("package", text, f"{recipe.package}=={release[1]}")
    if text.endswith(".whl"):
        return Ref("package", text, text)
    return Ref("git", text)


def is_commit(text: str) -> bool:
    """Whether it names a commit in full: then nobody need be asked what it is."""
    return _COMMIT.fullmatch(text) is not None


def key_of(ref: Ref, commit: str | None, recipe: Recipe) -> str:
    """The folder's name: same build and same recipe, same name."""
    what = commit[:12] if commit else re.sub(r"[^\w.-]+", "-", ref.spec.rpartition("/")[2])
    steps = "\n".join(step.model_dump_json() for step in steps_for(recipe, ref))
    same = hashlib.sha256("\n".join((recipe.source, ref.spec, steps)).encode()).hexdigest()
    return f"{what}-{same[:8]}"


def steps_for(recipe: Recipe, ref: Ref) -> tuple[RecipeStep, ...]:
    """The steps for this kind of ref."""
    return tuple(step for step in recipe.step if step.only in (None, ref.kind))


def filled(argv: Iterable[str], places: Mapping[str, str]) -> tuple[str, ...]:
    """The command with its placeholders replaced."""
    return tuple(word.format_map(places) for word in argv)


def collectable(found: Iterable[Found], recipe: Recipe, *, using: str) -> list[str]:
    """The environments that may go: all but the newest ones, the one in use, and the last good one."""
    newest = sorted(found, key=lambda f: f.used, reverse=True)
    good = max((f for f in newest if f.good is not None), key=lambda f: f.good or 0.0, default=None)
    stay = {using, *([good.key] if good else ())}
    room = max(0, recipe.keep - len(stay))
    others = [f.key for f in newest if f.key not in stay]
    return others[room:]


def moved(good: Iterable[str], now: Iterable[str]) -> list[str]:
    """What differs between two freezes (`name==version`), as "torch 2.8.0 -> 2.9.0"."""
    was, is_ = (dict(line.partition("==")[::2] for line in freeze) for freeze in (good, now))
    names = sorted(name for name in was.keys() | is_.keys() if was.get(name) != is_.get(name))
    return [f"{name} {was.get(name) or 'absent'} -> {is_.get(name) or 'absent'}" for name in names]


def why_not_installed(step: str, exited: int, said: str, good: Sequence[str], now: Sequence[str]) -> Diagnosis:
    """Which dependency it was: the one that the installer blames; else what moved since the last good build."""
    line, text, name = _blamed(said)
    was = dict(pin.partition("==")[::2] for pin in good)
    changes = moved(good, now) if good and now else []
    if name:
        before = f"; the last good build has {name} {was[name]}" if name in was else ""
        means = f"the install stopped at '{step}' over {name}{before}"
        pin = f" to {was[name]}" if name in was else ""
        cure = f"pin {name} in the recipe{pin}, or wait for a commit that mends it"
    else:
        means = f"the install stopped at '{step}' (exit {exited}) and names no package"
        cure = "read install.log"
    return Diagnosis(
        kind="version_mismatch" if name else "unknown", phase=Phase.ARGS, component=Component.HOST, action=Action.STOP,
        stage=Stage.PREFLIGHT, evidence=Evidence(line=line, text=text, file="install.log"), means=means, try_=cure,
        flag=name, value=was.get(name) if name else None, source="the installer",
        also_seen=tuple(f"moved since the last good build: {change}" for change in changes[:20]),
    )  # fmt: skip


def _blamed(said: str) -> tuple[int | None, str, str | None]:
    """Line number, line and package of the first line that blames one; else the last line that says anything."""
    lines = said.splitlines()
    for pattern in _BLAME:
        for n, line in enumerate(lines, 1):
            hit = pattern.search(line)
            if hit:
                return n, line.strip(), re.split(r"[\[<>=!~;]", hit[1])[0].rstrip(".,")
    said_last = next(((n, line) for n, line in reversed(list(enumerate(lines, 1))) if line.strip()), (None, ""))
    return said_last[0], said_last[1].strip(), None


def last_run(records: Iterable[RunRecord], *, target: str, ladder: str) -> RunRecord | None:
    """The newest run of this target and ladder that came to a decision; `records` come newest first."""
    nights = (r for r in records if r.confirms is None)
    same = (r for r in nights if r.target == target and r.ladder.name == ladder and r.outcome in DECIDED)
    return next(same, None)


def unchanged(last: RunRecord, now: RunRecord) -> bool:
    """Whether a run would only repeat the last one: same build, ladder, target, and host as probed."""
    return _state(last) == _state(now)


def _state(record: RunRecord) -> tuple[object, ...]:
    gpus = tuple({k: v for k, v in gpu.items() if k != "used_mib"} for gpu in record.host.gpus)
    host = record.host.model_copy(update={"gpus": gpus, "problems": ()})
    ref = record.asked.target_ref if record.asked else None
    return record.ladder.sha256, record.build, host.model_dump_json(), ref
