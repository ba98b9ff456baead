"""sgl-eval on a host: a stand-in that takes the options of 0.1.3 and writes what it writes, run as a real process."""

import json
import sys
from pathlib import Path

import pytest

from settings.accuracy import AccuracyGate
from tasks.accuracy import Evaluation, evaluate
from tasks.deadline import Deadline
from tasks.host import DeadlinePassed
from tasks.local_host import LocalHost
from tasks.pure.accuracy import read_questions
from tasks.pure.record import AccuracyResult

CLI = """
import argparse, json, os, pathlib, sys, time
def main():
    p = argparse.ArgumentParser()
    p.add_argument("command"); p.add_argument("name")
    for name in "base-url from-dataset out-dir max-tokens temperature num-threads n-repeats".split():
        p.add_argument("--" + name, required=True)
    p.add_argument("--thinking", action=argparse.BooleanOptionalAction)
    args = p.parse_args()
    time.sleep(float(os.environ.get("LASTS", "0")))
    if os.environ.get("ENDS"):
        sys.exit(os.environ["ENDS"])
    rows = [json.loads(line) for line in open(args.from_dataset)]
    out = pathlib.Path(args.out_dir) / f"sgl_eval_{args.name}_now"
    out.mkdir(parents=True)
    right = sum(row["expected_answer"] == "4" for row in rows)
    aggregate = {"score": right / len(rows), "error_rate": 0.0, "truncated_rate": 0.0}
    metrics = {"num_examples": len(rows), "aggregate": aggregate, "said": vars(args)}
    (out / "metrics.json").write_text(json.dumps(metrics))
    (out / "output-rs0.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
    print(f"* score = {right}\\n\\nMetrics: {out / 'metrics.json'}\\nPredictions: {out}  (1 jsonl file(s))")
    return 0
"""
GATE = AccuracyGate(why="x", dataset="q.jsonl", floor=0.5, max_tokens=64)
ROWS = b'{"problem": "2 + 2", "expected_answer": "4"}\n{"problem": "1 + 2", "expected_answer": "3"}\n'


class Eval:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        package = folder / "site" / "sgl_eval"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "cli.py").write_text(CLI)

    def __call__(self, gate: AccuracyGate = GATE, within_s: float = 60, **env: str) -> Evaluation:
        with LocalHost(env={"PYTHONPATH": str(self.folder / "site"), **env}) as host:
            return evaluate(
                host, gate, read_questions(ROWS, None), python=sys.executable, port=30000,
                folder=str(self.folder / "state"), deadline=Deadline.after(within_s),
            )  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Eval:
    return Eval(tmp_path)


def test_the_questions_go_to_the_host_and_the_score_comes_back(run: Eval) -> None:
    ran = run()
    found = ran.found
    assert isinstance(found, AccuracyResult)
    assert (1, 2) == (ran.metrics.count(b"aggregate"), ran.answers.count(b"problem"))
    assert "* score = 1" in ran.printed
    assert (1, 2, 0.5) == (found.right, found.questions, found.score)
    (metrics,) = (run.folder / "state").glob("run-*/*/metrics.json")
    said = json.loads(metrics.read_text())["said"]
    assert ("http://127.0.0.1:30000/v1", "64", None) == (said["base_url"], said["max_tokens"], said["thinking"])


def test_thinking_is_said_only_when_the_gate_says_it(run: Eval) -> None:
    run(GATE.model_copy(update={"thinking": False}))
    (metrics,) = (run.folder / "state").glob("run-*/*/metrics.json")
    assert json.loads(metrics.read_text())["said"]["thinking"] is False


def test_a_tool_that_fails_or_is_not_there_gives_a_reason_and_no_score(run: Eval) -> None:
    failed = run(ENDS="openai.APIConnectionError")
    assert "ended with 1 and wrote no metrics: openai.APIConnectionError" == failed.found
    assert "openai.APIConnectionError" in failed.printed
    missing = run(PYTHONPATH="/nowhere").found
    assert isinstance(missing, str)
    assert "No module named 'sgl_eval'" in missing


def test_a_run_that_never_ends_is_stopped_at_the_gates_own_limit(run: Eval) -> None:
    assert "had not ended after 1 s and was stopped" == run(GATE.model_copy(update={"wall_s": 1.0}), LASTS="50").found
    with pytest.raises(DeadlinePassed):
        run(within_s=1.5, LASTS="50")
