"""Figures of single requests, against the summary that bench_serving itself made of the same requests."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from settings.load_test import Slo
from settings.source import SETTINGS_DIR, load
from settings.suite import BenchProfile
from tasks.pure.bench import read_bench
from tasks.pure.latency import goodput, percentile, read_requests

REAL = Path(__file__).parents[2] / "corpus" / "real"
RECORD: dict[str, Any] = json.loads((REAL / "bench-healthy.jsonl").read_text())
SMOKE = load(BenchProfile, SETTINGS_DIR / "suites" / "bench" / "smoke.toml")


def test_our_percentiles_are_those_of_the_real_client() -> None:
    requests = read_requests(RECORD)
    assert 32 == len(requests)
    assert RECORD["p99_ttft_ms"] == pytest.approx(percentile([r.ttft_ms for r in requests], 99), rel=1e-9)
    assert RECORD["p99_itl_ms"] == pytest.approx(percentile([g for r in requests for g in r.itls_ms], 99), rel=1e-9)
    tpots = [t for r in requests if (t := r.tpot_ms) is not None]
    assert RECORD["median_tpot_ms"] == pytest.approx(percentile(tpots, 50), rel=0.02)
    assert RECORD["p99_e2e_latency_ms"] == pytest.approx(percentile([r.e2e_ms for r in requests], 99), rel=0.02)


def test_p90_is_the_records_own_where_it_has_one_and_made_from_the_details_where_not() -> None:
    own = read_bench(json.dumps({**RECORD, "p90_ttft_ms": 77.0}).encode(), SMOKE).point
    assert 77.0 == own.ttft_p90_ms
    old = {k: v for k, v in RECORD.items() if not k.startswith("p90_")}
    made = read_bench(json.dumps(old).encode(), SMOKE).point
    assert made.ttft_p90_ms == pytest.approx(percentile([1000 * t for t in RECORD["ttfts"]], 90))
    bare = {k: v for k, v in old.items() if k not in ("ttfts", "itls", "output_lens")}
    assert read_bench(json.dumps(bare).encode(), SMOKE).point.ttft_p90_ms is None


def test_figures_per_gpu_and_per_user_are_there_when_they_can_be_known() -> None:
    point = read_bench((REAL / "bench-healthy.jsonl").read_bytes(), SMOKE, gpus=8).point
    assert point.output_tokens_per_s is not None
    assert point.output_tokens_per_s_per_gpu == pytest.approx(point.output_tokens_per_s / 8)
    assert point.output_tokens_per_s_per_user == pytest.approx(1000 / RECORD["median_tpot_ms"])
    on_cpu = read_bench((REAL / "bench-healthy.jsonl").read_bytes(), SMOKE, gpus=0).point
    assert (None, None) == (on_cpu.gpus, on_cpu.output_tokens_per_s_per_gpu)
    nan = read_bench((REAL / "bench-nan.jsonl").read_bytes(), SMOKE, gpus=8, slo=Slo(ttft_p99_ms=1e9)).point
    assert [None] * 2 == [nan.ttft_p90_ms, nan.goodput_tokens_per_s], "no token of it was ever timed"


def test_goodput_counts_what_came_in_time_and_a_failed_request_as_a_miss() -> None:
    record = {
        "ttfts": [0.1, 0.1, 3.0, 0.0], "itls": [[0.01] * 9, [0.2] * 9, [0.01] * 9, []],
        "output_lens": [10, 10, 10, 0], "errors": ["", "", "", "boom"],
    }  # fmt: skip
    requests = read_requests(record)
    assert 3 == len(requests)
    good = goodput(requests, Slo(ttft_p99_ms=1000, tpot_p99_ms=50), 2.0)
    assert (0.5, 5.0) == (good.requests_per_s, good.tokens_per_s)


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"ttfts": [1.0], "itls": [[1.0]]},
        {"ttfts": [1.0], "itls": [], "output_lens": [1]},
        {"ttfts": [None], "itls": [[1.0]], "output_lens": [2]},
        {"ttfts": [1.0], "itls": [["x"]], "output_lens": [2]},
    ],
)
def test_details_that_do_not_fit_are_none(record: dict[str, Any]) -> None:
    assert () == read_requests(record)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 100))
def test_a_percentile_lies_within_its_values(values: list[float], percent: float) -> None:
    found = percentile(values, percent)
    assert found is not None
    assert min(values) <= found <= max(values) or found == pytest.approx(min(values))
