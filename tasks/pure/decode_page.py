"""What a person sees of the replies: a row a probe on the page, and each call as a line of a file beside the record."""

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from settings.words import Stage
from tasks.pure.judge import Judged
from tasks.pure.record import ReplyVerdict, SuiteFigures
from tasks.pure.reply import Call, asked, read_reply

__all__ = ["DECODE_COLUMNS", "call_line", "decode_rows", "figures_note", "shown"]

DECODE_COLUMNS = ("stage", "probe", "prompt", "reply", "tokens", "mean logprob", "bad logprobs", "verdict", "why")
_CHARS = 120


def shown(call: Call) -> dict[str, Any]:
    """Prompt, reply and numbers of a call, by the names of ReplyVerdict."""
    numbers = _numbers(call)
    reply = " ".join(c.text for c in read_reply(call).choices) if call.status == 200 else call.lost
    return {"prompt": _cut(asked(call.request).prompt), "reply": _cut(reply), **numbers}


def call_line(stage: Stage, probe: str, call: Call, judged: Judged) -> str:
    """The whole call as one line of JSON: what `bringup judge` reads, and what was made of it. Strict JSON."""
    line = {
        "stage": stage, "probe": probe, "id": call.id, "api": call.api, "status": call.status, "lost": call.lost,
        "wall_s": call.wall_s, "verdict": judged.verdict, "why": judged.why, **_numbers(call),
        "request": call.request, "reply": _strict(call.reply),
    }  # fmt: skip
    return json.dumps(line, ensure_ascii=False, allow_nan=False)


def decode_rows(verdicts: Iterable[ReplyVerdict]) -> list[dict[str, str]]:
    """The table of probes, keyed by DECODE_COLUMNS."""
    return [dict(zip(DECODE_COLUMNS, _cells(v), strict=True)) for v in verdicts]


def figures_note(figures: SuiteFigures) -> str:
    """The suite-wide figures in one sentence."""
    f = figures
    parts = [f"{f.replies} replies, {f.tokens} tokens"]
    if f.bad_logprob_share is not None:
        parts.append(f"{f.bad_logprob_share:.1%} of the log-probabilities null or infinite")
    if f.mean_logprob is not None:
        parts.append(f"mean log-probability {f.mean_logprob:.2f}")
    if f.expected:
        low, high = f.accuracy_low or 0.0, f.accuracy_high or 0.0
        parts.append(f"{f.right} of {f.expected} expected answers ({low:.0%} to {high:.0%} with 95 % confidence)")
    if f.agreement is not None:
        parts.append(f"greedy repeats agree in {f.agreement:.0%} of their tokens")
    if f.entropy_bits is not None:
        parts.append(f"{f.entropy_bits:.1f} bits a word")
    parts.append(f"{f.looping} loops, {f.mixed_scripts} with mixed scripts")
    if f.replacement_share:
        parts.append(f"{f.replacement_share:.2%} replacement characters")
    return f"All of {f.stage or 'the suite'}: " + "; ".join(parts)


def _cells(v: ReplyVerdict) -> Sequence[str]:
    bad = "" if v.bad_logprob_share is None else f"{v.bad_logprob_share:.0%}"
    mean = "" if v.mean_logprob is None else f"{v.mean_logprob:.2f}"
    many = f"{v.id} ({v.calls} calls)" if v.calls > 1 else v.id
    tokens = "" if v.tokens is None else str(v.tokens)
    return str(v.stage or ""), many, v.prompt, v.reply, tokens, mean, bad, str(v.verdict), v.why


def _numbers(call: Call) -> dict[str, Any]:
    choices = read_reply(call).choices if call.status == 200 else ()
    logprobs = [n for c in choices for n in c.logprobs]
    finite = [n for n in logprobs if math.isfinite(n)]
    counts = [c.count for c in choices]
    return {
        "tokens": sum(n for n in counts if n is not None) if counts and None not in counts else None,
        "mean_logprob": math.fsum(finite) / len(finite) if finite else None,
        "bad_logprob_share": 1 - len(finite) / len(logprobs) if logprobs else None,
    }


def _cut(text: str) -> str:
    """Both ends of a long text: a question stands at the end of its prompt."""
    half = _CHARS // 2
    return text if len(text) <= _CHARS else f"{text[:half]} … {text[-half:]}"


def _strict(value: Any) -> Any:
    """JSON has no NaN and no Infinity; null says as much to the judge."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: _strict(v) for k, v in value.items()}
    return [_strict(v) for v in value] if isinstance(value, list) else value
