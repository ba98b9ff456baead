"""The lock holds all that defines the winner, reads back as it was written, and says what is not as it was."""

import tomllib
from pathlib import Path

import pytest

from settings.inputs import load_inputs
from settings.lock import load_lock
from settings.source import BadInput
from tasks.pure.lock import differences, lock_of, lock_toml, replay
from tasks.store import read_record

RECORD = read_record(next((Path(__file__).resolve().parents[2] / "records").iterdir()))
LOCK = lock_of(RECORD)
WON = RECORD.attempts[-1]


def test_it_reads_back_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "run.lock.toml").write_text(lock_toml(LOCK))
    assert load_lock(str(tmp_path / "run.lock.toml")) == LOCK


def test_the_replay_is_the_winners_launch_word_by_word() -> None:
    plan = replay(LOCK)
    assert (WON.argv, WON.asked, {}) == (plan.argv, plan.asked, plan.env)
    assert plan.port == int(WON.argv[WON.argv.index("--port") + 1])


def test_it_is_an_input_in_place_of_a_ladder(tmp_path: Path) -> None:
    path = tmp_path / "run.lock.toml"
    path.write_text(lock_toml(LOCK))
    inputs = load_inputs("rehearsal", "not-looked-at", str(path))
    assert inputs.lock == LOCK
    assert (["bf16-kv"], LOCK.gates) == (list(inputs.ladder.rung), inputs.ladder.gates)
    assert inputs.suites["decode"] == ("quick", LOCK.suites["decode"].sha256)


def test_nothing_differs_on_the_same_host_and_what_does_is_named() -> None:
    lock = LOCK.model_copy(update={"server": LOCK.server.model_copy(update={"env": {"CUDA_HOME": "/usr/local/cuda"}})})
    given = {**lock.server.env, **dict.fromkeys(lock.server.hidden, "x")}
    assert () == differences(lock, RECORD.build, RECORD.host, given, RECORD.suites)
    build = RECORD.build.model_copy(update={"version": "0.5.10", "commit": "abc"})
    host = RECORD.host.model_copy(update={"driver": "581.1", "gpus": RECORD.host.gpus[:4]})
    hidden = lock.server.hidden[0]
    other = {k: v for k, v in given.items() if k != hidden} | {"CUDA_HOME": "/elsewhere", "MORE": "s3cret"}
    said = differences(lock, build, host, other, RECORD.suites)
    assert "build version was 0.5.9, is 0.5.10" in said
    assert "driver was 580.95.05, is 581.1" in said
    assert any(s.startswith("GPUs was NVIDIA RTX PRO 6000") for s in said)
    assert f"the target gives no {hidden}" in said
    assert "the target gives another CUDA_HOME; the lock's is used" in said
    assert "the target gives MORE, which was not there" in said
    assert not any("s3cret" in sentence or "elsewhere" in sentence for sentence in said)


def test_a_run_without_a_winner_or_with_a_hidden_word_gives_no_lock() -> None:
    with pytest.raises(BadInput, match="nothing served"):
        lock_of(RECORD.model_copy(update={"winner": None}))
    hidden = WON.model_copy(update={"argv": (*WON.argv, "<secret>")})
    with pytest.raises(BadInput, match="hidden value"):
        lock_of(RECORD.model_copy(update={"attempts": (*RECORD.attempts[:-1], hidden)}))


@pytest.mark.parametrize("argv", [(), ("python",), ("python", "--port"), ("python", "--port", "x")])
def test_a_winner_whose_command_names_no_port_gives_no_lock(argv: tuple[str, ...]) -> None:
    won = WON.model_copy(update={"argv": argv})
    with pytest.raises(BadInput, match="names no port"):
        lock_of(RECORD.model_copy(update={"attempts": (*RECORD.attempts[:-1], won)}))


def test_hidden_values_are_named_and_not_held() -> None:
    assert set(LOCK.server.hidden) == {k for k, v in WON.env.items() if v == "<secret>"}
    assert "<secret>" not in lock_toml(LOCK)
    assert tomllib.loads(lock_toml(LOCK))["server"]["env"] == {}
