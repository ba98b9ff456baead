"""Whatever a night comes to, somebody is told of it once."""

import os
import subprocess
import sys

import yaml

from deployments.notify import AUTOMATIONS
from settings.words import RunOutcome
from tasks.pure.build import DECIDED
from tasks.pure.names import run_state

DECLARED = yaml.safe_load(AUTOMATIONS.read_text(encoding="utf-8"))["automations"]


def test_a_night_without_a_decision_is_told_and_one_with_a_decision_not_twice() -> None:
    """`DECIDED` are told by bringup.* events; who cancelled knows it; Prefect's own two are what no flow could name."""
    undecided = set(RunOutcome) - DECIDED - {RunOutcome.CANCELLED, RunOutcome.RUNNING}
    states = {run_state(outcome) for outcome in undecided} | {"Failed", "Crashed"}
    trigger = next(a for a in DECLARED if a["name"] == "glm5-no-decision")["trigger"]
    assert {f"prefect.flow-run.{state}" for state in states} == set(trigger["expect"])


def test_what_is_no_address_is_refused_and_nothing_is_made() -> None:
    env = {**os.environ, "BRINGUP_NOTIFY_URL": "nonsense", "PREFECT_API_URL": "http://127.0.0.1:9/api"}
    ran = subprocess.run(
        [sys.executable, "-m", "deployments.notify"], env=env, capture_output=True, text=True, check=False
    )
    assert (2, "", 1) == (ran.returncode, ran.stdout, len(ran.stderr.splitlines()))
    assert "BRINGUP_NOTIFY_URL is no address to post to" in ran.stderr
