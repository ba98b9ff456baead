"""What is asked of a fleet reaches each host's run, also as the words of a command line."""

from inspect import signature
from typing import Any

import pytest
import typer

from flows.bringup import bringup
from flows.cli import app
from flows.crew import options
from flows.fleet import fleet

OF_THE_FLEET = {"targets", "at_once"}  # the rest is of each run
ASKED: dict[str, Any] = {
    "target": "/hosts/gpu 1.toml", "ladder": "glm5-sm120", "runs": "/r", "keep": True, "ref": "main", "force": True,
    "confirm": True, "notify": False, "budget_s": 90.5, "budget_attempts": 3, "wait_s": 60.0,
}  # fmt: skip
NOT_ASKED: dict[str, Any] = {
    "target": "rehearsal", "ladder": "glm5-sm120", "runs": None, "keep": False, "ref": None, "force": False,
    "confirm": False, "notify": True, "budget_s": None, "budget_attempts": None, "wait_s": 0.0,
}  # fmt: skip


@pytest.mark.parametrize("asked", [ASKED, NOT_ASKED])
def test_bringup_run_understands_all_that_a_fleet_passes_on(asked: dict[str, Any]) -> None:
    assert set(asked) == set(signature(fleet.fn).parameters) - OF_THE_FLEET | {"target"}
    assert set(asked) <= set(signature(bringup.fn).parameters)
    understood = _parsed(options(asked))
    assert asked == {name: understood[name] for name in asked}


def _parsed(words: list[str]) -> dict[str, Any]:
    """The options of `bringup run` as it reads them; nothing is run."""
    command: Any = typer.main.get_command(app)
    return dict(command.commands["run"].make_context("run", words).params)
