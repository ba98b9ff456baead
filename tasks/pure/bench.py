"""Whether a run of bench_serving measured anything: its raw record as a BenchPoint, or why it counts for nothing.

bench_serving exits 0 when requests fail, counts a stream that carries an error as a success, and counts tokens that
never came (measured on 0.5.23: a server whose every logit is NaN has 32 of 32 "successful" requests at 1,493 tok/s).
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from settings.load_test import Slo
from settings.suite import BenchProfile
from tasks.pure.latency import goodput, percentile, read_requests
from tasks.pure.record import BenchPoint
from tasks.pure.redact import Redactor

__all__ = ["BenchReading", "read_bench", "redacted"]

_FEW = 0.05  # share of requests that may have an empty text: a model may begin with its end token on random ids
_RETOKENIZED = 0.5  # healthy runs had 0.99; a decoder that merges its own tokens differently stays well above this
_FASTEST_TOKENS_PER_S = 20_000.0  # of one request: 0.05 ms a token
_SECRET_KEY = re.compile(r"(?i)(^|_)(api_key|key|password|secret|token|credential|authorization)(_b)?$")
_TIMES = tuple((name, stat) for name in ("ttft", "tpot", "itl", "e2e") for stat in ("mean", "median", "p90", "p99"))


@dataclass(frozen=True, slots=True)
class BenchReading:
    """A point, and what its texts look like. `nan_signs`: the answers are empty or nothing but "!"."""

    point: BenchPoint
    nan_signs: bool = False
    server_lost: bool = False


def read_bench(
    raw: bytes | None, profile: BenchProfile, *, gpus: int | None = None, slo: Slo | None = None
) -> BenchReading:
    """The point of one raw record (the line as bench_serving wrote it; None: it wrote none).

    `gpus`: those that the server has, for figures per GPU. `slo`: what goodput counts.
    """
    if raw is None:
        return BenchReading(_empty(profile, "bench_serving wrote no record"))
    try:
        record = json.loads(raw)  # takes the bare Infinity of request_rate
    except ValueError as e:
        return BenchReading(_empty(profile, f"the record is no JSON: {e}"))
    if not isinstance(record, dict):
        return BenchReading(_empty(profile, "the record is no object"))
    texts, errors = _texts(record, "generated_texts"), [e for e in _texts(record, "errors") if e]
    why = _why_invalid(record, profile, texts, errors)
    bad = [t for t in texts if not t.strip() or not t.strip().strip("!")]
    return BenchReading(
        point=_derived(_point(record, profile, why), record, gpus, slo),
        nan_signs=bool(texts) and len(bad) / len(texts) > 0.5,
        server_lost=any(re.search(r"refused|reset|disconnected|Cannot connect", e, re.I) for e in errors),
    )


def redacted(raw: bytes) -> bytes:
    """The raw line, unchanged but for the secrets among the server's settings, which bench_serving embeds."""
    try:
        record = json.loads(raw)
    except ValueError:
        return raw
    return Redactor(_secrets(record)).bytes(raw)


def _secrets(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        own = [v for k, v in value.items() if isinstance(v, str) and v and _SECRET_KEY.search(str(k))]
        return own + [s for v in value.values() for s in _secrets(v)]
    return [s for v in value for s in _secrets(v)] if isinstance(value, list) else []


def _why_invalid(record: Mapping[str, Any], profile: BenchProfile, texts: Sequence[str], errors: Sequence[str]) -> str:
    """The first reason against the record, or ""."""
    completed = _whole(record, "completed")
    if completed is None:
        return "the record does not say how many requests were completed"
    if completed < profile.prompts:
        first = f": {errors[0][:120]}" if errors else ""
        return f"{profile.prompts - completed} of {profile.prompts} requests failed{first}"
    if completed > profile.prompts:
        return f"{completed} requests completed, {profile.prompts} were asked for"
    if errors:
        return f"{len(errors)} requests carry an error: {errors[0][:120]}"
    return _why_no_tokens(record, profile, texts) or _why_absurd(record, profile)


def _why_no_tokens(record: Mapping[str, Any], profile: BenchProfile, texts: Sequence[str]) -> str:
    total, seen = _whole(record, "total_output_tokens"), _whole(record, "total_output_tokens_retokenized")
    if not total:
        return "no output tokens"
    if seen is not None and seen < _RETOKENIZED * total:
        return f"{total} output tokens claimed, {seen} in the texts that came"
    blank = sum(not t.strip() for t in texts)
    if texts and blank / len(texts) > _FEW:
        return f"{blank} of {len(texts)} texts are empty"
    bangs = sum(bool(t.strip()) and not t.strip().strip("!") for t in texts)
    if texts and bangs / len(texts) > _FEW:
        return f"{bangs} of {len(texts)} texts are nothing but '!'"
    least = profile.prompts * profile.output_tokens * min(1.0, float(profile.range_ratio)) * 0.98
    if total < least:
        return f"{total} output tokens, at least {math.floor(least)} were asked for"
    return ""


def _why_absurd(record: Mapping[str, Any], profile: BenchProfile) -> str:
    duration, total = _number(record, "duration"), _whole(record, "total_output_tokens") or 0
    if duration is None or duration <= 0:
        return "no duration"
    rate = _number(record, "output_throughput")
    if rate is not None and abs(rate - total / duration) > 0.05 * rate:
        return f"{rate:.0f} tok/s claimed, {total / duration:.0f} by its own tokens and seconds"
    several = profile.output_tokens > 1
    for key in ("mean_ttft_ms", "median_ttft_ms", *(("mean_itl_ms", "mean_tpot_ms") if several else ())):
        value = _number(record, key)
        if value is not None and value <= 0:
            return f"{key} is {value:g}: no token was ever seen to arrive"
    ttfts = record.get("ttfts")
    if isinstance(ttfts, list) and ttfts and sum(t == 0 for t in ttfts) / len(ttfts) > _FEW:
        return f"{sum(t == 0 for t in ttfts)} of {len(ttfts)} requests never had a first token"
    tpot = _number(record, "median_tpot_ms")
    if several and tpot is not None and tpot < 1000 / _FASTEST_TOKENS_PER_S:
        return f"{tpot:g} ms per token is faster than any machine"
    ttft, e2e = _number(record, "mean_ttft_ms"), _number(record, "mean_e2e_latency_ms")
    if ttft is not None and e2e is not None and ttft > e2e:
        return f"first token after {ttft:.0f} ms, the whole answer after {e2e:.0f} ms"
    return ""


def _point(record: Mapping[str, Any], profile: BenchProfile, why: str) -> BenchPoint:
    completed = _whole(record, "completed")
    names = {"e2e": "e2e_latency"}  # vLLM's client writes e2el
    times = {
        f"{name}_{stat}_ms": _first(record, f"{stat}_{names.get(name, name)}_ms", f"{stat}_{name}l_ms")
        for name, stat in _TIMES
    }
    return BenchPoint(
        profile=profile.name,
        valid=not why,
        why=why,
        asked=profile.prompts,
        completed=completed,
        failed=None if completed is None else max(0, profile.prompts - completed),
        concurrency=profile.concurrency,
        max_concurrency=_whole(record, "max_concurrency"),
        warmup_requests=profile.warmup_requests,
        duration_s=_number(record, "duration"),
        input_tokens=_whole(record, "total_input_tokens"),
        output_tokens=_whole(record, "total_output_tokens"),
        output_tokens_retokenized=_whole(record, "total_output_tokens_retokenized"),
        request_throughput_per_s=_number(record, "request_throughput"),
        output_tokens_per_s=_number(record, "output_throughput"),
        **times,
    )


def _derived(point: BenchPoint, record: Mapping[str, Any], gpus: int | None, slo: Slo | None) -> BenchPoint:
    """Figures that bench_serving does not give, or gives in newer releases only (p90); only what can be known."""
    requests = read_requests(record)
    times: dict[str, list[float]] = {
        "ttft": [r.ttft_ms for r in requests],
        "tpot": [t for r in requests if (t := r.tpot_ms) is not None],
        "itl": [gap for r in requests for gap in r.itls_ms],
        "e2e": [r.e2e_ms for r in requests],
    }
    more: dict[str, Any] = {
        f"{name}_p90_ms": percentile(values, 90)
        for name, values in times.items()
        if getattr(point, f"{name}_p90_ms") is None
    }
    more["success_rate"] = None if point.completed is None else point.completed / point.asked
    rate, tpot = point.output_tokens_per_s, point.tpot_median_ms
    more["output_tokens_per_s_per_gpu"] = rate / gpus if rate is not None and gpus else None
    more["output_tokens_per_s_per_user"] = 1000 / tpot if tpot else None
    if slo is not None and requests and point.duration_s:
        good = goodput(requests, slo, point.duration_s)
        more |= {"goodput_requests_per_s": good.requests_per_s, "goodput_tokens_per_s": good.tokens_per_s}
    return point.model_copy(update={**more, "gpus": gpus or None})


def _empty(profile: BenchProfile, why: str) -> BenchPoint:
    return BenchPoint(
        profile=profile.name, valid=False, why=why, asked=profile.prompts, concurrency=profile.concurrency
    )


def _texts(record: Mapping[str, Any], key: str) -> list[str]:
    values = record.get(key)
    return [v if isinstance(v, str) else "" for v in values] if isinstance(values, list) else []


def _first(record: Mapping[str, Any], *keys: str) -> float | None:
    """A time; bench_serving's 0 means that none was taken."""
    return next((v for k in keys if (v := _number(record, k)) is not None and v > 0), None)


def _number(record: Mapping[str, Any], key: str) -> float | None:
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _whole(record: Mapping[str, Any], key: str) -> int | None:
    value = _number(record, key)
    return None if value is None else int(value)
