"""The check of an exported server passes on tokens with finite probabilities and on nothing else."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from tasks.remote.health import check, main

GOOD = {"text": " Paris. It", "meta_info": {"output_token_logprobs": [[-0.1, 1, None], [-0.2, 2, None]]}}


class _Server(HTTPServer):
    body = b""


class _Answer(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_: Any) -> None:
        return None


@pytest.fixture
def server() -> Iterator[_Server]:
    with _Server(("127.0.0.1", 0), _Answer) as running:
        threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True).start()
        yield running
        running.shutdown()


def test_tokens_with_finite_probabilities_decode(server: _Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.body = json.dumps(GOOD).encode()
    assert main([str(server.server_port)]) == 0
    assert capsys.readouterr().out == "decodes\n"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"meta_info": {"output_token_logprobs": [[float("nan"), 1, None]]}}, "1 of 1 log-probabilities"),
        ({"meta_info": {"output_token_logprobs": [[None, 1, None], [-0.1, 2, None]]}}, "1 of 2 log-probabilities"),
        ({"meta_info": {"output_token_logprobs": []}}, "no tokens"),
        ({"text": "!!!!!!!!"}, "nothing but '!'"),
        ({"meta_info": None}, "another form"),
    ],
)
def test_what_is_no_decoding_is_told(server: _Server, changes: dict[str, Any], why: str) -> None:
    server.body = json.dumps({**GOOD, **changes}).encode()
    assert why in str(check(server.server_port))


def test_an_answer_that_is_no_json_is_no_answer(server: _Server) -> None:
    server.body = b"<html>"
    assert "no answer" in str(check(server.server_port))


def test_nobody_there_is_told_and_exits_1(server: _Server, capsys: pytest.CaptureFixture[str]) -> None:
    port = server.server_port
    server.shutdown()
    server.server_close()
    assert main([str(port), "--wait", "0"]) == 1
    assert "no answer" in capsys.readouterr().err
