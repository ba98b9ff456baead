"""One scheduler process per rank: it loads, allocates, captures, then draws tokens, or dies of the story's fault."""

import json
import os
import select
import signal
import socket
import time
from dataclasses import dataclass, field
from typing import Any, NoReturn

from sglang._effective import GPU_MIB, Resolved
from sglang._log import SITE, bar, log, plain, trace
from sglang._process import become
from sglang._story import STORY, Fault, pause

__all__ = ["Pipes", "run_scheduler_process"]

_OLD = ("0.5.8.post1", "0.5.9", "0.5.10.post1")
_GIB = 1024.0
_WORD = 32  # bytes of a trace's name in the pipe
_IDLE_S = 0.1  # without a request for so long, the load is over
_TOTAL_GB = GPU_MIB / _GIB
_ASSERTION = (
    "/pytorch/aten/src/ATen/native/cuda/TensorCompare.cu:112: _assert_async_cuda_kernel: block: [0,0,0], "
    "thread: [{n},0,0] Assertion `{said}` failed.\n"
)
_ADVICE = """
Fail when using backend: breakable for prefill runner.
Possible suggestions:
1. disable the prefill CUDA graph by --cuda-graph-backend-prefill=disabled
2. if it is an OOM problem, set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7) or set \
--cuda-graph-max-bs-prefill to a smaller value (e.g., 2048)
Open an issue on GitHub https://github.com/sgl-project/sglang/issues/new/choose
"""


@dataclass(frozen=True, slots=True)
class Pipes:
    """What the ranks share: rank 0 talks to the server, and tells the other ranks when it dies."""

    server: socket.socket
    last_words: tuple[int, int]


@dataclass(slots=True)
class _Request:
    rid: str
    prompt_tokens: int
    new_tokens: int  # until a healthy model ends its answer
    max_tokens: int
    ignore_eos: bool
    sampled: bool
    warmup: bool
    done: int = 0

    def ends(self, reply: str) -> bool:
        """After the newest token. A row of NaN gives token 0: the end token ("empty"), or `!`, which ends nothing."""
        if reply == "empty" and not self.ignore_eos:
            return True
        return self.done >= (self.new_tokens if reply == "ok" else self.max_tokens)


@dataclass(slots=True)
class _Rank:
    """What one rank knows of itself."""

    n: int
    setup: Resolved
    pipes: Pipes
    size: int
    nan: Fault | None = None
    running: dict[str, _Request] = field(default_factory=dict)
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


class _Crash(Exception):
    """An exception inside the engine, as the text that its log shows; `trace` names the text that other ranks show."""

    def __init__(self, text: str, trace: str = "") -> None:
        self.trace = trace
        super().__init__(text)


def run_scheduler_process(rank: int, setup: Resolved, pipes: Pipes, parent: int) -> NoReturn:
    """The whole life of a rank. Never returns."""
    me = _Rank(rank, setup, pipes, int(setup.effective["tp_size"]))
    become(f"sglang::scheduler_TP{rank}" if me.size > 1 else "sglang::scheduler", parent)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGQUIT, signal.SIGTERM))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _start(me)
        if rank == 0:
            _serve(me)
        _wait_for_the_end(me)
    except _Crash as crash:
        if rank == 0 and me.running:
            os.write(pipes.last_words[1], crash.trace.encode().ljust(_WORD) * (me.size - 1))
        if str(crash):
            me.say(f"Scheduler hit an exception: {crash}")
        os.kill(parent, signal.SIGQUIT)
        os._exit(0)


def _wait_for_the_end(me: _Rank) -> NoReturn:
    """Another rank than the first has nothing to say, until rank 0 dies of something that all of them met."""
    name = os.read(me.pipes.last_words[0], _WORD).decode().strip()
    raise _Crash(trace(name) if name else "")


def _start(me: _Rank) -> None:
    args, pace = me.setup.effective, STORY.pace
    pause(pace["import_s"])
    if STORY.release == "0.5.23":
        me.say("Init parallel begin.")
        pause(pace["init_s"])
        me.say(f"Init parallel ends. elapsed={pace['init_s']:.2f} s")
        me.say("Memory baseline taken. mem usage=0.00 GB")
    else:
        me.say("Init torch distributed begin.")
        pause(pace["init_s"])
        me.say(f"Init torch distributed ends. elapsed={pace['init_s']:.2f} s, mem usage=0.11 GB")
    if me.setup.refused_backends:
        raise _Crash(_raised(
            'layers/attention/dsa_backend.py", line 369, in __init__', f"ValueError: {me.setup.refused_backends}"
        ))
    weights = me.weights_gb = me.setup.model["rehearsal"]["weights_gb"] / me.size
    me.say(f"Load weight begin. avail mem={_TOTAL_GB - 0.6:.2f} GB")
    _meet(me, "load")
    if weights > _TOTAL_GB - 0.6:
        raise _Crash(_raised(
            'model_executor/model_runner.py", line 1290, in load_model',
            f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU {me.n} has a total capacity "
            "of 94.97 GiB of which 1.02 GiB is free.",
        ))
    _load_shards(me)
    kind = me.setup.model["architectures"][0]
    quant = "dtype=torch.bfloat16, " if STORY.release in _OLD else ""
    left = _TOTAL_GB - 0.6 - weights
    me.say(
        f"Load weight end. elapsed={pace['load_s']:.2f} s, type={kind}, {quant}avail mem={left:.2f} GB, "
        f"mem usage={weights:.2f} GB."
    )
    if args["kv_cache_dtype"] == "fp8_e4m3":
        me.say("Using FP8 KV cache but no scaling factors provided. Defaulting to scaling factors of 1.0.")
    left = _allocate(me, weights, left)
    left = _capture(me, left)
    if me.n == 0:
        context = me.setup.context
        me.say(
            f"max_total_num_tokens={_kv_tokens(me, weights)}, chunked_prefill_size={args['chunked_prefill_size']}, "
            f"max_prefill_tokens={args['max_prefill_tokens']}, max_running_requests={_max_running(me)}, "
            f"context_len={context}, available_gpu_mem={left:.2f} GB"
        )
    if STORY.release == "0.5.23":
        me.say("Init Unified Radix Cache. Components: (<ComponentType.FULL: 0>,). Tree Core: RustUnifiedTreeCore")
        me.say(
            "Tree cache initialized: source=default impl=UnifiedRadixCache hybrid_swa=False hybrid_ssm=False "
            "hicache_attached=False"
        )


def _load_shards(me: _Rank) -> None:
    total = int(me.setup.model["rehearsal"]["shards"])
    title = "Loading safetensors checkpoint shards:" if STORY.release in _OLD else "Multi-thread loading shards:"
    redraws, begun = 12, time.monotonic()
    if me.n == 0:
        plain("\n")
        bar(title, 0, total, 0.0)
    for step in range(1, redraws + 1):
        pause(STORY.pace["load_s"] / redraws)
        if me.n == 0:
            bar(title, total * step // redraws, total, time.monotonic() - begun)
    if me.n == 0:
        plain("\n")


def _token_bytes(me: _Rank) -> float:
    layers = int(me.setup.model["num_hidden_layers"])
    row = 656 if me.setup.effective["kv_cache_dtype"] == "fp8_e4m3" else 1152
    return layers * (row + 132) / _GIB**3


def _kv_tokens(me: _Rank, weights: float) -> int:
    budget = _TOTAL_GB * float(me.setup.effective["mem_fraction_static"]) - weights
    fits = int(budget / _token_bytes(me)) // 64 * 64
    return min(fits, int(me.setup.effective["max_total_tokens"] or fits))


def _max_running(me: _Rank) -> int:
    return int(me.setup.effective["max_running_requests"] or 2048)


def _allocate(me: _Rank, weights: float, left: float) -> float:
    _meet(me, "kv_alloc")
    tokens = _kv_tokens(me, weights)
    if tokens <= 0:
        raise _Crash(_raised(
            'model_executor/pool_configurator.py", line 96, in configure',
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: "
            f"mem_fraction_static={me.setup.effective['mem_fraction_static']}",
        ))
    pause(STORY.pace["kv_alloc_s"])
    size = tokens * _token_bytes(me)
    dtype = {"fp8_e4m3": "torch.float8_e4m3fn"}.get(me.setup.effective["kv_cache_dtype"], "torch.bfloat16")
    me.say(f"KV Cache is allocated. dtype: {dtype}, #tokens: {tokens}, KV size: {size:.2f} GB")
    me.say(f"Memory pool end. avail mem={left - size:.2f} GB")
    return left - size


def _capture(me: _Rank, left: float) -> float:
    """Prefill (newer releases) and decode graphs. Gives the memory that is left in GB."""
    args = me.setup.effective
    if args["disable_cuda_graph"]:
        return left
    share = STORY.pace["capture_s"] / 2
    if STORY.release in _OLD:
        me.say(f"Capture cuda graph begin. This can take up to several minutes. avail mem={left:.2f} GB")
        me.say("Capture cuda graph bs [1, 2, 4, 8]")
        _meet(me, "graph_capture", left)
        _bars(me, "Capturing batches", "bs", (8, 4, 2, 1), 2 * share, left)
        left -= 1.77
        me.say(f"Capture cuda graph end. Time elapsed: {2 * share:.2f} s. mem usage=1.77 GB. avail mem={left:.2f} GB.")
        return left
    if not (args["disable_prefill_cuda_graph"] or args["cuda_graph_backend_prefill"] == "disabled"):
        shapes = (8192, 4096, 2048, 1024, 512, 256, 64, 4)
        me.say(
            f"Capture target prefill CUDA graph begin. backend=breakable, num_tokens={sorted(shapes)}, "
            f"avail mem={left:.2f} GB"
        )
        _meet(me, "graph_capture", left)
        _bars(me, "Capturing prefill shape", "num_tokens", shapes, share, left)
        left -= 1.77
        me.say(
            f"Capture target prefill CUDA graph end. elapsed={share:.2f} s, mem usage=1.77 GB, avail mem={left:.2f} GB."
        )
    if not (args["disable_decode_cuda_graph"] or args["cuda_graph_backend_decode"] == "disabled"):
        me.say(f"Capture target decode CUDA graph begin. backend=full, num_tokens_per_req=1, avail mem={left:.2f} GB")
        _bars(me, "Capturing batches", "bs", (8, 4, 2, 1), share, left)
        left -= 0.04
        me.say(
            f"Capture target decode CUDA graph end. bs=[1, 2, 4, 8], elapsed={share:.2f} s, mem usage=0.04 GB, "
            f"avail mem={left:.2f} GB."
        )
    return left


def _bars(me: _Rank, title: str, unit: str, shapes: tuple[int, ...], seconds: float, left: float) -> None:
    for done, shape in enumerate(shapes):
        pause(seconds / len(shapes))
        if me.n == 0:
            share, each = (done + 1) / len(shapes), seconds / len(shapes)
            drawn = f"{share * 100:3.0f}%|{'█' * round(share * 10):<10}| {done + 1}/{len(shapes)}"
            plain(
                f"\r{title} ({unit}={shape} avail_mem={left:.2f} GB): {drawn} "
                f"[00:{int(seconds * share):02d}<00:00,  {each:.2f}s/it]"
            )
    if me.n == 0:
        plain("\n")


def _meet(me: _Rank, point: str, left: float = 0.0) -> None:
    """Whatever the story has for this point of the start."""
    fault = STORY.at(point, me.setup.effective)
    if fault is None:
        return
    if fault.does == "hang":
        _hang()
    if fault.trace == "graph-oom" and STORY.release not in _OLD:
        if me.n == 0:
            shape = f"num_tokens=8192 avail_mem={left:.2f} GB"
            plain(f"\rCapturing prefill shape ({shape}):   0%|          | 0/8 [00:00<?, ?it/s]\n")
        me.say(trace("graph-oom").splitlines()[-1].removeprefix("torch.") + _ADVICE)
    raise _Crash(_text_of(fault), fault.trace)


def _raised(where: str, error: str) -> str:
    """A traceback of its own for an error that no recorded one shows: the outermost frame, and the one that raised."""
    outer = "\n".join(trace("kv-pool-oom").splitlines()[:4])
    return f'{outer}\n  File "{SITE}/sglang/srt/{where}\n{error}\n'


def _serve(me: _Rank) -> NoReturn:
    """The event loop: one forward pass per turn, for all running requests at once."""
    channel, inbox = me.pipes.server, b""
    _tell(channel, {"ready": True, "tokens": _kv_tokens(me, me.weights_gb)})
    fault = STORY.at("decode", me.setup.effective)
    me.nan = fault if fault and fault.does == "nan" else None
    me.idle_since = time.monotonic()
    while True:
        readable, _, _ = select.select([channel], [], [], 0 if me.running else None)
        if readable:
            got = channel.recv(1 << 20)
            if not got:
                os._exit(0)
            *lines, inbox = (inbox + got).split(b"\n")
            _admit(me, [json.loads(line) for line in lines])
        if me.running:
            _forward(me, channel)


def _tell(channel: socket.socket, message: dict[str, Any]) -> None:
    channel.sendall(json.dumps(message).encode() + b"\n")


def _admit(me: _Rank, messages: list[dict[str, Any]]) -> None:
    if not messages:
        return
    if not me.running and time.monotonic() - me.idle_since > _IDLE_S:
        fault = STORY.at("after_load", me.setup.effective)
        me.nan = fault if fault and me.beside_others >= fault.after_requests else me.nan
    for message in messages:
        me.running[message["rid"]] = _Request(**message)
    if len(me.running) > 1:
        me.beside_others += len(messages)
    tokens = sum(m["prompt_tokens"] for m in messages)
    me.say(
        f"Prefill batch, #new-seq: {len(messages)}, #new-token: {tokens}, #cached-token: 0, token usage: 0.00, "
        f"#running-req: {len(me.running) - len(messages)}, #queue-req: 0, #pending-token: 0, cuda graph: "
        f"{not me.setup.effective['disable_cuda_graph']}, input throughput (token/s): {tokens / 0.05:.2f}"
    )


def _forward(me: _Rank, channel: socket.socket) -> None:
    """One token for every running request, or the end."""
    pause(STORY.pace["token_s"])
    _meet_in_service(me)
    me.steps += 1
    if me.steps % int(me.setup.effective["decode_log_interval"]) == 0:
        used = sum(r.prompt_tokens + r.done for r in me.running.values())
        me.say(
            f"Decode batch, #running-req: {len(me.running)}, #token: {used}, token usage: 0.00, cuda graph: "
            f"{not me.setup.effective['disable_cuda_graph']}, gen throughput (token/s): "
            f"{len(me.running) / STORY.pace['token_s']:.2f}, #queue-req: 0"
        )
    reply = me.nan.reply if me.nan else "ok"
    for request in me.running.values():
        request.done += 1
    _tell(channel, {"tokens": [[r.rid, reply, r.ends(reply)] for r in me.running.values()]})
    me.running = {rid: r for rid, r in me.running.items() if not r.ends(reply)}
    if not me.running:
        me.idle_since = time.monotonic()


def _meet_in_service(me: _Rank) -> None:
    """Faults that show only while it serves."""
    requests = list(me.running.values())
    fatal = _env("SGLANG_ENABLE_NAN_LOGITS_CHECK", "0.5.23") or _env("SGLANG_ENABLE_ASYNC_ASSERT", "0.5.17", "0.5.23")
    if me.nan and fatal:
        raise _Crash(_asserted("NaN detected! sampler: next_token_logits"), "device-assert")
    if me.nan and _env("SGLANG_SANITIZE_NAN_LOGITS", "0.5.17", "0.5.23") and not me.warned:
        me.warned = True
        me.say(
            "NaN detected in sampler: next_token_logits; values were sanitized before sampling. This usually indicates "
            "numerical overflow (e.g. fp16 activations) or an upstream bug producing NaN. Logged once; further "
            "occurrences are silent."
        )
    if me.nan and me.setup.effective.get("enable_nan_detection"):
        me.say("Detected errors during sampling! NaN in the logits.")
    elif me.nan and not me.warned and any(r.sampled for r in requests):
        raise _Crash(_asserted("probability tensor contains either `inf`, `nan` or element < 0"), "device-assert")
    for point, reached in (
        ("warmup", True),
        ("decode", not all(r.warmup for r in requests)),
        ("under_load", len(requests) > 1),
    ):
        fault = STORY.at(point, me.setup.effective) if reached else None
        if fault is None or fault.does == "nan" or me.beside_others < fault.after_requests:
            continue
        if fault.does == "hang":
            _hang()
        raise _Crash(_text_of(fault), fault.trace)


def _env(name: str, *releases: str) -> bool:
    """Whether a switch is on that these releases have."""
    return STORY.release in releases and os.environ.get(name, "0").lower() in ("1", "true")


def _hang() -> NoReturn:
    while True:
        signal.pause()


def _text_of(fault: Fault) -> str:
    if fault.trace == "device-assert":
        return _asserted("probability tensor contains either `inf`, `nan` or element < 0")
    return trace(fault.trace) if fault.trace else ""


def _asserted(said: str) -> str:
    """What the device prints by itself, and the traceback of whoever reads its results next."""
    for n in range(4):
        plain(_ASSERTION.format(n=n, said=said))
    return trace("device-assert")
