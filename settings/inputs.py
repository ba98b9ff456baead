"""Everything a run is told, read and checked before the first connection is made."""

import hashlib
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from settings.accuracy import AccuracyGate, load_accuracy_gate
from settings.catalogue import Catalogue, shipped_catalogue
from settings.engine import Engine, load_engine
from settings.ladder import Budget, Ladder
from settings.ladder_check import check_ladder
from settings.load_test import LoadTest, load_profiles
from settings.lock import Lock, load_lock, locked_ladder
from settings.milestones import Milestones, shipped_milestones
from settings.run import RunSettings, load_run_settings
from settings.source import BadInput, find, load, on_this_machine, validate
from settings.suite import BenchProfile, DecodeSuite
from settings.target import Target, load_target
from settings.words import Stage

__all__ = ["DEFAULT_LADDER", "Inputs", "check_wait", "load_inputs", "load_ladder", "narrowed", "smaller"]

DEFAULT_LADDER = "glm5-sm120"
_LONGEST_WAIT_S = 604_800  # a week


@dataclass(frozen=True, slots=True)
class Inputs:
    """The declared half of a run. `ladder_sha256` is that of the file's bytes."""

    target: Target
    ladder: Ladder
    ladder_name: str
    ladder_file: str
    ladder_sha256: str
    ladder_text: str
    engine: Engine
    catalogue: Catalogue
    milestones: Milestones
    warmup: DecodeSuite
    decode: DecodeSuite
    recheck: DecodeSuite
    load_test: LoadTest
    profiles: tuple[BenchProfile, ...]
    accuracy: tuple[AccuracyGate, bytes] | None
    suites: dict[str, tuple[str, str]]  # by role: name, and sha256 of the file
    settings: RunSettings
    lock: Lock | None = None


def load_inputs(target: str, ladder: str, lock: str | None = None, **target_flags: Any) -> Inputs:
    """All files of a run, by name or path; a lock stands in for the ladder. Raises: BadInput for the first wrong."""
    locked = load_lock(lock) if lock else None
    if lock and locked:
        path = on_this_machine(lock)
        text, digest = locked_ladder(locked), _sha256(path)
        tree = validate(Ladder, tomllib.loads(text), path)
    else:
        path = find("ladders", ladder)
        tree, text, digest = load_ladder(ladder), path.read_text(encoding="utf-8"), _sha256(path)
    suites = {
        "decode": ("suites", tree.decode_suite), "recheck": ("suites", tree.recheck_suite),
        "bench": ("suites/load", tree.bench_suite),
    }  # fmt: skip
    engine, host = load_engine(tree.engine), load_target(target, **target_flags)
    engine.launch.refuse_env(host.plain_env(), f"target {host.name}", "env")
    load_test = load(LoadTest, find("suites/load", tree.bench_suite))
    return Inputs(
        target=host,
        ladder=tree,
        ladder_name=path.stem,
        ladder_file=str(path),
        ladder_sha256=digest,
        ladder_text=text,
        engine=engine,
        catalogue=shipped_catalogue(),
        milestones=shipped_milestones(),
        warmup=load(DecodeSuite, find("suites", "warmup")),
        decode=load(DecodeSuite, find("suites", tree.decode_suite)),
        recheck=load(DecodeSuite, find("suites", tree.recheck_suite)),
        load_test=load_test,
        profiles=load_profiles(load_test),
        accuracy=load_accuracy_gate(tree.accuracy_suite) if Stage.ACCURACY in tree.gates else None,
        suites={role: (name, _sha256(find(kind, name))) for role, (kind, name) in suites.items()},
        settings=load_run_settings(),
        lock=locked,
    )


def narrowed(inputs: Inputs, attempts: int | None, wall_s: float | None) -> Inputs:
    """The same with a smaller budget; a larger one than the ladder's stays the ladder's. Raises: BadInput."""
    budget = smaller(inputs.ladder.budget, attempts, wall_s)
    return replace(inputs, ladder=inputs.ladder.model_copy(update={"budget": budget}))


def smaller(declared: Budget, attempts: int | None, wall_s: float | None) -> Budget:
    """The declared budget, or less of it. Raises: BadInput for what is no budget."""
    given = {name: value for name, value in (("attempts", attempts), ("wall_s", wall_s)) if value is not None}
    asked = validate(Budget, given, "budget")
    return declared.model_copy(update={name: min(getattr(asked, name), getattr(declared, name)) for name in given})


def check_wait(wait_s: float) -> None:
    """A wait for a busy host that somebody can mean. Raises: BadInput."""
    if not 0 <= wait_s <= _LONGEST_WAIT_S:
        raise BadInput("run", "wait_s", f"is {wait_s}: give seconds from 0 to {_LONGEST_WAIT_S}, a week")


def load_ladder(name: str) -> Ladder:
    """The ladder called `name` in settings/ladders/, or at that path, checked as a whole. Raises: BadInput."""
    path: Path = find("ladders", name)
    tree = load(Ladder, path)
    check_ladder(tree, file=path, intents=load_engine(tree.engine).intents)
    for key, kind in (("decode_suite", "suites"), ("recheck_suite", "suites"), ("bench_suite", "suites/load")):
        try:
            find(kind, getattr(tree, key))
        except BadInput as e:
            raise BadInput(path, key, e.problem, e.nearest) from e
    return tree


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
