"""Puts a build on the host: a fresh environment per commit, made by the recipe, cached, and never in place of another.

`<state_dir>/envs/<key>/` holds `env/`, `checkout/` and `build.json`: what is done, its packages, whether it served.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from settings.recipe import Recipe, RecipeStep
from settings.source import BadInput
from settings.target import Target, resolve_path
from tasks.connect import resolved
from tasks.deadline import Deadline
from tasks.host import Completed, DeadlinePassed, Host, HostError
from tasks.pure.build import (
    TOO_LONG,
    Found,
    Ref,
    collectable,
    filled,
    is_commit,
    key_of,
    parse_ref,
    steps_for,
    why_not_installed,
)
from tasks.pure.record import Diagnosis, Source
from tasks.runlog import log
from tasks.supervisor import marks

__all__ = ["Installed", "NotInstalled", "WantedBuild", "cached_python", "install", "mark_good", "resolve", "same_build"]

_ASK_S = 60.0
# A step that we lost sight of goes on there: the same one, begun anew, waits for it. No git is at work in its checkout
# then, and what locks one that was killed has left there would refuse this commit for good.
_ALONE = (
    "flock", "-o", "{folder}/.step", "sh", "-c", 'rm -f "$1"/.git/*.lock; shift; exec "$@"', "sh", "{folder}/checkout",
)  # fmt: skip
_FREEZE = (
    "import importlib.metadata as m; "
    "print('\\n'.join(sorted({f\"{d.metadata['Name'].lower()}=={d.version}\" for d in m.distributions()})))"
)


@dataclass(frozen=True, slots=True)
class WantedBuild:
    """A ref, resolved: the same words mean the same build from here on."""

    ref: Ref
    commit: str | None  # None for a release or a wheel
    key: str


@dataclass(frozen=True, slots=True)
class Installed:
    python: str  # the interpreter of the environment, on the host
    cached: bool
    freeze: tuple[str, ...] = ()  # its packages, name==version


@dataclass(frozen=True, slots=True)
class NotInstalled:
    diagnosis: Diagnosis


def resolve(host: Host, ref: str, recipe: Recipe) -> WantedBuild:
    """What `ref` is now. Raises: BadInput for one that the repository does not know, HostError."""
    parsed = parse_ref(ref, recipe)
    if parsed.kind == "package":
        return WantedBuild(parsed, None, key_of(parsed, None, recipe))
    commit = ref if is_commit(ref) else _ls_remote(host, ref, recipe)
    return WantedBuild(parsed, commit, key_of(parsed, commit, recipe))


def same_build(source: Source, recipe: Recipe) -> WantedBuild:
    """The build that a run had, wherever its branch is now. Nobody need be asked."""
    parsed = parse_ref(source.ref, recipe)
    return WantedBuild(parsed, source.commit, key_of(parsed, source.commit, recipe))


def _ls_remote(host: Host, ref: str, recipe: Recipe) -> str:
    asked = host.run(
        ["git", "ls-remote", recipe.source, ref, f"{ref}^{{}}"], deadline=Deadline.after(_ASK_S),
        env={"GIT_TERMINAL_PROMPT": "0"},
    )  # fmt: skip
    rows = [line.split("\t") for line in asked.out.splitlines() if "\t" in line]
    if asked.exited != 0 or not rows:
        unknown = "it has no such branch or tag; a commit is named by all its 40 digits"
        said = (asked.err.strip().splitlines() or [unknown])[-1]
        raise BadInput(recipe.source, ref, f"cannot be resolved: {said}")
    return max(rows, key=lambda row: row[1].endswith("^{}"))[0]  # an annotated tag: the commit behind it


def cached_python(host: Host, target: Target, wanted: WantedBuild, *, deadline: Deadline) -> str | None:
    """The interpreter of a build that is complete on the host; None when there is none."""
    folder = _folder(host, target, wanted.key)
    return f"{folder}/env/bin/python" if _noted(host, folder, deadline).get("complete") else None


def install(
    host: Host, target: Target, recipe: Recipe, wanted: WantedBuild, *, deadline: Deadline,
    keep_log: Callable[[bytes], None],
) -> Installed | NotInstalled:
    """The build, made by the steps that are not done yet. Older builds that nobody needs go; others are not touched.

    `keep_log` takes each command with what it said. Raises: HostError.
    """
    folder = _folder(host, target, wanted.key)
    note = _noted(host, folder, deadline)
    cached = bool(note.get("complete"))
    target = resolved(target, host)
    places = {
        "base": target.python, "env": f"{folder}/env", "python": f"{folder}/env/bin/python",
        "checkout": f"{folder}/checkout", "source": recipe.source, "package": recipe.package,
        "commit": wanted.commit or "", "spec": wanted.ref.spec,
    }  # fmt: skip
    has_uv = None if cached else host.run(["sh", "-c", "command -v uv"], deadline=deadline).exited == 0
    note.update(key=wanted.key, ref=wanted.ref.text, commit=wanted.commit, used=time.time())
    _write(host, folder, note, deadline)  # what fails, or is cut, is collected one day as well
    for step in () if cached else steps_for(recipe, wanted.ref):
        if step.name in note.setdefault("done", []):
            continue
        argv = filled((has_uv and step.uv) or step.argv, places)
        if failed := _do(host, step, argv, folder, marks(target.state_dir), deadline, keep_log):
            good = _last_good(host, target, deadline)
            now = _freeze(host, places["python"], deadline)
            _collect(host, target, recipe, wanted.key, deadline)
            return NotInstalled(why_not_installed(step.name, failed.exited, failed.out + failed.err, good, now))
        note["done"].append(step.name)
        _write(host, folder, note, deadline)
    if not cached:
        note.update(complete=True, freeze=_freeze(host, places["python"], deadline))
        _write(host, folder, note, deadline)
    _collect(host, target, recipe, wanted.key, deadline)
    return Installed(places["python"], cached, tuple(note.get("freeze", ())))


def mark_good(host: Host, target: Target, wanted: WantedBuild, *, deadline: Deadline) -> None:
    """Note that this build has served: it stays until another one has. A host that is away costs no pass."""
    folder = _folder(host, target, wanted.key)
    try:
        _write(host, folder, {**_noted(host, folder, deadline), "good": time.time()}, deadline)
    except HostError as e:
        log.warning("build.not_remembered", why=str(e))


def _do(
    host: Host, step: RecipeStep, argv: Sequence[str], folder: str, env: dict[str, str], deadline: Deadline,
    keep_log: Callable[[bytes], None],
) -> Completed | None:
    """The command's end when it failed. One that takes too long has failed."""
    began = time.monotonic()
    log.info("install.step_started", step=step.name, argv=list(argv))
    words = (*filled(_ALONE, {"folder": folder}), resolve_path(argv[0], host.home), *argv[1:])
    try:
        done = host.run(words, deadline=deadline.sooner(step.limit_s), env={**env, "GIT_TERMINAL_PROMPT": "0"})
    except DeadlinePassed as e:
        done = Completed(tuple(argv), TOO_LONG, "", str(e))
    wall_s = round(time.monotonic() - began, 1)
    keep_log(f"$ {' '.join(argv)}\n{done.out}{done.err}[exit {done.exited}, {wall_s} s]\n".encode())
    log.info("install.step_ended", step=step.name, exited=done.exited, wall_s=wall_s)
    return None if done.exited == 0 else done


def _freeze(host: Host, python: str, deadline: Deadline) -> list[str]:
    """What is installed there, as `name==version`; empty when the interpreter does not run."""
    done = host.run([python, "-c", _FREEZE], deadline=deadline.sooner(_ASK_S))
    return done.out.split() if done.exited == 0 else []


def _last_good(host: Host, target: Target, deadline: Deadline) -> list[str]:
    """The freeze of the build that served last."""
    notes = [n for n in _notes(host, target, deadline) if n.get("good")]
    return list(max(notes, key=lambda n: float(n["good"]))["freeze"]) if notes else []


def _collect(host: Host, target: Target, recipe: Recipe, using: str, deadline: Deadline) -> None:
    notes = [n for n in _notes(host, target, deadline) if n.get("key")]
    found = [Found(n["key"], float(n["used"]), n.get("good"), bool(n.get("complete"))) for n in notes]
    for key in collectable(found, recipe, using=using):
        log.info("install.collected", key=key)
        host.run(["rm", "-rf", _folder(host, target, key)], deadline=deadline)


def _notes(host: Host, target: Target, deadline: Deadline) -> list[dict[str, Any]]:
    root = _folder(host, target, "")
    listed = host.run(["find", root, "-mindepth", "1", "-maxdepth", "1", "-type", "d"], deadline=deadline)
    return [_noted(host, folder, deadline) for folder in listed.out.splitlines()]


def _noted(host: Host, folder: str, deadline: Deadline) -> dict[str, Any]:
    try:
        note = json.loads(host.read(f"{folder}/build.json", 0, 1 << 20, deadline=deadline).data or b"{}")
    except ValueError:
        return {}
    return note if isinstance(note, dict) else {}


def _write(host: Host, folder: str, note: dict[str, Any], deadline: Deadline) -> None:
    host.put(json.dumps(note).encode(), f"{folder}/build.json", deadline=deadline)


def _folder(host: Host, target: Target, key: str) -> str:
    return f"{resolve_path(target.state_dir, host.home)}/envs/{key}".rstrip("/")
