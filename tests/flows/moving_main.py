"""A local git repository as "main": each commit is a simulated engine, which a machine follows by `--ref`."""

import json
import shutil
import subprocess
from pathlib import Path

import tasks.rehearsal
from settings.inputs import load_ladder
from tasks.pure.record import RunRecord
from tasks.store import read_record
from tests.flows.conftest import Machine, rehearsal_target

__all__ = ["BROKEN", "DIES", "MovingMain"]

STAND_IN = Path(tasks.rehearsal.__file__).parent / "site/sglang"
STORY = """
why     = "one commit of main"
release = "RELEASE"
speed   = 16.0
pace    = { token_s = TOKEN }
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
DIES = BROKEN.replace('"nan"', '"die"\ntrace = "device-assert"')
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
name = "repository"
argv = ["git", "init", "--quiet", "{checkout}"]
[[step]]
name = "fetch"
argv = ["git", "-C", "{checkout}", "fetch", "--quiet", "{source}", "+refs/heads/*:refs/remotes/origin/*"]
[[step]]
name = "commit"
argv = ["git", "-C", "{checkout}", "checkout", "--quiet", "--force", "{commit}"]
[[step]]
name = "environment"
argv = ["{base}", "-m", "venv", "--without-pip", "{env}"]
[[step]]
name = "install"
argv = ["{python}", "{checkout}/setup_env.py", "{env}"]
"""
ONE_RUNG = """
start = "auto"
[base.args]
tp-size = 8
[rung.auto]
why = "the build's own choice"
on = [{ stop = "nothing else is tried here" }]
"""


class MovingMain:
    """The repository, and a machine that follows it. `ladder`: one rung, so that a broken night is short.

    `fields`: more of the target.
    """

    def __init__(self, machine: Machine, **fields: object) -> None:
        self.machine, self.repository = machine, machine.folder / "engine.git"
        shutil.copytree(STAND_IN, self.repository / "sglang", ignore=shutil.ignore_patterns("__pycache__"))
        (self.repository / ".gitignore").write_text("__pycache__\n")
        self.git("init", "--quiet", "--initial-branch=main")
        recipe = machine.folder / "recipe.toml"
        recipe.write_text(RECIPE.replace("SOURCE", str(self.repository)))
        self.target = self.reached(**fields)
        self.ladder = machine.folder / "one-rung.toml"
        self.ladder.write_text(ONE_RUNG)
        load_ladder(str(self.ladder))

    def reached(self, **fields: object) -> Path:
        """The target's file, written anew with these fields."""
        story = self.machine.folder / "unused.toml"
        story.write_text(STORY.replace("RELEASE", "0.5.9").replace("TOKEN", "0.01"))
        recipe = str(self.machine.folder / "recipe.toml")
        path = rehearsal_target(self.machine.folder / "nightly.toml", story, lease_s=10.0, recipe=recipe, **fields)
        # The stand-in comes from the commit: nothing else may lead to one.
        lines = path.read_text().splitlines()
        path.write_text("\n".join(line for line in lines if not line.startswith("PYTHONPATH")))
        return path

    def git(self, *words: str) -> str:
        who = ["-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "commit.gpgsign=false"]
        ran = subprocess.run(
            ["git", "-C", str(self.repository), *who, *words], capture_output=True, text=True, check=True
        )
        return ran.stdout.strip()

    def commit(
        self, release: str = "0.5.9", *, broken: bool | str = False, needs: str = "", token_s: float = 0.01,
        subject: str = "",
    ) -> str:  # fmt: skip
        """The commit. `broken`: with the fault BROKEN, or with that one."""
        fault = broken if isinstance(broken, str) else BROKEN if broken else ""
        story = STORY.replace("RELEASE", release).replace("TOKEN", str(token_s)) + fault
        (self.repository / "story.toml").write_text(story)
        (self.repository / "setup_env.py").write_text(SETUP.replace("NEEDS", needs).replace("CLOSED", str(self.closed)))
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", subject or f"{release} {bool(broken)} {needs}")
        return self.git("rev-parse", "HEAD")

    def night(self, *words: str) -> tuple[subprocess.CompletedProcess[str], RunRecord]:
        ran = self.machine.bringup("run", "--target", str(self.target), "--ref", "main", *words)
        return ran, [r for r in self.records() if r.confirms is None][-1]

    def records(self) -> list[RunRecord]:
        """All runs, the oldest first."""
        return [read_record(path) for path in sorted(self.machine.runs.glob("*/record.json"))]

    def story_of(self, commit: str) -> Path:
        """What the installed build of this commit does, to be changed there."""
        notes = (self.machine.state / "envs").glob("*/build.json")
        return next(p.parent / "checkout/story.toml" for p in notes if json.loads(p.read_text())["commit"] == commit)

    @property
    def closed(self) -> Path:
        """While this file is there, an install waits."""
        return self.machine.folder / "closed"

    @property
    def envs(self) -> dict[str, dict[str, object]]:
        found = [json.loads(path.read_text()) for path in (self.machine.state / "envs").glob("*/build.json")]
        return {str(note["commit"]): note for note in found if note.get("complete")}
