"""Asking a starting server: only a 200 is ready; effective settings come from whatever the release calls them."""

import httpx
import pytest

from settings.engine import load_engine
from tasks.ready import is_ready, server_info

ENGINE = load_engine("sglang")


def client(answers: dict[str, httpx.Response | Exception]) -> httpx.Client:
    def answer(request: httpx.Request) -> httpx.Response:
        found = answers.get(request.url.path, httpx.Response(404))
        if isinstance(found, Exception):
            raise found
        return found

    return httpx.Client(transport=httpx.MockTransport(answer), base_url="http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("answer", "ready"),
    [
        (httpx.Response(200), True),
        (httpx.Response(503), False),
        (httpx.ConnectError("refused"), False),
        (httpx.ReadTimeout("slow"), False),
        (httpx.RemoteProtocolError("gone"), False),
    ],
)
def test_only_a_200_is_ready(answer: httpx.Response | Exception, ready: bool) -> None:
    assert is_ready(client({"/health": answer}), ENGINE) is ready


def test_the_old_name_of_the_endpoint_is_asked_when_the_new_one_is_not_there() -> None:
    old = client({"/get_server_info": httpx.Response(200, json={"attention_backend": "nsa"})})
    assert server_info(old, ENGINE) == {"attention_backend": "nsa"}


def test_settings_one_level_down_are_lifted() -> None:
    nested = {"server_args": {"kv_cache_dtype": "auto", "version": "inner"}, "version": "0.5.9"}
    found = server_info(client({"/server_info": httpx.Response(200, json=nested)}), ENGINE)
    assert (found["kv_cache_dtype"], found["version"]) == ("auto", "0.5.9")


@pytest.mark.parametrize("body", [b"", b"not json", b"[1]"])
def test_an_answer_that_is_no_object_tells_nothing(body: bytes) -> None:
    assert server_info(client({"/server_info": httpx.Response(200, content=body)}), ENGINE) == {}
