"""What a build picks by itself and what it refuses: the tables of the engine file, read the way a plan reads them."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from settings.engine import Engine
from settings.ladder import ArgValue
from tasks.pure.capabilities import Capabilities
from tasks.pure.expect import cannot_serve, expect, proved_release, release_of
from tasks.pure.record import Build

BUILDS = Callable[..., Capabilities]

# release, SM, KV cache asked -> KV cache, prefill, decode. Source: sglang wheels, server_args.py and overrides.py.
PICKS = [
    ("0.5.8.post1", 90, "bfloat16", "flashmla_sparse", "fa3"),
    ("0.5.8.post1", 100, "bfloat16", "flashmla_sparse", "flashmla_sparse"),
    ("0.5.8.post1", 120, "bfloat16", "flashmla_sparse", "flashmla_sparse"),
    ("0.5.8.post1", 90, "fp8_e4m3", "flashmla_auto", "flashmla_kv"),
    ("0.5.8.post1", 120, "fp8_e4m3", "flashmla_auto", "flashmla_kv"),
    ("0.5.9", 90, "bfloat16", "flashmla_sparse", "fa3"),
    ("0.5.9", 100, "bfloat16", "flashmla_sparse", "trtllm"),
    ("0.5.9", 120, "bfloat16", "flashmla_sparse", "trtllm"),
    ("0.5.9", 90, "fp8_e4m3", "flashmla_auto", "flashmla_kv"),
    ("0.5.9", 100, "fp8_e4m3", "flashmla_auto", "flashmla_kv"),
    ("0.5.9", 120, "fp8_e4m3", "flashmla_auto", "flashmla_kv"),
    ("0.5.10.post1", 90, "fp8_e4m3", "flashmla_auto", "flashmla_kv"),
    ("0.5.10.post1", 100, "fp8_e4m3", "trtllm", "trtllm"),
    ("0.5.10.post1", 120, "fp8_e4m3", "trtllm", "trtllm"),
    ("0.5.10.post1", 90, "bfloat16", "flashmla_sparse", "fa3"),
    ("0.5.10.post1", 120, "bfloat16", "flashmla_sparse", "trtllm"),
    ("0.5.12.post1", 90, "fp8_e4m3", "flashmla_kv", "flashmla_kv"),
    ("0.5.12.post1", 100, "fp8_e4m3", "trtllm", "trtllm"),
    ("0.5.12.post1", 121, "fp8_e4m3", "trtllm", "trtllm"),
    ("0.5.17", 90, "fp8_e4m3", "flashmla_kv", "flashmla_kv"),
    ("0.5.17", 103, "fp8_e4m3", "trtllm", "trtllm"),
    ("0.5.17", 120, "fp8_e4m3", "flashinfer_sparse_mla", "flashinfer_sparse_mla"),
    ("0.5.23", 121, "fp8_e4m3", "flashinfer_sparse_mla", "flashinfer_sparse_mla"),
    ("0.5.23", 90, "bfloat16", "flashmla_sparse", "fa3"),
    ("0.5.23", 100, "bfloat16", "flashmla_sparse", "trtllm"),
    ("0.5.23", 120, "bfloat16", "flashmla_sparse", "trtllm"),
]


@pytest.mark.parametrize(("release", "sm", "kv", "prefill", "decode"), PICKS)
def test_the_backends_that_go_with_a_kv_cache(
    engine: Engine, build: BUILDS, release: str, sm: int, kv: str, prefill: str, decode: str
) -> None:
    outlook = expect({"kv-cache-dtype": kv}, engine, build(release, sm))
    assert {"kv-cache-dtype": kv, "sparse-prefill": prefill, "sparse-decode": decode} == outlook.effective


@pytest.mark.parametrize("release", ["0.5.8.post1", "0.5.9", "0.5.10.post1", "0.5.12.post1", "0.5.17", "0.5.23"])
@pytest.mark.parametrize(("sm", "kv"), [(90, "bfloat16"), (100, "fp8_e4m3"), (103, "fp8_e4m3"), (120, "fp8_e4m3")])
def test_the_kv_cache_that_is_picked_where_none_is_asked(
    engine: Engine, build: BUILDS, release: str, sm: int, kv: str
) -> None:
    assert kv == expect({}, engine, build(release, sm)).effective["kv-cache-dtype"]


def test_another_sparse_model_gets_no_glm_backend(engine: Engine, build: BUILDS) -> None:
    there = build("0.5.23", 120, architecture="DeepseekV32ForCausalLM")
    assert "trtllm" == expect({}, engine, there).effective["sparse-decode"]


def test_what_is_asked_on_one_side_is_kept_and_the_other_is_picked(engine: Engine, build: BUILDS) -> None:
    outlook = expect({"sparse-prefill": "triton_sparse_mla"}, engine, build("0.5.23", 120))
    assert ("triton_sparse_mla", "flashinfer_sparse_mla") == (
        outlook.effective["sparse-prefill"], outlook.effective["sparse-decode"],
    )
    assert outlook.doomed is None


BOTH = "flashmla_sparse"
DOOMED: list[tuple[str, int, dict[str, ArgValue], str | None]] = [
    ("0.5.9", 120, {"sparse-decode": BOTH}, None),
    ("0.5.10.post1", 90, {"sparse-decode": BOTH, "kv-cache-dtype": "fp8_e4m3"}, None),
    ("0.5.10.post1", 100, {"sparse-decode": BOTH}, "overwrites sparse-decode = flashmla_sparse with trtllm"),
    ("0.5.10.post1", 120, {"nsa-decode-backend": BOTH}, "overwrites sparse-decode = flashmla_sparse with trtllm"),
    ("0.5.10.post1", 120, {"sparse-decode": BOTH, "kv-cache-dtype": "bf16"}, None),
    ("0.5.10.post1", 120, {"sparse-prefill": "trtllm", "sparse-decode": "trtllm"}, None),
    ("0.5.12.post1", 120, {"sparse-decode": BOTH}, None),
    ("0.5.17", 120, {"sparse-decode": "flashmla_kv"}, "takes flashinfer_sparse_mla only"),
    ("0.5.20", 121, {"sparse-prefill": "flashmla_auto"}, "takes flashinfer_sparse_mla only"),
    ("0.5.23", 120, {"sparse-decode": "trtllm"}, "takes flashinfer_sparse_mla only"),
    ("0.5.23", 120, {"sparse-decode": BOTH, "kv-cache-dtype": "bfloat16"}, None),
    ("0.5.23", 120, {"sparse-decode": "flashinfer_sparse_mla"}, None),
    ("0.5.23", 100, {"sparse-decode": "flashinfer_sparse_mla"}, "is made for SM120"),
    ("0.5.23", 120, {"sparse-decode": "flashinfer_sparse_mla", "kv-cache-dtype": "bf16"}, "needs an FP8 KV cache"),
    ("0.5.23", 90, {"kv-cache-dtype": "fp8_e5m2"}, "bfloat16 or fp8_e4m3 only"),
    ("0.5.23", 90, {"sparse-prefill": "triton"}, "for ROCm only"),
    ("0.5.12.post1", 100, {"sparse-prefill": "tilelang", "sparse-decode": "tilelang"}, "expect a bfloat16 KV cache"),
    ("0.5.17", 100, {"sparse-prefill": "tilelang", "sparse-decode": "tilelang"}, "needs a bfloat16 KV cache"),
    ("0.5.20", 100, {"sparse-decode": "tilelang"}, "needs a bfloat16 KV cache"),
    ("0.5.23", 100, {"sparse-prefill": "tilelang", "sparse-decode": "tilelang"}, None),
    ("0.5.23", 100, {"sparse-prefill": "tilelang"}, "has to do both"),
    ("0.5.23", 100, {"sparse-prefill": "tilelang", "sparse-decode": "tilelang", "kv-cache-dtype": "bf16"}, None),
    ("0.5.23", 90, {"sparse-prefill": "flashmla_sparse_q8"}, None),
    ("0.5.23", 100, {"sparse-prefill": "flashmla_sparse_q8"}, "for SM90 only"),
    ("0.5.23", 90, {"sparse-decode": "flashmla_sparse_q8"}, "for prefill only"),
    ("0.5.23", 90, {"sparse-decode": "fa3", "kv-cache-dtype": "fp8_e4m3"}, "takes no FP8 KV cache"),
    ("0.5.23", 90, {"attention": "flashmla", "kv-cache-dtype": "fp8_e4m3"}, "cannot read the packed FP8 KV cache"),
    ("0.5.23", 90, {"attention": "nsa", "kv-cache-dtype": "fp8_e4m3"}, None),
    ("0.5.23", 90, {"tp-size": 16}, "tp-size 16 needs 16 GPUs, and there are 8"),
]


@pytest.mark.parametrize(("release", "sm", "asked", "why"), DOOMED)
def test_what_the_engine_refuses_is_doomed(
    engine: Engine, build: BUILDS, release: str, sm: int, asked: dict[str, ArgValue], why: str | None
) -> None:
    doomed = expect(asked, engine, build(release, sm)).doomed
    assert doomed is None if why is None else doomed is not None and why in doomed


def test_a_report_about_another_version_is_told_but_dooms_nothing(engine: Engine, build: BUILDS) -> None:
    outlook = expect({"sparse-decode": "trtllm"}, engine, build("0.5.9", 120))
    assert outlook.doomed is None
    assert "#40286" in " ".join(outlook.notes)


def test_a_release_that_does_not_know_the_model_cannot_serve_it(engine: Engine, build: BUILDS) -> None:
    assert "first release that does is 0.5.9" in str(cannot_serve(engine, build("0.5.8.post1")))
    assert [None] * 3 == [cannot_serve(engine, build(r)) for r in ("0.5.9", "0.5.10.post1", "0.5.23")]
    assert cannot_serve(engine, build("0.5.8.post1", architecture="DeepseekV32ForCausalLM")) is None


def test_nothing_is_expected_of_what_is_not_known(engine: Engine, build: BUILDS) -> None:
    assert {} == expect({"sparse-decode": "trtllm"}, engine, build("0.5.23", gpus=0)).effective
    assert {} == expect({}, engine, build("0.5.23", architecture="Qwen3ForCausalLM")).effective


@pytest.mark.parametrize(
    ("release", "proved"),
    [
        ("0.5.8.post1", "0.5.8"), ("0.5.9", "0.5.9"), ("0.5.10.post1", "0.5.10"), ("0.5.12.post1", "0.5.12"),
        ("0.5.17", "0.5.17"), ("0.5.20", "0.5.20"), ("0.5.23", "0.5.22"),
    ],
)
def test_flags_prove_the_release_that_nobody_told(
    engine: Engine, build: BUILDS, release: str, proved: str
) -> None:
    parser = build(release).parser
    assert parser is not None
    assert proved == proved_release(parser, engine)


@pytest.mark.parametrize(
    ("version", "flags_of", "expected"),
    [
        ("0.5.17", "0.5.17", (0, 5, 17)),
        ("0.5.23", "0.5.23", (0, 5, 23)),
        ("0.0.0.dev0+g12", "0.5.23", (0, 5, 22)),
        ("0.5.9", "0.5.20", (0, 5, 20)),
        (None, "0.5.12.post1", (0, 5, 12)),
    ],
)
def test_a_checkout_is_dated_by_its_flags_where_they_know_better(
    engine: Engine, build: BUILDS, version: str | None, flags_of: str, expected: tuple[int, ...]
) -> None:
    there = replace(build(flags_of), build=Build(engine="sglang", version=version))
    assert expected == release_of(engine, there)
    assert cannot_serve(engine, there) is None


def test_a_build_without_version_and_flags_has_no_release(engine: Engine, build: BUILDS) -> None:
    there = replace(build("0.5.23"), build=Build(engine="sglang"), parser=None)
    assert release_of(engine, there) is None
    assert {"kv-cache-dtype": "fp8_e4m3"} == expect({}, engine, there).effective
