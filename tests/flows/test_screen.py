"""The screen of a run fits any size, tells what is known and says what is not, and nothing in it moves the cursor."""

import unicodedata
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from flows.screen import Screen, clock
from tasks.pure.pace import Pace
from tasks.session import Progress

RUNGS = ("auto", "flashmla-sparse", "trtllm", "a-rung-with-quite-a-long-name-indeed", "bf16-kv")
GATES = ("ready", "warmup", "decode")
PACE = Pace(3, {"ready": 80.0, "warmup": 5.0, "decode": 15.0}, {"load": 60.0, "graph_capture": 12.0})
STARTED: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("run.started", {"folder": "runs/x", "target": "t", "ladder": "l"}),
    ("host.locked", {}),
    ("host.probed", {"version": "0.5.9"}),
    ("attempt.started", {"n": 1, "rung": "auto", "remedies": []}),
    ("stage.started", {"stage": "ready"}),
)
FAILED: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("attempt.ended", {"n": 1, "rung": "auto", "outcome": "failed", "state": "NaN", "stage": "decode"}),
    ("rung.left", {"rung": "auto", "move": "goto", "to": "trtllm", "why": "NaN in attention"}),
    ("attempt.started", {"n": 2, "rung": "trtllm", "remedies": ["less-static-memory"]}),
)


class Clock:
    at = 0.0

    def __call__(self) -> float:
        return self.at


def _screen(
    *heard: tuple[str, Mapping[str, Any]], pace: Pace = PACE, clock: Clock | None = None, utf8: bool = True
) -> Screen:
    screen = Screen("glm5-sm120 on gpu8", RUNGS, GATES, pace, utf8, clock or Clock())
    for event, facts in heard:
        screen.hear(event, facts)
    return screen


def _text(screen: Screen, width: int = 80, height: int = 24) -> list[str]:
    return [line.plain.rstrip() for line in screen.lines(width, height)]


def test_the_path_so_far_and_the_current_rung_are_marked() -> None:
    seen = _text(_screen(*STARTED, *FAILED))
    assert any(line.startswith(" ✗ auto") and line.endswith("1: NaN in decode → trtllm") for line in seen)
    assert any(line.startswith(" ▶ trtllm") and "attempt 2 with less-static-memory" in line for line in seen)
    assert sum("▶" in line for line in seen) == 1


@pytest.mark.parametrize(
    ("pace", "passed_s", "said"),
    [
        (Pace(), 10.0, "0:10 in this step; time left unknown: no earlier run here"),
        (Pace(2, {"warmup": 5.0}), 10.0, "0:10 in this step; time left unknown: none got through it here"),
        (PACE, 10.0, "0:10 in this step; about 1:02 left, 1:22 until it serves"),  # 50 of load, 12 of capture
        (PACE, 100.0, "1:40 in this step; about 0:12 left, 0:32 until it serves"),
        (Pace(1, {"ready": 80.0}), 30.0, "0:30 in this step; about 0:50 left"),  # no gate behind it was ever passed
        (Pace(1, {"ready": 80.0}), 90.0, "1:30 in this step; longer than usual here"),
    ],
)
def test_the_time_left_comes_from_earlier_runs_or_is_unknown(pace: Pace, passed_s: float, said: str) -> None:
    clock = Clock()
    screen = _screen(*STARTED, pace=pace, clock=clock)
    screen.show(Progress(1, "auto", "ready", "load: shards 12/83", 0.14, "load", "Load weight begin."))
    clock.at = passed_s
    seen = _text(screen)
    assert said in seen
    assert "1. auto: ready, load: shards 12/83" in seen
    assert "log: Load weight begin." in seen


def test_a_new_phase_counts_from_its_own_beginning() -> None:
    clock = Clock()
    screen = _screen(*STARTED, clock=clock)
    screen.show(Progress(1, "auto", "ready", "load", None, "load"))
    clock.at = 70.0
    screen.show(Progress(1, "auto", "ready", "capture", None, "graph_capture"))
    clock.at = 72.0
    assert "1:12 in this step; about 0:10 left, 0:30 until it serves" in _text(screen)


@given(
    text=st.text(), width=st.integers(10, 200), height=st.integers(1, 60), utf8=st.booleans(),
    fraction=st.none() | st.floats(0, 1),
)  # fmt: skip
def test_whatever_is_shown_it_fits_and_moves_no_cursor(
    text: str, width: int, height: int, utf8: bool, fraction: float | None
) -> None:
    screen = _screen(*STARTED, *FAILED, utf8=utf8)
    screen.hear("rung.skipped", {"rung": text, "why": text})
    screen.hear("stage.started", {"stage": "ready"})
    screen.hear("server.doomed", {"text": text})
    screen.show(Progress(2, text, "ready", text, fraction, "load", text))
    lines = screen.lines(width, height)
    assert len(lines) <= height
    for line in lines:
        assert cell_len(line.plain) <= width
        assert not any(unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") for c in line.plain)
        assert utf8 or line.plain.isascii()


def test_the_wait_for_a_host_is_seen_with_who_has_it_and_how_long() -> None:
    screen = _screen(STARTED[0], ("host.waiting", {"why": "me@here has had the host since 02:00 (run r)"}))
    screen.show(Progress(0, "", "host", "host busy: waited 60 s of at most 240 s", 0.25))
    seen = _text(screen)
    assert "me@here has had the host since 02:00 (run r)" in seen
    assert "host busy: waited 60 s of at most 240 s" in seen
    assert any(line.endswith(" 25%") for line in seen)
    screen.hear("host.locked", {})
    assert not any("host busy" in line or line.endswith("%") for line in _text(screen))


def test_where_there_is_no_room_for_all_rungs_the_current_one_is_seen() -> None:
    for height in range(3, 14):
        assert any("▶ trtllm" in line for line in _text(_screen(*STARTED, *FAILED), 40, height))


@pytest.mark.parametrize(("seconds", "said"), [(0, "0:00"), (61.9, "1:01"), (3725, "1:02:05")])
def test_times_are_read_at_a_glance(seconds: float, said: str) -> None:
    assert clock(seconds) == said
