"""The probe asked of a real build: its own argparse answers, and says what was recorded of this release."""

import json
from pathlib import Path

import pytest

from settings.engine import load_engine
from settings.target import Target
from tasks.deadline import Deadline
from tasks.local_host import LocalHost
from tasks.probe import probe
from tasks.pure.helptext import parser_from_actions
from tests.real.build import PYTHON
from tests.real.server import ENV

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("real_environment")]

RECORDED = Path(__file__).parents[2] / "tasks" / "rehearsal" / "site" / "sglang" / "parsers" / "0.5.23.json"


def test_a_real_build_says_which_flags_and_variables_it_has(tmp_path: Path) -> None:
    target = Target(name="real", python=str(PYTHON), model=str(tmp_path), state_dir=str(tmp_path))
    with LocalHost("here", env=ENV) as host:
        found = probe(host, target, load_engine("sglang"), deadline=Deadline.after(120))
    assert ("0.5.23", "argparse") == (found.build.version, found.answered), found.problems
    assert found.parser is not None
    recorded = parser_from_actions(json.loads(RECORDED.read_text(encoding="utf-8")))
    assert set(recorded.flags) == set(found.parser.flags)
    for name, flag in recorded.flags.items():
        real = found.parser.flags[name]
        assert (flag.names, set(flag.choices), flag.takes_value) == (real.names, set(real.choices), real.takes_value)
    assert found.environment is not None
    assert {"SGLANG_ENABLE_NAN_LOGITS_CHECK", "SGLANG_ENABLE_JIT_DEEPGEMM"} <= found.environment
