"""Two real releases side by side on one host, by a recipe: installed, probed, and planned, each in its own words."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from settings.recipe import Recipe, load_recipe
from settings.target import load_target
from tasks.deadline import Deadline
from tasks.install import Installed, install, resolve
from tasks.local_host import LocalHost
from tests.flows.conftest import BRINGUP
from tests.real.server import ENV

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
# A flag of each that the other one's parser does not know.
RELEASES = {"0.5.9": "--nsa-prefill-backend", "0.5.23": "--dsa-prefill-backend"}


@pytest.fixture
def uv(tmp_path: Path) -> Path:
    """The folder of a uv of this test's own, beside a cache on the same disk as the environments."""
    folder = tmp_path / "uv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([folder / "bin/python", "-m", "pip", "install", "--quiet", "uv==0.13.9"], check=True)
    return folder / "bin"


def test_two_releases_are_installed_probed_and_planned_side_by_side(tmp_path: Path, uv: Path) -> None:
    env = {**ENV, "PATH": f"{uv}:{os.environ['PATH']}", "UV_CACHE_DIR": str(tmp_path / "cache")}
    log = bytearray()
    pythons = {}
    with LocalHost("here", env=env) as host:
        target = _target(tmp_path, sys.executable)
        for release in RELEASES:
            wanted = resolve(host, release, _recipe(tmp_path))
            done = install(
                host, load_target(str(target)), _recipe(tmp_path), wanted, deadline=Deadline.after(600),
                keep_log=log.extend,
            )  # fmt: skip
            assert isinstance(done, Installed), log.decode()[-2000:]
            pythons[release] = done.python
    for release, python in pythons.items():
        at = str(_target(tmp_path, python))
        assert release == _asked("probe", "--target", at)["build"]["version"]
        said = json.dumps(_asked("plan", "--target", at, "--ladder", "glm5-sm120"))
        assert {release} == {r for r, flag in RELEASES.items() if flag in said}


def _recipe(folder: Path) -> Recipe:
    path = folder / "recipe.toml"
    path.write_text((HERE / "recipe.toml").read_text().replace("PINS", str(HERE / "requirements-sglang.txt")))
    return load_recipe(str(path))


def _target(folder: Path, python: str) -> Path:
    path = folder / "target.toml"
    fields = {"host": "local", "python": python, "model": str(folder), "state_dir": str(folder / "state")}
    lines = [f"{name} = {json.dumps(value)}" for name, value in fields.items()]
    path.write_text("\n".join([*lines, "gpus = 0", "[env]", *(f"{k} = {json.dumps(v)}" for k, v in ENV.items())]))
    return path


def _asked(*words: str) -> dict[str, dict[str, str]]:
    ran = subprocess.run([BRINGUP, *words, "--json"], capture_output=True, text=True, check=False, timeout=200)
    assert 0 == ran.returncode, ran.stderr
    return dict(json.loads(ran.stdout))
