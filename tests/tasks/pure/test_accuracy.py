"""The score of a real sgl-eval run, question sets that differ, and what chance explains."""

import json
from pathlib import Path
from typing import Any

import pytest

from settings.accuracy import AccuracyGate
from tasks.pure.accuracy import compared, judge_accuracy, read_metrics, read_questions
from tasks.pure.record import AccuracyResult
from tasks.pure.suite import wilson

METRICS = json.loads((Path(__file__).parents[2] / "corpus" / "real" / "sgl-eval-0.1.3-metrics.json").read_text())
GATE = AccuracyGate(why="x", dataset="q.jsonl", floor=0.9)
QUESTIONS = read_questions(b"".join(b'{"problem": "%d", "expected_answer": "1"}\n' % n for n in range(3)), None)


def result(right: int, of: int, floor: float = 0.9, sha: str = "a") -> AccuracyResult:
    low, high = wilson(right, of)
    return AccuracyResult(
        benchmark="gsm8k", questions=of, questions_sha256=sha, right=right, score=right / of, low=low, high=high,
        floor=floor,
    )  # fmt: skip


def test_the_metrics_of_a_real_run_are_read() -> None:
    found = read_metrics(json.dumps(METRICS).encode(), GATE, QUESTIONS)
    assert isinstance(found, AccuracyResult)
    assert (3, 0, 0.0, 0.0) == (found.questions, found.right, found.score, found.truncated_share)
    assert found.high == pytest.approx(0.5615, abs=1e-3)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"partial": True}, "3 of 3 questions were scored"),
        ({"num_examples": 2}, "2 of 3 questions were scored"),
        ({"aggregate": {"score": 1.0, "error_rate": 0.34}}, "34.0% of its requests failed"),
        ({"aggregate": {"score": 17}}, "a score of 17"),
        ({"aggregate": {}}, "its metrics cannot be read: KeyError"),
        ({"aggregate": {"score": float("nan")}}, "a score of nan"),
    ],
)
def test_a_run_that_was_not_whole_has_no_score(changes: dict[str, Any], why: str) -> None:
    found = read_metrics(json.dumps({**METRICS, **changes}).encode(), GATE, QUESTIONS)
    assert isinstance(found, str)
    assert found.startswith(why)


@pytest.mark.parametrize(
    ("right", "of", "kind"),
    [
        (1, 200, "accuracy"),  # a report: 6,600 tok/s with a score of 0.004
        (195, 200, None),
        (176, 200, None),  # 88 %, and 90 % lies within its interval
        (160, 200, "accuracy"),
        (2, 3, None),  # three questions prove nothing
    ],
)
def test_the_floor_is_missed_only_when_chance_does_not_explain_it(right: int, of: int, kind: str | None) -> None:
    assert kind == judge_accuracy(result(right, of), None).kind


@pytest.mark.parametrize(
    ("last", "now", "fell"),
    [(196, 194, False), (196, 180, True), (180, 196, False), (190, 190, False), (200, 200, False)],
)
def test_a_fall_against_the_last_good_run_counts_when_chance_does_not_explain_it(
    last: int, now: int, fell: bool
) -> None:
    found = judge_accuracy(result(now, 200, floor=0.5), result(last, 200))
    assert ("accuracy" if fell else None, True) == (found.kind, f"the last good run had {last}" in found.why)


def test_other_questions_are_not_compared() -> None:
    said, fell = compared(result(100, 200, sha="a"), result(200, 200, sha="b"))
    assert ("; not compared with the last good run: it answered other questions", False) == (said, fell)


def test_gsm8ks_own_form_and_sgl_evals_are_the_same_question_set() -> None:
    own = read_questions(b'{"question": "1000 + 18?", "answer": "It is <<1000+18=1018>>.\\n#### 1,018"}\n\n', None)
    theirs = read_questions(b'{"expected_answer": 1018, "problem": "1000 + 18?", "id": "7"}', None)
    assert own == theirs
    assert {"problem": "1000 + 18?", "expected_answer": "1018"} == json.loads(own.jsonl)


def test_only_the_first_questions_are_taken_and_make_another_set() -> None:
    some = read_questions(QUESTIONS.jsonl, 2)
    assert (2, False) == (some.count, some.sha256 == QUESTIONS.sha256)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "the file holds no question"),
        (b"{", "line 1 is no JSON"),
        (b'\n{"question": "x", "answer": "7"}', "line 2 has neither"),
        (b"[1]", "line 1 has neither"),
    ],
)
def test_a_file_of_something_else_is_told_with_its_line(raw: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_questions(raw, None)
