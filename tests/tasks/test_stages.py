"""A step against a real process under the real supervisor, without Prefect: what the log says counts in every step."""

import socket

import pytest

from settings.words import AttemptOutcome, Stage
from tasks import stages
from tasks.deadline import Deadline, pause
from tasks.host import DeadlinePassed
from tasks.session import Session
from tasks.watch import Pulse
from tests.tasks.sitting import SERVES, STARTED, WAITS, found, launched, session

__all__ = ["session"]

SANITISED = """
print("[2026-01-01 00:00:06] NaN detected in sampler: next_token_logits; values were sanitized before sampling.",
      flush=True)
"""
OUT_OF_MEMORY = """
print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB. GPU 0 has 1.00 GiB free.", flush=True)
"""


def test_a_launch_that_is_repeated_adopts_the_server(session: Session) -> None:
    first = launched(session, WAITS)
    again = stages.launch(session, 1, "auto", "a1", first.plan)
    assert "adopted" in again.result.reason


def test_what_stands_in_the_way_on_a_host_that_is_not_ours_any_more_is_no_verdict(session: Session) -> None:
    plan = launched(session, WAITS).plan
    session.supervisor.stop("a1", deadline=Deadline.after(20))
    with socket.create_server(("127.0.0.1", plan.port)):
        assert found(stages.preflight(session, 2, "auto", plan)) == (AttemptOutcome.FAILED, "port")
        session.supervisor.release(deadline=Deadline.after(20))
        assert found(stages.preflight(session, 2, "auto", plan)) == (AttemptOutcome.ABORTED, "lease_expired")


def test_a_server_that_serves_is_ready(session: Session) -> None:
    assert found(stages.wait_ready(session, launched(session, STARTED, SERVES))) == (AttemptOutcome.PASSED, None)


def test_a_host_that_is_too_busy_to_answer_is_asked_again_as_long_as_a_lease_lasts(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = launched(session, STARTED, SERVES)
    look, late = server.watch.look, [DeadlinePassed("no answer in 30 s")] * 3

    def slow(deadline: Deadline) -> Pulse:
        if late:
            raise late.pop()
        return look(deadline)

    monkeypatch.setattr(server.watch, "look", slow)
    assert found(stages.wait_ready(session, server)) == (AttemptOutcome.PASSED, None)
    late[:] = [DeadlinePassed("no answer in 30 s")]
    session.target = session.target.model_copy(update={"lease_s": 0.0})
    with pytest.raises(DeadlinePassed):
        stages.wait_ready(session, server)


def test_nan_that_the_log_of_a_living_server_tells_outweighs_good_replies(session: Session) -> None:
    server = launched(session, STARTED, SANITISED, SERVES)
    assert found(stages.wait_ready(session, server)) == (AttemptOutcome.PASSED, None)
    report = stages.warm_up(session, server)
    assert found(report) == (AttemptOutcome.FAILED, "nan")
    assert report.diagnosis is not None
    assert (report.diagnosis.stage, report.diagnosis.evidence.line) == (Stage.WARMUP, 7)


def test_a_fault_that_is_logged_before_the_silence_is_the_cause_and_not_the_silence(session: Session) -> None:
    assert found(stages.wait_ready(session, launched(session, STARTED, OUT_OF_MEMORY, WAITS)))[1] == "oom_runtime"


def test_silence_without_a_word_is_a_hang(session: Session) -> None:
    report = stages.wait_ready(session, launched(session, STARTED, WAITS))
    assert found(report) == (AttemptOutcome.FAILED, "hang")


def test_a_server_ended_by_somebody_else_is_no_fault_of_its_rung(session: Session) -> None:
    server = launched(session, STARTED, WAITS)
    session.supervisor.ask_to_stop("a1", deadline=Deadline.after(20))
    deadline = Deadline.after(20)
    while session.supervisor.status("a1", deadline=deadline).state == "running":
        pause(0.1, deadline)
    assert found(stages.wait_ready(session, server)) == (AttemptOutcome.ABORTED, "interrupted")


def test_a_server_that_dies_without_a_word_is_unknown(session: Session) -> None:
    server = launched(session, STARTED, "raise SystemExit(3)")
    report = stages.wait_ready(session, server)
    assert found(report) == (AttemptOutcome.FAILED, "unknown")
    assert "exit 3" in report.result.reason


def test_a_warm_up_that_runs_out_of_time_does_not_pass(session: Session) -> None:
    server = launched(session, STARTED, SERVES)
    assert found(stages.wait_ready(session, server)) == (AttemptOutcome.PASSED, None)
    session.settings = session.settings.model_copy(update={"warmup_s": 0.0})
    assert found(stages.warm_up(session, server)) == (AttemptOutcome.FAILED, "hang")
