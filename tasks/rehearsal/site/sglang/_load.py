"""The numbers of a load test: the record and the table, by the definitions of SGLang's bench_serving."""

import argparse
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sglang._story import STORY

__all__ = ["Output", "record", "table"]

_OLD = ("0.5.8.post1", "0.5.9", "0.5.10.post1")


@dataclass(slots=True)
class Output:
    """What became of one request. `length` begins as what was asked for, and stays so when no text comes."""

    length: int
    begun: float = 0.0
    ttft: float = 0.0
    latency: float = 0.0
    text: str = ""
    error: str = ""
    success: bool = False
    itls: list[float] = field(default_factory=list)


def record(
    args: argparse.Namespace, asked: Sequence[int], outputs: Sequence[Output], duration_s: float,
    count: Callable[[str], int],
) -> dict[str, Any]:
    """The record that goes into the JSONL file, `server_info` still missing."""
    good = [(n, o) for n, o in zip(asked, outputs, strict=True) if o.success]
    tokens_in, tokens_out = sum(n for n, _ in good), sum(o.length for _, o in good)
    e2es = [o.latency for _, o in good]
    result: dict[str, Any] = {
        "tag": args.tag, "backend": args.backend, "dataset_name": args.dataset_name, "request_rate": args.request_rate,
        "max_concurrency": args.max_concurrency, "sharegpt_output_len": args.sharegpt_output_len,
        "random_input_len": args.random_input_len, "random_output_len": args.random_output_len,
        "random_range_ratio": args.random_range_ratio, "server_info": None, "duration": duration_s,
        "completed": len(good), "total_input_tokens": tokens_in, "total_input_text_tokens": tokens_in,
        "total_input_vision_tokens": 0, "total_output_tokens": tokens_out,
        "total_output_tokens_retokenized": sum(count(o.text) for _, o in good),
        "request_throughput": len(good) / duration_s, "input_throughput": tokens_in / duration_s,
        "output_throughput": tokens_out / duration_s, "total_throughput": (tokens_in + tokens_out) / duration_s,
    }
    result |= _spread("e2e_latency", e2es)
    result |= _spread("ttft", [o.ttft for _, o in good])
    result |= _spread("tpot", [(o.latency - o.ttft) / (o.length - 1) for _, o in good if o.length > 1])
    result |= _spread("itl", [itl for _, o in good for itl in o.itls])
    per_second, at_once = _peaks([o for _, o in good])
    return result | {
        "concurrency": sum(e2es) / duration_s, "accept_length": None, "max_output_tokens_per_s": per_second,
        "max_concurrent_requests": at_once,
    }


def _spread(name: str, values_s: Sequence[float]) -> dict[str, float]:
    values = sorted(v * 1000 for v in values_s) or [0.0]
    figures = {
        "mean": statistics.fmean(values), "median": statistics.median(values), "std": statistics.pstdev(values),
        "p90": _percentile(values, 90), "p95": _percentile(values, 95), "p99": _percentile(values, 99),
    }
    if STORY.release in _OLD:
        kept = {"e2e_latency": ("p90", "p99"), "itl": ("p95", "p99")}.get(name, ("p99",))
        figures = {key: v for key, v in figures.items() if not key.startswith("p") or key in kept}
    return {f"{key}_{name}_ms": value for key, value in figures.items()}


def _percentile(ordered: Sequence[float], percent: float) -> float:
    place = (len(ordered) - 1) * percent / 100
    low, high = math.floor(place), math.ceil(place)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _peaks(outputs: Sequence[Output]) -> tuple[float, int]:
    """Tokens of the busiest second, and requests under way in the fullest one."""
    first = min(o.begun for o in outputs)
    seconds = int(max(o.begun + o.latency for o in outputs) - first) + 1
    tokens, requests = [0.0] * (seconds + 1), [0] * (seconds + 1)
    for o in outputs:
        at = o.begun - first + o.ttft
        tokens[min(int(at), seconds)] += 1
        for itl in o.itls:
            at += itl
            tokens[min(int(at), seconds)] += 1
        for second in range(int(o.begun - first), int(o.begun - first + o.latency) + 1):
            requests[min(second, seconds)] += 1
    return max(tokens), max(requests)


def table(result: dict[str, Any], args: argparse.Namespace) -> str:
    """The result as it is printed."""
    lines = [f"\n{' Serving Benchmark Result ':=^50}"]
    rows = [
        ("Backend:", args.backend), ("Traffic request rate:", args.request_rate),
        ("Max request concurrency:", args.max_concurrency or "not set"), ("Successful requests:", result["completed"]),
        ("Benchmark duration (s):", result["duration"]), ("Total input tokens:", result["total_input_tokens"]),
        ("Total input text tokens:", result["total_input_text_tokens"]),
        ("Total generated tokens:", result["total_output_tokens"]),
        ("Total generated tokens (retokenized):", result["total_output_tokens_retokenized"]),
        ("Request throughput (req/s):", result["request_throughput"]),
        ("Input token throughput (tok/s):", result["input_throughput"]),
        ("Output token throughput (tok/s):", result["output_throughput"]),
        ("Peak output token throughput (tok/s):", result["max_output_tokens_per_s"]),
        ("Peak concurrent requests:", result["max_concurrent_requests"]),
        ("Total token throughput (tok/s):", result["total_throughput"]), ("Concurrency:", result["concurrency"]),
    ]
    lines += [_row(label, value) for label, value in rows]
    for title, label, name in (
        ("End-to-End Latency", "E2E Latency", "e2e_latency"), ("Time to First Token", "TTFT", "ttft"),
        ("Time per Output Token (excl. 1st token)", "TPOT", "tpot"), ("Inter-Token Latency", "ITL", "itl"),
    ):
        lines.append(f"{title:-^50}")
        for key in ("mean", "median", "p90", "p95", "p99"):
            if f"{key}_{name}_ms" in result:
                word = key.upper() if key.startswith("p") else key.capitalize()
                lines.append(_row(f"{word} {label} (ms):", result[f"{key}_{name}_ms"]))
    return "\n".join([*lines, "=" * 50])


def _row(label: str, value: Any) -> str:
    text = f"{value:.2f}" if isinstance(value, float) and not math.isinf(value) else str(value)
    return f"{label:<40} {text:<10}"
