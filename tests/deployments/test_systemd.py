"""The units that we ship are units, and start what is there."""

import getpass
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNITS = sorted((ROOT / "deployments/systemd").glob("*.service"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_has_nothing_to_say_against_it(unit: Path, tmp_path: Path) -> None:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd is not installed (apt install systemd)")
    text = unit.read_text()
    assert "/srv/glm5-bringup" in text
    # As an operator adapts it: where the checkout is, and who runs it.
    here = text.replace("/srv/glm5-bringup", str(ROOT)).replace("User=bringup", f"User={getpass.getuser()}")
    copy = tmp_path / unit.name.replace("@.", "@1.")
    copy.write_text(here)
    said = subprocess.run([tool, "verify", "--man=no", copy], capture_output=True, text=True, check=False, timeout=60)
    assert (0, "") == (said.returncode, said.stderr)


def test_a_word_that_systemd_does_not_know_is_found(tmp_path: Path) -> None:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd is not installed (apt install systemd)")
    (tmp_path / "bad.service").write_text("[Service]\nExecStart=/bin/true\nKilMode=mixed\n")
    said = subprocess.run(
        [tool, "verify", "--man=no", tmp_path / "bad.service"], capture_output=True, text=True, check=False, timeout=60
    )
    assert "KilMode" in said.stderr


def test_a_unit_gives_its_runs_the_time_to_end() -> None:
    assert len(UNITS) == 2
    for unit in UNITS:
        assert "KillMode=mixed" in unit.read_text()  # our launcher hears of the end first, and alone
