"""The Prefect server of a run without another one ends with the run, also where nobody is left to end it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deployments.child import children
from settings.source import SETTINGS_DIR
from tests.flows.conftest import wait_for

RUN = """
from flows.own_server import start_own_server
import time
start_own_server()
print("up", flush=True)
time.sleep(300)
"""


@pytest.mark.chaos
@pytest.mark.timeout(180)
def test_a_killed_run_leaves_no_prefect_server_behind(tmp_path: Path) -> None:
    own = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")}
    env = own | {"PREFECT_HOME": str(tmp_path), "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120"}
    with subprocess.Popen(
        [sys.executable, "-c", RUN], env=env, cwd=SETTINGS_DIR.parent, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        assert "up\n" == run.stdout.readline()
        left = children(run.pid)
        assert 2 == len(left)   # the server, and who waits for our end
        os.kill(run.pid, signal.SIGKILL)
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in left), 30, "no process of the run")
