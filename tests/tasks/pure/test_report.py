"""The page of a run: the headline says the branch, and no text of others can break the Markdown."""

import re
import shlex
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from settings.words import AttemptOutcome, Phase, RunOutcome, Stage, StageOutcome
from tasks.pure.record import (
    Attempt,
    Build,
    Diagnosis,
    Evidence,
    Halt,
    HostSummary,
    LadderRef,
    Move,
    RunRecord,
    StageResult,
)  # fmt: skip
from tasks.pure.report import attempt_page, block, branch_rows, command, headline, report

AT = datetime(2026, 1, 2, tzinfo=UTC)


def attempt(n: int, rung: str, kind: str | None = None, **more: Any) -> Attempt:
    cause = more.pop("cause", None) or (Diagnosis(kind=kind, phase=Phase.DECODE, stage=Stage.DECODE) if kind else None)
    outcome = AttemptOutcome.FAILED if cause else AttemptOutcome.PASSED
    stage = StageResult(stage=Stage.DECODE, outcome=StageOutcome.PASSED, started_at=AT, wall_s=1.5)
    return Attempt(n=n, id=f"a{n}", rung=rung, outcome=outcome, diagnosis=cause, stages=(stage,), **more)


def run(*attempts: Attempt, outcome: RunOutcome = RunOutcome.SERVING, winner: int | None = None) -> RunRecord:
    return RunRecord(
        run_id="r", started_at=AT, ended_at=AT + timedelta(minutes=41), outcome=outcome, target="t", winner=winner,
        ladder=LadderRef(name="l", sha256="0" * 64), build=Build(engine="sglang"), host=HostSummary(name="h"),
        lease_s=90, attempts=attempts, halt=Halt(reason="done", by="rung"),
    )  # fmt: skip


def test_the_headline_is_the_branch_in_one_sentence() -> None:
    trail = (
        attempt(1, "auto", "nan"), attempt(2, "trtllm", "nan"),
        attempt(3, "bf16-kv", effective={"sparse-decode": "flashmla_sparse", "sparse-prefill": "flashmla_sparse"}),
    )  # fmt: skip
    assert headline(run(*trail, winner=3)) == "Serving on bf16-kv (flashmla_sparse) after NaN on auto, trtllm; 41 min"
    assert headline(run(trail[0], outcome=RunOutcome.EXHAUSTED)) == "Exhausted after NaN on auto; 41 min"


def test_a_row_shows_only_the_arguments_that_differ_from_the_attempt_before() -> None:
    move = Move(move="remedy", to="less", edge="default.on[0]", why="oom")
    trail = (
        attempt(1, "auto", "oom_graph", asked={"tp-size": 8, "static-memory": "0.95"}, move=move),
        attempt(2, "auto", asked={"tp-size": 8, "static-memory": "0.88"}),
    )
    first, second = branch_rows(run(*trail, winner=2))
    assert first["asked"] == "tp-size=8, static-memory=0.95"
    assert (first["move"], first["outcome"], second["asked"]) == ("remedy less", "OOM", "static-memory=0.88")


@pytest.mark.parametrize(
    "hostile",
    ["<script>alert(1)</script>", "a | b | c", "```\n# heading\n```", "[x](javascript:alert(1))", "**b** _it_", "</p>"],
)
def test_text_of_others_is_shown_and_never_interpreted(hostile: str) -> None:
    cause = Diagnosis(
        kind="unknown", phase=Phase.DECODE, means=hostile, try_=hostile, evidence=Evidence(line=1, text=hostile),
        also_seen=(hostile,),
    )  # fmt: skip
    page = report(run(attempt(1, "auto", cause=cause), outcome=RunOutcome.STOPPED))
    for line in page.splitlines():
        if line.startswith("    "):
            continue  # an indented code block: Markdown shows it as it is
        assert "<script" not in line
        assert not re.search(r"(?<!\\)\]\(", line)
        assert "```" not in line
        assert not line.startswith("# heading")
    assert "```" not in attempt_page(attempt(1, "auto", cause=cause)).replace("    ```", "")


def test_code_on_a_page_is_folded_and_loses_no_word() -> None:
    text = "    " + "word " * 40 + "x" * 100
    lines = list(block(text, 72))
    assert max(map(len, lines)) <= 4 + 72  # four make it code
    assert "".join(text.split()) == "".join("".join(lines).split())
    assert [line[:10] for line in lines] == ["        wo", *["          "] * (len(lines) - 1)]
    assert list(block(text)) == [f"    {text}"]


def test_a_command_has_a_line_an_option() -> None:
    argv = ("python", "-m", "x", "--model", "a b", "--flag", "--port", "1")
    assert command(argv) == "python -m x \\\n  --model 'a b' \\\n  --flag \\\n  --port 1"
    assert shlex.split(command(argv).replace("\\\n", "")) == list(argv)
