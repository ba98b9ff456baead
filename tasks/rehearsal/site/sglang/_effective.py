"""What the release makes of its arguments for GLM-5 on SM120: the effective settings, and what it says meanwhile."""

import json
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sglang._story import STORY

__all__ = ["GPU_MIB", "ConfigError", "Resolved", "resolve"]

GPU_MIB = 97_887
_SM_MAJOR = 12
_OLD = ("0.5.8.post1", "0.5.9", "0.5.10.post1")
# (prefill, decode) that a release picks when nothing was asked; Source: the releases' own tables for SM120 and GLM-5.
_FP8 = {
    "0.5.8.post1": ("flashmla_auto", "flashmla_kv"),
    "0.5.9": ("flashmla_auto", "flashmla_kv"),
    "0.5.10.post1": ("trtllm", "trtllm"),
    "0.5.17": ("flashinfer_sparse_mla", "flashinfer_sparse_mla"),
    "0.5.23": ("flashinfer_sparse_mla", "flashinfer_sparse_mla"),
}
_BF16 = {"0.5.8.post1": ("flashmla_sparse", "flashmla_sparse")}
# These overwrite what the user asked for, without an error.
_FORCED = {("0.5.8.post1", "fp8_e4m3"), ("0.5.8.post1", "bfloat16"), ("0.5.10.post1", "fp8_e4m3")}

# Flags whose parsed name is not the name of the setting.
_FIELDS = {
    "tensor_parallel_size": "tp_size",
    "pipeline_parallel_size": "pp_size",
    "data_parallel_size": "dp_size",
    "expert_parallel_size": "ep_size",
}


class ConfigError(Exception):
    """The release refuses its configuration before it loads anything: traceback, exit 1."""


@dataclass(frozen=True, slots=True)
class Resolved:
    effective: dict[str, Any]
    said: tuple[str, ...]
    model: dict[str, Any]

    @property
    def is_dsa(self) -> bool:
        return "index_topk" in self.model

    @property
    def context(self) -> int:
        return int(self.effective["context_length"] or self.model["max_position_embeddings"])

    @property
    def refused_backends(self) -> str | None:
        """What attention initialisation of newer releases says when the KV dtype and the backends do not fit."""
        choosy = STORY.release in ("0.5.17", "0.5.23") and self.is_dsa
        if not choosy or self.effective["kv_cache_dtype"] != "fp8_e4m3":
            return None
        got = [self.effective["dsa_prefill_backend"], self.effective["dsa_decode_backend"]]
        if set(got) == {"flashinfer_sparse_mla"} or got == ["triton_sparse_mla", "flashinfer_sparse_mla"]:
            return None
        return (
            "GLM DSA with FP8 KV cache on NVIDIA SM120/SM121 supports only flashinfer_sparse_mla (default) or "
            f"triton_sparse_mla (prefill), but got {got}"
        )


def resolve(asked: Namespace) -> Resolved:
    """Effective settings. Raises: ConfigError."""
    args = {_FIELDS.get(key, key): value for key, value in vars(asked).items() if key not in ("help", "config")}
    config = Path(args["model_path"]) / "config.json"
    if not config.is_file():
        raise ConfigError(
            "OSError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': "
            f"'{args['model_path']}'. Use `repo_type` argument if needed."
        )
    model = json.loads(config.read_text(encoding="utf-8"))
    said: list[str] = []
    args["tokenizer_path"] = args["tokenizer_path"] or args["model_path"]
    args["served_model_name"] = args["served_model_name"] or args["model_path"]
    args["device"] = args.get("device") or "cuda"
    args["random_seed"] = args["random_seed"] if args["random_seed"] is not None else 383_149_338
    args["sampling_backend"] = args["sampling_backend"] or "flashinfer"
    args["grammar_backend"] = args["grammar_backend"] or "xgrammar"
    args["chunked_prefill_size"] = args["chunked_prefill_size"] or 8192
    _context(args, model)
    if "index_topk" in model:
        _sparse_attention(args, model, said)
    if args["mem_fraction_static"] is None:
        args["mem_fraction_static"] = _static_fraction(args)
    return Resolved(args, tuple(said), model)


def _context(args: dict[str, Any], model: dict[str, Any]) -> None:
    longest = model["max_position_embeddings"]
    if args["context_length"] is not None and args["context_length"] > longest:
        raise ConfigError(
            f"ValueError: User-specified context_length ({args['context_length']}) is greater than the derived "
            f"context_length ({longest}). This may lead to incorrect model outputs or CUDA errors."
        )


def _sparse_attention(args: dict[str, Any], model: dict[str, Any], said: list[str]) -> None:
    word = "nsa" if STORY.release in _OLD else "dsa"
    args["attention_backend"] = args["attention_backend"] or word
    said.append(f"Use {word} attention backend for DeepSeek with DSA.")
    args["page_size"] = 64
    said.append("Setting page size to 64 for DeepSeek DSA.")
    said.append(
        f"Set dense attention kv len threshold to model index_topk={model['index_topk']} for DeepSeek with DSA."
    )
    if args["kv_cache_dtype"] == "auto":
        args["kv_cache_dtype"] = "fp8_e4m3"
        said.append(f"Setting KV cache dtype to fp8_e4m3 for DeepSeek DSA on SM{_SM_MAJOR} device.")
    if args["kv_cache_dtype"] == "bf16":
        args["kv_cache_dtype"] = "bfloat16"
    dtype = args["kv_cache_dtype"]
    if dtype not in ("bfloat16", "fp8_e4m3"):
        raise ConfigError("AssertionError: DeepSeek DSA only supports bf16/bfloat16 or fp8_e4m3 kv_cache_dtype")
    table, usual = (_FP8, ("", "")) if dtype == "fp8_e4m3" else (_BF16, ("flashmla_sparse", "trtllm"))
    prefill, decode = f"{word}_prefill_backend", f"{word}_decode_backend"
    if "triton" in (args[prefill], args[decode]):
        raise ConfigError(
            "ValueError: DSA backend is only supported on ROCm/HIP. Pick an alternative DSA backend for CUDA "
            "(flashmla_kv on Hopper, trtllm on Blackwell)."
        )
    for key, pick in zip((prefill, decode), table.get(STORY.release, usual), strict=True):
        if args[key] is None or (STORY.release, dtype) in _FORCED:
            args[key] = pick
    said.append(
        f"Set {word.upper()} backends for {dtype} KV Cache: prefill={args[prefill]}, decode={args[decode]}."
    )


def _static_fraction(args: dict[str, Any]) -> float:
    reserved = 512 + 1.5 * max(args["chunked_prefill_size"], 2048) + args["tp_size"] * args["pp_size"] / 8 * 1024
    return round((GPU_MIB - max(reserved, 10_240)) / GPU_MIB, 3)
