"""The walk over a ladder: precedence, remedies, stickiness, retries, skips, guard, budget; and every shipped path."""

import itertools
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from settings.catalogue import shipped_catalogue
from settings.engine import load_engine
from settings.ladder import Edge, Ladder
from settings.ladder_check import check_ladder
from settings.milestones import shipped_milestones
from settings.source import SETTINGS_DIR, load
from settings.words import LOG_KINDS, OWN_KINDS, Action, AttemptOutcome, Component, Phase, RunOutcome, Stage
from tasks.pure.diagnose import Diagnoser
from tasks.pure.record import Attempt, Diagnosis, Evidence
from tasks.pure.walker import End, Step, Try, next_move

LADDER = """
start = "auto"
budget = { attempts = 6, wall_s = 100 }
[base.args]
tp-size = 8
static-memory = "0.95"
[base.env]
A = "1"
[rung.auto]
why = "first"
env = { B = "2" }
on = [
  { kind = "nan", component = "gemm", goto = "side" },
  { kind = "nan", goto = "second" },
  { kind = "unsupported", next = true },
]
[rung.second]
why = "second"
args = { sparse-decode = "x" }
on = [{ kind = "nan", next = true }, { kind = "hang", retry = 2 }, { kind = "port", stop = "free the port" }]
[rung.third]
why = "third"
args = { sparse-decode = "y", static-memory = "0.5" }
on = [{ kind = "nan", stop = "all are NaN" }]
[rung.side]
why = "side"
args = { fp8-gemm = "cutlass" }
on = [{ kind = "nan", next = true }]
[default]
on = [
  { kind = "oom_graph", remedy = "less" },
  { kind = "oom_graph", remedy = "no-graphs" },
  { kind = "oom_kv", action = "raise_mem", remedy = "more" },
  { action = "retry_same", retry = 1 },
  { kind = "unknown", stop = "read the log" },
  { stop = "no edge for this" },
]
[remedy.less]
step = { static-memory = "-0.07" }
floor = { static-memory = "0.80" }
at_most = 3
[remedy.no-graphs]
set = { graphs-off = true }
unset = ["sparse-decode"]
[remedy.more]
step = { static-memory = "0.02" }
from_log = true
ceiling = { static-memory = "0.97" }
at_most = 2
"""
COMPONENTS = {"sparse-decode": Component.ATTENTION, "fp8-gemm": Component.GEMM}


def ladder(text: str = LADDER, **changes: Any) -> Ladder:
    return Ladder.model_validate({**tomllib.loads(text), **changes})


def diagnosis(kind: str, **facts: Any) -> Diagnosis:
    frame = facts.pop("frame", None)
    text = facts.pop("text", "boom")
    facts.setdefault("component", "attention" if kind == "nan" else "unknown")
    facts.setdefault("phase", Phase.DECODE)
    return Diagnosis(kind=kind, evidence=Evidence(text=text, frame=frame), **facts)


class Walk:
    """Drives `next_move` as the flow does: each failure is stored with the move that it led to."""

    def __init__(self, ladder: Ladder) -> None:
        self.ladder, self.trail = ladder, list[Attempt]()
        self.step = self._next()

    def _next(self, spent_s: float = 0.0) -> Step:
        return next_move(self.ladder, self.trail, spent_s=spent_s, components=COMPONENTS)

    @property
    def now(self) -> Try:
        assert isinstance(self.step.then, Try), self.step
        return self.step.then

    @property
    def end(self) -> End:
        assert isinstance(self.step.then, End), self.step
        return self.step.then

    def fail(self, kind: str, spent_s: float = 0.0, **facts: Any) -> "Walk":
        return self._went(AttemptOutcome.FAILED, diagnosis(kind, **facts), spent_s)

    def skip(self, expected: str | None = None) -> "Walk":
        skipped = diagnosis("unsupported", component="flags", phase=Phase.ARGS, action="other_flag")
        return self._went(AttemptOutcome.SKIPPED, skipped, expected=expected)

    def succeed(self, kind: str | None = None) -> "Walk":
        return self._went(AttemptOutcome.PASSED, diagnosis(kind) if kind else None)

    def _went(
        self, outcome: AttemptOutcome, why: Diagnosis | None, spent_s: float = 0.0, expected: str | None = None
    ) -> "Walk":
        now, n = self.now, len(self.trail) + 1
        attempt = Attempt(
            n=n, id=f"a{n}", rung=now.rung, remedies=now.remedies, outcome=outcome, asked=dict(now.args),
            diagnosis=why, expected=expected,
        )
        self.trail.append(attempt)
        self.step = self._next(spent_s)
        self.trail[-1] = attempt.model_copy(update={"move": self.step.move})
        return self


def test_the_walk_begins_at_start_with_base_and_rung_merged() -> None:
    now = Walk(ladder()).now
    assert (now.rung, now.args, now.env) == ("auto", {"tp-size": 8, "static-memory": "0.95"}, {"A": "1", "B": "2"})


@pytest.mark.parametrize(
    ("kind", "facts", "rung", "edge"),
    [
        ("nan", {"component": "gemm"}, "side", "rung.auto.on[0]"),
        ("nan", {}, "second", "rung.auto.on[1]"),
        ("unsupported", {}, "second", "rung.auto.on[2]"),
    ],
)
def test_the_first_edge_that_matches_wins(kind: str, facts: dict[str, Any], rung: str, edge: str) -> None:
    step = Walk(ladder()).fail(kind, **facts).step
    assert isinstance(step.then, Try)
    assert step.move is not None
    assert (step.then.rung, step.move.edge) == (rung, edge)


def test_rungs_do_not_inherit_from_each_other() -> None:
    assert Walk(ladder()).fail("nan", component="gemm").now.args == {
        "tp-size": 8, "static-memory": "0.95", "fp8-gemm": "cutlass",
    }  # fmt: skip


def test_a_step_is_decimal_and_stays_for_the_rest_of_the_run() -> None:
    walk = Walk(ladder()).fail("oom_graph")
    assert walk.now.args["static-memory"] == "0.88"
    assert walk.fail("nan").now == Try(
        "second", {"tp-size": 8, "static-memory": "0.88", "sparse-decode": "x"}, {"A": "1"}, ("less",)
    )


def test_a_remedy_wins_over_the_rung_that_sets_the_same_argument() -> None:
    walk = Walk(ladder()).fail("oom_graph").fail("nan").fail("nan")
    assert (walk.now.rung, walk.now.args["static-memory"]) == ("third", "0.88")


def test_a_remedy_at_its_floor_lets_the_search_go_on_behind_it() -> None:
    walk = Walk(ladder())
    seen = [walk.fail("oom_graph").now.args["static-memory"] for _ in range(3)]
    assert seen == ["0.88", "0.81", "0.80"]
    now = walk.fail("oom_graph").now
    assert now.args["graphs-off"] is True
    assert now.remedies == ("less", "less", "less", "no-graphs")
    assert walk.fail("oom_graph").end.halt.reason == "no edge for this"


def test_unset_takes_an_argument_away() -> None:
    walk = Walk(ladder()).fail("nan")
    for _ in range(4):
        walk.fail("oom_graph")
    assert "sparse-decode" not in walk.now.args


@pytest.mark.parametrize(("named", "value"), [("0.96", "0.97"), ("0.008", "0.97"), (None, "0.97"), ("0.955", "0.97")])
def test_from_log_starts_at_the_number_that_the_log_names_unless_it_lies_behind(named: str | None, value: str) -> None:
    assert Walk(ladder()).fail("oom_kv", action="raise_mem", value=named).now.args["static-memory"] == value


def test_from_log_takes_the_named_number_where_it_helps() -> None:
    low = ladder(LADDER.replace('"0.95"', '"0.10"'))
    assert Walk(low).fail("oom_kv", action="raise_mem", value="0.30").now.args["static-memory"] == "0.32"


def test_a_retry_keeps_the_arguments_and_is_counted_per_rung() -> None:
    walk = Walk(ladder()).fail("nan")
    again = replace(walk.now, insist=True)
    assert walk.fail("hang").now == again
    assert walk.fail("hang").now == again
    assert walk.fail("hang", action="retry_same").end.halt.reason == "no edge for this"


def test_a_retry_that_is_spent_lets_the_search_go_on() -> None:
    walk = Walk(ladder()).fail("nccl", action="retry_same").fail("nccl", action="retry_same")
    assert walk.end.halt.reason == "no edge for this"


def test_an_edge_without_kind_does_not_match_unknown() -> None:
    assert Walk(ladder()).fail("unknown", action="retry_same").end.halt.reason == "read the log"


def test_a_stop_of_a_last_rung_exhausts_and_any_other_stop_stops() -> None:
    last = Walk(ladder()).fail("nan").fail("nan").fail("nan").end
    assert (last.outcome, last.halt.by, last.halt.reason) == (RunOutcome.EXHAUSTED, "rung", "all are NaN")
    middle = Walk(ladder()).fail("nan").fail("port").end
    assert (middle.outcome, middle.halt.by) == (RunOutcome.STOPPED, "rung")
    other = Walk(ladder()).fail("auth").end
    assert (other.outcome, other.halt.by) == (RunOutcome.STOPPED, "edge")


def test_a_stop_before_the_launch_is_the_preflights() -> None:
    walk = Walk(ladder())
    cause = diagnosis("gpu_busy", means="pid 7 holds GPU 0", try_="ask its owner")
    walk.trail.append(
        Attempt(n=1, id="a1", rung="auto", outcome=AttemptOutcome.FAILED, failed_stage=Stage.PREFLIGHT, diagnosis=cause)
    )
    end = next_move(walk.ladder, walk.trail).then
    assert isinstance(end, End)
    assert (end.halt.by, end.halt.reason) == ("preflight", "pid 7 holds GPU 0; to try: ask its owner")


def test_next_after_the_last_rung_exhausts() -> None:
    end = Walk(ladder()).fail("nan", component="gemm").fail("nan").end
    assert (end.outcome, end.halt.by) == (RunOutcome.EXHAUSTED, "rung")


def test_a_skipped_rung_takes_its_unsupported_edge_or_goes_on_in_file_order_and_costs_nothing() -> None:
    walk = Walk(ladder(budget={"attempts": 1, "wall_s": 100})).skip()
    assert walk.now.rung == "second"
    assert walk.skip().now.rung == "third"
    assert walk.skip().now.rung == "side"
    end = walk.skip().end
    assert end.outcome is RunOutcome.EXHAUSTED


def test_a_rung_put_off_as_doomed_is_tried_when_nothing_else_is_left() -> None:
    walk = Walk(ladder()).fail("nan").skip(expected="refused on SM120")
    assert walk.now.rung == "third"
    now = walk.fail("nan").now
    assert (now.rung, now.args["sparse-decode"], now.insist) == ("second", "x", True)
    assert walk.fail("nan").end.outcome is RunOutcome.EXHAUSTED


def test_a_rung_that_was_insisted_on_is_launched_again_with_its_remedy() -> None:
    walk = Walk(ladder()).fail("nan").skip(expected="refused on SM120").fail("nan").fail("oom_graph")
    assert (walk.now.rung, walk.now.insist, walk.now.args["static-memory"]) == ("second", True, "0.88")


def test_a_rung_put_off_is_left_out_when_the_ladder_says_skip() -> None:
    walk = Walk(ladder(doomed="skip")).fail("nan").skip(expected="refused on SM120")
    assert walk.fail("nan").end.outcome is RunOutcome.EXHAUSTED


def test_a_pass_ends_the_run_serving_in_its_form() -> None:
    assert Walk(ladder()).succeed().end == End(
        RunOutcome.SERVING, Walk(ladder()).succeed().end.halt, winner=1
    )
    assert Walk(ladder()).succeed("bench_invalid").end.outcome is RunOutcome.SERVING_UNMEASURED
    assert Walk(ladder()).succeed("slo_missed").end.outcome is RunOutcome.SERVING_BELOW_SLO


def test_the_budget_is_checked_before_each_launch() -> None:
    walk = Walk(ladder(budget={"attempts": 1, "wall_s": 100})).fail("nan")
    assert (walk.end.outcome, walk.end.halt.by) == (RunOutcome.BUDGET, "budget")
    late = Walk(ladder()).fail("nan", spent_s=100.0)
    assert (late.end.outcome, late.step.move) == (RunOutcome.BUDGET, None)


SAME: dict[str, Any] = {"frame": "srt/layers/attention/dsa_backend.py:forward_extend", "component": "attention"}
NEXT = LADDER.replace('{ kind = "nan", next = true }, ', '{ kind = ["nan", "cuda_fault"], next = true }, ').replace(
    '{ kind = "nan", goto = "second" }', '{ kind = ["nan", "cuda_fault"], goto = "second" }'
)


def test_the_guard_stops_a_ladder_that_does_not_reach_the_fault() -> None:
    walk = Walk(ladder(NEXT)).fail("cuda_fault", text="bad 0x12 at 7", **SAME)
    end = walk.fail("cuda_fault", text="bad 0x34 at 8", **SAME).end
    assert (end.outcome, end.halt.by) == (RunOutcome.STOPPED, "guard")


@pytest.mark.parametrize(
    "second",
    [
        {"text": "another text"},
        {"frame": "srt/layers/sampler.py:forward"},
        {"frame": None},
        {"component": "gemm"},
    ],
)
def test_the_guard_lets_a_different_fault_pass(second: dict[str, Any]) -> None:
    walk = Walk(ladder(NEXT)).fail("cuda_fault", **SAME)
    assert walk.fail("cuda_fault", **{**SAME, **second}).now.rung == "third"


def test_the_guard_leaves_exempt_kinds_and_equal_settings_alone() -> None:
    assert Walk(ladder()).fail("nan", **SAME).fail("nan", **SAME).now.rung == "third"
    same_settings = Walk(ladder()).fail("nccl", action="retry_same", **SAME).fail("nccl", action="retry_same", **SAME)
    assert same_settings.end.halt.by == "edge"


def test_a_move_says_which_edge_and_why() -> None:
    move = Walk(ladder()).fail("nan", stage=Stage.DECODE).step.move
    assert move is not None
    assert (move.move, move.to, move.edge) == ("goto", "second", "rung.auto.on[1]")
    assert move.why == "nan (attention) in decode"


SHIPPED = sorted((SETTINGS_DIR / "ladders").glob("*.toml"))
KINDS = sorted((LOG_KINDS | OWN_KINDS) - {"none"})
FAILURES = st.builds(
    diagnosis, st.sampled_from(KINDS), component=st.sampled_from(Component), action=st.sampled_from(Action),
    phase=st.sampled_from(Phase), stage=st.sampled_from([Stage.READY, Stage.DECODE, Stage.BENCH]),
)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_every_shipped_ladder_is_sound(path: Path) -> None:
    shipped = load(Ladder, path)
    check_ladder(shipped, file=path, intents=load_engine(shipped.engine).intents)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_every_walk_over_a_shipped_ladder_ends_and_repeats_no_launch(path: Path, data: st.DataObject) -> None:
    shipped = load(Ladder, path)
    walk = Walk(shipped.model_copy(update={"budget": shipped.budget.model_copy(update={"attempts": 200})}))
    launched: list[Any] = []
    for _ in range(200):
        if isinstance(walk.step.then, End):
            break
        again = walk.step.move is not None and walk.step.move.move == "retry"
        if data.draw(st.booleans(), label="skip") and not again:
            walk.skip(data.draw(st.sampled_from([None, "doomed"])))
            continue
        key = (walk.now.rung, tuple(sorted(walk.now.args.items())))
        assert again or key not in launched
        launched.append(key)
        found = data.draw(FAILURES, label="failure")
        walk.fail(found.kind, component=found.component, action=found.action, phase=found.phase, stage=found.stage)
    assert walk.end.outcome in (RunOutcome.EXHAUSTED, RunOutcome.STOPPED)


def causes_of(edge: Edge) -> Iterator[Diagnosis]:
    """Failures that the edge matches, as far as it says what it matches."""
    for kind, component, action in itertools.product(
        edge.kind or KINDS, edge.component or Component, edge.action or [Action.STOP, Action.NEXT_BACKEND]
    ):
        phase, stage = (*edge.phase, Phase.DECODE)[0], (*edge.stage, Stage.DECODE)[0]
        yield diagnosis(kind, component=component, action=action, phase=phase, stage=stage)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_every_edge_of_a_shipped_ladder_can_be_taken(path: Path) -> None:
    shipped = load(Ladder, path)
    taken: set[str] = set()
    todo, seen = [Walk(shipped)], {shipped.start: 0}  # rung -> fewest remedies spent on the way to it
    while todo:
        here = todo.pop()
        for name, edge in shipped.edges(here.now.rung):
            for cause in causes_of(edge):
                if name in taken and edge.goto is None and edge.next is None:
                    break
                walk = Walk(shipped)
                walk.trail, walk.step = list(here.trail), here.step
                while isinstance(walk.step.then, Try) and walk.now.rung == here.now.rung and len(walk.trail) < 10:
                    walk.fail(cause.kind, **cause.model_dump(include={"component", "action", "phase", "stage"}))
                    taken |= {walk.step.move.edge} if walk.step.move else set()
                if isinstance(walk.step.then, Try) and len(walk.now.remedies) < seen.get(walk.now.rung, 99):
                    seen[walk.now.rung] = len(walk.now.remedies)
                    todo.append(walk)
    edges = {name for rung in shipped.rung for name, _ in shipped.edges(rung)}
    assert edges - taken == set()
    assert set(seen) == set(shipped.rung)


def test_the_number_that_a_real_message_names_reaches_the_arguments() -> None:
    said = (
        b"[2026-11-29 13:00:00] Load weight begin. avail mem=79.10 GB\n"
        b"[2026-11-29 13:00:09] Load weight end. elapsed=9 s, type=X, avail mem=78 GB, mem usage=1 GB.\n"
        b"RuntimeError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.001. "
        b"Raise --mem-fraction-static above 0.008.\n"
    )
    diagnoser = Diagnoser(shipped_catalogue(), shipped_milestones(), engine="sglang")
    diagnoser.feed(said)
    found = diagnoser.diagnosis(ended=True)
    assert (found.kind, found.action, found.value) == ("oom_kv", "raise_mem", "0.008")
    tight = ladder(LADDER.replace('"0.95"', '"0.001"'))
    walk = Walk(tight).fail(found.kind, action=found.action, value=found.value, phase=found.phase)
    assert walk.now.args["static-memory"] == "0.028"
