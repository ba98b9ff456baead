"""One scheduler process per rank: it starts, and rank 0 then draws tokens until it dies of the story's fault."""

import json
import os
import select
import signal
import socket
import time
from typing import Any, NoReturn

from sglang._effective import Resolved
from sglang._log import trace
from sglang._process import become
from sglang._ranks import Crash, Pipes, Rank, Request, asserted, hang, text_of
from sglang._startup import kv_tokens, start
from sglang._story import STORY, pause

__all__ = ["run_scheduler_process"]

_WORD = 32  # bytes of a trace's name in the pipe
_IDLE_S = 0.1  # without a request for so long, the load is over


def run_scheduler_process(rank: int, setup: Resolved, pipes: Pipes, parent: int) -> NoReturn:
    """The whole life of a rank. Never returns."""
    me = Rank(rank, setup, pipes, int(setup.effective["tp_size"]))
    become(f"sglang::scheduler_TP{rank}" if me.size > 1 else "sglang::scheduler", parent)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGQUIT, signal.SIGTERM))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        start(me)
        if rank == 0:
            _serve(me)
        _wait_for_the_end(me)
    except Crash as crash:
        if rank == 0 and me.running:
            os.write(pipes.last_words[1], crash.trace.encode().ljust(_WORD) * (me.size - 1))
        if str(crash):
            me.say(f"Scheduler hit an exception: {crash}")
        os.kill(parent, signal.SIGQUIT)
        os._exit(0)


def _wait_for_the_end(me: Rank) -> NoReturn:
    """Another rank than the first has nothing to say, until rank 0 dies of something that all of them met."""
    name = os.read(me.pipes.last_words[0], _WORD).decode().strip()
    raise Crash(trace(name) if name else "")


def _serve(me: Rank) -> NoReturn:
    """The event loop: one forward pass per turn, for all running requests at once."""
    channel, inbox = me.pipes.server, b""
    _tell(channel, {"ready": True, "tokens": kv_tokens(me)})
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


def _admit(me: Rank, messages: list[dict[str, Any]]) -> None:
    if not messages:
        return
    if not me.running and time.monotonic() - me.idle_since > _IDLE_S:
        fault = STORY.at("after_load", me.setup.effective)
        me.nan = fault if fault and me.beside_others >= fault.after_requests else me.nan
    for message in messages:
        me.served += not message["warmup"]
        me.running[message["rid"]] = Request(**message, nth=0 if message["warmup"] else me.served)
    if len(me.running) > 1:
        me.beside_others += len(messages)
    tokens = sum(m["prompt_tokens"] for m in messages)
    me.say(
        f"Prefill batch, #new-seq: {len(messages)}, #new-token: {tokens}, #cached-token: 0, token usage: 0.00, "
        f"#running-req: {len(me.running) - len(messages)}, #queue-req: 0, #pending-token: 0, cuda graph: "
        f"{not me.setup.effective['disable_cuda_graph']}, input throughput (token/s): {tokens / 0.05:.2f}"
    )


def _forward(me: Rank, channel: socket.socket) -> None:
    """One token for every running request, or the end."""
    pause(STORY.forward_s(me.setup.effective, len(me.running)))
    _meet_in_service(me)
    me.steps += 1
    if me.steps % int(me.setup.effective["decode_log_interval"]) == 0:
        used = sum(r.prompt_tokens + r.done for r in me.running.values())
        me.say(
            f"Decode batch, #running-req: {len(me.running)}, #token: {used}, token usage: 0.00, cuda graph: "
            f"{not me.setup.effective['disable_cuda_graph']}, gen throughput (token/s): "
            f"{len(me.running) / STORY.pace['token_s']:.2f}, #queue-req: 0"
        )
    replies = {rid: me.reply_to(request) for rid, request in me.running.items()}
    for request in me.running.values():
        request.done += 1
    ended = {rid for rid, request in me.running.items() if request.ends(replies[rid])}
    _tell(channel, {"tokens": [[rid, reply, rid in ended] for rid, reply in replies.items()]})
    me.running = {rid: request for rid, request in me.running.items() if rid not in ended}
    if not me.running:
        me.idle_since = time.monotonic()


def _meet_in_service(me: Rank) -> None:
    """Faults that show only while it serves."""
    requests = list(me.running.values())
    broken = [r for r in requests if me.reply_to(r) != "ok"]
    fatal = _env("SGLANG_ENABLE_NAN_LOGITS_CHECK", "0.5.23") or _env("SGLANG_ENABLE_ASYNC_ASSERT", "0.5.17", "0.5.23")
    if broken and fatal:
        raise Crash(asserted("NaN detected! sampler: next_token_logits"), "device-assert")
    if broken and _env("SGLANG_SANITIZE_NAN_LOGITS", "0.5.17", "0.5.23") and not me.warned:
        me.warned = True
        me.say(
            "NaN detected in sampler: next_token_logits; values were sanitized before sampling. This usually indicates "
            "numerical overflow (e.g. fp16 activations) or an upstream bug producing NaN. Logged once; further "
            "occurrences are silent."
        )
    if broken and me.setup.effective.get("enable_nan_detection"):
        me.say("Detected errors during sampling! NaN in the logits.")
    elif not me.warned and any(r.sampled for r in broken if me.reply_to(r) != "mixed"):
        raise Crash(asserted("probability tensor contains either `inf`, `nan` or element < 0"), "device-assert")
    for point, reached in (
        ("warmup", True),
        ("decode", not all(r.warmup for r in requests)),
        ("under_load", len(requests) > 1),
    ):
        fault = STORY.at(point, me.setup.effective) if reached else None
        if fault is None or fault.does == "wrong" or me.beside_others < fault.after_requests:
            continue
        if fault.does == "nan":
            me.nan = fault if point == "under_load" else me.nan
            continue
        if fault.does == "hang":
            hang()
        raise Crash(text_of(fault), fault.trace)


def _env(name: str, *releases: str) -> bool:
    """Whether a switch is on that these releases have."""
    return STORY.release in releases and os.environ.get(name, "0").lower() in ("1", "true")
