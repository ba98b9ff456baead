"""In CI nothing may pass by not running."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

__all__: list[str] = []

SKIPS = {
    "mark": "import pytest\n@pytest.mark.skip(reason='no sshd here')\ndef test_a(): pass\n",
    "call": "import pytest\ndef test_a(): pytest.skip('no sshd here')\n",
    "fixture": "import pytest\n@pytest.fixture\ndef f(): pytest.skip('no sshd here')\ndef test_a(f): pass\n",
    "module": "import pytest\npytest.skip('no sshd here', allow_module_level=True)\n",
    "import": "import pytest\npytest.importorskip('no_sshd_here', reason='no sshd here')\n",
}
CELLS = """
import pytest
@pytest.mark.fault("cut")
@pytest.mark.parametrize("stage", ["ready", "stop"])
def test_a(stage): assert stage == "ready"
@pytest.mark.fault("full", stage="install")
def test_b(): pass
"""
XFAIL = "import pytest\n@pytest.mark.xfail(reason='known')\ndef test_a(): assert False\n"


def _pytest(folder: Path, source: str, no_skips: str) -> subprocess.CompletedProcess[str]:
    shutil.copy(Path(__file__).with_name("conftest.py"), folder)
    (folder / "test_it.py").write_text(source)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder)],
        env={**os.environ, "BRINGUP_NO_SKIPS": no_skips, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("way", SKIPS)
def test_a_skip_fails_where_none_may_be_and_says_its_reason(tmp_path: Path, way: str) -> None:
    ran = _pytest(tmp_path, SKIPS[way], no_skips="1")
    assert ran.returncode != 0
    assert "no sshd here" in ran.stdout


def test_a_skip_is_counted_and_passes_elsewhere(tmp_path: Path) -> None:
    ran = _pytest(tmp_path, SKIPS["mark"], no_skips="")
    assert (0, "1 skipped") == (ran.returncode, ran.stdout.strip().splitlines()[-1].split(" in ")[0])


def test_cells_of_the_fault_matrix_end_in_a_table(tmp_path: Path) -> None:
    said = _pytest(tmp_path, CELLS, no_skips="").stdout
    table = [line.split() for line in said.partition("fault × stage")[2].splitlines()[1:4]]
    assert [["install", "ready", "stop"], ["cut", "-", "0", "s", "FAILED"], ["full", "0", "s", "-", "-"]] == table


def test_an_expected_failure_is_no_skip(tmp_path: Path) -> None:
    assert 0 == _pytest(tmp_path, XFAIL, no_skips="1").returncode
