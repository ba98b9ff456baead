"""The short name of a deployment is completed, and nothing else on any command line."""

import logging
import sys
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import yaml
from prefect.plugins import HookContext

from deployments.plugin import DEPLOYMENTS, PREFECT_TRIED, completed, local_api, setup_environment
from flows.bringup import bringup
from flows.fleet import fleet

ROOT = Path(__file__).resolve().parents[2]
SHORT = "prefect deployment run glm5-bringup"
FULL = "prefect deployment run glm5-bringup/glm5-bringup"


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        (SHORT, FULL),
        (f"/somewhere/.venv/bin/{SHORT}", f"/somewhere/.venv/bin/{FULL}"),
        (f"{SHORT} -p target=local", f"{FULL} -p target=local"),
        ("prefect deployment run --watch glm5-bringup", "prefect deployment run --watch glm5-bringup/glm5-bringup"),
        ("prefect deployment run -p keep=1 glm5-nightly", "prefect deployment run -p keep=1 glm5-bringup/glm5-nightly"),
        ("prefect deployment inspect glm5-nightly", "prefect deployment inspect glm5-bringup/glm5-nightly"),
        ("prefect deployments run glm5-bringup", "prefect deployments run glm5-bringup/glm5-bringup"),
        ("prefect deployment run glm5-fleet", "prefect deployment run glm5-fleet/glm5-fleet"),
    ],
)
def test_the_short_name_is_completed(typed: str, read: str) -> None:
    assert read.split() == completed(typed.split())


@pytest.mark.parametrize(
    "typed",
    [
        FULL,
        "prefect deployment run other",
        "prefect deployment run other/glm5-bringup",
        "prefect deployment run --flow-run-name glm5-nightly other/one",
        "prefect deployment run",
        "prefect flow-run cancel glm5-bringup",
        "prefect work-pool inspect glm5-bringup",
        "pytest deployment run glm5-bringup",
        "prefect",
    ],
)
def test_every_other_command_line_is_left_alone(typed: str) -> None:
    assert typed.split() == completed(typed.split())


def test_prefect_reads_the_completed_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", SHORT.split())
    setup_environment(ctx=_context(PREFECT_TRIED))
    assert FULL.split() == sys.argv


def test_another_prefect_gets_one_warning_and_its_own_way(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "argv", SHORT.split())
    setup_environment(ctx=_context("4.0.0"))
    assert (SHORT.split(), 1) == (sys.argv, len(caplog.records))
    assert "say deployment run glm5-bringup/glm5-bringup" in caplog.text


def test_another_prefect_is_not_warned_about_what_it_does_not_concern(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "argv", ["prefect", "version"])
    setup_environment(ctx=_context("4.0.0"))
    assert [] == caplog.records


def test_a_configured_api_is_never_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["prefect", "version"])
    assert setup_environment(ctx=_context(PREFECT_TRIED, api_url="http://elsewhere/api")) is None
    monkeypatch.setenv("PREFECT_API_URL", "")   # said explicitly: ephemeral
    assert setup_environment(ctx=_context(PREFECT_TRIED, api_url=None)) is None


def test_other_programs_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setattr(sys, "argv", ["bringup", "run"])
    assert setup_environment(ctx=_context(PREFECT_TRIED, api_url=None)) is None


def test_a_server_of_this_version_on_this_machine_is_found(version_server: HTTPServer) -> None:
    port = version_server.server_port
    assert f"http://127.0.0.1:{port}/api" == local_api(port, "3.9.1")
    assert local_api(port, "3.9.2") is None


def test_a_server_that_wants_a_password_is_a_server(version_server: HTTPServer) -> None:
    version_server.RequestHandlerClass = _Guarded
    port = version_server.server_port
    assert f"http://127.0.0.1:{port}/api" == local_api(port, "3.9.1")


def test_no_server_means_none(version_server: HTTPServer) -> None:
    version_server.server_close()
    assert local_api(version_server.server_port, "3.9.1") is None


def test_what_is_written_down_twice_agrees() -> None:
    declared = yaml.safe_load((ROOT / "deployments/prefect.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert {d["name"] for d in declared["deployments"]} == set(DEPLOYMENTS)
    assert {d["entrypoint"] for d in declared["deployments"]} == {"flows.bringup.bringup", "flows.fleet.fleet"}
    assert {bringup.name, fleet.name} == set(DEPLOYMENTS.values())
    assert f"prefect=={PREFECT_TRIED}" in project["project"]["dependencies"]
    assert (PREFECT_TRIED, bringup.name) == (declared["prefect-version"], declared["name"])
    assert ["deployments.plugin"] == [e.value for e in entry_points(group="prefect.plugins", name="glm5-bringup")]


def _context(version: str, api_url: str | None = "http://127.0.0.1:1/api") -> HookContext:
    return HookContext(prefect_version=version, api_url=api_url, logger_factory=logging.getLogger)


class _Guarded(BaseHTTPRequestHandler):
    """Answers as Prefect does who has no password."""

    def do_GET(self) -> None:
        self.send_response(401)
        self.end_headers()
        self.wfile.write(b'{"exception_message":"Unauthorized"}')

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def version_server() -> Iterator[HTTPServer]:
    """Answers as Prefect's /api/admin/version does."""

    class Version(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/api/admin/version" else 404)
            self.end_headers()
            self.wfile.write(b'"3.9.1"')

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with HTTPServer(("127.0.0.1", 0), Version) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join(5)
