"""The lease is held through lost connections, and believed lost no later than it is."""

import sys
import threading
from collections.abc import Callable

import pytest

from tasks.deadline import Deadline
from tasks.host import Completed, Host, HostLost, HostUnreachable
from tasks.lease import Lease
from tasks.local_host import LocalHost
from tasks.supervisor import Acquired, Supervisor
from tests.tasks.remote.bench import Bench, soon

pytest_plugins = ["tests.tasks.remote.bench"]

LEASE_S = 2.0  # a renewal has to get through within a third of it, on a busy machine too


class Flaky(LocalHost):
    """A host whose connection breaks when it is told to; each object stands for one connection."""

    def __init__(self, broken: threading.Event) -> None:
        super().__init__()
        self.broken, self.closed = broken, False

    def run(self, *args: object, **kwargs: object) -> Completed:
        if self.broken.is_set():
            raise HostLost("the connection broke")
        return super().run(*args, **kwargs)  # type: ignore[arg-type]

    def close(self) -> None:
        self.closed = True


def on(host: Host, bench: Bench, run_id: str = "run-1") -> Supervisor:
    return Supervisor(
        host, state_dir=str(bench.state), python=sys.executable, run_id=run_id, owner="me", lease_s=LEASE_S
    )


@pytest.fixture
def broken() -> threading.Event:
    return threading.Event()


@pytest.fixture
def connections() -> list[Flaky]:
    return []


@pytest.fixture
def connect(bench: Bench, broken: threading.Event, connections: list[Flaky]) -> Callable[[], Supervisor]:
    def _connect() -> Supervisor:
        if broken.is_set() and connections:
            raise HostUnreachable("no route")
        connections.append(Flaky(broken))
        return on(connections[-1], bench)

    assert isinstance(bench.supervisor(lease_s=LEASE_S).acquire(deadline=Deadline.after(20)), Acquired)
    return _connect


def test_a_renewed_lease_outlives_its_length(bench: Bench, connect: Callable[[], Supervisor]) -> None:
    with Lease(connect, lease_s=LEASE_S) as lease:
        end = Deadline.after(2 * LEASE_S)
        soon(lambda: end.passed)
        assert lease.held
        assert bench.supervisor().renew(deadline=Deadline.after(20))
    soon(bench.empty)


def test_a_lost_connection_is_made_anew(
    bench: Bench, connect: Callable[[], Supervisor], connections: list[Flaky], broken: threading.Event
) -> None:
    with Lease(connect, lease_s=LEASE_S) as lease:
        soon(lambda: lease.left_s > 0.9 * LEASE_S)
        broken.set()
        soon(lambda: connections[0].closed)
        broken.clear()
        soon(lambda: len(connections) == 2)
        end = Deadline.after(LEASE_S)
        soon(lambda: end.passed)
        assert lease.held
        assert bench.supervisor().renew(deadline=Deadline.after(20))
    assert connections[1].closed


def test_a_connection_that_stays_lost_is_a_lost_lease_and_not_before(
    bench: Bench, connect: Callable[[], Supervisor], broken: threading.Event
) -> None:
    with Lease(connect, lease_s=LEASE_S) as lease:
        broken.set()
        lock = bench.state / "lock"
        soon(lambda: not lease.held)
        assert lease.left_s == 0.0
        soon(lambda: not lock.exists())


def test_a_host_that_says_no_is_believed_at_once(bench: Bench, connect: Callable[[], Supervisor]) -> None:
    with Lease(connect, lease_s=600.0) as lease:  # the next renewal would be in 200 s
        assert lease.held
    other = bench.supervisor("run-2")
    with Lease(lambda: other, lease_s=600.0) as refused:
        soon(lambda: not refused.held)


def test_leaving_ends_the_renewals(bench: Bench, connect: Callable[[], Supervisor]) -> None:
    with Lease(connect, lease_s=LEASE_S):
        pass
    assert "lease" not in {thread.name for thread in threading.enumerate()}
    soon(bench.empty)


def test_an_error_of_whatever_kind_ends_no_renewing(bench: Bench, connect: Callable[[], Supervisor]) -> None:
    tries: list[int] = []

    def _connect() -> Supervisor:
        tries.append(1)
        if len(tries) == 1:
            raise RuntimeError("can't start new thread")
        return connect()

    with Lease(_connect, lease_s=LEASE_S) as lease:
        end = Deadline.after(1.5 * LEASE_S)
        soon(lambda: end.passed)
        assert lease.held
    soon(bench.empty)
