"""Which run is meant: by a part of its id when that decides, and by nothing at all the newest that tells something."""

import json
from pathlib import Path

import pytest

from settings.source import BadInput
from tasks.chosen import run_folder, run_to_show

RECORD = json.loads((next((Path(__file__).resolve().parents[1] / "records").iterdir()) / "record.json").read_text())
GOING_ON = {"halt": None, "ended_at": None, "outcome": "running"}
BUSY: dict[str, object] = {
    "attempts": [], "outcome": "host_busy", "halt": {"reason": "root@vm has it", "by": "host"}, "winner": None,
}  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("20261129-0200-gpu8-aa11", "20261129-0300-gpu8-bb22", "20261130-0200-gpu8-cc33"):
        _write(tmp_path, name)
    return tmp_path


def _write(root: Path, name: str, **changed: object) -> None:
    (root / name).mkdir()
    (root / name / "record.json").write_text(json.dumps({**RECORD, "run_id": name, **changed}))


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("20261129-0200-gpu8-aa11", "aa11"), ("bb22", "bb22"), ("20261130", "cc33"), ("latest", "cc33"),
    ],
)  # fmt: skip
def test_a_part_that_decides_is_enough(root: Path, said: str, meant: str) -> None:
    assert run_folder(root, said).name.endswith(meant)


def test_a_part_of_several_and_of_none_is_one_sentence(root: Path) -> None:
    with pytest.raises(BadInput, match="is part of 2 runs: 20261129-0200-gpu8-aa11, 20261129-0300-gpu8-bb22"):
        run_folder(root, "20261129")
    with pytest.raises(BadInput, match=r"no such run.*aa11"):
        run_folder(root, "20261129-0200-gpu8-aa12")
    with pytest.raises(BadInput, match="no such run"):
        run_folder(root, "")


def test_a_run_that_goes_on_or_was_refused_is_passed_over_and_told(root: Path) -> None:
    _write(root, "20261201-0100-gpu8-dd44", **BUSY)
    _write(root, "20261201-0200-gpu8-ee55", **GOING_ON)
    _write(root, "20261201-0230-gpu8-ff66", confirms="20261130-0200-gpu8-cc33", role="B")
    (root / "20261201-0300-cut").mkdir()
    (root / "20261201-0300-cut" / "record.json").write_text("{")
    shown = run_to_show(root)
    assert shown.folder.name.endswith("cc33")
    cut, further, going_on, busy = shown.newer
    assert "left out" in cut
    assert further == "newer: 20261201-0230-gpu8-ff66 was made for 20261130-0200-gpu8-cc33"
    assert going_on == "newer: 20261201-0200-gpu8-ee55 is still going on, or was killed"
    assert busy == "newer: 20261201-0100-gpu8-dd44 was refused: root@vm has it"


def test_where_no_run_tells_anything_the_newest_is_shown(tmp_path: Path) -> None:
    _write(tmp_path, "1-a", **BUSY)
    _write(tmp_path, "2-b", **BUSY)
    assert run_to_show(tmp_path).folder.name == "2-b"
    with pytest.raises(BadInput, match="holds no run yet"):
        run_to_show(tmp_path / "none")
