"""The commits between two builds, from the recipe's repository, read on the host where builds are made."""

from settings.recipe import Recipe
from settings.source import BadInput
from settings.target import Target, resolve_path
from tasks.deadline import Deadline
from tasks.host import Completed, Host
from tasks.pure.bisect import Commit

__all__ = ["commits_between"]

_QUIET = {"GIT_TERMINAL_PROMPT": "0"}


def commits_between(
    host: Host, target: Target, recipe: Recipe, good: str, bad: str, *, deadline: Deadline
) -> tuple[Commit, ...]:
    """After `good`, up to and with `bad`, along first parents: what main was, without the inside of merges.

    Raises: BadInput for a commit that the repository does not know, or when the one is not before the other. HostError.
    """
    folder = f"{resolve_path(target.state_dir, host.home)}/history.git"

    def git(*words: str) -> Completed:
        return host.run(["git", "-C", folder, *words], deadline=deadline, env=_QUIET)

    # Each of these bears being cut and run again. Commits alone are some megabytes of a large repository.
    _did(host.run(["git", "init", "--quiet", "--bare", folder], deadline=deadline, env=_QUIET), recipe)
    _did(git("config", "remote.origin.url", recipe.source), recipe)
    _did(git("fetch", "--quiet", "--filter=tree:0", "origin", "+refs/heads/*:refs/heads/*"), recipe)
    for commit in (good, bad):
        if git("cat-file", "-e", f"{commit}^{{commit}}").exited != 0:
            raise BadInput(recipe.source, commit, "is no commit of any branch")
    if git("merge-base", "--is-ancestor", good, bad).exited != 0:
        raise BadInput(recipe.source, good, f"is not before {bad[:12]}: there is nothing between the two")
    listed = _did(git("log", "--first-parent", "--reverse", "--format=%H%x09%s", f"{good}..{bad}"), recipe)
    rows = (line.partition("\t") for line in listed.out.splitlines())
    return tuple(Commit(sha=sha, subject=subject) for sha, _, subject in rows)


def _did(done: Completed, recipe: Recipe) -> Completed:
    if done.exited != 0:
        said = (done.err.strip().splitlines() or [f"git ended with {done.exited}"])[-1]
        raise BadInput(recipe.source, "", f"cannot be read: {said}")
    return done
