"""What a run of sgl-eval says: the score with its interval, and whether it fell against the last good one."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from settings.accuracy import AccuracyGate
from tasks.pure.record import AccuracyResult
from tasks.pure.suite import wilson

__all__ = ["Judgement", "Questions", "compared", "judge_accuracy", "read_metrics", "read_questions"]

_MOST_ERRORS = 0.01  # share of requests that failed, above which the score is that of the client
_Z = 1.96


@dataclass(frozen=True, slots=True)
class Questions:
    """A question set as sgl-eval reads it. `sha256` is that of questions and answers, whatever the file's form."""

    jsonl: bytes
    count: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """`kind` is None when the gate is passed, "accuracy" when the answers are wrong too often."""

    kind: str | None
    why: str


def read_questions(raw: bytes, at_most: int | None) -> Questions:
    """The first `at_most` questions. Raises: ValueError for a line that is no question."""
    rows: list[dict[str, str]] = []
    for n, line in enumerate(raw.splitlines(), 1):
        if not line.strip() or (at_most is not None and len(rows) >= at_most):
            continue
        rows.append(_question(line, n))
    if not rows:
        raise ValueError("the file holds no question")
    text = "".join(json.dumps(row, ensure_ascii=False, sort_keys=True) + "\n" for row in rows).encode()
    return Questions(text, len(rows), hashlib.sha256(text).hexdigest())


def read_metrics(raw: bytes, gate: AccuracyGate, questions: Questions) -> AccuracyResult | str:
    """The result in a metrics.json, or why it is none."""
    try:
        found = json.loads(raw)
        aggregate = found["aggregate"]
        score, count = float(aggregate["score"]), int(found["num_examples"])
        errors = float(aggregate.get("error_rate") or 0.0)
    except (ValueError, KeyError, TypeError) as e:
        return f"its metrics cannot be read: {type(e).__name__}: {e}"
    if found.get("partial") or count != questions.count:
        return f"{count} of {questions.count} questions were scored"
    if errors > _MOST_ERRORS:
        return f"{errors:.1%} of its requests failed"
    if not 0 <= score <= 1:
        return f"a score of {score:g}"
    right = round(score * count)
    low, high = wilson(right, count)
    return AccuracyResult(
        benchmark=gate.benchmark, questions=count, questions_sha256=questions.sha256, right=right, score=score,
        low=low, high=high, floor=gate.floor, truncated_share=_share(aggregate, "truncated_rate"),
    )  # fmt: skip


def judge_accuracy(found: AccuracyResult, last: AccuracyResult | None) -> Judgement:
    """Below the floor, or fallen, only where chance does not explain it."""
    score = f"{found.right} of {found.questions} right ({found.low:.1%} to {found.high:.1%} with 95 % confidence)"
    if found.high < found.floor:
        return Judgement("accuracy", f"{score}, the floor is {found.floor:.1%}")
    against, fell = compared(found, last)
    return Judgement("accuracy" if fell else None, f"{score}{against}")


def compared(found: AccuracyResult, last: AccuracyResult | None) -> tuple[str, bool]:
    """What the comparison with the last good run says, and whether the score fell by more than chance explains."""
    if last is None:
        return "; no good run before to compare with", False
    if (last.benchmark, last.questions_sha256) != (found.benchmark, found.questions_sha256):
        return "; not compared with the last good run: it answered other questions", False
    both = (found.right + last.right) / (found.questions + last.questions)
    error = math.sqrt(both * (1 - both) * (1 / found.questions + 1 / last.questions))
    fell = last.score - found.score > _Z * error and last.score > found.score
    return f"; the last good run had {last.right}" + (", which chance does not explain" if fell else ""), fell


def _question(line: bytes, n: int) -> dict[str, str]:
    try:
        row = json.loads(line)
    except ValueError as e:
        raise ValueError(f"line {n} is no JSON: {e}") from e
    if isinstance(row, dict) and isinstance(row.get("problem"), str) and "expected_answer" in row:
        return {"problem": row["problem"], "expected_answer": str(row["expected_answer"])}
    if isinstance(row, dict) and isinstance(row.get("question"), str) and "####" in str(row.get("answer")):
        answer = str(row["answer"]).rpartition("####")[2].strip().replace(",", "")
        return {"problem": row["question"], "expected_answer": answer}
    raise ValueError(f"line {n} has neither problem and expected_answer nor question and an answer with ####")


def _share(aggregate: Mapping[str, Any], key: str) -> float | None:
    value = aggregate.get(key)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
