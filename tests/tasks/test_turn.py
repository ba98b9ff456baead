"""A busy host is waited for as long as was asked, in everybody's sight, and a cancel needs no patience."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from settings.inputs import load_inputs
from tasks.deadline import Deadline
from tasks.host import Completed, HostLost
from tasks.local_host import LocalHost
from tasks.opening import open_session
from tasks.pure.redact import Redactor
from tasks.runlog import RunLog
from tasks.session import Progress
from tasks.store import RunFolder
from tasks.supervisor import Acquired, Supervisor
from tasks.turn import HostBusy, Turn
from tests.tasks.remote.bench import Bench

pytest_plugins = ["tests.tasks.remote.bench"]


def turn(supervisor: Supervisor, wait_s: float, show: Callable[[Progress], None] = lambda _: None) -> Turn:
    return Turn(supervisor, "gpu8", "hosts/gpu8.toml", Deadline.after(wait_s), wait_s, 20.0, show)


@pytest.fixture
def first(bench: Bench) -> Supervisor:
    supervisor = bench.supervisor("first", owner="alice@there")
    assert isinstance(supervisor.acquire(deadline=Deadline.after(20)), Acquired)
    return supervisor


def test_a_host_that_gets_free_is_taken_and_the_wait_costs_nothing_of_the_budget(
    bench: Bench, first: Supervisor, tmp_path: Path
) -> None:
    shown: list[Progress] = []

    def until_it_is_free(progress: Progress) -> None:
        shown.append(progress)
        first.release(deadline=Deadline.after(20))

    inputs = load_inputs("rehearsal", "glm5-sm120", state_dir=str(bench.state))
    folder = RunFolder(tmp_path / "runs", "next", Redactor())
    with RunLog(folder.events_path, "next", folder.redactor):
        with open_session(inputs, folder, "next", named="rehearsal", show=until_it_is_free, wait_s=60) as session:
            assert session.deadline.left_s > inputs.ladder.budget.wall_s - 2   # each look is 5 s after the one before
    assert [(0, "host busy: waited 0 s of at most 60 s")] == [(p.n, p.text) for p in shown]
    told = [json.loads(line) for line in folder.events_path.read_text().splitlines()]
    assert ["host.waiting", "host.locked"] == [line["event"] for line in told]
    assert told[0]["why"].startswith("alice@there has had the host since 20")
    assert "(run first)" in told[0]["why"]
    assert bench.empty()


def test_who_still_has_it_after_the_wait_is_named_with_what_to_do(bench: Bench, first: Supervisor) -> None:
    shown: list[Progress] = []
    with pytest.raises(HostBusy, match=r"^alice@there has had .* \(run first\): wait for it .* or end it there$"):
        turn(bench.supervisor(), 0.5, shown.append).acquire()
    assert 1 == len(shown)
    first.keep(deadline=Deadline.after(20))
    kept = r"^alice@there has kept .* \(run first\): `bringup stop --target hosts/gpu8.toml` ends it$"
    with pytest.raises(HostBusy, match=kept):
        turn(bench.supervisor(), 0.0, shown.append).acquire()
    assert 1 == len(shown)   # who does not wait is shown no wait


@pytest.mark.usefixtures("first")
def test_a_cancel_ends_the_wait_at_once(bench: Bench) -> None:
    def cancel(_: Progress) -> None:
        raise KeyboardInterrupt

    began = Deadline.after(60)
    with pytest.raises(KeyboardInterrupt):
        turn(bench.supervisor(), 3600.0, cancel).acquire()
    assert began.left_s > 50


class BlinksOnce(LocalHost):
    """The first command of the supervisor is lost with its connection."""

    lost = False

    def run(
        self, argv: Sequence[str], *, deadline: Deadline, env: Mapping[str, str] | None = None, stdin: bytes = b""
    ) -> Completed:
        if not self.lost:
            self.lost = True
            raise HostLost("the connection is gone")
        return super().run(argv, deadline=deadline, env=env, stdin=stdin)


def test_a_connection_that_is_lost_while_waiting_ends_no_wait(bench: Bench) -> None:
    supervisor, shown = bench.supervisor(), list[Progress]()
    supervisor.host = BlinksOnce()
    assert isinstance(turn(supervisor, 0.5, shown.append).acquire(), Acquired)
    assert 1 == len(shown)
    supervisor.release(deadline=Deadline.after(20))
    supervisor.host = BlinksOnce()
    with pytest.raises(HostLost):
        turn(supervisor, 0.0).acquire()
