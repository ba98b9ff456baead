"""What a simulated host does: its release, its speed, which settings lead to which fault, and how the run must end.

The simulated server (tasks/rehearsal/) reads the same file without this model, to start fast; this model is what
makes a mistake in a story a sentence.
"""

import math
import re
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from settings.engine import load_engine
from settings.ladder import Ladder
from settings.source import BadInput, Declared, find, load, nearest
from settings.words import LOG_KINDS, OWN_KINDS, AttemptOutcome, Phase, RunOutcome, Stage

__all__ = ["Expectation", "ExpectedAttempt", "Fault", "Pace", "Slower", "Story", "ladder_of", "load_story"]

# Releases whose parser is recorded, and tracebacks that are: the files of these names in tasks/rehearsal/site/sglang/.
Release = Literal["0.5.8.post1", "0.5.9", "0.5.10.post1", "0.5.17", "0.5.23"]
Trace = Literal[
    "bare-assert", "device-assert", "graph-oom", "kv-pool-oom", "multinomial", "nan-check", "no-page-table",
    "out-of-memory", "query-key-dtype",
]
Wanted = bool | int | float | str
_BOUND = re.compile(r"[<>]=?")


def _can_be_met(when: dict[str, Any]) -> dict[str, Any]:
    """Each key is a setting of some release, and each bound a number."""
    for key, wanted in when.items():
        if key not in _settings():
            hint = nearest(key, _settings())
            raise ValueError(f"no release has a setting '{key}'" + (f"; did you mean '{hint}'?" if hint else ""))
        for value in wanted if isinstance(wanted, tuple) else (wanted,):
            sign = _BOUND.match(value) if isinstance(value, str) else None
            if sign and not _is_number(value[sign.end() :]):
                raise ValueError(f"{key}: '{value}' compares with no number")
    return when


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


@cache
def _settings() -> frozenset[str]:
    """Names in /server_info: those of the flags, and the two that stand for a name that changed."""
    flags = {flag.removeprefix("--").replace("-", "_") for flag in load_engine("sglang").flags}
    return frozenset({*flags, "prefill_backend", "decode_backend"})


When = Annotated[dict[str, Wanted | tuple[Wanted, ...]], AfterValidator(_can_be_met)]


class Pace(Declared):
    """Simulated seconds of each phase; absent = the stand-in's own. Divided by `speed` they are real seconds."""

    import_s: float | None = Field(None, ge=0, description="until the schedulers say their first word")
    init_s: float | None = Field(None, ge=0, description="making the process groups")
    load_s: float | None = Field(None, ge=0, description="reading the weights")
    kv_alloc_s: float | None = Field(None, ge=0, description="allocating the KV pool")
    capture_s: float | None = Field(None, ge=0, description="capturing graphs")
    bind_s: float | None = Field(None, ge=0, description="from ready schedulers to an open port")
    warmup_s: float | None = Field(None, ge=0, description="from the open port to /health 200")
    token_s: float | None = Field(None, ge=0, description="one forward pass")
    per_request_s: float | None = Field(None, ge=0, description="what each running request adds to a forward pass")
    diagnostics_s: float | None = Field(None, ge=0, description="between a crash's cause and the end of the process")
    drain_s: float | None = Field(None, ge=0, description="between SIGTERM and the end of the process")


class Slower(Declared):
    """Settings that change the time of a forward pass. The first that fits counts."""

    when: When = Field(min_length=1, description="effective settings, as in a fault")
    by: float = Field(gt=0, description="factor on the time of a forward pass; below 1 is faster")


class Fault(Declared):
    """One thing that goes wrong, for the settings that it applies to. The first that fits a point counts there."""

    why: str = Field(min_length=1, description="what this stands for, for a person")
    at: Literal["load", "kv_alloc", "graph_capture", "bind", "warmup", "decode", "under_load", "after_load"] = Field(
        description="where it shows; decode = the first request after the warm-up (for nan: already the warm-up)"
    )
    when: When = Field(
        {},
        description=(
            "effective settings that it needs, as /server_info names them; prefill_backend and decode_backend stand "
            'for nsa_… or dsa_…; ">=0.9" compares numbers; a list means one of these'
        ),
    )
    does: Literal["die", "nan", "wrong", "hang", "stranger"] = Field(
        description="die; logits turn NaN; fluent, and sums above nine are wrong; go silent; a stranger takes the port"
    )
    trace: Trace | None = Field(None, description="what a dying engine logs; absent = only the envelopes")
    reply: Literal["empty", "bang", "mixed"] = Field(
        "empty", description='what token 0 is: the end token, or "!"; mixed: NaN made finite, words of all scripts'
    )
    after_requests: int = Field(
        0, ge=0, description="under_load, after_load: not before so many requests ran beside others"
    )
    from_request: int = Field(0, ge=0, description="nan: only from this request on, the build's warm-up not counted")
    from_prompt_tokens: int = Field(0, ge=0, description="nan: only where the prompt has so many tokens or more")
    from_token: int = Field(0, ge=0, description="nan: only from this token of an answer on")
    from_batch: int = Field(0, ge=0, description="nan: only while so many requests or more run at once")

    @model_validator(mode="after")
    def _is_possible(self) -> "Fault":
        if (self.does == "stranger") != (self.at == "bind"):
            raise ValueError("does = 'stranger' and at = 'bind' need each other")
        if self.does == "nan" and self.at not in ("decode", "under_load", "after_load"):
            raise ValueError(f"does = 'nan' shows at 'decode', 'under_load' or 'after_load', not at '{self.at}'")
        if self.does == "wrong" and self.at != "decode":
            raise ValueError(f"does = 'wrong' shows at 'decode', not at '{self.at}'")
        if self.does != "nan" and (self.from_request or self.from_prompt_tokens or self.from_token or self.from_batch):
            raise ValueError("from_… narrows does = 'nan'")
        if self.at == "after_load" and self.does != "nan":
            raise ValueError("only does = 'nan' can wait for 'after_load'")
        if self.trace and self.does != "die":
            raise ValueError("`trace` is what a dying engine logs: it needs does = 'die'")
        return self


class ExpectedAttempt(Declared):
    """What one attempt of the run must have come to; None = not looked at."""

    rung: str = Field(description="the rung it was on")
    outcome: AttemptOutcome = Field(AttemptOutcome.FAILED, description="how it ended")
    kind: str | None = Field(None, description="kind of its diagnosis")
    stage: Stage | None = Field(None, description="our step that failed")
    move: Literal["goto", "next", "remedy", "retry", "stop", "vary"] | None = Field(
        None, description="the move after it"
    )


class Expectation(Declared):
    outcome: RunOutcome = Field(description="how the run must end")
    trail: tuple[ExpectedAttempt, ...] = Field(description="the attempts in order, skipped ones included", min_length=1)
    halt: Literal["rung", "edge", "guard", "budget"] | None = Field(None, description="who must have decided the end")


class Story(Declared):
    """A simulated host, from its build to the end that a run on it must come to."""

    why: str = Field(min_length=1, description="what is rehearsed, for a person")
    release: Release = Field(description="the SGLang release that the host has")
    speed: float = Field(gt=0, description="simulated seconds per real second")
    ladder: str = Field("glm5-sm120", description="the ladder of the expectation; a path is relative to this file")
    quiet_s: dict[Phase, float] = Field(
        {}, description="real seconds of silence to believe in, in place of the engine file's: a story is in a hurry"
    )
    pace: Pace = Field(Pace(), description="simulated seconds of the phases")
    slower: tuple[Slower, ...] = Field((), description="what the settings do to its speed")
    fault: tuple[Fault, ...] = Field((), description="what goes wrong")
    expect: Expectation = Field(description="what a run must make of it")


def ladder_of(name: str, story: Story) -> str:
    """The story's ladder as a run takes it: a shipped name, or a path beside the story."""
    if not story.ladder.endswith(".toml"):
        return story.ladder
    return str(find("rehearsals", name).resolve().parent / story.ladder)


def load_story(name: str) -> Story:
    """The story called `name` in settings/rehearsals/, or at that path. Raises: BadInput."""
    path = find("rehearsals", name)
    story = load(Story, path)
    rungs = load(Ladder, find("ladders", ladder_of(name, story))).rung
    for i, stated in enumerate(story.expect.trail):
        if stated.rung not in rungs:
            said = f"the ladder {story.ladder} has no rung '{stated.rung}'"
            raise BadInput(path, f"expect.trail.{i}.rung", said, nearest(stated.rung, rungs))
        if stated.kind is not None and stated.kind not in LOG_KINDS | OWN_KINDS:
            said = f"there is no kind '{stated.kind}'"
            raise BadInput(path, f"expect.trail.{i}.kind", said, nearest(stated.kind, LOG_KINDS | OWN_KINDS))
    return story
