"""A rung becomes a command that this very build understands, or the reason why it cannot; what runs is read back."""

import argparse
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from settings.engine import Engine, load_engine
from settings.ladder import ArgValue
from settings.source import BadInput
from tasks.pure.capabilities import Capabilities, Flag, Parser
from tasks.pure.plan import LaunchPlan, Override, Unspellable, Wanted, build_plan, effective, overridden
from tasks.pure.record import Build

BUILDS = Callable[..., Capabilities]
RELEASES = ["0.5.8.post1", "0.5.9", "0.5.10.post1", "0.5.12.post1", "0.5.17", "0.5.20", "0.5.23"]
HEAD = (
    "/venv/bin/python", "-m", "sglang.launch_server", "--model-path", "/models/glm", "--host", "127.0.0.1",
    "--port", "30000",
)
NO_INTENTS = load_engine("sglang").model_copy(update={"intents": {}})


def plan(args: dict[str, ArgValue], engine: Engine, on: Capabilities, **env: str) -> LaunchPlan | Unspellable:
    return build_plan(Wanted("rung", args, env), engine, on, python="/venv/bin/python", model="/models/glm")


def planned(args: dict[str, ArgValue], engine: Engine, on: Capabilities) -> LaunchPlan:
    found = plan(args, engine, on)
    assert isinstance(found, LaunchPlan), found
    return found


def words(args: dict[str, ArgValue], engine: Engine, on: Capabilities) -> str:
    return " ".join(planned(args, engine, on).argv[len(HEAD):])


@pytest.mark.parametrize("release", RELEASES)
def test_every_command_names_model_host_and_port(engine: Engine, build: BUILDS, release: str) -> None:
    assert HEAD == planned({}, engine, build(release)).argv


SPELLINGS: list[tuple[dict[str, ArgValue], str, str]] = [
    ({"sparse-prefill": "fa3", "sparse-decode": "tilelang"}, "0.5.9",
     "--nsa-prefill-backend fa3 --nsa-decode-backend tilelang"),
    ({"sparse-prefill": "fa3", "sparse-decode": "tilelang"}, "0.5.12.post1",
     "--nsa-prefill-backend fa3 --nsa-decode-backend tilelang"),
    ({"sparse-prefill": "fa3", "sparse-decode": "tilelang"}, "0.5.17",
     "--dsa-prefill-backend fa3 --dsa-decode-backend tilelang"),
    ({"sparse-prefill": "fa3", "sparse-decode": "tilelang"}, "0.5.23",
     "--dsa-prefill-backend fa3 --dsa-decode-backend tilelang"),
    ({"max-graph-batch": 64}, "0.5.10.post1", "--cuda-graph-max-bs 64"),
    ({"max-graph-batch": 64}, "0.5.17", "--cuda-graph-max-bs-decode 64"),
    ({"max-graph-batch": 64}, "0.5.20", "--cuda-graph-max-bs-decode 64"),
    ({"graphs-off": True}, "0.5.9", "--disable-cuda-graph"),
    ({"graphs-off": True}, "0.5.23", "--disable-cuda-graph"),
    ({"prefill-graphs-off": True}, "0.5.10.post1", "--disable-piecewise-cuda-graph"),
    ({"prefill-graphs-off": True}, "0.5.23", "--disable-prefill-cuda-graph"),
    ({"attention": "dsa"}, "0.5.9", "--attention-backend nsa"),
    ({"attention": "nsa"}, "0.5.23", "--attention-backend nsa"),
    ({"static-memory": "0.88", "tp-size": 8}, "0.5.23", "--mem-fraction-static 0.88 --tp-size 8"),
    ({"tp-size": 8}, "0.5.9", "--tp-size 8"),
    ({"graphs-off": False, "tp-size": False}, "0.5.23", ""),
    ({"cuda-graph-bs": "1 2 4"}, "0.5.9", "--cuda-graph-bs 1 2 4"),
]


@pytest.mark.parametrize(("args", "release", "expected"), SPELLINGS)
def test_an_intent_is_said_in_the_words_of_the_build(
    engine: Engine, build: BUILDS, args: dict[str, ArgValue], release: str, expected: str
) -> None:
    assert expected == words(args, engine, build(release))


@pytest.mark.parametrize(
    ("release", "variable"),
    [
        ("0.5.17", "SGLANG_ENABLE_ASYNC_ASSERT"),
        ("0.5.20", "SGLANG_ENABLE_ASYNC_ASSERT"),
        ("0.5.23", "SGLANG_ENABLE_NAN_LOGITS_CHECK"),
    ],
)
def test_the_nan_check_is_the_variable_that_the_release_reads(
    engine: Engine, build: BUILDS, release: str, variable: str
) -> None:
    found = planned({"nan-check": True}, engine, build(release))
    assert ("", {variable: "1"}) == (" ".join(found.argv[len(HEAD):]), found.env)


@pytest.mark.parametrize("release", ["0.5.8.post1", "0.5.12.post1"])
def test_a_build_without_a_fatal_nan_check_is_not_given_one_that_hides_nan(
    engine: Engine, build: BUILDS, release: str
) -> None:
    found = plan({"nan-check": True}, engine, build(release))
    assert isinstance(found, Unspellable)
    with pytest.raises(BadInput, match="enable-nan-detection: may not be set in a ladder: it writes numbers over NaN"):
        plan({"enable-nan-detection": True}, engine, build(release))


@pytest.mark.parametrize(("value", "refused"), [("1", True), ("true", True), ("0", False), ("", False)])
def test_no_ladder_may_switch_on_what_makes_nan_into_numbers(
    engine: Engine, build: BUILDS, value: str, refused: bool
) -> None:
    wanted = Wanted("r", {}, {"SGLANG_SANITIZE_NAN_LOGITS": value})
    with pytest.raises(BadInput, match="SGLANG_SANITIZE_NAN_LOGITS: may not be set") if refused else nullcontext():
        build_plan(wanted, engine, build("0.5.23"), python="python3", model="/m")


def test_the_variables_that_a_build_declares_count_more_than_its_release(engine: Engine, build: BUILDS) -> None:
    nightly = replace(build("0.5.20"), environment=frozenset({"SGLANG_ENABLE_NAN_LOGITS_CHECK"}))
    assert {"SGLANG_ENABLE_NAN_LOGITS_CHECK": "1"} == planned({"nan-check": True}, engine, nightly).env
    bare = replace(build("0.5.23"), environment=frozenset())
    assert Unspellable("this build does not read SGLANG_ENABLE_NAN_LOGITS_CHECK", "nan-check") == plan(
        {"nan-check": True}, engine, bare
    )


UNSPELLABLE: list[tuple[dict[str, ArgValue], str, str, str | None]] = [
    ({"sparse-decode": "flashinfer_sparse_mla"}, "0.5.12.post1",
     "this build has no `flashinfer_sparse_mla` for --nsa-decode-backend", "flashmla_sparse"),
    ({"sparse-decode": "trtllm"}, "0.5.8.post1", "this build has no `trtllm` for --nsa-decode-backend", None),
    ({"sparse-decode": "triton_sparse_mla"}, "0.5.23",
     "this build has no `triton_sparse_mla` for --dsa-decode-backend", "flashinfer_sparse_mla"),
    ({"cuda-graph-max-bs": 64}, "0.5.23",
     "this build has no flag --cuda-graph-max-bs (the intent `max-graph-batch` finds the spelling of each build)",
     "--cuda-graph-max-bs-decode"),
    ({"nsa-decode-backend": "fa3"}, "0.5.20",
     "this build has no flag --nsa-decode-backend (the intent `sparse-decode` finds the spelling of each build)",
     "--dsa-decode-backend"),
    ({"graphs-off": "yes"}, "0.5.23", "--disable-cuda-graph of this build takes no value ('yes' was given)", None),
    ({"static-memory": True}, "0.5.23", "--mem-fraction-static of this build needs a value", None),
]


@pytest.mark.parametrize(("args", "release", "why", "nearest"), UNSPELLABLE)
def test_what_a_build_cannot_say_is_told_with_the_nearest(
    engine: Engine, build: BUILDS, args: dict[str, ArgValue], release: str, why: str, nearest: str | None
) -> None:
    found = plan(args, engine, build(release))
    assert isinstance(found, Unspellable)
    assert why == found.why
    assert nearest is None or nearest == found.nearest


@given(st.data())
def test_no_flag_is_ever_taken_for_a_longer_one(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.from_regex(r"[a-z]{2,6}(-[a-z]{1,6}){0,2}", fullmatch=True), min_size=1, unique=True))
    parser = Parser.of(Flag((f"--{name}",), name) for name in names)
    name = data.draw(st.sampled_from(names))
    prefix = name[: data.draw(st.integers(1, len(name)))]
    bare = Capabilities(build=Build(engine="sglang"), parser=parser)
    found = plan({prefix: "1"}, NO_INTENTS, bare)
    assert isinstance(found, LaunchPlan if prefix in names else Unspellable)


@pytest.mark.parametrize("key", ["api-key", "admin-api-key", "model-path", "host"])
def test_arguments_that_no_ladder_may_set_are_bad_input(engine: Engine, build: BUILDS, key: str) -> None:
    with pytest.raises(BadInput, match=f"rung rung: args.{key}: may not be set in a ladder"):
        plan({key: "x"}, engine, build("0.5.23"))


def test_a_rung_may_choose_its_port(engine: Engine, build: BUILDS) -> None:
    found = planned({"port": 31_000}, engine, build("0.5.23"))
    assert 31_000 == found.port
    assert "31000" == found.argv[found.argv.index("--port") + 1]
    for wrong in (True, 0, 70_000, "http"):
        with pytest.raises(BadInput, match="is no port"):
            plan({"port": wrong}, engine, build("0.5.23"))


def test_the_environment_of_a_rung_reaches_the_launch(engine: Engine, build: BUILDS) -> None:
    found = plan({"deep-gemm-off": True}, engine, build("0.5.23"), NCCL_DEBUG="INFO")
    assert isinstance(found, LaunchPlan)
    assert {"NCCL_DEBUG": "INFO", "SGLANG_ENABLE_JIT_DEEPGEMM": "0"} == found.env


def test_a_build_that_could_not_be_asked_is_spoken_to_in_the_newest_words(engine: Engine) -> None:
    dumb = Capabilities(build=Build(engine="sglang"))
    assert "--dsa-decode-backend trtllm --cuda-graph-max-bs-decode 64 --disable-cuda-graph" == words(
        {"sparse-decode": "trtllm", "max-graph-batch": 64, "graphs-off": True}, engine, dumb
    )


@pytest.mark.parametrize("release", RELEASES)
def test_the_real_parser_would_accept_each_command(
    engine: Engine, build: BUILDS, actions: Callable[[str], list[dict[str, Any]]], release: str
) -> None:
    args: dict[str, ArgValue] = {
        "tp-size": 8, "static-memory": "0.88", "sparse-prefill": "flashmla_sparse", "sparse-decode": "flashmla_kv",
        "kv-cache-dtype": "bf16", "moe-runner": "triton", "fp8-gemm": "cutlass", "fp4-gemm": "flashinfer_cutlass",
        "graphs-off": True, "max-graph-batch": 32, "custom-all-reduce-off": True, "speculation": "EAGLE",
        "shared-experts-fusion-off": True, "sampling": "pytorch", "overlap-off": True,
        "attention": "dsa",
    }
    real = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
    for action in actions(release):
        bare = "True" in action["action"] or action["action"] in ("BooleanOptionalAction", "DeprecatedAction")
        if action["dest"] != "help":
            more: dict[str, Any] = {"action": "store_true"} if bare else {
                "nargs": action.get("nargs"), "choices": action.get("choices"),
            }
            real.add_argument(*action["flags"], dest=action["dest"], **more)
    read, unknown = real.parse_known_args(list(planned(args, engine, build(release)).argv[3:]))
    assert [] == unknown
    assert ("/models/glm", "0.88") == (read.model_path, read.mem_fraction_static)


OLD = {"nsa_prefill_backend": "flashmla_auto", "nsa_decode_backend": "flashmla_kv", "kv_cache_dtype": "fp8_e4m3"}
NEW = {"dsa_prefill_backend": "trtllm", "dsa_decode_backend": "trtllm", "kv_cache_dtype": "bfloat16"}


def test_what_runs_is_read_by_intent_from_old_and_new_names(engine: Engine) -> None:
    old = {"sparse-prefill": "flashmla_auto", "sparse-decode": "flashmla_kv", "kv-cache-dtype": "fp8_e4m3"}
    assert old == effective(OLD, engine)
    new = {"sparse-prefill": "trtllm", "sparse-decode": "trtllm", "kv-cache-dtype": "bfloat16"}
    assert new == effective({**NEW, "attention_backend": None, "unheard_of": 1}, engine)


OVERRIDDEN: list[tuple[dict[str, ArgValue], dict[str, Any], tuple[Override, ...]]] = [
    ({"sparse-decode": "flashmla_sparse"}, NEW, (Override("sparse-decode", "flashmla_sparse", "trtllm"),)),
    ({"nsa-decode-backend": "fa3"}, OLD, (Override("sparse-decode", "fa3", "flashmla_kv"),)),
    ({"sparse-decode": "trtllm", "kv-cache-dtype": "bf16"}, NEW, ()),
    ({"kv-cache-dtype": "auto"}, OLD, ()),
    ({"fp8-gemm": "cutlass"}, OLD, ()),
    ({"fp4-gemm": "auto", "fp8-gemm": "triton"}, {"fp8_gemm_runner_backend": "deep_gemm"},
     (Override("fp8-gemm", "triton", "deep_gemm"),)),
    ({"graphs-off": True, "static-memory": "0.9"}, {"disable_cuda_graph": False, "mem_fraction_static": 0.88}, ()),
    ({"shared-experts-fusion-off": True}, {"disable_shared_experts_fusion": True}, ()),
    ({"attention": "dsa"}, {"attention_backend": "nsa"}, ()),
    ({"tp-size": 8}, {"tp_size": 4}, ()),
]


@pytest.mark.parametrize(("asked", "server_info", "expected"), OVERRIDDEN)
def test_a_server_that_runs_with_something_else_is_found_out(
    engine: Engine, asked: dict[str, ArgValue], server_info: dict[str, Any], expected: tuple[Override, ...]
) -> None:
    assert expected == overridden(asked, server_info, engine)
