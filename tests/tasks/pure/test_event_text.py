"""An event reads as a sentence, none is lost, and one line stays one line."""

import json

import pytest

from tasks.pure.event_text import event_line


def _line(event: str, **facts: object) -> str:
    return json.dumps({"event": event, "level": "info", "at": "2026-11-29T18:22:14.123+00:00", "run_id": "r", **facts})


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (_line("attempt.started", n=1, rung="auto", remedies=["x"]), "18:22:14  attempt.started     1. auto with x"),
        (_line("stage.ended", stage="ready", outcome="passed", wall_s=3.21, reason=""),
         "18:22:14  stage.ended         ready passed in 3.2 s"),
        (_line("host.waiting", host="gpu8", at_most_s=7200.0, why="me@here has had the host since 02:00"),
         "18:22:14  host.waiting        waiting for host gpu8, at most 7200 s: me@here has had the host since 02:00"),
        (_line("probe.judged", probe="a b", verdict="ok", why="", n=2),
         '18:22:14  probe.judged        probe="a b" verdict=ok why="" n=2'),
        (_line("stage.ended", stage="of another release"), '18:22:14  stage.ended         stage="of another release"'),
        (_line("rung.left", move="goto", to=None, why="a\nfaked line"),
         "18:22:14  rung.left           -> goto : a faked line"),
        ("no json", "no json"),
        ("[1]", "[1]"),
        ('{"event": "x"}', '{"event": "x"}'),
    ],
)  # fmt: skip
def test_what_a_line_of_the_log_says(line: str, told: str) -> None:
    assert "".join(event_line(line)) == told
