"""Everything a run is told, read and checked before the first connection is made."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from settings.catalogue import Catalogue, shipped_catalogue
from settings.engine import Engine, load_engine
from settings.ladder import Ladder
from settings.ladder_check import check_ladder
from settings.milestones import Milestones, shipped_milestones
from settings.run import RunSettings, load_run_settings
from settings.source import find, load
from settings.suite import BenchProfile, DecodeSuite
from settings.target import Target, load_target

__all__ = ["DEFAULT_LADDER", "Inputs", "load_inputs", "load_ladder"]

DEFAULT_LADDER = "glm5-sm120"


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
    bench: BenchProfile
    settings: RunSettings


def load_inputs(target: str, ladder: str, **target_flags: Any) -> Inputs:
    """All files of a run, by name or path. Raises: BadInput for the first that is wrong."""
    path = find("ladders", ladder)
    tree, content = load_ladder(ladder), path.read_bytes()
    return Inputs(
        target=load_target(target, **target_flags),
        ladder=tree,
        ladder_name=path.stem,
        ladder_file=str(path),
        ladder_sha256=hashlib.sha256(content).hexdigest(),
        ladder_text=content.decode(),
        engine=load_engine(tree.engine),
        catalogue=shipped_catalogue(),
        milestones=shipped_milestones(),
        warmup=load(DecodeSuite, find("suites", "warmup")),
        decode=load(DecodeSuite, find("suites", tree.decode_suite)),
        recheck=load(DecodeSuite, find("suites", tree.recheck_suite)),
        bench=load(BenchProfile, find("suites/bench", tree.bench_suite)),
        settings=load_run_settings(),
    )


def load_ladder(name: str) -> Ladder:
    """The ladder called `name` in settings/ladders/, or at that path, checked as a whole. Raises: BadInput."""
    path: Path = find("ladders", name)
    tree = load(Ladder, path)
    check_ladder(tree, file=path, intents=load_engine(tree.engine).intents)
    return tree
