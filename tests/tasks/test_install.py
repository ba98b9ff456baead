"""A build on a host: made once, gone on with where it was cut, never in place of another, gone when nobody needs it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from settings.recipe import Recipe, RecipeStep
from settings.source import BadInput
from settings.target import Target
from tasks.deadline import Deadline
from tasks.install import Installed, NotInstalled, WantedBuild, cached_python, install, mark_good, resolve
from tasks.local_host import LocalHost


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    path = tmp_path / "engine"
    path.mkdir()
    _git(path, "init", "--quiet", "--initial-branch=main")
    _git(path, "commit", "--quiet", "--allow-empty", "-m", "one")
    _git(path, "tag", "-a", "v1", "-m", "annotated")
    return path


def recipe(repository: Path, *last: str) -> Recipe:
    """Clone, environment, and a last step that a test makes fail or succeed."""
    return Recipe(
        source=str(repository), package="engine", keep=2,
        step=(
            RecipeStep(name="checkout", argv=("git", "clone", "--quiet", "{source}", "{checkout}")),
            RecipeStep(name="environment", argv=("{base}", "-m", "venv", "--without-pip", "{env}")),
            RecipeStep(name="install", argv=last or ("true",)),
        ),
    )  # fmt: skip


class Place:
    """A host, and what the installers said there."""

    def __init__(self, folder: Path) -> None:
        self.host, self.said, self.state = LocalHost("here", env={}), bytearray(), folder / "state"
        self.target = Target(name="here", model="m", python=sys.executable, state_dir=str(self.state))

    def install(self, recipe: Recipe, wanted: WantedBuild) -> Installed | NotInstalled:
        return install(
            self.host, self.target, recipe, wanted, deadline=Deadline.after(60), keep_log=self.said.extend
        )  # fmt: skip

    @property
    def keys(self) -> set[str]:
        return {path.name for path in (self.state / "envs").iterdir()}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_branch_tag_and_commit_of_one_commit_are_one_build(place: Place, repository: Path) -> None:
    commit = _git(repository, "rev-parse", "HEAD")
    found = {resolve(place.host, ref, recipe(repository)).key for ref in ("main", "v1", commit)}
    assert 1 == len(found)
    with pytest.raises(BadInput, match="cannot be resolved"):
        resolve(place.host, "no-such-branch", recipe(repository))


def test_a_build_is_made_once(place: Place, repository: Path) -> None:
    how = recipe(repository)
    wanted = resolve(place.host, "main", how)
    assert None is cached_python(place.host, place.target, wanted, deadline=Deadline.after(5))
    made, again = place.install(how, wanted), place.install(how, wanted)
    assert (Installed, False) == (type(made), isinstance(made, Installed) and made.cached)
    assert isinstance(again, Installed)
    assert again.cached
    assert 1 == place.said.count(b"git clone")
    assert again.python == cached_python(place.host, place.target, wanted, deadline=Deadline.after(5))
    assert 0 == subprocess.run([again.python, "-c", ""], check=False).returncode


def test_a_cut_install_goes_on_with_the_step_that_was_cut(place: Place, repository: Path, tmp_path: Path) -> None:
    there = tmp_path / "dependency"
    how = recipe(repository, "cat", str(there))
    wanted = resolve(place.host, "main", how)
    failed = place.install(how, wanted)
    assert isinstance(failed, NotInstalled)
    assert "'install'" in failed.diagnosis.means
    there.touch()
    assert isinstance(place.install(how, wanted), Installed)
    assert (1, 2) == (place.said.count(b"git clone"), place.said.count(b"$ cat"))


def test_a_step_waits_for_one_that_we_lost_sight_of_and_minds_no_lock_of_a_killed_git(
    place: Place, repository: Path, tmp_path: Path
) -> None:
    there = tmp_path / "dependency"
    how = recipe(repository, "sh", "-c", f"cat {there} && git -C {{checkout}} checkout --quiet --force main")
    wanted = resolve(place.host, "main", how)
    assert isinstance(place.install(how, wanted), NotInstalled)
    folder = place.state / "envs" / wanted.key
    (folder / "checkout/.git/index.lock").touch()
    lost = subprocess.Popen(["flock", folder / ".step", "sh", "-c", f"echo begun; sleep 1; touch {there}"], stdout=-1)
    assert lost.stdout is not None
    lost.stdout.readline()
    assert isinstance(place.install(how, wanted), Installed), place.said
    lost.communicate()


def test_a_failed_install_names_what_moved_and_leaves_the_last_good_one(place: Place, repository: Path) -> None:
    how = recipe(repository)
    good = resolve(place.host, "main", how)
    assert isinstance(place.install(how, good), Installed)
    note = place.state / "envs" / good.key / "build.json"
    note.write_text(json.dumps({**json.loads(note.read_text()), "freeze": ["torch==2.8.0"]}))
    mark_good(place.host, place.target, good, deadline=Deadline.after(5))
    before = note.read_text()
    bad = recipe(repository, "sh", "-c", "echo 'ERROR: No matching distribution found for torch==2.99'; exit 1")
    failed = place.install(bad, resolve(place.host, "main", bad))
    assert isinstance(failed, NotInstalled)
    assert ("torch", "2.8.0") == (failed.diagnosis.flag, failed.diagnosis.value)
    assert before == note.read_text()


def test_old_builds_go_and_the_last_good_one_stays(place: Place, repository: Path) -> None:
    how, keys = recipe(repository), []
    for n in range(4):
        _git(repository, "commit", "--quiet", "--allow-empty", "-m", str(n))
        wanted = resolve(place.host, "main", how)
        keys.append(wanted.key)
        assert isinstance(place.install(how, wanted), Installed)
        if n == 0:
            mark_good(place.host, place.target, wanted, deadline=Deadline.after(5))
    assert {keys[0], keys[3]} == place.keys
    bad = recipe(repository, "false")
    assert isinstance(place.install(bad, resolve(place.host, "main", bad)), NotInstalled)
    _git(repository, "commit", "--quiet", "--allow-empty", "-m", "after a night that failed")
    last = resolve(place.host, "main", how)
    assert isinstance(place.install(how, last), Installed)
    assert {keys[0], last.key} == place.keys


def _git(repository: Path, *words: str) -> str:
    who = ["-c", "user.name=n", "-c", "user.email=n@example.org"]
    ran = subprocess.run(["git", "-C", str(repository), *who, *words], capture_output=True, text=True, check=True)
    return ran.stdout.strip()
