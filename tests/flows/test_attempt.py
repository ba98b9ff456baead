"""What an attempt found stands, whatever Prefect could be told of it: its server may be away when it begins or ends."""

from types import SimpleNamespace
from typing import Any

import httpx
import pytest

import flows.run
from flows.run import Run
from tasks.host import HostLost

AWAY = httpx.ConnectError("all connection attempts failed")


@pytest.fixture
def carried_out(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    done: list[Any] = []
    monkeypatch.setattr(flows.run, "carry_out", lambda book, keep: done.append((book, keep)))
    return done


def untold(why: Exception, **book: object) -> Any:
    found: Any = SimpleNamespace(**{"begun": False, "done": False, "error": None, **book})
    Run._untold(found, found, why, keep=True)
    return found


def test_an_attempt_that_prefect_could_not_begin_is_carried_out(carried_out: list[Any]) -> None:
    assert [(untold(AWAY), True)] == carried_out


def test_one_that_it_could_not_end_is_not_repeated(carried_out: list[Any]) -> None:
    untold(AWAY, begun=True, done=True)
    assert [] == carried_out


def test_an_error_of_the_attempt_comes_before_that_of_telling_it(carried_out: list[Any]) -> None:
    lost = HostLost("the host is gone")
    with pytest.raises(HostLost):
        untold(AWAY, begun=True, error=lost)
    with pytest.raises(httpx.ConnectError):
        untold(AWAY, begun=True)
    assert [] == carried_out


def test_a_signal_is_none_of_prefects_errors(carried_out: list[Any]) -> None:
    error = ValueError("Prefect's own")
    error.__context__ = KeyboardInterrupt()
    with pytest.raises(ValueError, match="own"):
        untold(error)
    assert [] == carried_out
