"""One picture of the tree: rungs, what each comes to, where its edges lead, and what really happened."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from settings.engine import Engine
from settings.ladder import Ladder
from settings.source import find, load
from tasks.pure.capabilities import Capabilities
from tasks.pure.draw import draw, ladder_tree, run_tree
from tasks.pure.ladder_plan import plan_ladder
from tasks.pure.record import Attempt
from tasks.store import read_record

ROOT = Path(__file__).resolve().parents[3]
LADDER = load(Ladder, find("ladders", "glm5-sm120"))


def shown(node: Any, width: int = 300) -> str:
    console = Console(width=width, record=True, file=None, quiet=False, force_terminal=False)
    with console.capture() as capture:
        console.print(draw(node))
    return capture.get()


def test_the_bare_ladder_shows_each_rung_and_where_its_edges_lead() -> None:
    text = shown(ladder_tree(LADDER, "founding"))
    assert all(f"{name}" in text for name in LADDER.rung)
    assert "auto (start): what the build picks by itself" in text
    assert "nan|garbage|empty|unsupported|overridden → trtllm" in text
    assert "stop: every attention path" in text


def test_a_plan_shows_command_status_and_reason(engine: Engine, build: Callable[..., Capabilities]) -> None:
    plans = plan_ladder(LADDER, engine, build("0.5.10.post1", 120), python="python3", model="m")
    text = shown(ladder_tree(LADDER, "x", plans=plans, edges=False))
    assert "skipped flashinfer-sparse-mla" in text
    assert "skipped this build has no `flashinfer_sparse_mla` for --nsa-prefill-backend" in text
    assert "doomed this build overwrites sparse-prefill = flashmla_sparse with trtllm" in text
    assert "--nsa-decode-backend flashmla_sparse" in text
    assert "expects kv-cache-dtype = fp8_e4m3, sparse-prefill = trtllm" in text


def test_what_happened_stands_beside_what_was_expected() -> None:
    attempt = Attempt.model_validate({
        "n": 1, "id": "a", "rung": "auto", "outcome": "failed", "effective": {"sparse-decode": "flashmla_kv"},
        "diagnosis": {"kind": "nan", "phase": "decode", "component": "attention", "stage": "decode"},
    })
    text = shown(ladder_tree(LADDER, "x", trail=[attempt], edges=False))
    assert "failed attempt 1: nan (attention) in decode; ran with sparse-decode = flashmla_kv" in text


def test_words_in_brackets_are_text_and_no_markup() -> None:
    rung = {"why": "[bold]choose [/x] one", "on": [{"stop": "[red]"}]}
    ladder = Ladder.model_validate({"start": "a", "rung": {"a": rung}})
    text = shown(ladder_tree(ladder, "[t]"))
    assert "[bold]choose [/x] one" in text
    assert "anything → stop: [red]" in text


def test_the_path_of_a_run_is_marked_in_the_tree_that_its_record_holds() -> None:
    record = read_record(ROOT / "tests" / "records" / "20261129-162655-rehearsal-1ecb")
    tree = run_tree(record)
    assert tree is not None
    text = shown(tree)
    assert "taken after 2 nan|garbage|empty|unsupported → flashinfer-sparse-mla" in text
    assert "taken after 1 oom_graph → remedy less-static-memory" in text  # an edge of [default]
    assert "passed attempt 6" in text
    assert "cuda_fault" not in text  # an edge that was not taken
    whole = run_tree(record, edges=True)
    assert whole is not None
    assert "cuda_fault" in shown(whole)


def test_a_record_without_its_ladder_or_with_one_of_another_grammar_has_no_tree() -> None:
    record = read_record(ROOT / "tests" / "records" / "20261129-162655-rehearsal-1ecb")
    for text in (None, "start = 1", "[[["):
        ladder = record.ladder.model_copy(update={"text": text})
        assert run_tree(record.model_copy(update={"ladder": ladder})) is None
