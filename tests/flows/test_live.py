"""A run on a real terminal: one calm screen that bears any size, and a word at its end on what was left."""

import re
from pathlib import Path

import pytest

from flows.live import Live
from flows.screen import Screen
from settings.words import ExitCode
from tasks.pure.pace import Pace
from tasks.session import Progress
from tests.flows.conftest import BRINGUP, Machine, healthy
from tests.flows.terminal import Terminal


@pytest.fixture
def story(tmp_path: Path) -> Path:
    path = tmp_path / "loads-for-ever.toml"
    path.write_text(healthy("ready", slower=30))
    return path


@pytest.mark.prefect
@pytest.mark.timeout(400)
def test_one_screen_at_any_size_and_ctrl_c_says_what_is_left(machine: Machine, story: Path) -> None:
    """With the server that Prefect starts by itself: Ctrl-C goes to every process of the terminal, to that one, too."""
    machine.env["PREFECT_HOME"] = str(machine.folder / "prefect")
    machine.env.update({"COLUMNS": "80", "LINES": "24"})   # exported, as some shells and test runners have them
    del machine.env["PREFECT_API_URL"]
    with Terminal([str(BRINGUP), "rehearse", "--story", str(story)], machine.env) as terminal:
        seen = terminal.until(lambda d: any("auto: ready, load: shards" in line for line in d), "shards", 150)
        assert re.fullmatch(r"glm5-sm120 on rehearsal, build 0\.5\.9 +\d:\d\d", seen[0])
        assert re.fullmatch(r" ▶ auto +attempt 1", seen[1])
        rungs = [line.split()[0] for line in seen[2:9]]
        assert rungs[-1] == "bf16-kv"
        assert any("time left unknown: no earlier run here" in line for line in seen)
        assert any(re.fullmatch(r"[━─]{72} +\d+%", line) for line in seen)
        assert any(line.startswith("log: ") and len(line) > 10 for line in seen)

        terminal.resize(40, 12)
        small = terminal.until(lambda d: re.fullmatch(r".{34,36} +\d:\d\d", d[0]) and "…" in d[0], "40 columns")
        assert sum("▶ auto" in line for line in small) == 1
        assert sum("on rehearsal" in line for line in small) == 1
        assert any("1. auto: ready, load: shards" in line for line in small)

        terminal.type(b"\x03")
        assert terminal.process.wait(timeout=120) == ExitCode.INTERRUPTED
    assert "bringup: stopping; nothing is left on rehearsal" in terminal.after
    assert "Traceback" not in terminal.after
    assert machine.processes() == []


def test_where_there_is_no_terminal_lines_are_plain_and_no_wider_than_80(capsys: pytest.CaptureFixture[str]) -> None:
    means = "a probability row held NaN or inf when the next token was drawn, " * 3 + "\x1b[2J"
    folder = "/a/folder/" + "that-is-deep/" * 8
    with Live(Screen("a ladder on a host", ["auto"], [], Pace())) as live:
        live.hear("run.started", {"ladder": "a ladder", "target": "a host", "folder": folder})
        live.hear("diagnosis.made", {"kind": "nan", "component": "attention", "phase": "decode", "means": means})
        for seconds in range(5):
            live.show(Progress(0, "", "host", f"host busy: waited {seconds} s", 0.0))
        for seconds in range(5):
            live.show(Progress(1, "auto", "ready", f"load: shards {seconds}/83"))
    lines = capsys.readouterr().err.splitlines()
    assert "\x1b" not in "".join(lines)
    assert [line for line in lines if len(line) > 80] == [f"{' ' * 12}{folder}"]  # a path is whole
    assert sum("shards" in line for line in lines) == 1
    assert not any("busy" in line for line in lines)  # that is told once, as a milestone
    assert lines[0].endswith("s  starting Prefect")
    assert " ".join(means.split()[:-1]) in " ".join(" ".join(lines).split())
