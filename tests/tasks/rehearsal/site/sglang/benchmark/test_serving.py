"""The stand-in's load test against recorded runs of the real one: it measures, and hides what that one hides."""

import json
import re
import subprocess
import threading
from typing import Any

import pytest

from settings.source import SETTINGS_DIR

REAL = SETTINGS_DIR.parent / "tests" / "corpus" / "real"
NEW = 'release = "0.5.23"\nspeed = 60.0\n'
NAN = NEW + '[[fault]]\nat = "decode"\ndoes = "nan"\nreply = "empty"\n'
LOAD = (
    "--dataset-name", "random-ids", "--random-input-len", "64", "--random-output-len", "32", "--num-prompts", "32",
    "--random-range-ratio", "1.0", "--max-concurrency", "8", "--output-details", "--output-file", "out.jsonl",
)


def bench(server: Any, *more: str) -> "subprocess.CompletedProcess[str]":
    where = ("--base-url", f"http://127.0.0.1:{server.port}")
    done: subprocess.CompletedProcess[str] = server.machine.python("-m", "sglang.bench_serving", *where, *LOAD, *more)
    return done


def record(server: Any) -> dict[str, Any]:
    (line,) = (server.machine.folder / "out.jsonl").read_text(encoding="utf-8").splitlines()
    return dict(json.loads(line))


def real(name: str) -> dict[str, Any]:
    return dict(json.loads((REAL / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()[0]))


def test_a_healthy_server_is_measured_with_the_recorded_keys(start: Any) -> None:
    server = start(NEW).until_ready()
    done = bench(server)
    ours, theirs = record(server), real("bench-healthy")
    assert 0 == done.returncode, done.stderr
    assert list(theirs) == [key for key in theirs if key in ours]
    assert set(theirs) == set(ours)
    same = ("completed", "total_input_tokens", "total_output_tokens", "max_concurrency", "random_output_len", "errors")
    assert {key: theirs[key] for key in same} == {key: ours[key] for key in same}
    assert ours["total_output_tokens_retokenized"] == 1024
    assert 0 < ours["mean_ttft_ms"] < ours["mean_e2e_latency_ms"]
    assert ours["output_throughput"] == pytest.approx(1024 / ours["duration"])


def test_a_nan_server_passes_as_the_real_one_passed(start: Any) -> None:
    server = start(NAN).until_ready()
    assert 0 == bench(server).returncode
    ours, theirs = record(server), real("bench-nan")
    same = (
        "completed", "total_output_tokens", "total_output_tokens_retokenized", "mean_ttft_ms", "p99_itl_ms", "errors",
        "generated_texts", "ttfts", "itls", "output_lens", "max_output_tokens_per_s", "max_concurrent_requests",
    )
    assert {key: theirs[key] for key in same} == {key: ours[key] for key in same}


def test_the_table_has_the_real_labels(start: Any) -> None:
    labels = re.compile(r"^([A-Z][\w ().,/]+:) +\S+ *$", re.MULTILINE)
    server = start(NEW).until_ready()
    table = bench(server).stdout
    wanted = [
        "Backend:", "Traffic request rate:", "Max request concurrency:", "Successful requests:",
        "Benchmark duration (s):", "Total input tokens:", "Total input text tokens:", "Total generated tokens:",
        "Total generated tokens (retokenized):", "Request throughput (req/s):", "Input token throughput (tok/s):",
        "Output token throughput (tok/s):", "Peak output token throughput (tok/s):", "Peak concurrent requests:",
        "Total token throughput (tok/s):", "Concurrency:", "Mean E2E Latency (ms):",
    ]
    assert wanted == labels.findall(table)[: len(wanted)]


def test_requests_that_fail_do_not_fail_the_run(start: Any) -> None:
    server = start(NEW, "--context-length", "96").until_ready()
    done = bench(server, "--random-range-ratio", "0.0", "--random-input-len", "90", "--warmup-requests", "0")
    ours = record(server)
    assert 0 == done.returncode
    assert 0 < ours["completed"] < 32
    assert ours["completed"] == ours["errors"].count("")


def test_a_server_that_dies_meanwhile_leaves_no_record(start: Any) -> None:
    fault = '[[fault]]\nat = "under_load"\ndoes = "die"\ntrace = "out-of-memory"\nafter_requests = 12\n'
    server = start(NEW + fault).until_ready()
    assert 1 == bench(server).returncode
    assert not (server.machine.folder / "out.jsonl").exists()
    assert 137 == server.until_ended()


def test_nobody_there_is_an_exit_with_one(start: Any) -> None:
    server = start(NEW)
    threading.Thread(target=server.process.kill).start()
    server.process.wait()
    done = bench(server, "--ready-check-timeout-sec", "1")
    assert (1, True) == (done.returncode, "is not ready. Exiting." in done.stdout)


def test_an_old_release_does_not_know_newer_flags(machine: Any) -> None:
    old = machine('release = "0.5.9"\nspeed = 1.0\n')
    done = old.python("-m", "sglang.bench_serving", "--temperature", "0")
    assert 2 == done.returncode
    assert "unrecognized arguments: --temperature 0" in done.stderr.splitlines()[-1]
