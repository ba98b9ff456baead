"""What the simulated host does: the story, read without its checks (settings/story.py makes those) to start fast."""

import os
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["STORY", "Fault", "Story", "holds", "pause"]

# Simulated seconds of each phase, about those of the CPU runs; a story may change any of them.
PACE = {
    "import_s": 0.5,
    "init_s": 0.5,
    "load_s": 3.0,
    "kv_alloc_s": 0.2,
    "capture_s": 2.0,
    "bind_s": 0.2,
    "warmup_s": 0.5,
    "token_s": 0.01,
    "per_request_s": 0.0,
    "diagnostics_s": 5.0,
    "drain_s": 1.0,
}
_ALIASES = {
    "prefill_backend": ("nsa_prefill_backend", "dsa_prefill_backend"),
    "decode_backend": ("nsa_decode_backend", "dsa_decode_backend"),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong, and when. The words are those of settings/story.py, where they are explained."""

    at: str
    does: str
    when: Mapping[str, Any] = field(default_factory=dict)
    trace: str = ""
    reply: str = "empty"
    after_requests: int = 0
    from_request: int = 0
    from_prompt_tokens: int = 0
    from_token: int = 0
    from_batch: int = 0


@dataclass(frozen=True, slots=True)
class Story:
    release: str
    speed: float
    pace: Mapping[str, float]
    faults: tuple[Fault, ...]
    slower: tuple[Mapping[str, Any], ...] = ()

    def forward_s(self, effective: Mapping[str, Any], running: int) -> float:
        """Simulated seconds of one forward pass."""
        for change in self.slower:
            if all(holds(want, _value(effective, key)) for key, want in change["when"].items()):
                factor = float(change["by"])
                break
        else:
            factor = 1.0
        return factor * (float(self.pace["token_s"]) + running * float(self.pace["per_request_s"]))

    def at(self, point: str, effective: Mapping[str, Any]) -> Fault | None:
        """The first fault at this point that the effective arguments meet."""
        for fault in self.faults:
            if fault.at == point and all(holds(want, _value(effective, key)) for key, want in fault.when.items()):
                return fault
        return None


def holds(want: Any, value: Any) -> bool:
    """Whether a value is the one wanted. Text like ">= 0.9" compares numbers; a list means: one of these."""
    if isinstance(want, list):
        return any(holds(one, value) for one in want)
    if isinstance(want, str) and want[:1] in "<>":
        sign = want[:2] if want[1:2] == "=" else want[:1]
        have, bound = float(value), float(want[len(sign):])
        return {">=": have >= bound, "<=": have <= bound, ">": have > bound, "<": have < bound}[sign]
    return bool(want == value)


def pause(simulated_s: float) -> None:
    """Sleep so many simulated seconds."""
    time.sleep(simulated_s / STORY.speed)


def _value(effective: Mapping[str, Any], key: str) -> Any:
    for name in _ALIASES.get(key, (key,)):
        if name in effective:
            return effective[name]
    raise SystemExit(f"rehearsal: the story asks for '{key}', which release {STORY.release} does not have")


def _read() -> Story:
    path = os.environ.get("REHEARSAL_STORY")
    if not path:
        raise SystemExit("rehearsal: REHEARSAL_STORY names no story file")
    raw = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    faults = tuple(
        Fault(**{key: value for key, value in fault.items() if key != "why"}) for fault in raw.get("fault", ())
    )
    pace, slower = {**PACE, **raw.get("pace", {})}, tuple(raw.get("slower", ()))
    return Story(raw["release"], float(raw["speed"]), pace, faults, slower)


STORY = _read()
