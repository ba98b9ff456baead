"""Nights on a moving main: a local repository whose commits rename a flag, break a backend, and fail to install."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

import tasks.rehearsal
from settings.words import ExitCode, RunOutcome
from tasks.pure.record import RunRecord
from tasks.store import read_record
from tests.flows.conftest import Machine, rehearsal_target, wait_for

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(300)]

STAND_IN = Path(tasks.rehearsal.__file__).parent / "site/sglang"
STORY = """
why     = "one commit of main"
release = "RELEASE"
speed   = 16.0
[expect]
outcome = "serving"
trail   = [{ rung = "auto", outcome = "passed" }]
"""
BROKEN = """
[[fault]]
why   = "this commit broke the build's own choice"
at    = "decode"
when  = { kv_cache_dtype = "fp8_e4m3" }
does  = "nan"
"""
# What `pip install` of the checkout would do, in a second: the environment finds the package, and its commit's story.
SETUP = """
import pathlib, sys, time
env, needs = pathlib.Path(sys.argv[1]), "NEEDS"
while pathlib.Path("CLOSED").exists():
    time.sleep(0.1)
if needs:
    sys.exit(f"ERROR: No matching distribution found for {needs}")
here = pathlib.Path(__file__).resolve().parent
site = next(env.glob("lib/python*/site-packages"))
(site / "engine.pth").write_text(
    f"{here}\\nimport os; os.environ['REHEARSAL_STORY'] = {str(here / 'story.toml')!r}\\n"
)
"""
RECIPE = """
source  = "SOURCE"
package = "sglang"
keep    = 2
[[step]]
name = "checkout"
argv = ["git", "clone", "--quiet", "{source}", "{checkout}"]
[[step]]
name = "commit"
argv = ["git", "-C", "{checkout}", "checkout", "--quiet", "{commit}"]
[[step]]
name = "environment"
argv = ["{base}", "-m", "venv", "--without-pip", "{env}"]
[[step]]
name = "install"
argv = ["{python}", "{checkout}/setup_env.py", "{env}"]
"""


class Main:
    """The repository, and a machine that follows it."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.repository = machine, machine.folder / "engine.git"
        shutil.copytree(STAND_IN, self.repository / "sglang", ignore=shutil.ignore_patterns("__pycache__"))
        (self.repository / ".gitignore").write_text("__pycache__\n")
        self.git("init", "--quiet", "--initial-branch=main")
        recipe = machine.folder / "recipe.toml"
        recipe.write_text(RECIPE.replace("SOURCE", str(self.repository)))
        story = machine.folder / "unused.toml"
        story.write_text(STORY.replace("RELEASE", "0.5.9"))
        path = machine.folder / "nightly.toml"
        self.target = rehearsal_target(path, story, lease_s=10.0, recipe=str(recipe))
        # The stand-in comes from the commit: nothing else may lead to one.
        text = self.target.read_text()
        self.target.write_text("\n".join(line for line in text.splitlines() if not line.startswith("PYTHONPATH")))

    def git(self, *words: str) -> str:
        who = ["-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "commit.gpgsign=false"]
        ran = subprocess.run(
            ["git", "-C", str(self.repository), *who, *words], capture_output=True, text=True, check=True
        )
        return ran.stdout.strip()

    def commit(self, release: str = "0.5.9", *, broken: bool = False, needs: str = "") -> str:
        (self.repository / "story.toml").write_text(STORY.replace("RELEASE", release) + (BROKEN if broken else ""))
        (self.repository / "setup_env.py").write_text(SETUP.replace("NEEDS", needs).replace("CLOSED", str(self.closed)))
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", f"{release} {broken} {needs}")
        return self.git("rev-parse", "HEAD")

    def night(self, *words: str) -> tuple[subprocess.CompletedProcess[str], RunRecord]:
        ran = self.machine.bringup("run", "--target", str(self.target), "--ref", "main", *words)
        return ran, read_record(self.machine.newest())

    @property
    def closed(self) -> Path:
        """While this file is there, an install waits."""
        return self.machine.folder / "closed"

    @property
    def envs(self) -> dict[str, dict[str, object]]:
        found = [json.loads(path.read_text()) for path in (self.machine.state / "envs").glob("*/build.json")]
        return {str(note["commit"]): note for note in found if note.get("complete")}


@pytest.fixture
def main(machine: Machine) -> Main:
    return Main(machine)


def test_nights_on_a_moving_main(main: Main) -> None:
    first = main.commit("0.5.9")
    ran, record = main.night()
    assert (ExitCode.SERVING, RunOutcome.SERVING) == (ran.returncode, record.outcome), ran.stderr
    assert record.source is not None
    assert ("main", first, False) == (record.source.ref, record.source.commit, record.source.cached)
    assert (first, "0.5.9") == (record.build.commit, record.build.version)
    assert str(main.machine.state / "envs") in record.attempts[0].argv[0]

    ran, same = main.night()
    assert (ExitCode.SERVING, record.run_id) == (ran.returncode, same.run_id)   # no second run
    assert "skipped: " in ran.stdout
    _, forced = main.night("--force")
    assert forced.run_id != record.run_id
    assert forced.source is not None
    assert forced.source.cached is True

    main.commit("0.5.17")   # --nsa-… is --dsa-… from here on
    ran, renamed = main.night()
    assert (ExitCode.SERVING, "0.5.17") == (ran.returncode, renamed.build.version)
    good = renamed.build.commit

    broken = main.commit("0.5.17", broken=True)
    _, record = main.night()
    assert broken == record.build.commit
    assert "nan" == (record.attempts[0].diagnosis and record.attempts[0].diagnosis.kind)

    before = main.envs
    main.commit("0.5.17", needs="sgl-kernel==9.9")
    ran, failed = main.night()
    assert (ExitCode.PREFLIGHT, RunOutcome.STOPPED, ()) == (ran.returncode, failed.outcome, failed.attempts)
    assert failed.source is not None
    assert failed.source.diagnosis is not None
    assert ("version_mismatch", "sgl-kernel") == (failed.source.diagnosis.kind, failed.source.diagnosis.flag)
    assert "No matching distribution found" in (main.machine.newest() / "install.log").read_text()
    assert before == main.envs

    main.commit("0.5.17")
    ran, mended = main.night()
    assert (ExitCode.SERVING, RunOutcome.SERVING) == (ran.returncode, mended.outcome)
    assert mended.build.commit in main.envs
    assert first not in main.envs   # collected: newer ones have served since
    assert good is not None
    assert main.machine.is_free(str(main.target))


def test_an_unknown_ref_or_a_target_without_recipe_is_one_sentence(main: Main, machine: Machine) -> None:
    main.commit()
    ran = machine.bringup("run", "--target", str(main.target), "--ref", "mian")
    progress, error = ran.stderr.splitlines()
    assert (ExitCode.BAD_INPUT, True) == (ran.returncode, progress.endswith("starting Prefect")), ran.stderr
    assert "mian: cannot be resolved" in error
    ran = machine.bringup("run", "--target", "rehearsal", "--ref", "main")
    assert (ExitCode.BAD_INPUT, True) == (ran.returncode, "recipe: is not set" in ran.stderr), ran.stderr
    assert not [*machine.runs.iterdir()]   # no run began


@pytest.mark.chaos
@pytest.mark.parametrize("way_out", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_install_that_is_cut_ends_on_the_host_and_the_next_night_goes_on_with_it(
    main: Main, machine: Machine, way_out: signal.Signals
) -> None:
    main.commit()
    main.closed.touch()
    run = machine.begin("run", "--target", str(main.target), "--ref", "main")
    machine.until_event('"step": "install"')
    wait_for(machine.processes, 20, "the install runs")
    os.killpg(run.pid, way_out)
    run.communicate(timeout=60)
    wait_for(lambda: not machine.processes(), 10.0 + 60, "no process of ours")
    wait_for(lambda: machine.is_free(str(main.target)), 60, "a free host")
    main.closed.unlink()
    ran, record = main.night()
    assert (ExitCode.SERVING, RunOutcome.SERVING) == (ran.returncode, record.outcome), ran.stderr
    said = (machine.newest() / "install.log").read_text()
    assert ("setup_env.py" in said, "git clone" in said) == (True, False)   # only what was not done
