"""What lies between two commits of main, from a real repository."""

import subprocess
from pathlib import Path

import pytest

from settings.recipe import Recipe, RecipeStep
from settings.source import BadInput
from settings.target import Target
from tasks.commits import commits_between
from tasks.deadline import Deadline
from tasks.local_host import LocalHost


class Repository:
    def __init__(self, folder: Path) -> None:
        self.folder, self.state = folder / "engine", folder / "state"
        self.folder.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *words: str) -> str:
        who = ["-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "commit.gpgsign=false"]
        ran = subprocess.run(
            ["git", "-C", str(self.folder), *who, *words], capture_output=True, text=True, check=True
        )
        return ran.stdout.strip()

    def commit(self, subject: str) -> str:
        self.git("commit", "--quiet", "--allow-empty", "-m", subject)
        return self.git("rev-parse", "HEAD")

    def between(self, good: str, bad: str) -> list[str]:
        recipe = Recipe(source=str(self.folder), package="p", step=(RecipeStep(name="s", argv=("true",)),))
        target = Target(name="t", model="/m", gpus=1, state_dir=str(self.state))
        found = commits_between(LocalHost("t"), target, recipe, good, bad, deadline=Deadline.after(60))
        return [commit.subject for commit in found]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def test_main_is_followed_and_the_inside_of_merges_is_not(repository: Repository) -> None:
    good = repository.commit("good")
    repository.git("checkout", "--quiet", "-b", "side")
    repository.commit("inside")
    repository.git("checkout", "--quiet", "main")
    repository.commit("second")
    repository.git("merge", "--quiet", "--no-ff", "-m", "merge", "side")
    bad = repository.commit("bad")
    assert ["second", "merge", "bad"] == repository.between(good, bad)
    later = repository.commit("later")
    assert ["bad", "later"] == repository.between(repository.git("rev-parse", "HEAD~2"), later)   # it is fetched anew


def test_what_is_no_commit_or_not_before_the_other_is_one_sentence(repository: Repository) -> None:
    good, bad = repository.commit("good"), repository.commit("bad")
    with pytest.raises(BadInput, match="is not before"):
        repository.between(bad, good)
    with pytest.raises(BadInput, match="is no commit of any branch"):
        repository.between(good, "0" * 40)
