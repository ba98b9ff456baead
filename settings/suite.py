"""Decode suites and load profiles: which requests a rung must answer well, and what load it must bear."""

import math
from functools import partial
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from settings.sane import check_name
from settings.source import Declared

__all__ = ["Api", "BenchProfile", "DecodeSuite", "Probe"]

Api = Literal["generate", "chat", "completions"]


class Probe(Declared):
    """One question to the served API, or the same several times or many at once. They run in file order."""

    id: str = Field(min_length=1, pattern=r"^[a-z0-9][a-z0-9.-]*$", description="name in the record")
    api: Api = Field("generate", description="endpoint: /generate, /v1/chat/completions or /v1/completions")
    prompt: str | None = Field(None, description="the text to send")
    prompts: tuple[str, ...] = Field((), description="texts to take in turn, for a batch of mixed lengths")
    prompt_tokens: int | None = Field(
        None, ge=64, description="tokens of a prompt made for the purpose, with a fact hidden in it"
    )
    at_least_tokens: int | None = Field(
        None, ge=64, description="how far prompt_tokens may shrink to fit the context; absent: not at all"
    )
    expect: tuple[str, ...] = Field((), description="any of these should be in the answer, whatever its case")
    must: bool = Field(True, description="without what is expected it is garbage; false: it counts for accuracy only")
    max_new_tokens: int = Field(32, ge=1, description="tokens to generate")
    ignore_eos: bool = Field(False, description="go on to max_new_tokens; then so many must come")
    temperature: float = Field(0, ge=0, description="0 is greedy")
    own_sampling: bool = Field(False, description="leave sampling to the model's own generation settings")
    top_p: float | None = Field(None, gt=0, le=1, description="nucleus sampling; kills a server of NaN logits")
    repeat: int = Field(1, ge=1, le=32, description="times in a row; greedy answers are compared")
    batch: int = Field(1, ge=1, le=256, description="requests at once")
    stream: bool = Field(False, description="as server-sent events")

    @model_validator(mode="after")
    def _has_one_prompt(self) -> "Probe":
        given = [n for n in ("prompt", "prompts", "prompt_tokens") if getattr(self, n)]
        if len(given) != 1:
            raise ValueError(f"a probe has one of prompt, prompts and prompt_tokens; this one has {given or 'none'}")
        if self.at_least_tokens is not None and self.at_least_tokens > (self.prompt_tokens or 0):
            raise ValueError("at_least_tokens must not exceed prompt_tokens")
        return self


class DecodeSuite(Declared):
    """Requests and how their replies are judged (tasks/pure/judge.py)."""

    why: str = Field(min_length=1, description="what this suite is for")
    judge: Literal["text", "numbers"] = Field(
        "text", description="numbers: for models with random weights, of which no language can be expected"
    )
    min_agreement: float = Field(
        0.0, ge=0, le=1, description="share of equal tokens of greedy repeats on one server, below which it is garbage"
    )
    min_accuracy: float = Field(
        0.5, ge=0, le=1, description="share of expected answers; garbage when its 95 % interval lies below"
    )
    request_s: float = Field(120, gt=0, description="seconds that one request may take")
    probe: tuple[Probe, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _ids_differ(self) -> "DecodeSuite":
        ids = [p.id for p in self.probe]
        for name in ids:
            if ids.count(name) > 1:
                raise ValueError(f"two probes are called '{name}'")
        return self


class BenchProfile(Declared):
    """One load of the build's own bench_serving. Token counts are per request."""

    name: Annotated[str, AfterValidator(partial(check_name, "profile"))] = Field(
        description="name in the record, e.g. 1k1k"
    )
    why: str = Field(min_length=1, description="what this load stands for")
    dataset: Literal["random-ids", "sharegpt"] = Field(
        "random-ids", description="random-ids needs no download; sharegpt needs dataset_path"
    )
    dataset_path: str | None = Field(None, description="a local ShareGPT file on the host")
    input_tokens: int = Field(ge=1, description="prompt length")
    output_tokens: int = Field(ge=1, description="answer length, forced with ignore_eos")
    range_ratio: str = Field("1.0", pattern=r"^(0(\.\d+)?|1(\.0+)?)$", description="1.0: lengths are equal")
    prompts: int = Field(ge=1, description="requests in all")
    concurrency: int = Field(ge=1, description="requests at once")
    warmup_requests: int = Field(1, ge=0, description="requests before the clock starts; they are in no figure")
    seed: int = Field(42, description="seed of the prompts")
    wall_s: float = Field(600, gt=0, description="seconds that the whole run may take")
    tokenizer: str | None = Field(None, description="tokenizer path on the host; default: the model's own")

    @model_validator(mode="after")
    def _has_its_file(self) -> "BenchProfile":
        if self.dataset == "sharegpt" and not self.dataset_path:
            raise ValueError("the sharegpt dataset needs dataset_path: without it bench_serving downloads one")
        return self

    def at(self, concurrency: int) -> "BenchProfile":
        """The same load with so many requests at once, and as many prompts per slot."""
        prompts = max(concurrency, math.ceil(self.prompts * concurrency / self.concurrency))
        return self.model_copy(update={"concurrency": concurrency, "prompts": prompts})
