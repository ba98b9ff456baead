"""The stand-in's life, log, replies and deaths, against what was recorded of the real server."""

import json
import os
import re
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from settings.source import SETTINGS_DIR

REAL = SETTINGS_DIR.parent / "tests" / "corpus" / "real"
HEALTHY = 'release = "{}"\nspeed = 60.0\n'
NEW = HEALTHY.format("0.5.23")
SILENT = NEW + '[[fault]]\nat = "decode"\ndoes = "nan"\nreply = "empty"\n'
WORD = re.compile(r"[A-Za-z_][\w./'-]*")


def messages(log: str) -> list[str]:
    """The log's own lines, each cut to its first words: no times, ranks, numbers, paths."""
    found = []
    for line in log.replace("\r", "\n").splitlines():
        stamped = re.match(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]]*\] (.*)", line)
        text = stamped[1] if stamped else ""
        text = re.sub(r"\d+\.\d+\.\d+\.\d+:\d+ - ", "", text)
        if text:
            found.append(" ".join(WORD.findall(re.split(r"[=:(]\S*[\d'/{]|\d", text)[0])[:5]))
    return [m for m in found if m and "GET health" not in m]  # who asks, and when, is not the server's doing


def first_seen(log: str, wanted: Sequence[str]) -> list[str]:
    return [m for m in dict.fromkeys(messages(log)) if m in wanted]


@pytest.mark.parametrize("real", ["real-s05", "cpu-0.5.23-healthy"])
def test_what_a_real_log_says_too_comes_in_the_same_order(start: Any, real: str) -> None:
    server = start(NEW).until_ready()
    server.generate("Hello")
    ours, theirs = server.text(), (REAL / f"{real}.log").read_text(encoding="utf-8")
    both = set(messages(ours)) & set(messages(theirs))
    assert first_seen(theirs, list(both)) == first_seen(ours, list(both))
    assert 15 <= len(both)


def test_it_says_nothing_that_no_real_log_says(start: Any) -> None:
    server = start(NEW, "--kv-cache-dtype", "bfloat16").until_ready()
    server.generate("Hello")
    server.process.terminate()
    server.until_ended()
    real = "".join((REAL / f"{name}.log").read_text(encoding="utf-8") for name in ("real-s05", "cpu-0.5.23-healthy"))
    assert [] == sorted(set(messages(server.text())) - set(messages(real)))


def test_the_port_opens_when_all_is_captured_and_serves_after_the_warm_up(start: Any) -> None:
    server = start(NEW + "pace = { warmup_s = 30.0 }\n")
    seen: list[int] = []

    def ready() -> bool:
        status = server.call("/health")[0]
        if status not in seen:
            seen.append(status)
            assert ("Capture target decode CUDA graph end" in server.text()) == (status != 0)
        return bool(status == 200)

    server.until(ready)
    assert [0, 503, 200] == seen
    assert "The server is fired up and ready to roll!" in server.text()


@pytest.mark.parametrize(
    ("release", "argv", "effective"),
    [
        ("0.5.8.post1", "--nsa-decode-backend fa3", ("fp8_e4m3", "flashmla_auto", "flashmla_kv")),
        ("0.5.9", "", ("fp8_e4m3", "flashmla_auto", "flashmla_kv")),
        ("0.5.9", "--nsa-decode-backend trtllm", ("fp8_e4m3", "flashmla_auto", "trtllm")),
        ("0.5.9", "--kv-cache-dtype bf16", ("bfloat16", "flashmla_sparse", "trtllm")),
        ("0.5.10.post1", "--nsa-decode-backend flashmla_sparse", ("fp8_e4m3", "trtllm", "trtllm")),
        ("0.5.17", "", ("fp8_e4m3", "flashinfer_sparse_mla", "flashinfer_sparse_mla")),
        ("0.5.23", "--kv-cache-dtype bfloat16", ("bfloat16", "flashmla_sparse", "trtllm")),
    ],
)
def test_the_effective_settings_are_those_that_the_release_picks(
    start: Any, release: str, argv: str, effective: tuple[str, ...]
) -> None:
    server = start(HEALTHY.format(release), *argv.split()).until_ready()
    info = server.json("/get_server_info")
    word = "nsa" if f"nsa_{'decode'}_backend" in info else "dsa"
    assert effective == (info["kv_cache_dtype"], info[f"{word}_prefill_backend"], info[f"{word}_decode_backend"])
    assert release == info["version"]
    assert f"prefill={effective[1]}, decode={effective[2]}." in server.text()


def test_a_newer_release_refuses_other_backends_for_this_model_at_attention_init(start: Any) -> None:
    server = start(NEW, "--dsa-decode-backend", "trtllm")
    assert 137 == server.until_ended()
    assert "supports only flashinfer_sparse_mla (default) or triton_sparse_mla (prefill)" in server.text()


def keys(value: Any) -> Any:
    """The shape of a reply: keys, and those of what they hold."""
    if isinstance(value, dict):
        return {key: keys(inner) for key, inner in value.items()}
    return [keys(value[0])] if isinstance(value, list) and value and isinstance(value[0], dict) else None


def recorded(name: str) -> Any:
    text = (REAL / "http" / name).read_bytes().decode().replace("\r\n", "\n")
    return json.loads(text.partition("\n\n")[2] if text.startswith("HTTP/") else text)


def test_replies_have_the_keys_of_the_recorded_ones(start: Any) -> None:
    server = start(NEW).until_ready()
    params = {"temperature": 0, "max_new_tokens": 8}
    asked = {"text": "hello world", "sampling_params": params}
    assert keys(recorded("cpu-generate.http")) == keys(server.json("/generate", asked))  # then its cache is warm
    with_logprobs = {**asked, "return_logprob": True, "top_logprobs_num": 2}
    assert keys(recorded("cpu-generate-logprob.http")) == keys(server.json("/generate", with_logprobs))
    chat = {"model": "x", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8, "temperature": 0}
    assert keys(recorded("cpu-chat.http")) == keys(server.json("/v1/chat/completions", chat))
    assert keys(recorded("cpu-v1_models.http")) == keys(server.json("/v1/models"))
    assert set(server.json("/model_info")) <= set(recorded("cpu-model_info.http"))
    theirs, ours = recorded("cpu-server_info.http"), server.json("/server_info")
    assert set(ours) <= set(theirs)
    assert {"version", "internal_states", "max_total_num_tokens", "launch_command", "status"} <= set(ours)
    assert 404 == server.call("/metrics")[0]


def test_a_stream_has_the_recorded_events(start: Any) -> None:
    server = start(NEW).until_ready()
    body = {"text": "hello you", "sampling_params": {"temperature": 0, "max_new_tokens": 4}, "stream": True}
    server.call("/generate", body)
    status, content = server.call("/generate", body)
    theirs = [json.loads(e) for e in events((REAL / "http" / "cpu-generate-stream.http").read_bytes())]
    ours = [json.loads(e) for e in events(content)]
    assert 200 == status
    assert [keys(e) for e in theirs] == [keys(e) for e in ours]
    assert [1, 2, 3, 4] == [e["meta_info"]["completion_tokens"] for e in ours]
    assert content.endswith(b"data: [DONE]\n\n")


def events(content: bytes) -> list[bytes]:
    return [e for e in re.findall(rb"data: (.*)", content) if e.strip() != b"[DONE]"]


def test_a_request_that_does_not_fit_is_refused_as_recorded(start: Any) -> None:
    server = start(NEW, "--context-length", "2048").until_ready()
    body = {"text": "hello", "sampling_params": {"max_new_tokens": 999_999}}
    status, content = server.call("/generate", body)
    assert (400, recorded("cpu-generate-toolong.http")) == (status, json.loads(content))


def test_a_healthy_model_answers_sensibly_and_the_same_twice(start: Any) -> None:
    server = start(NEW).until_ready()
    first, second = (server.generate("The capital city of France is", max_new_tokens=24) for _ in range(2))
    assert first["text"].startswith(" Paris")
    assert first["output_ids"] == second["output_ids"]
    assert all(value < 0 for value, _, _ in first["meta_info"]["output_token_logprobs"])
    hidden = "Rain fell. The code of the lighthouse is 4711. Snow fell. What was it? The code of the lighthouse is"
    assert "4711" in server.generate(hidden)["text"]
    forced = server.generate("Hello", max_new_tokens=300, ignore_eos=True)
    assert 300 == len(forced["output_ids"]) == forced["meta_info"]["completion_tokens"]
    assert {"type": "length", "length": 300} == forced["meta_info"]["finish_reason"]


def test_with_a_reasoning_parser_a_chat_thinks_apart_from_its_answer(start: Any) -> None:
    server = start(NEW, "--reasoning-parser", "glm45").until_ready()
    said = [{"role": "user", "content": "What is 2 + 2?"}]
    asked = {"model": "x", "messages": said, "max_tokens": 200, "temperature": 0}
    message = server.json("/v1/chat/completions", asked)["choices"][0]["message"]
    assert message["content"].startswith("4.")
    assert message["reasoning_content"].startswith("Let me think.")
    _, streamed = server.call("/v1/chat/completions", {**asked, "stream": True})
    deltas = [
        json.loads(line.removeprefix(b"data: "))["choices"][0]["delta"]
        for line in streamed.splitlines() if line.startswith(b"data: {")
    ]
    for part in ("content", "reasoning_content"):
        assert message[part].split() == "".join(d[part] or "" for d in deltas).split()
    short = server.json("/v1/chat/completions", {**asked, "max_tokens": 5})["choices"][0]["message"]
    assert (None, True) == (short["content"], bool(short["reasoning_content"]))


def test_a_wrong_model_is_fluent_and_cannot_add(start: Any) -> None:
    server = start(NEW + '[[fault]]\nat = "decode"\ndoes = "wrong"\n').until_ready()
    assert server.generate("What is 2 + 2?")["text"].startswith(" 4.")
    assert server.generate("What is 17 + 25?")["text"].startswith(" 52.")


def test_a_batch_in_one_request_gives_a_reply_to_each_prompt(start: Any) -> None:
    server = start(NEW).until_ready()
    params = {"temperature": 0, "max_new_tokens": 3}
    replies = server.json("/generate", {"text": ["one", "two", "three"], "sampling_params": params})
    assert [3, 3, 3] == [len(r["output_ids"]) for r in replies]
    ids = server.json("/generate", {"input_ids": [5, 6, 7], "sampling_params": params})
    assert 3 == ids["meta_info"]["prompt_tokens"]


def test_silent_nan_is_a_healthy_server_whose_reply_is_the_recorded_one(start: Any) -> None:
    server = start(SILENT).until_ready()
    real, ours = recorded("cpu-generate-silent-nan.json"), server.generate("hello world", max_new_tokens=16)
    assert (real["text"], real["output_ids"]) == (ours["text"], ours["output_ids"])
    for key in ("finish_reason", "output_token_logprobs", "prompt_tokens", "completion_tokens"):
        assert real["meta_info"][key] == ours["meta_info"][key]
    assert 200 == server.call("/health_generate")[0]
    assert "nan" not in re.sub(r"server_args=.*", "", server.text()).lower()


def test_a_sampled_request_kills_a_nan_server(start: Any) -> None:
    server = start(SILENT).until_ready()
    params = {"temperature": 1, "top_p": 0.9, "max_new_tokens": 4}
    assert 0 == server.call("/generate", {"text": "Once", "sampling_params": params})[0]
    assert 137 == server.until_ended()
    assert "probability tensor contains either `inf`, `nan` or element < 0" in server.text()


def test_the_nan_check_of_a_newer_build_ends_as_the_real_one_did(start: Any) -> None:
    server = start(SILENT, env={"SGLANG_ENABLE_NAN_LOGITS_CHECK": "1"})
    assert 137 == server.until_ended()
    real = (REAL / "cpu-0.5.23-fatal-nan-check.log").read_text(encoding="utf-8")
    cause = "Scheduler hit an exception"
    after_real, after_ours = (messages(text[text.rindex("[", 0, text.index(cause)):]) for text in (real, server.text()))
    assert after_real == after_ours
    assert "NaN detected! sampler: next_token_logits" in server.text()


def test_the_founding_host_dies_at_its_first_decode_on_every_rank(start: Any) -> None:
    server = start("founding", "--tp-size", "8").until_ready()
    assert 200 == server.call("/health")[0]
    assert 0 == server.call("/generate", {"text": "Hello", "sampling_params": {"temperature": 0}})[0]
    assert 137 == server.until_ended()
    text = server.text()
    assert {f"TP{n}" for n in range(8)} == set(re.findall(r"(TP\d)\] Scheduler hit an exception: Traceback", text))
    assert text.index("Assertion `probability tensor") < text.index("device-side assert triggered")
    assert text.index("SIGQUIT received") < text.index("Sleeping 5 seconds before crash diagnostics")


def test_memory_that_does_not_suffice_for_graphs_is_said_as_in_the_real_log(start: Any) -> None:
    fault = '[[fault]]\nat = "graph_capture"\ndoes = "die"\ntrace = "graph-oom"\n'
    fault += 'when = { mem_fraction_static = ">=0.9" }\n'
    server = start(NEW + fault, "--mem-fraction-static", "0.95")
    assert 137 == server.until_ended()
    real = (REAL / "real-s10.log").read_text(encoding="utf-8")
    wanted = messages(real[real.index("Capture target prefill"):])
    assert wanted == messages(server.text()[server.text().index("Capture target prefill"):])
    assert start(NEW + fault, "--mem-fraction-static", "0.88").until_ready()


def test_a_taken_port_is_noticed_after_the_load_and_then_it_hangs(start: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        port = int(somebody.getsockname()[1])
        server = start(NEW, port=port)
        server.until(lambda: "Waiting for application shutdown." in server.text())
    real = (REAL / "real-s09.log").read_text(encoding="utf-8")
    wanted = "[Errno 98] error while attempting to bind on address ('127.0.0.1', {}): address already in use"
    assert wanted.format(31102) in real
    assert wanted.format(port) in server.text()
    assert server.process.poll() is None


def test_a_stranger_takes_the_port_in_mid_load_and_goes_with_the_server(start: Any) -> None:
    server = start("port-taken")
    server.until(lambda: "[Errno 98]" in server.text())
    assert (200, b"dashboard: ok\n") == server.call("/health")
    assert 404 == server.call("/server_info")[0]
    server.process.kill()
    server.process.wait()
    server.until(lambda: server.call("/health")[0] == 0)


def test_asked_to_stop_it_drains_and_ends_as_the_real_one(start: Any) -> None:
    server = start(NEW).until_ready()
    server.process.terminate()
    assert 0 == server.until_ended()
    real = (REAL / "real-s05.log").read_text(encoding="utf-8")
    ours, theirs = (messages(text[text.rindex("[", 0, text.index("SIGTERM")):]) for text in (server.text(), real))
    assert theirs == ours


def test_a_killed_scheduler_takes_the_server_with_it_in_newer_releases_only(start: Any) -> None:
    new, old = start(NEW).until_ready(), start(HEALTHY.format("0.5.9")).until_ready()
    for server in (new, old):
        (pid,) = (pid for pid, title in server.children().items() if title == "sglang::scheduler")
        os.kill(pid, signal.SIGKILL)
    assert 137 == new.until_ended()
    assert re.search(r"Subprocess scheduler_0 \(pid=\d+\) crashed with exit code -9", new.text())
    assert old.process.poll() is None


def test_no_rank_outlives_the_server(start: Any) -> None:
    server = start(NEW, "--tp-size", "4")
    server.until(lambda: "Load weight begin" in server.text())
    pids = list(server.children())
    assert 4 == len(pids)
    server.process.kill()
    server.process.wait()
    server.until(lambda: not any(is_alive(pid) for pid in pids))


def is_alive(pid: int) -> bool:
    try:
        return "Z" != Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def test_the_gpus_hold_memory_while_the_server_lives_and_only_on_its_machine(start: Any) -> None:
    query = ("--query-gpu=index,memory.used", "--format=csv,noheader,nounits")
    server = start(NEW, "--tp-size", "2").until_ready()
    used = [int(line.split(",")[1]) for line in server.machine.smi(*query).splitlines()]
    assert [True, True, *[False] * 6] == [mib > 50_000 for mib in used]
    apps = server.machine.smi("--query-compute-apps=pid,process_name", "--format=csv,noheader")
    assert set(server.children()) == {int(line.split(",")[0]) for line in apps.splitlines()}
    server.machine.env["REHEARSAL_HOST"] = "elsewhere"
    assert "" == server.machine.smi("--query-compute-apps=pid", "--format=csv,noheader")
    server.machine.env["REHEARSAL_HOST"] = str(server.machine.folder)
    server.process.kill()
    server.process.wait()
    server.until(lambda: server.machine.smi("--query-compute-apps=pid", "--format=csv,noheader") == "")


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--model-path", "/no/such/model"), "Repo id must be in the form"),
        (("--context-length", "999999999"), "is greater than the derived context_length"),
        (("--kv-cache-dtype", "fp8_e5m2"), "DeepSeek DSA only supports bf16/bfloat16 or fp8_e4m3"),
    ],
)
def test_a_configuration_refused_early_ends_with_one_and_a_traceback(start: Any, argv: Any, says: str) -> None:
    server = start(NEW, *argv)
    assert 1 == server.until_ended()
    assert "Traceback (most recent call last):" in server.text()
    assert says in server.text().splitlines()[-1]
    assert "server_args=" not in server.text()
