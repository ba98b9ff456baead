"""A fleet is waited for as it should be, whoever runs its hosts."""

from collections.abc import Collection, Mapping
from typing import Any

import httpx
import pytest

from flows.muster import Muster
from settings.words import ExitCode
from tasks.deadline import Deadline
from tasks.pure.fleet import FleetRow

HOSTS = [f"gpu{n}" for n in range(5)]


class Crew:
    """Each run is seen waiting once, at work once, and then has ended, but for those that never do."""

    said = "by a test"

    def __init__(self, endless: Collection[str] = (), away: int = 0, error: Exception | None = None) -> None:
        self.looks: dict[str, int] = {}
        self.most, self.cancelled = 0, list[str]()
        self._endless, self._away, self._error = endless, away, error
        self.never_taken = False
        self.gone_after = -1  # so many runs have begun

    def start(self, parameters: Mapping[str, Any]) -> str | FleetRow:
        assert parameters["ladder"] == "l"
        if self.gone_after == len(self.looks):
            return FleetRow(target="", state="Not begun", exit=ExitCode.UNEXPECTED, headline="no deployment")
        self.looks[parameters["target"]] = 0
        return str(parameters["target"])

    def look(self, runs: Mapping[str, str]) -> dict[str, FleetRow | str]:
        self.most = max(self.most, len(runs))
        if self._away:
            self._away -= 1
            raise self._error or httpx.ConnectError("refused")
        return {name: self._one(name, run) for name, run in runs.items()}

    def _one(self, name: str, run: str) -> FleetRow | str:
        self.looks[run] += 1
        if self.looks[run] < 3 or name in self._endless:
            return ["", "Late", "Running"][min(self.looks[run], 1 if self.never_taken else 2)]
        return FleetRow(target=name, state="Serving", exit=ExitCode.SERVING, headline="")

    def cancel(self, runs: Collection[str]) -> None:
        self.cancelled += runs


def _muster(crew: Crew, **also: Any) -> Muster:
    given: dict[str, Any] = {"hear": lambda *_: None, "at_once": 2, "patience_s": 60.0, "poll_s": 0.001}
    refused = FleetRow(target="bad", state="Bad input", exit=ExitCode.BAD_INPUT, headline="hots: unknown key")
    return Muster({name: f"/hosts/{name}.toml" for name in HOSTS}, [refused], crew, {"ladder": "l"}, **given | also)


def test_each_host_gets_its_row_and_no_more_than_asked_are_at_work_at_once() -> None:
    crew = Crew()
    muster = _muster(crew)
    muster.wait()
    assert [*HOSTS, "bad"] == [row.target for row in muster.rows]
    assert (2, 5, []) == (crew.most, len(crew.looks), crew.cancelled)


def test_who_began_and_who_ended_is_told_with_the_count() -> None:
    heard: list[tuple[str, str, int]] = []

    def hear(event: str, facts: Mapping[str, Any]) -> None:
        if event == "fleet.host":
            heard.append((facts["target"], facts["state"], facts["ended"]))

    _muster(Crew(), hear=hear).wait()
    assert ("bad", "Bad input", 1) == heard[0]
    assert [5, 5] == [sum(state == name for _, state, _ in heard) for name in ("Late", "Running")]
    assert [2, 3, 4, 5, 6] == [ended for _, state, ended in heard if state == "Serving"]


def test_a_deployment_that_goes_takes_no_run_with_it() -> None:
    crew = Crew()
    crew.gone_after = 2
    muster = _muster(crew)
    muster.wait()
    states = [row.state for row in muster.rows[:5]]
    assert (["Serving"] * 2 + ["Not begun"] * 3, []) == (states, crew.cancelled)


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_server_that_is_busy_costs_nothing(status: int) -> None:
    request = httpx.Request("GET", "http://h/")
    busy = httpx.HTTPStatusError("busy", request=request, response=httpx.Response(status, request=request))
    muster = _muster(Crew(away=3, error=busy))
    muster.wait()
    assert 5 == sum(row.exit is ExitCode.SERVING for row in muster.rows)


def test_a_server_that_blinks_costs_nothing() -> None:
    muster = _muster(Crew(away=7))
    muster.wait()
    assert 5 == sum(row.exit is ExitCode.SERVING for row in muster.rows)


def test_a_server_that_refuses_us_ends_the_wait_at_once() -> None:
    request = httpx.Request("POST", "http://server/api")
    refusal = httpx.HTTPStatusError("401", request=request, response=httpx.Response(401, request=request))
    with pytest.raises(httpx.HTTPStatusError):
        _muster(Crew(away=1, error=refusal)).wait()


def test_a_run_without_end_is_given_up_and_does_not_hold_the_others() -> None:
    crew = Crew(endless=["gpu1"])
    muster = _muster(crew, patience_s=0.5)
    muster.wait()
    states = {row.target: row.state for row in muster.rows}
    assert ("Lost", "Serving", ["/hosts/gpu1.toml"]) == (states["gpu1"], states["gpu4"], crew.cancelled)


def test_a_run_that_no_worker_takes_is_given_up_too() -> None:
    crew = Crew(endless=["gpu1"])
    crew.never_taken = True
    muster = _muster(crew, patience_s=0.5)
    muster.wait()
    (lost,) = [row for row in muster.rows if row.state == "Lost"]
    assert ("gpu1", "no worker has taken it in 0 s") == (lost.target, lost.headline)
    assert ["/hosts/gpu1.toml"] == crew.cancelled


def test_a_fleet_that_failed_is_not_told_as_cancelled_by_somebody() -> None:
    request = httpx.Request("POST", "http://server/api")
    refusal = httpx.HTTPStatusError("401 Unauthorized", request=request, response=httpx.Response(401, request=request))
    muster = _muster(Crew(away=1, error=refusal))
    with pytest.raises(httpx.HTTPStatusError) as failed:
        muster.wait()
    muster.dismiss(failed.value)
    begun = muster.rows[0]
    assert ExitCode.UNEXPECTED is begun.exit
    assert "its fleet failed: HTTPStatusError: 401 Unauthorized" in begun.headline


def test_what_is_dismissed_is_cancelled_and_the_rest_never_begins() -> None:
    class Interrupted(Crew):
        def _one(self, name: str, run: str) -> FleetRow | str:
            raise KeyboardInterrupt(name, run)

    crew = Interrupted()
    muster = _muster(crew)
    with pytest.raises(KeyboardInterrupt):
        muster.wait()
    muster.dismiss()
    assert [f"/hosts/{name}.toml" for name in HOSTS[:2]] == crew.cancelled
    headlines = ["cancelled with its fleet"] * 2 + ["not begun"] * 3 + ["hots: unknown key"]
    assert headlines == [row.headline for row in muster.rows]


def test_a_run_that_waits_while_its_worker_is_at_another_host_is_not_given_up() -> None:
    class OneWorker(Crew):
        """One run after the other, each 0.2 s: the last waits longer than anybody's patience."""

        def __init__(self) -> None:
            super().__init__()
            self.over: dict[str, Deadline] = {}

        def _one(self, name: str, run: str) -> FleetRow | str:
            if run not in self.over and all(deadline.passed for deadline in self.over.values()):
                self.over[run] = Deadline.after(0.2)
            if run not in self.over:
                return "Late"
            ended = FleetRow(target=name, state="Serving", exit=ExitCode.SERVING, headline="")
            return ended if self.over[run].passed else "Running"

    crew = OneWorker()
    muster = _muster(crew, at_once=5, patience_s=0.5, poll_s=0.01)
    muster.wait()
    assert ([], 5) == (crew.cancelled, sum(row.exit is ExitCode.SERVING for row in muster.rows))
