"""What server, worker and runs agree on; the rest is told by the end-to-end test, with a real server."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from deployments.serve import AUTH, environment

ROOT = Path(__file__).resolve().parents[2]


def test_pages_runs_and_worker_use_the_port_asked_for() -> None:
    env = environment({}, 4321)
    assert ("http://127.0.0.1:4321/api", "/api") == (env["PREFECT_API_URL"], env["PREFECT_UI_API_URL"])


@pytest.mark.parametrize(
    ("host", "reached"), [("0.0.0.0", "127.0.0.1"), ("10.0.0.7", "10.0.0.7"), ("::", "[::1]"), ("gpu-ctl", "gpu-ctl")]
)
def test_clients_of_this_machine_find_a_server_that_listens_elsewhere(host: str, reached: str) -> None:
    assert f"http://{reached}:4200/api" == environment({}, 4200, host=host)["PREFECT_API_URL"]


def test_the_servers_password_is_the_clients() -> None:
    assert "me:secret" == environment({AUTH: "me:secret"}, 4200)["PREFECT_API_AUTH_STRING"]
    assert "PREFECT_API_AUTH_STRING" not in environment({}, 4200)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7"])
def test_who_can_be_reached_by_others_needs_a_password(host: str) -> None:
    ran = _serve("--host", host)
    assert (2, "") == (ran.returncode, ran.stdout)
    said = f"{host} can be reached by others: set {AUTH} to user:password, or listen on loopback\n"
    assert said == ran.stderr


def test_nothing_is_sent_to_a_third_party() -> None:
    env = environment({"PREFECT_SERVER_ANALYTICS_ENABLED": "true", "PREFECT_SERVER_UI_V2_ENABLED": "true"}, 4200)
    off = ("PREFECT_SERVER_ANALYTICS_ENABLED", "DO_NOT_TRACK", "PREFECT_SERVER_UI_V2_ENABLED")
    assert ["false", "1", "false"] == [env[name] for name in off]


def test_the_database_is_the_one_asked_for() -> None:
    url = "postgresql+asyncpg://me@127.0.0.1/prefect"
    assert url == environment({}, 4200, url)["PREFECT_SERVER_DATABASE_CONNECTION_URL"]
    assert "PREFECT_SERVER_DATABASE_CONNECTION_URL" not in environment({}, 4200)


def test_a_taken_port_is_said_in_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ran = _serve("--port", port)
    assert (2, "") == (ran.returncode, ran.stdout)
    assert f"port {port} is taken: end what listens there, or choose another with --port\n" == ran.stderr


def _serve(*words: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")}
    return subprocess.run(
        [sys.executable, "-m", "deployments.serve", *words], cwd=ROOT, env=env, capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip
