"""Nothing is ever deployed to a server that is gone a moment later: there is one that takes us, or one sentence."""

import base64
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Timer

import pytest

from deployments.deploy import refusal
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
RIGHT, WRONG = ("me", "secret"), ("me", "guessed")


def test_without_a_server_it_says_so_and_fails(tmp_path: Path) -> None:
    api = f"http://127.0.0.1:{free_port()}/api"
    own = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "BRINGUP_"))}
    env = own | {"PREFECT_HOME": str(tmp_path), "PREFECT_API_URL": api}
    ran = subprocess.run(
        [sys.executable, "-m", "deployments.deploy", "--wait-s", "0.2"], cwd=ROOT, env=env, capture_output=True,
        text=True, check=False, timeout=60,
    )  # fmt: skip
    waits, says = ran.stderr.splitlines()
    assert (2, "") == (ran.returncode, ran.stdout)
    assert f"waiting up to 0 s for the Prefect server at {api}" == waits
    assert f"nothing is deployed: no Prefect server answers at {api}; `make prefect` starts one here" in says
    assert [] == list(tmp_path.glob("*.db"))  # an ephemeral server would have left its database


def test_a_server_that_comes_up_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    with _server(port, _open, after_s=0.7) as api:
        assert refusal(api, None, 20.0) is None
    assert f"waiting up to 20 s for the Prefect server at {api}\n" == capsys.readouterr().err


@pytest.mark.parametrize(
    ("auth", "said"),
    [
        (RIGHT, None),
        (None, "wants a password: set PREFECT_API_AUTH_STRING to user:password"),
        (WRONG, "does not take the password in PREFECT_API_AUTH_STRING"),
    ],
)
def test_a_server_with_a_password_takes_who_has_it(auth: tuple[str, str] | None, said: str | None) -> None:
    with _server(free_port(), _guarded) as api:
        assert (said and f"the Prefect server at {api} {said}") == refusal(api, auth, 20.0)


def test_an_address_that_leads_to_its_pages_is_told() -> None:
    with _server(free_port(), _open) as api:
        pages = api.removesuffix("/api")
        assert f"what answers at {pages} is no Prefect API (PREFECT_API_URL ends with /api)" == refusal(pages, None, 20)


def _open(_: str) -> int:
    return 200


def _guarded(authorization: str) -> int:
    said = base64.b64decode(authorization.removeprefix("Basic ")).decode()
    return 200 if said == ":".join(RIGHT) else 401


@contextmanager
def _server(port: int, status: Callable[[str], int], after_s: float = 0.0) -> Iterator[str]:
    """Answers as Prefect does: its version under /api, its pages everywhere else. It begins to listen `after_s`."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_api = self.path == "/api/admin/version"
            self.send_response(status(self.headers.get("Authorization", "")))
            self.send_header("Content-Type", "application/json" if is_api else "text/html")
            self.end_headers()
            self.wfile.write(b'"3.9.1"' if is_api else b"<html>")

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with HTTPServer(("127.0.0.1", port), Answer, bind_and_activate=False) as server:

        def begin() -> None:
            server.server_bind()
            server.server_activate()
            server.serve_forever(0.05)

        beginning = Timer(after_s, begin)
        beginning.start()
        yield f"http://127.0.0.1:{port}/api"
        server.shutdown()
        beginning.join(5)
