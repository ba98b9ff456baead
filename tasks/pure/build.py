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
    "TOO_LONG",
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
TOO_LONG = 124  # as timeout(1) says it
_NO_ROOM = re.compile(r"No space left on device|Disk quota exceeded")
_AWAY = re.compile(
    r"Temporary failure in name resolution|Name or service not known|Could not resolve host|dns error"
    r"|NewConnectionError|Failed to establish a new connection|Connection (?:refused|reset|timed out|aborted)"
    r"|Network is unreachable|No route to host|Read timed out|ReadTimeout|Max retries exceeded|operation timed out"
    r"|error sending request|(?:HTTP error|status code|returned error:?|Server Error[^\n]*) \(?5\d\d"
    r"|\b5\d\d (?:Server Error|Bad Gateway|Service Unavailable|Gateway Time-?out)"
)
_NOTHING_FOUND = re.compile(r"\(from versions: none\)")  # what pip says of any package when its index is away


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
    complete: bool = True  # False: its install failed, or was cut


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
    """The environments that may go: all but the newest complete ones, the one in use, and the last good one."""
    newest = sorted(found, key=lambda f: f.used, reverse=True)
    good = max((f for f in newest if f.good is not None), key=lambda f: f.good or 0.0, default=None)
    stay = {using, *([good.key] if good else ())}
    room = max(0, recipe.keep - sum(f.complete for f in newest if f.key in stay))
    others = [f.key for f in newest if f.complete and f.key not in stay]
    return [f.key for f in newest if not f.complete and f.key != using] + others[room:]


def moved(good: Iterable[str], now: Iterable[str]) -> list[str]:
    """What differs between two freezes (`name==version`), as "torch 2.8.0 -> 2.9.0"."""
    was, is_ = (dict(line.partition("==")[::2] for line in freeze) for freeze in (good, now))
    names = sorted(name for name in was.keys() | is_.keys() if was.get(name) != is_.get(name))
    return [f"{name} {was.get(name) or 'absent'} -> {is_.get(name) or 'absent'}" for name in names]


def why_not_installed(step: str, exited: int, said: str, good: Sequence[str], now: Sequence[str]) -> Diagnosis:
    """Which dependency it was: the one that the installer blames; else what moved since the last good build.

    A full disk, a network that is away and a step that took too long are the host's, and no dependency's: `action` is
    then `retry_same`, or `kind` is `disk`.
    """
    if hosts := _of_the_host(step, exited, said):
        return hosts
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


def _of_the_host(step: str, exited: int, said: str) -> Diagnosis | None:
    lines = list(enumerate(said.splitlines(), 1))
    full = next(((n, line) for n, line in lines if _NO_ROOM.search(line)), None)
    away = next(((n, line) for n, line in lines if _AWAY.search(line)), None)
    if away and _blamed(said)[2] is not None and not _NOTHING_FOUND.search(said):
        away = None  # it came back, and the installer got on to a package
    if full:
        what, cure = "no room is left there", "make room on the host, then run again"
    elif away:
        what, cure = "the network, or who should answer there, was away", "run again when it is back"
    elif exited == TOO_LONG:
        what, cure = "it took too long", "run again, or give the step a higher `limit_s` in the recipe"
    else:
        return None
    line, text = full or away or (None, "")
    return Diagnosis(
        kind="disk" if full else "unknown", phase=Phase.ARGS, component=Component.HOST, stage=Stage.PREFLIGHT,
        action=Action.STOP if full else Action.RETRY_SAME,
        evidence=Evidence(line=line, text=text.strip(), file="install.log"),
        means=f"the install stopped at '{step}': {what}", try_=cure, source="the installer",
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
    """The newest run of this target and ladder that came to a decision on its build; `records` come newest first.

    None such where something of the host was in the way, or where A/B/A says that it was not the code.
    """
    nights = (r for r in records if r.confirms is None)
    same = (r for r in nights if r.target == target and r.ladder.name == ladder and r.outcome in DECIDED)
    code = (r for r in same if r.confirmed is None or r.confirmed.verdict == "code")
    return next((r for r in code if r.obstacle is None), None)


def unchanged(last: RunRecord, now: RunRecord) -> bool:
    """Whether a run would only repeat the last one: same build, ladder, target, and host as probed."""
    return _state(last) == _state(now)


def _state(record: RunRecord) -> tuple[object, ...]:
    gpus = tuple({k: v for k, v in gpu.items() if k != "used_mib"} for gpu in record.host.gpus)
    host = record.host.model_copy(update={"gpus": gpus, "problems": ()})
    ref = record.asked.target_ref if record.asked else None
    return record.ladder.sha256, record.build, host.model_dump_json(), ref
