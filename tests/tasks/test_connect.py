import pytest

from settings.target import Target
from tasks.connect import connect, resolved
from tasks.deadline import Deadline
from tests.tasks.conftest import Sshd

ENV = {
    "PLAIN": "a 'b' $HOME ~", "IN_HOME": "~/cache", "ALSO": "$HOME/cache", "ELSEWHERE": "/x/~/y", "NOBODY": "~root/x",
}


@pytest.fixture(params=["local", pytest.param("ssh", marks=pytest.mark.sshd)])
def target(request: pytest.FixtureRequest) -> Target:
    changes = {"env": ENV, "python": "~/ml-env/bin/python3", "state_dir": "$HOME/state", "model": "org/model"}
    if request.param == "local":
        return Target.model_validate({"name": "here", **changes})
    sshd: Sshd = request.getfixturevalue("sshd")
    return sshd.target(**changes)


def test_the_environment_of_the_target_is_that_of_all_commands_and_its_paths_begin_at_home(target: Target) -> None:
    with connect(target, deadline=Deadline.after(10)) as host:
        said = host.run(["printenv", *ENV], deadline=Deadline.after(10)).out.splitlines()
        assert [ENV["PLAIN"], f"{host.home}/cache", f"{host.home}/cache", "/x/~/y", "~root/x"] == said


def test_the_environment_of_a_call_wins_over_that_of_the_target(target: Target) -> None:
    with connect(target, deadline=Deadline.after(10)) as host:
        done = host.run(["printenv", "PLAIN"], env={"PLAIN": "other"}, deadline=Deadline.after(10))
        assert "other\n" == done.out


def test_paths_of_a_target_are_resolved_on_the_host(target: Target) -> None:
    with connect(target, deadline=Deadline.after(10)) as host:
        there = resolved(target, host)
        home = host.run(["sh", "-c", "cd && pwd"], deadline=Deadline.after(10)).out.strip()
    assert f"{home}/ml-env/bin/python3" == there.python
    assert f"{home}/state" == there.state_dir
    assert "org/model" == there.model
    assert target.name == there.name
