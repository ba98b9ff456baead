"""The units that we ship are units, and start what is there."""

import getpass
import re
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


def test_the_environment_file_means_the_same_to_systemd_and_to_a_shell() -> None:
    lines = (ROOT / "deployments/systemd/glm5-bringup.env").read_text().splitlines()
    said = [line.removeprefix("#") for line in lines if re.match(r"#?[A-Z_]+=", line)]  # also what is offered there
    names = " ".join(line.partition("=")[0] for line in said)
    script = "\n".join(["set -a", *said, f"for name in {names}; do printenv $name; done"])
    in_shell = subprocess.run(["sh", "-eu", "-c", script], capture_output=True, text=True, check=True, env={})
    # systemd.exec(5), EnvironmentFile: quotes around a value go, "#" and blanks after it stay.
    assert [line.partition("=")[2].strip("'") for line in said] == in_shell.stdout.splitlines()
    assert 8 == len(said)
    assert {"EnvironmentFile=-/etc/glm5-bringup.env"} == {
        line for unit in UNITS for line in unit.read_text().splitlines() if line.startswith("EnvironmentFile=")
    }


def test_a_unit_gives_its_runs_the_time_to_end() -> None:
    assert len(UNITS) == 2
    for unit in UNITS:
        assert "KillMode=mixed" in unit.read_text()  # our launcher hears of the end first, and alone
