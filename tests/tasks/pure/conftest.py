"""Builds whose flags are known, as the capabilities that a probe of them would give."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from settings.engine import Engine, load_engine
from tasks.pure.capabilities import Capabilities, Gpu, ModelFacts
from tasks.pure.helptext import parser_from_actions
from tasks.pure.record import Build

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = (ROOT / "tasks" / "rehearsal" / "site" / "sglang" / "parsers", ROOT / "tests" / "corpus" / "help")


@pytest.fixture(scope="session")
def engine() -> Engine:
    return load_engine("sglang")


@pytest.fixture(scope="session")
def actions() -> Callable[[str], list[dict[str, Any]]]:
    """The recorded argparse actions of a release."""
    found = {path.stem: path for folder in FOLDERS for path in folder.glob("*.json")}
    return lambda release: json.loads(found[release].read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def build(actions: Callable[[str], list[dict[str, Any]]]) -> Callable[..., Capabilities]:
    """`build(release, sm)`: eight such GPUs with that release, serving GLM-5."""

    def make(release: str, sm: int = 120, gpus: int = 8, architecture: str = "GlmMoeDsaForCausalLM") -> Capabilities:
        return Capabilities(
            build=Build(engine="sglang", version=release),
            parser=parser_from_actions(actions(release)),
            answered="argparse",
            gpus=tuple(Gpu(i, f"SM{sm}", sm) for i in range(gpus)),
            model=ModelFacts(architecture=architecture, index_topk=2048),
        )

    return make
