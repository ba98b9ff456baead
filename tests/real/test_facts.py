"""What the rest of this program takes for true of a real SGLang, asked of the real one, without any of the program."""

import math
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.real.server import READY, RealServer, run_engine, serve

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("real_environment")]

NAN = "probability tensor contains either"


@pytest.fixture(scope="module", params=["ovf", pytest.param("bang", marks=pytest.mark.chaos)])
def nan_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with serve(request.param, tmp_path_factory.mktemp("nan"), dtype="float16") as server:
        server.wait_for_line(READY)
        yield server


def test_a_nan_server_is_healthy_and_silent_and_only_logprobs_tell(nan_server: RealServer) -> None:
    assert nan_server.health() == 200
    for temperature in (0, 1):
        reply = nan_server.generate("hello", max_new_tokens=8, temperature=temperature)
        assert {0} == set(reply["output_ids"])
        assert {None} == {token[0] for token in reply["meta_info"]["output_token_logprobs"]}
        assert reply["text"] == ("" if "/ovf" in nan_server.log else "!!!!!!!!")
    assert "nan" not in nan_server.log.lower()


def test_the_load_test_calls_a_nan_server_a_full_success(nan_server: RealServer, tmp_path: Path) -> None:
    line = nan_server.bench(tmp_path / "bench.jsonl")

    assert (32, 1_024) == (line["completed"], line["total_output_tokens"])
    assert not any(line["errors"])


def test_a_top_p_request_kills_a_nan_server(nan_server: RealServer) -> None:
    """Last in the module: nothing is left to ask afterwards."""
    with pytest.raises(httpx.HTTPError):
        nan_server.generate("hello", max_new_tokens=8, temperature=1, top_p=0.9)

    nan_server.process.wait(30)
    assert NAN in nan_server.log
    assert -9 == nan_server.process.returncode


@pytest.mark.chaos
def test_bfloat16_cures_it(tmp_path: Path) -> None:
    with serve("ovf", tmp_path, dtype="bfloat16") as server:
        server.wait_for_line(READY)

        logprobs = server.logprobs("hello", max_new_tokens=64, ignore_eos=True)
        line = server.bench(tmp_path / "bench.jsonl")

        assert _all_finite(logprobs)
        assert len(logprobs) == 64
        assert _all_finite(server.logprobs("hello", max_new_tokens=8, temperature=1, top_p=0.9))
        assert 0.8 < line["total_output_tokens_retokenized"] / line["total_output_tokens"] < 1.2


def test_the_fatal_check_dies_at_warm_up_and_names_nan(tmp_path: Path) -> None:
    with serve("ovf", tmp_path, dtype="float16", env={"SGLANG_ENABLE_NAN_LOGITS_CHECK": "1"}) as server:
        server.process.wait(120)

        assert -9 == server.process.returncode
        assert "NaN detected! sampler: next_token_logits" in server.log
        assert READY not in server.log


def test_a_wrong_flag_exits_2_with_the_reason_on_the_last_line() -> None:
    done = run_engine("-m", "sglang.launch_server", "--model-path", "none", "--nsa-decode-backend", "trtllm")

    assert 2 == done.returncode
    assert done.stderr.splitlines()[-1].startswith("sglang serve: error: unrecognized arguments: --nsa-decode-backend")


@pytest.mark.chaos
def test_a_taken_port_is_met_after_the_load_and_then_the_server_hangs(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        with serve("ovf", tmp_path, port=int(stranger.getsockname()[1]), dtype="bfloat16") as server:
            server.wait_for_line("[Errno 98]")

            assert "Load weight end" in server.log
            assert not _exits_within(server, 10.0)
            assert READY not in server.log


@pytest.mark.chaos
def test_nan_only_in_a_long_prompt_hides_from_short_ones(tmp_path: Path) -> None:
    with serve("long", tmp_path, dtype="float16") as server:
        server.wait_for_line(READY)

        assert _all_finite(server.logprobs(_prompt(2_040), max_new_tokens=8, ignore_eos=True))
        assert {None} == set(server.logprobs(_prompt(2_049), max_new_tokens=8, ignore_eos=True))
        assert _all_finite(server.logprobs("hello", max_new_tokens=64, ignore_eos=True))


@pytest.mark.chaos
def test_nan_only_late_in_an_answer_hides_from_short_answers(tmp_path: Path) -> None:
    with serve("late", tmp_path, dtype="float16") as server:
        server.wait_for_line(READY)

        assert _all_finite(server.logprobs(_prompt(16), max_new_tokens=64, ignore_eos=True))
        late = server.logprobs(_prompt(16), max_new_tokens=128, ignore_eos=True)
        assert _all_finite(late[:80])
        assert {None} == set(late[82:])


@pytest.mark.chaos
@pytest.mark.parametrize("form", ["long", "late"])
def test_bfloat16_cures_the_position_dependent_forms(form: str, tmp_path: Path) -> None:
    with serve(form, tmp_path, dtype="bfloat16") as server:
        server.wait_for_line(READY)

        assert _all_finite(server.logprobs(_prompt(3_000), max_new_tokens=128, ignore_eos=True))


def _prompt(tokens: int) -> list[int]:
    """Token ids of no meaning; a different length has a different beginning, so that no cached prefix is met."""
    return [20 + (tokens + 37 * i) % 400 for i in range(tokens)]


def _all_finite(logprobs: list[float | None]) -> bool:
    return all(value is not None and math.isfinite(value) for value in logprobs)


def _exits_within(server: RealServer, within_s: float) -> bool:
    try:
        server.process.wait(within_s)
    except subprocess.TimeoutExpired:
        return False
    return True
