"""The run's log: every event in the file, milestones to the listeners, run id on each line, no secret in either."""

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks.pure.redact import Redactor
from tasks.runlog import RunLog, log

SECRET = "sk-very-secret"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_all_events_go_to_the_file_and_milestones_to_the_listener(tmp_path: Path) -> None:
    heard: list[tuple[str, Mapping[str, Any]]] = []
    with RunLog(tmp_path / "e.jsonl", "run-7", Redactor(), lambda event, facts: heard.append((event, facts))):
        log.info("server.launched", pid=3, rung="auto")
        log.info("probe.judged", verdict="ok")
    assert [(e["event"], e["run_id"]) for e in lines(tmp_path / "e.jsonl")] == [
        ("server.launched", "run-7"), ("probe.judged", "run-7"),
    ]  # fmt: skip
    assert heard == [("server.launched", {"pid": 3, "rung": "auto"})]


def test_a_secret_is_masked_for_file_and_listener(tmp_path: Path) -> None:
    heard: list[Mapping[str, Any]] = []
    with RunLog(tmp_path / "e.jsonl", "r", Redactor([SECRET]), lambda _, facts: heard.append(facts)):
        log.warning("host.lost", why=f"refused {SECRET}")
    assert SECRET not in (tmp_path / "e.jsonl").read_text()
    assert heard == [{"why": "refused <secret>"}]


def test_lines_of_many_threads_stay_whole(tmp_path: Path) -> None:
    def write(n: int) -> None:
        for i in range(50):
            log.info("probe.judged", n=n, i=i, text="x" * 500)

    with RunLog(tmp_path / "e.jsonl", "r", Redactor()):
        threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(lines(tmp_path / "e.jsonl")) == 200


def test_who_fails_to_hear_ends_nothing_and_is_told_the_next_as_well(tmp_path: Path) -> None:
    heard: list[str] = []

    def deaf(event: str, _: Mapping[str, Any]) -> None:
        heard.append(event)
        raise OSError("the terminal is gone")

    with RunLog(tmp_path / "e.jsonl", "r", Redactor(), deaf):
        log.info("run.started")
        log.info("run.ended")
    assert heard == ["run.started", "run.ended"]
    failed = [e for e in lines(tmp_path / "e.jsonl") if e["event"] == "listener.failed"]
    assert [(e["of"], e["why"]) for e in failed] == [(name, "OSError: the terminal is gone") for name in heard]


def test_a_disk_that_takes_no_line_ends_nothing() -> None:
    with RunLog(Path("/dev/full"), "r", Redactor()):
        log.info("run.started")
