"""A run in a shared place is whole, can be read from there, and its record comes last."""

import shutil
import threading
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tasks.deadline import Deadline
from tasks.publish import publish
from tasks.records import read_records

RECORD = next((Path(__file__).resolve().parents[1] / "records").iterdir())


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "runs" / RECORD.name
    shutil.copytree(RECORD, folder)
    (folder / "logs").mkdir(exist_ok=True)
    (folder / "logs" / "zz.log").write_text("the server's own words")
    (folder / ".held").write_text("")
    return folder


def test_it_is_read_where_it_was_put(run: Path, tmp_path: Path) -> None:
    for url in (str(tmp_path / "shared"), f"file://{tmp_path}/as-url/", f"memory://{tmp_path.name}/shared"):
        assert publish(run, url, deadline=Deadline.after(30)) == 2
        assert publish(run, url, deadline=Deadline.after(30)) == 2  # a run that went on is put there again
        assert [RECORD.name] == [found.run_id for found in read_records(url).runs]
        system, root = fsspec.core.url_to_fs(url)
        assert b"own words" in system.cat(f"{root.rstrip('/')}/{RECORD.name}/logs/zz.log")
        assert not system.exists(f"{root.rstrip('/')}/{RECORD.name}/.held")


def test_the_record_comes_last(run: Path, tmp_path: Path) -> None:
    system: Any = fsspec.filesystem("memory")
    publish(run, f"memory://{tmp_path.name}/order", deadline=Deadline.after(30))
    made = {Path(p).name: system.created(p) for p in system.find(f"/{tmp_path.name}/order")}
    assert max(made, key=lambda name: made[name]) == "record.json"


def test_a_protocol_that_nobody_knows_is_an_error_and_no_silence(run: Path) -> None:
    with pytest.raises(ValueError, match="nosuch"):
        publish(run, "nosuch://bucket", deadline=Deadline.after(30))


class Stuck(MemoryFileSystem):  # type: ignore[misc]
    """A mount whose server is gone."""

    protocol = "stuck"
    answers = threading.Event()

    def makedirs(self, path: str, exist_ok: bool = False) -> None:  # noqa: ARG002
        self.answers.wait()


def test_a_place_that_does_not_answer_is_left_to_itself(run: Path) -> None:
    fsspec.register_implementation("stuck", Stuck)
    with pytest.raises(TimeoutError, match="had not ended in time"):
        publish(run, "stuck://shared", deadline=Deadline.after(0.2))
    Stuck.answers.set()
