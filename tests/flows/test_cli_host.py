"""`bringup status` tells of a host what its own lock and its own GPUs say, without Prefect."""

import getpass
import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.flows.conftest import BRINGUP


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A simulated host of this test alone, that of the target `rehearsal`."""
    host = {"STATE_DIR": str(tmp_path / "state"), "ENV__REHEARSAL_HOST": str(tmp_path)}
    return {**os.environ, **{f"BRINGUP_TARGET__{name}": value for name, value in host.items()}}


def test_who_else_is_on_the_gpus_is_told_while_he_is(env: dict[str, str]) -> None:
    theirs = {"REHEARSAL_STORY": "x", "REHEARSAL_HOST": env["BRINGUP_TARGET__ENV__REHEARSAL_HOST"]}
    scheduler = "sglang::scheduler_TP1"   # what the simulated nvidia-smi takes for a server
    with subprocess.Popen([scheduler], executable="cat", stdin=subprocess.PIPE, env={**os.environ, **theirs}) as other:
        told = _status(env)
        other.kill()
    line = f"not ours on its GPUs: pid {other.pid}, {scheduler} of {getpass.getuser()} (88598 MiB)"
    assert ["rehearsal is free", line] == told.splitlines()
    assert {"target": "rehearsal", "held": False, "strangers": []} == json.loads(_status(env, "--json"))


def _status(env: dict[str, str], *words: str) -> str:
    ran = subprocess.run(
        [BRINGUP, "status", "--target", "rehearsal", *words], env=env, capture_output=True, text=True, check=False
    )
    assert 0 == ran.returncode, ran.stderr
    return ran.stdout
