"""The shipped catalogue, and the labelled logs."""

import importlib.util
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from settings.catalogue import shipped_catalogue
from settings.milestones import shipped_milestones
from tasks.pure.diagnose import Diagnoser

CORPUS = Path(__file__).resolve().parents[3] / "corpus"


@dataclass(frozen=True)
class Case:
    id: str
    labels: dict[str, Any] = field(repr=False)
    log: bytes = field(repr=False)


@cache
def cases() -> tuple[Case, ...]:
    spec = importlib.util.spec_from_file_location("huge", CORPUS / "huge.py")
    assert spec is not None
    assert spec.loader is not None
    huge = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(huge)
    logs = huge.logs()
    labels = [json.loads(line) for line in (CORPUS / "cases.jsonl").read_text(encoding="utf-8").splitlines()]
    return tuple(Case(c["id"], c, (logs / Path(c["file"]).name).read_bytes()) for c in labels)


@pytest.fixture(scope="session")
def labelled() -> tuple[Case, ...]:
    return cases()


@pytest.fixture(scope="session")
def fresh() -> Callable[[], Diagnoser]:
    catalogue, milestones = shipped_catalogue(), shipped_milestones()
    return lambda: Diagnoser(catalogue, milestones)
