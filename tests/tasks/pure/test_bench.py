"""Real records of a healthy server and of one whose every logit is NaN, and what else bench_serving lets pass."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from settings.source import SETTINGS_DIR, load
from settings.suite import BenchProfile
from tasks.pure.bench import read_bench, redacted

REAL = Path(__file__).parents[2] / "corpus" / "real"
SMOKE = load(BenchProfile, SETTINGS_DIR / "suites" / "bench" / "smoke.toml")


def _record(**changes: Any) -> bytes:
    record = {**json.loads((REAL / "bench-healthy.jsonl").read_text()), **changes}
    return json.dumps({k: v for k, v in record.items() if v is not ...}).encode()


def test_a_healthy_record_is_a_valid_point_with_its_numbers() -> None:
    point = read_bench((REAL / "bench-healthy.jsonl").read_bytes(), SMOKE).point
    assert (True, "", 32, 32, 0) == (point.valid, point.why, point.asked, point.completed, point.failed)
    assert (1024, 1022, 8) == (point.output_tokens, point.output_tokens_retokenized, point.max_concurrency)
    assert (106.9, 3.178, 8.317, 131.8) == pytest.approx(
        (point.ttft_p99_ms, point.tpot_p99_ms, point.itl_p99_ms, point.e2e_p99_ms), rel=1e-3
    )


def test_the_load_test_of_a_nan_server_counts_for_nothing_though_all_requests_succeeded() -> None:
    reading = read_bench((REAL / "bench-nan.jsonl").read_bytes(), SMOKE)
    point = reading.point
    assert (False, 32, 0, True) == (point.valid, point.completed, point.failed, reading.nan_signs)
    assert "1024 output tokens claimed, 0 in the texts that came" == point.why


def test_a_time_that_was_never_taken_is_none_and_not_zero() -> None:
    point = read_bench((REAL / "bench-nan.jsonl").read_bytes(), SMOKE).point
    assert [None] * 3 == [point.ttft_mean_ms, point.ttft_p99_ms, point.itl_median_ms]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"completed": 29, "errors": ["", "Connection reset by peer"]}, "3 of 32 requests failed: Connection reset"),
        ({"errors": ["boom"] + [""] * 31}, "1 requests carry an error: boom"),
        ({"completed": ...}, "does not say how many"),
        ({"total_output_tokens": 0}, "no output tokens"),
        ({"total_output_tokens_retokenized": 100}, "1024 output tokens claimed, 100"),
        ({"generated_texts": [""] * 4 + ["fine"] * 28}, "4 of 32 texts are empty"),
        ({"generated_texts": ["!!!!"] * 4 + ["fine"] * 28}, "4 of 32 texts are nothing but '!'"),
        ({"total_output_tokens": 700, "output_throughput": 700 / 0.5064}, "at least 1003 were asked for"),
        ({"duration": 0}, "no duration"),
        ({"output_throughput": 9e6}, "9000000 tok/s claimed"),
        ({"mean_ttft_ms": 0.0}, "mean_ttft_ms is 0"),
        ({"ttfts": [0.0] * 4 + [0.1] * 28}, "4 of 32 requests never had a first token"),
        ({"median_tpot_ms": 0.001}, "faster than any machine"),
        ({"mean_ttft_ms": 500.0}, "first token after 500 ms"),
    ],
)
def test_each_thing_that_bench_serving_hides_makes_the_point_invalid(changes: dict[str, Any], why: str) -> None:
    point = read_bench(_record(**changes), SMOKE).point
    assert (False, True) == (point.valid, why in point.why), point.why


@pytest.mark.parametrize(
    "changes",
    [
        {"generated_texts": [""] + ["fine"] * 31},  # one model that began with its end token
        {"generated_texts": ..., "errors": ..., "ttfts": ..., "itls": ...},  # without --output-details
        {"total_output_tokens_retokenized": 1400},  # bytes that are no UTF-8 cost three tokens each
        {"request_rate": math.inf},
        {"p90_ttft_ms": ..., "std_itl_ms": ..., "total_output_tokens_retokenized": ...},  # an older release
    ],
)
def test_what_healthy_runs_show_does_not_invalidate_them(changes: dict[str, Any]) -> None:
    assert "" == read_bench(_record(**changes), SMOKE).point.why


@pytest.mark.parametrize("raw", [None, b"", b"[1]", b'{"completed": 3', b"\xff\xfe"])
def test_no_record_is_an_invalid_point_of_nothing_but_what_was_asked(raw: bytes | None) -> None:
    point = read_bench(raw, SMOKE).point
    assert (False, 32, None, None) == (point.valid, point.asked, point.completed, point.failed)


def test_not_finite_numbers_are_missing() -> None:
    point = read_bench(_record(p99_ttft_ms=math.nan, mean_itl_ms=math.inf), SMOKE).point
    assert (None, None) == (point.ttft_p99_ms, point.itl_mean_ms)


def test_only_secrets_are_taken_out_of_the_raw_line() -> None:
    info = {"api_key": "sk-1234567890", "tokenizer_path": "/models/x", "max_total_tokens": 8192}
    raw = _record(server_info=info)
    assert redacted(raw) == raw.replace(b"sk-1234567890", b"<secret>")
    assert b"/models/x" in redacted(raw)


def test_errors_of_a_lost_server_are_told_apart() -> None:
    refused = ["Cannot connect to host 127.0.0.1:30000 ssl:default [Connect call failed]"] * 32
    assert read_bench(_record(completed=0, errors=refused), SMOKE).server_lost
    assert not read_bench(_record(completed=0, errors=["Bad Request"] * 32), SMOKE).server_lost
