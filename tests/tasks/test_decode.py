"""Suites against a served API that lives behind httpx's own seam, and one that breaks its connections for real."""

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from settings.source import SETTINGS_DIR, load
from settings.suite import DecodeSuite
from settings.words import Verdict
from tasks.api import ask, is_gone
from tasks.deadline import Deadline
from tasks.decode import DecodeReport, decode
from tasks.host import HostLost
from tests.tasks.pure.reply_forms import chat, chat_stream, completions, native
from tests.tasks.rehearsal.conftest import Server, Start, machine, start

__all__ = ["machine", "start"]

Answer = Callable[[dict[str, Any]], Any]


def _paris(_: dict[str, Any]) -> dict[str, Any]:
    return native(" Paris.", [12366, 13], [-0.1, -0.2])


class Api:
    """A server that answers each /generate with `answer(body)`; `info` is its /server_info."""

    def __init__(self, answer: Answer = _paris, **info: Any) -> None:
        self.answer, self.info = answer, info
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.gone = False

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if self.gone:
            raise httpx.ConnectError("Connection refused", request=request)
        if path == "/server_info":
            return httpx.Response(200, json=self.info)
        if path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "m", "max_model_len": self.info.get("context_length")}]})
        if request.method == "GET":
            return httpx.Response(200)
        body = json.loads(request.content)
        self.asked.append((path, body))
        said = self.answer(body)
        return said if isinstance(said, httpx.Response) else httpx.Response(200, json=said)

    def decode(self, *probes: dict[str, Any], within_s: float = 30.0, **suite: Any) -> DecodeReport:
        named = [{"id": f"p{n}", "prompt": "The capital city of France is", **p} for n, p in enumerate(probes)]
        for probe in named:
            if "prompts" in probe or "prompt_tokens" in probe:
                del probe["prompt"]
        made = DecodeSuite.model_validate({"why": "a test", "probe": named, **suite})
        with httpx.Client(transport=httpx.MockTransport(self), base_url="http://x") as client:
            return decode(client, made, deadline=Deadline.after(within_s))


def _counted(body: dict[str, Any]) -> dict[str, Any]:
    """An answer from a tokenizer of two characters a token."""
    return native(" Paris.", [12366, 13], prompt_tokens=len(body["text"]) // 2)


def _verdicts(report: DecodeReport) -> list[str]:
    return [v.verdict for v in report.verdicts]


def test_a_sound_server_passes_and_all_calls_are_kept() -> None:
    report = Api().decode({"expect": ["Paris"], "repeat": 2}, {"batch": 3})
    assert (None, ["ok", "ok"], 1.0) == (report.kind, _verdicts(report), report.agreement)
    assert ["p0.1", "p0.2", "p1.1", "p1.2", "p1.3"] == [c.id for c in report.calls]


def test_the_first_nan_ends_the_suite_and_the_rest_says_so() -> None:
    report = Api(lambda _: native("!!!!", [0] * 4, [None] * 4)).decode({}, {}, {"top_p": 0.9, "temperature": 1.0})
    assert ("nan", ["nan", "not_run", "not_run"]) == (report.kind, _verdicts(report))
    assert "left out after p0 was nan" == report.verdicts[2].why


def test_what_is_no_nan_lets_the_suite_go_on_and_the_worst_is_named() -> None:
    answers = iter([chat("the " * 30), chat(""), chat("Paris.")])
    report = Api(lambda _: next(answers)).decode(*[{"api": "chat"}] * 3)
    assert ("empty", ["garbage", "empty", "ok"]) == (report.kind, _verdicts(report))


def test_a_server_that_dies_of_a_request_is_reported_gone_for_the_log_to_say_why() -> None:
    def die(_: dict[str, Any]) -> Any:
        api.gone = True
        raise httpx.RemoteProtocolError("Server disconnected without sending a response.")

    api = Api(die)
    report = api.decode({"top_p": 0.9, "temperature": 1.0}, {})
    assert ("reply_error", True, ["error", "not_run"]) == (report.kind, report.server_gone, _verdicts(report))
    assert "Server disconnected" in report.why


def test_a_request_that_fails_on_a_living_server_is_an_error_and_the_suite_goes_on() -> None:
    answers = iter([httpx.Response(500, text="Internal Server Error"), _paris({})])
    report = Api(lambda _: next(answers)).decode({}, {})
    assert ("reply_error", False, ["error", "ok"]) == (report.kind, report.server_gone, _verdicts(report))


def test_the_loss_of_the_host_is_raised() -> None:
    def lose(_: dict[str, Any]) -> Any:
        raise HostLost("gpu-1: the connection broke")

    with pytest.raises(HostLost):
        Api(lose).decode({"batch": 4})


@pytest.mark.parametrize(
    ("info", "ran"),
    [
        ({"context_length": 2048, "max_total_num_tokens": 8192}, False),
        ({"context_length": 8192, "max_total_num_tokens": 2048}, False),
        ({"context_length": 8192, "max_total_num_tokens": 8192}, True),
        ({}, True),
    ],
)
def test_a_prompt_that_does_not_fit_is_not_run_with_the_reason(info: dict[str, Any], ran: bool) -> None:
    report = Api(lambda b: _paris(b), **info).decode({"prompt_tokens": 2300, "must": False}, {})
    assert [Verdict.OK if ran else "not_run", "ok"] == _verdicts(report)
    assert ran or "2300 prompt tokens asked, the server has room for 2048 a request" == report.verdicts[0].why
    assert report.kind is None


def test_a_prompt_that_may_shrink_fills_the_context() -> None:
    api = Api(_counted, context_length=20_000)
    api.decode({"prompt_tokens": 128_000, "at_least_tokens": 16_000, "must": False})
    assert 18_000 < len(api.asked[-1][1]["text"]) / 2 < 20_000


def test_the_server_counts_our_text_so_that_the_prompt_is_as_long_as_asked() -> None:
    api = Api(_counted, context_length=8192)
    api.decode({"prompt_tokens": 2300, "must": False})
    assert 2300 == pytest.approx(len(api.asked[-1][1]["text"]) / 2, rel=0.03)


def test_the_hidden_fact_must_come_back() -> None:
    def recall(body: dict[str, Any]) -> dict[str, Any]:
        found = re.search(r"the code of the lighthouse is (\d+)\.", body["text"])
        return native(f" {found[1]}." if found else " no code.", [4, 5])

    assert Api(recall).decode({"prompt_tokens": 2300}).kind is None
    assert "garbage" == Api().decode({"prompt_tokens": 2300}).kind


def test_requests_say_what_the_suite_asks_in_the_words_of_each_api() -> None:
    def any_api(body: dict[str, Any]) -> Any:
        if body.get("stream"):
            return httpx.Response(200, text=chat_stream([" Paris", "."]))
        if "messages" in body:
            return chat("Paris.")
        return completions(" Paris.") if "max_tokens" in body else _paris(body)

    api = Api(any_api)
    report = api.decode(
        {"max_new_tokens": 2, "ignore_eos": True},
        {"api": "chat", "stream": True},
        {"api": "completions", "top_p": 0.9},
        {"own_sampling": True},
    )
    assert report.kind is None
    (_, native_), (_, chat_), (_, completions_), (_, own) = api.asked
    assert {"temperature": 0.0, "ignore_eos": True, "max_new_tokens": 2} == native_["sampling_params"]
    assert native_["return_logprob"] is True
    assert (True, True, "m") == (chat_["stream"], chat_["logprobs"], chat_["model"])
    assert (1, 0.9) == (completions_["logprobs"], completions_["top_p"])
    assert {"max_new_tokens": 32} == own["sampling_params"]


def test_a_suite_without_time_left_does_not_pass() -> None:
    report = Api().decode({}, {}, within_s=0.0)
    assert ("hang", ["not_run", "not_run"]) == (report.kind, _verdicts(report))


def test_each_verdict_is_told_as_it_falls() -> None:
    told: list[str] = []
    probes = [{"id": "a", "prompt": "x"}, {"id": "b", "prompt": "x"}]
    suite = DecodeSuite.model_validate({"why": "x", "probe": probes})
    with httpx.Client(transport=httpx.MockTransport(Api()), base_url="http://x") as client:
        decode(client, suite, deadline=Deadline.after(30), on_probe=lambda v: told.append(v.id))
    assert ["a", "b"] == told


# --- real connections that break ---------------------------------------------------------------------------------


@pytest.fixture
def half() -> Iterator[str]:
    """A server that promises more bytes than it sends, then hangs up."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        peer, _ = listener.accept()
        with peer:
            peer.recv(65_536)
            peer.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"text":" Paris is the cap')
        listener.close()

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    thread.join(10)


def test_half_an_answer_is_kept_and_the_server_found_gone(half: str) -> None:
    with httpx.Client(base_url=half, trust_env=False) as client:
        call = ask(client, "p", "generate", {"text": "x"}, deadline=Deadline.after(10))
        assert (200, '{"text":" Paris is the cap') == (call.status, call.reply)
        assert call.lost.startswith("the connection failed: ")  # an early end or a reset: the kernel's choice
        assert is_gone(client, deadline=Deadline.after(10))


def test_a_silent_server_is_an_answer_that_did_not_come_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with httpx.Client(base_url=url, trust_env=False) as client:
            call = ask(client, "p", "generate", {"text": "x"}, deadline=Deadline.after(0.2))
            assert (0, "no answer within its time") == (call.status, call.lost)
            assert not is_gone(client, deadline=Deadline.after(0.2))


# --- the whole full suite, against a simulated server ---------------------------------------------------------------

FULL = load(DecodeSuite, SETTINGS_DIR / "suites" / "full.toml")
QUICK = load(DecodeSuite, SETTINGS_DIR / "suites" / "quick.toml")
SOUND = "release = \"0.5.23\"\nspeed = 32.0\n"


def _asked_of(server: Server, suite: DecodeSuite) -> DecodeReport:
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", trust_env=False, timeout=60) as client:
        return decode(client, suite, deadline=Deadline.after(120))


def test_the_full_suite_reaches_as_far_as_the_context_does(start: Start) -> None:
    report = _asked_of(start(SOUND).until_ready(), FULL)
    assert (None, {Verdict.OK}) == (report.kind, {v.verdict for v in report.verdicts}), report.why
    made = [a for a in report.askings if a.probe.prompt_tokens]
    counted = {a.probe.id: a.calls[0].reply["meta_info"]["prompt_tokens"] for a in made}
    assert 8_000 == pytest.approx(counted["prompt-8k"], rel=0.03)
    assert 64_000 == pytest.approx(counted["prompt-64k"], rel=0.03)
    assert 120_000 < counted["prompt-longest"] < 131_072, "this context holds 131,072 tokens"
    by_id = {v.id: v for v in report.verdicts}
    assert (32, 4096) == (by_id["mixed-batch-32"].calls, by_id["long-answer"].tokens)
    assert (report.figures.expected, 1.0) == (report.figures.right, report.figures.accuracy_high)


def test_the_full_suite_adapts_to_a_small_context_and_says_what_it_leaves_out(start: Start) -> None:
    report = _asked_of(start(SOUND, "--context-length", "20000").until_ready(), FULL)
    assert report.kind is None, report.why
    left_out = {v.id: v.why for v in report.verdicts if v.verdict == "not_run"}
    assert {"prompt-64k": "64000 prompt tokens asked, the server has room for 20000 a request"} == left_out
    longest = next(a for a in report.askings if a.probe.id == "prompt-longest")
    assert 18_000 < longest.calls[0].reply["meta_info"]["prompt_tokens"] < 20_000


def test_a_sound_server_is_never_called_anything_else(start: Start) -> None:
    server = start(SOUND).until_ready()
    reports = [_asked_of(server, QUICK) for _ in range(20)]
    assert [None] * 20 == [r.kind for r in reports], [r.why for r in reports if r.kind]
