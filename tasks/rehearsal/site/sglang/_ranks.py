"""What the rank processes have in common: who they are, what they share, and what they say when they die."""

import signal
import socket
from dataclasses import dataclass, field
from typing import NoReturn

from sglang._effective import Resolved
from sglang._log import SITE, log, plain, trace
from sglang._story import Fault

__all__ = ["OLD", "Crash", "Pipes", "Rank", "Request", "asserted", "hang", "raised", "text_of"]

OLD = ("0.5.8.post1", "0.5.9", "0.5.10.post1")  # releases whose log lines are of the older kind
_ASSERTION = (
    "/pytorch/aten/src/ATen/native/cuda/TensorCompare.cu:112: _assert_async_cuda_kernel: block: [0,0,0], "
    "thread: [{n},0,0] Assertion `{said}` failed.\n"
)


@dataclass(frozen=True, slots=True)
class Pipes:
    """What the ranks share: rank 0 talks to the server, and tells the other ranks when it dies."""

    server: socket.socket
    last_words: tuple[int, int]


@dataclass(slots=True)
class Request:
    rid: str
    prompt_tokens: int
    new_tokens: int  # until a healthy model ends its answer
    max_tokens: int
    ignore_eos: bool
    sampled: bool
    warmup: bool
    nth: int = 0  # among those that are not the warm-up
    done: int = 0

    def ends(self, reply: str) -> bool:
        """After the newest token. A row of NaN gives token 0: the end token ("empty"), or `!`, which ends nothing."""
        if reply == "empty" and not self.ignore_eos:
            return True
        return self.done >= (self.new_tokens if reply == "ok" else self.max_tokens)


@dataclass(slots=True)
class Rank:
    """What one rank knows of itself."""

    n: int
    setup: Resolved
    pipes: Pipes
    size: int
    nan: Fault | None = None
    running: dict[str, Request] = field(default_factory=dict)
    served: int = 0  # requests that were not the warm-up
    beside_others: int = 0
    idle_since: float = 0.0
    steps: int = 0
    warned: bool = False
    weights_gb: float = 0.0

    @property
    def name(self) -> str:
        return f"TP{self.n}" if self.size > 1 else ""

    def say(self, message: str) -> None:
        log(message, self.name)

    def reply_to(self, request: Request) -> str:
        """What the next token of this request is drawn from: "ok", or a row of NaN of the fault's kind."""
        fault = self.nan
        if fault is None:
            return "ok"
        meets = (
            request.nth >= fault.from_request
            and request.prompt_tokens >= fault.from_prompt_tokens
            and request.done + 1 >= fault.from_token
            and len(self.running) >= fault.from_batch
        )
        return fault.reply if meets else "ok"


class Crash(Exception):
    """An exception inside the engine, as the text that its log shows; `trace` names the text that other ranks show."""

    def __init__(self, text: str, trace: str = "") -> None:
        self.trace = trace
        super().__init__(text)


def hang() -> NoReturn:
    while True:
        signal.pause()


def text_of(fault: Fault) -> str:
    if fault.trace == "device-assert":
        return asserted("probability tensor contains either `inf`, `nan` or element < 0")
    return trace(fault.trace) if fault.trace else ""


def asserted(said: str) -> str:
    """What the device prints by itself, and the traceback of whoever reads its results next."""
    for n in range(4):
        plain(_ASSERTION.format(n=n, said=said))
    return trace("device-assert")


def raised(where: str, error: str) -> str:
    """A traceback of its own for an error that no recorded one shows: the outermost frame, and the one that raised."""
    outer = "\n".join(trace("kv-pool-oom").splitlines()[:4])
    return f'{outer}\n  File "{SITE}/sglang/srt/{where}\n{error}\n'
