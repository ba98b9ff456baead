"""Times of single requests, from the details that bench_serving writes: what its own summary leaves out.

Definitions: TTFT to the first token; ITL per gap; E2E = TTFT + all gaps; TPOT = (E2E - TTFT) / (tokens - 1).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from settings.load_test import Slo

__all__ = ["Goodput", "RequestTimes", "goodput", "percentile", "read_requests"]


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """One request that completed."""

    ttft_ms: float
    itls_ms: tuple[float, ...]
    tokens: int

    @property
    def e2e_ms(self) -> float:
        return self.ttft_ms + math.fsum(self.itls_ms)

    @property
    def tpot_ms(self) -> float | None:
        return math.fsum(self.itls_ms) / (self.tokens - 1) if self.tokens > 1 else None


@dataclass(frozen=True, slots=True)
class Goodput:
    """What came within the SLO, each request judged by itself; one that failed counts as a miss."""

    requests_per_s: float
    tokens_per_s: float


def read_requests(record: Mapping[str, Any]) -> tuple[RequestTimes, ...]:
    """The requests that completed; empty when the record has no details, or such as do not fit each other."""
    ttfts, itls, lengths = (record.get(key) for key in ("ttfts", "itls", "output_lens"))
    if not (isinstance(ttfts, list) and isinstance(itls, list) and isinstance(lengths, list)):
        return ()
    if not len(ttfts) == len(itls) == len(lengths):
        return ()
    errors = record.get("errors")
    failed = errors if isinstance(errors, list) and len(errors) == len(ttfts) else [""] * len(ttfts)
    found = []
    for ttft, gaps, tokens, error in zip(ttfts, itls, lengths, failed, strict=True):
        if error or not _is_time(ttft) or not isinstance(gaps, list) or not isinstance(tokens, int):
            continue
        if ttft > 0 and tokens > 0 and all(map(_is_time, gaps)):
            found.append(RequestTimes(1000 * ttft, tuple(1000 * g for g in gaps), tokens))
    return tuple(found)


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Between the two nearest ranks, linearly, as numpy has it and bench_serving uses it; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = math.floor(place)
    return ordered[low] + (ordered[math.ceil(place)] - ordered[low]) * (place - low)


def goodput(requests: Sequence[RequestTimes], slo: Slo, duration_s: float) -> Goodput:
    good = [r for r in requests if _keeps(r, slo)]
    return Goodput(len(good) / duration_s, sum(r.tokens for r in good) / duration_s)


def _keeps(request: RequestTimes, slo: Slo) -> bool:
    if slo.ttft_p99_ms is not None and request.ttft_ms > slo.ttft_p99_ms:
        return False
    tpot = request.tpot_ms
    return slo.tpot_p99_ms is None or tpot is None or tpot <= slo.tpot_p99_ms


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
