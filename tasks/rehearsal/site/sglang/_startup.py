"""How a rank starts: it loads the weights, allocates the KV pool and captures the graphs, in the real one's words."""

import time

from sglang._effective import GPU_MIB
from sglang._log import bar, plain, trace
from sglang._ranks import OLD, Crash, Rank, hang, raised, text_of
from sglang._story import STORY, pause

__all__ = ["kv_tokens", "start"]

_GIB = 1024.0
_TOTAL_GB = GPU_MIB / _GIB
_ADVICE = """
Fail when using backend: breakable for prefill runner.
Possible suggestions:
1. disable the prefill CUDA graph by --cuda-graph-backend-prefill=disabled
2. if it is an OOM problem, set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7) or set \
--cuda-graph-max-bs-prefill to a smaller value (e.g., 2048)
Open an issue on GitHub https://github.com/sgl-project/sglang/issues/new/choose
"""


def start(me: Rank) -> None:
    """From the first word of a rank to the end of its captures. Raises: Crash."""
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
        raise Crash(raised(
            'layers/attention/dsa_backend.py", line 369, in __init__', f"ValueError: {me.setup.refused_backends}"
        ))
    weights = me.weights_gb = me.setup.model["rehearsal"]["weights_gb"] / me.size
    me.say(f"Load weight begin. avail mem={_TOTAL_GB - 0.6:.2f} GB")
    _meet(me, "load")
    if weights > _TOTAL_GB - 0.6:
        raise Crash(raised(
            'model_executor/model_runner.py", line 1290, in load_model',
            f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU {me.n} has a total capacity "
            "of 94.97 GiB of which 1.02 GiB is free.",
        ))
    _load_shards(me)
    kind = me.setup.model["architectures"][0]
    quant = "dtype=torch.bfloat16, " if STORY.release in OLD else ""
    left = _TOTAL_GB - 0.6 - weights
    me.say(
        f"Load weight end. elapsed={pace['load_s']:.2f} s, type={kind}, {quant}avail mem={left:.2f} GB, "
        f"mem usage={weights:.2f} GB."
    )
    if args["kv_cache_dtype"] == "fp8_e4m3":
        me.say("Using FP8 KV cache but no scaling factors provided. Defaulting to scaling factors of 1.0.")
    left = _allocate(me, left)
    left = _capture(me, left)
    if me.n == 0:
        context = me.setup.context
        me.say(
            f"max_total_num_tokens={kv_tokens(me)}, chunked_prefill_size={args['chunked_prefill_size']}, "
            f"max_prefill_tokens={args['max_prefill_tokens']}, max_running_requests={_max_running(me)}, "
            f"context_len={context}, available_gpu_mem={left:.2f} GB"
        )
    if STORY.release == "0.5.23":
        me.say("Init Unified Radix Cache. Components: (<ComponentType.FULL: 0>,). Tree Core: RustUnifiedTreeCore")
        me.say(
            "Tree cache initialized: source=default impl=UnifiedRadixCache hybrid_swa=False hybrid_ssm=False "
            "hicache_attached=False"
        )


def _load_shards(me: Rank) -> None:
    total = int(me.setup.model["rehearsal"]["shards"])
    title = "Loading safetensors checkpoint shards:" if STORY.release in OLD else "Multi-thread loading shards:"
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


def _token_bytes(me: Rank) -> float:
    layers = int(me.setup.model["num_hidden_layers"])
    row = 656 if me.setup.effective["kv_cache_dtype"] == "fp8_e4m3" else 1152
    return layers * (row + 132) / _GIB**3


def kv_tokens(me: Rank) -> int:
    """Tokens that fit into what the static fraction leaves beside the weights; not positive when none do."""
    budget = _TOTAL_GB * float(me.setup.effective["mem_fraction_static"]) - me.weights_gb
    fits = int(budget / _token_bytes(me)) // 64 * 64
    return min(fits, int(me.setup.effective["max_total_tokens"] or fits))


def _max_running(me: Rank) -> int:
    return int(me.setup.effective["max_running_requests"] or 2048)


def _allocate(me: Rank, left: float) -> float:
    _meet(me, "kv_alloc")
    tokens = kv_tokens(me)
    if tokens <= 0:
        raise Crash(raised(
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


def _capture(me: Rank, left: float) -> float:
    """Prefill (newer releases) and decode graphs. Gives the memory that is left in GB."""
    args = me.setup.effective
    if args["disable_cuda_graph"]:
        return left
    share = STORY.pace["capture_s"] / 2
    if STORY.release in OLD:
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


def _bars(me: Rank, title: str, unit: str, shapes: tuple[int, ...], seconds: float, left: float) -> None:
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


def _meet(me: Rank, point: str, left: float = 0.0) -> None:
    """Whatever the story has for this point of the start."""
    fault = STORY.at(point, me.setup.effective)
    if fault is None:
        return
    if fault.does == "hang":
        hang()
    if fault.trace == "graph-oom" and STORY.release not in OLD:
        if me.n == 0:
            shape = f"num_tokens=8192 avail_mem={left:.2f} GB"
            plain(f"\rCapturing prefill shape ({shape}):   0%|          | 0/8 [00:00<?, ?it/s]\n")
        me.say(trace("graph-oom").splitlines()[-1].removeprefix("torch.") + _ADVICE)
    raise Crash(text_of(fault), fault.trace)
