"""What cannot be a pattern: rules that look at the phase, the frames and the whole text. Each is named after what it decides."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from settings.catalogue import Catalogue, Naming
from settings.words import Action, Component, Phase
from tasks.pure.diagnose.reading import Reading
from tasks.pure.diagnose.traces import Frame, Raised

__all__ = [
    "Facts",
    "Names",
    "action_of",
    "asks_for_another_setting",
    "bound_by_http",
    "cure_named",
    "device_memory",
    "fallen_in_bench",
    "read_exception",
    "serving_phase",
]

_OTHERS_MEMORY = re.compile(r"Process \d+ has ([\d.]+) ([GM])iB memory in use")
_CAPACITY = re.compile(r"total capacity of ([\d.]+) ([GM])iB")
_MUCH = 0.25  # of a card's memory, held by another process


@dataclass(slots=True)
class Facts:
    """What earlier lines of this run said about how it was started."""

    dummy_weights: bool = False
    deep_gemm_moe: bool = False
    ue8m0_warned: bool = False
    speculative: bool = False
    asked_prompts: int | None = None


class Names:
    """Components named by words in a text, or by the paths of frames."""

    def __init__(self, naming: Iterable[Naming]) -> None:
        naming = tuple(naming)
        self._first = [(re.compile(n.frame), n.component) for n in naming if n.first]
        self._texts = [(re.compile(n.text), n.component) for n in naming if n.text]
        self._frames = [(re.compile(n.frame), n.component) for n in naming if n.frame]

    def component(self, text: str, frames: Sequence[Frame]) -> Component:
        """A draft step's frame anywhere, else the part that the text names, else the innermost frame that names one."""
        for pattern, component in self._first:
            if any(pattern.search(str(f)) for f in frames):
                return component
        for pattern, component in self._texts:
            if pattern.search(text):
                return component
        named = (c for f in frames for p, c in self._frames if p.search(str(f)))
        return next(named, Component.UNKNOWN)


def device_memory(reading: Reading, text: str, phase: Phase, frames: Sequence[Frame], *, weights_begun: bool) -> Reading:
    """Which memory it was: the same sentence means another thing, and another cure, in each phase (LABELS.md, oom_*)."""
    if phase in {Phase.ARGS, Phase.LOAD} and (_held_by_others(text) or (phase is Phase.LOAD and not weights_begun and not _loads(frames))):
        return reading.but(
            kind="gpu_busy", component=Component.HOST, action=Action.STOP, by_frame=False,
            means="Another process holds much of the GPU's memory.",
            cure="End the other process (nvidia-smi shows it) or choose another GPU.",
        )
    if phase in {Phase.ARGS, Phase.LOAD}:
        return reading.but(
            kind="oom_weights", component=Component.LOADER, action=Action.STOP, by_frame=False,
            means="The GPU's memory ran out while the weights were loaded.",
            cure="Spread the weights over more GPUs, or take a smaller or more quantized model.",
        )
    if phase is Phase.KV_ALLOC:
        return reading.but(
            kind="oom_kv", component=Component.FLAGS, action=Action.LOWER_MEM, by_frame=False,
            means="The GPU's memory ran out while the KV cache pool was made.",
            cure="Lower the static memory fraction.",
        )
    if phase is Phase.GRAPH_CAPTURE:
        return reading.but(
            kind="oom_graph", component=Component.GRAPH, action=Action.LOWER_MEM, by_frame=False,
            means="The GPU's memory ran out while CUDA graphs were captured.",
            cure="Lower the static memory fraction, or capture smaller batches.",
        )
    return reading.but(
        kind="oom_runtime", by_frame=True,
        means="The GPU's memory ran out while the server ran.",
        cure="Lower the static memory fraction, the batch sizes or the number of running requests.",
    )


def _held_by_others(text: str) -> bool:
    capacity = _CAPACITY.search(text)
    if capacity is None:
        return False
    held = sum(_gib(m) for m in _OTHERS_MEMORY.finditer(text))
    return held > _MUCH * _gib(capacity)


def _gib(match: re.Match[str]) -> float:
    return float(match[1]) / (1024 if match[2] == "M" else 1)


def _loads(frames: Sequence[Frame]) -> bool:
    return any(re.search(r"load|weight|models/|quantization/|loader", str(f)) for f in frames)


_SUPPORT = re.compile(
    r"not (?:yet )?(?:be )?(?:support|implement|compatib|available|validated|allowed)|unsupported|\bonly (?:be )?(?:support|available|works?|valid|used|enabled)"
    r"|\bsupports? only|\bonly on\b|\brequires?\b.*(?:SM|Hopper|Blackwell|Ampere|capability|arch|GPU|CUDA|ROCm|backend|kernel|dtype|page|newer)"
    r"|incompatib|cannot be used (?:with|together)|does(?:n't| not) (?:support|work)|no (?:valid|suitable|available) (?:kernel|backend|tactic)"
    r"|can(?:'t|not) (?:run|be enabled|use)|is disabled|(?:is|are) not (?:enabled|registered)|currently"
)
_SETTING = re.compile(
    r"\bkv[ _-]?cache[ _-]?d?type|KV dtype|\brequires? an? [\w.]+ KV|\bpage[ _-]?size|\bchunked|\btp[ _-]?size|TP size|cuda graph"
    r"|--(?!\w*-?(?:attention|nsa|dsa|mla)-)[a-z][\w-]{3,}",
    re.IGNORECASE,
)


def asks_for_another_setting(message: str) -> bool:
    """Whether an attention backend's complaint names a setting other than the backend: then that is the first step."""
    return _SETTING.search(message) is not None and not message.startswith("assert ")


def action_of(reading: Reading, component: Component, text: str) -> Action:
    """The first step for a kind whose component the frames named (LABELS.md, action)."""
    kind = reading.kind
    if reading.action is Action.STOP:
        return Action.STOP
    if kind == "unsupported" and component is Component.INDEXER and re.search(r"arch|SM\d|sm_?\d", text):
        return Action.STOP
    if component is Component.ATTENTION and kind in {"nan", "cuda_fault", "unsupported", "jit_compile"}:
        other = kind == "unsupported" and asks_for_another_setting(text)
        return Action.OTHER_FLAG if other else Action.NEXT_BACKEND
    if kind in {"cuda_fault", "device_assert"} and component is Component.UNKNOWN:
        return Action.RETRY_SAME
    if kind == "oom_runtime":
        return Action.OTHER_FLAG if component is Component.INDEXER else Action.LOWER_MEM
    return _ACTION.get(kind, Action.STOP)


_ACTION = {
    "nan": Action.OTHER_FLAG,
    "cuda_fault": Action.OTHER_FLAG,
    "device_assert": Action.OTHER_FLAG,
    "unsupported": Action.OTHER_FLAG,
    "jit_compile": Action.OTHER_FLAG,
    "bad_flag": Action.OTHER_FLAG,
    "oom_graph": Action.LOWER_MEM,
    "hang": Action.RETRY_SAME,
    "version_mismatch": Action.PIN_VERSION,
}

# Exceptions that only say that somebody else went away, or that the program was asked to end.
_CONSEQUENCES = frozenset(
    """
    KeyboardInterrupt SystemExit CancelledError GeneratorExit BrokenPipeError ConnectionResetError
    ConnectionAbortedError ConnectionRefusedError ConnectionError EOFError IncompleteReadError
    ServerDisconnectedError ClientDisconnect ClientConnectorError ClientOSError ClientPayloadError
    RemoteDisconnected RemoteProtocolError ReadError ReadTimeout ConnectError WebSocketDisconnect EngineDeadError
    EngineShutDownError ProcessLookupError ContextTerminated ZMQError Again ActorDiedError RayActorError
    ActorUnavailableError WorkerCrashedError RayTaskError NewConnectionError ProtocolError TimeoutError
    ChildFailedError ProcessRaisedException ProcessExitedException QueueEmpty Empty EndOfStream WouldBlock
    BrokenResourceError ClosedResourceError HTTPException
    """.split()
)
_PACKAGES = {
    r"flash_?infer|flash_?attn|flash_?mla": Component.ATTENTION,
    r"deep_?gemm": Component.GEMM,
    r"tokenizers|sentencepiece|tiktoken": Component.TOKENIZER,
    r"transformers|compressed_tensors|safetensors": Component.LOADER,
}
_HTTP_FRAME = re.compile(r"api_server|http_server|uvicorn|create_server_socket|setup_server")
_NOT_EVIDENCE = re.compile(r"Warning$")
_COMM_FRAME = re.compile(
    r"device_communicators/|custom_all_?reduce|pynccl|parallel_state|shm_broadcast|distributed/(?:distributed_c10d|rendezvous)|mscclpp|quick_all_reduce"
)
_CONFIG_FRAME = re.compile(r"configs/|hf_transformers|transformers_utils|configuration_|config\.py|models/|rope|rotary|transformers/")
_WEIGHTS_FRAME = re.compile(r"load_weights|weight_loader|weight_utils|loader\.py|load_model")
_ARGS_FRAME = re.compile(r"server_args|arg_groups|engine/arg_utils|check_server_args|__post_init__|argparse|config/|launch_server|cli/")


def read_exception(raised: Raised, source: str, phase: Phase, frames: Sequence[Frame]) -> Reading | None:
    """What an exception that the catalogue does not know says by its name, its place and its words. None: no evidence."""
    reading = _read_exception(raised, source, phase, frames)
    # Without a message there may be a better text below.
    return reading if reading is None or raised.message else reading.but(general=True)


def _read_exception(raised: Raised, source: str, phase: Phase, frames: Sequence[Frame]) -> Reading | None:
    name, message = raised.name, raised.message
    text = message or source
    if _NOT_EVIDENCE.search(name):
        return None
    if name in _CONSEQUENCES:
        return _unknown(f"{name}: another part of the system went away; its own log holds the cause.")
    if name == "MemoryError":
        return _made("host_oom", Component.HOST, Action.STOP, "The host's memory ran out.", "Give the host more memory or load with fewer threads.")
    if name in {"ImportError", "ModuleNotFoundError"} or re.search(r"module '[\w.]+' has no attribute|partially initialized module", message):
        return _mismatch("Installed packages do not fit each other: an import failed.", _package_named(message))
    if re.search(r"got an unexpected keyword argument|missing \d+ required (?:positional|keyword)", message) and not phase_serves(phase):
        return _mismatch("A library's function takes other arguments than this release passes.", Component.HOST).but(by_frame=True)
    if any(_COMM_FRAME.search(str(f)) for f in frames[:3]):
        return _made(
            "nccl", Component.COMM, Action.OTHER_FLAG, "The communication between the ranks failed.",
            "Switch the named communication path off (custom all-reduce, P2P) and try again.",
        )
    if name in {"FileNotFoundError", "NotADirectoryError", "IsADirectoryError"} and phase in {Phase.ARGS, Phase.LOAD, Phase.KV_ALLOC}:
        return _made("model_files", Component.LOADER, Action.STOP, "A file that the model needs is missing.", "Check the model's folder and path.")
    if name == "PermissionError":
        return _made("disk", Component.HOST, Action.STOP, "A file or folder may not be written or read.", "Correct its owner, or mount it writable.")
    if phase is Phase.ARGS:
        return _read_early(name, text, frames)
    if phase is Phase.LOAD and (reading := _read_in_load(name, text, frames)) is not None:
        return reading
    return _unsupported(text)


def _read_early(name: str, text: str, frames: Sequence[Frame]) -> Reading:
    """Before any scheduler: the arguments, the config and the tokenizer are looked at."""
    in_args = any(_ARGS_FRAME.search(str(f)) for f in frames)
    if _SUPPORT.search(text):
        return _unsupported(text)
    if name in {"KeyError", "AttributeError", "TypeError", "StrictDataclassFieldValidationError", "NameError"} and not in_args:
        return _mismatch("The installed release does not know a key of the model's config.", Component.LOADER)
    if name in {"ValueError", "AssertionError", "TypeError", "ArgumentError", "ValidationError"} and text and (in_args or not frames):
        return _bad_flag()
    if any(_CONFIG_FRAME.search(str(f)) for f in frames):
        return _mismatch("The installed release cannot read the model's config.", Component.LOADER)
    return _bad_flag() if text else _unsupported(text)


def _read_in_load(name: str, text: str, frames: Sequence[Frame]) -> Reading | None:
    """While the model is built and its weights are read."""
    weights = any(_WEIGHTS_FRAME.search(str(f)) for f in frames[:4])
    if name == "KeyError" and "." in text and weights:
        return _made(
            "model_files", Component.LOADER, Action.STOP, "The weight files hold a name that the model does not have.",
            "Compare the checkpoint with the model class; another quantization or a damaged index is likely.",
        )
    if name in {"KeyError", "AttributeError"} and any(_CONFIG_FRAME.search(str(f)) for f in frames[:2]) and re.search(
        r"^'[a-z][\w]*'$|[Cc]onfig", text
    ):
        return _mismatch("The installed release does not know a key of the model's config.", Component.LOADER)
    if weights:
        return _unsupported(text).but(component=Component.LOADER, action=Action.OTHER_FLAG, by_frame=False)
    return None


def _package_named(message: str) -> Component:
    for pattern, component in _PACKAGES.items():
        if re.search(pattern, message):
            return component
    return Component.HOST


def phase_serves(phase: Phase) -> bool:
    return phase in {Phase.PREFILL, Phase.DECODE}


def bound_by_http(reading: Reading, frames: Sequence[Frame]) -> Reading:
    """The address that an HTTP front end wanted is the user's to choose; any other is the engine's own."""
    if any(_HTTP_FRAME.search(str(f)) for f in frames):
        return reading.but(component=Component.HOST, action=Action.OTHER_FLAG, cure="Choose another HTTP port, or end what holds it.")
    return reading


def _made(kind: str, component: Component, action: Action, means: str, cure: str) -> Reading:
    return Reading(kind, component, action, means, cure, source="read from the exception's name, frames and words")


def _unknown(means: str) -> Reading:
    return _made("unknown", Component.UNKNOWN, Action.STOP, means, "Read the log of the part that it names.").but(grade="aftermath")


def _mismatch(means: str, component: Component) -> Reading:
    return _made("version_mismatch", component, Action.PIN_VERSION, means, "Install versions that the engine's release pins.")


def _bad_flag() -> Reading:
    return _made("bad_flag", Component.FLAGS, Action.OTHER_FLAG, "The command line asks for something that does not fit.", "Correct the argument that the message names.")


def _unsupported(text: str) -> Reading:
    return _made(
        "unsupported", Component.UNKNOWN, Action.OTHER_FLAG, "The engine has no working code for this mix of model, GPU and settings.",
        "Change the setting that the message or the frame names.",
    ).but(by_frame=True, general=not text)


def serving_phase(phase: Phase, frames: Sequence[Frame]) -> Phase:
    """While serving, the frames know better than the last batch line what was being computed."""
    if phase not in {Phase.PREFILL, Phase.DECODE}:
        return phase
    for frame in frames:
        if re.search(r"forward_extend|prefill|_extend\b", frame.function):
            return Phase.PREFILL
        if re.search(r"forward_decode|_decode\b|graph_runner\.py:replay", str(frame)):
            return Phase.DECODE
    return phase


_PACKAGE_TROUBLE = {"version_mismatch", "model_files", "no_kernel_image"}


def fallen_in_bench(reading: Reading) -> Reading:
    """The same error means another thing in a benchmark program: the server is not what failed."""
    if reading.kind in {"bench_client", "unknown", "auth", "disk", "host_oom", "none"}:
        return reading
    action = Action.PIN_VERSION if reading.kind in _PACKAGE_TROUBLE else Action.OTHER_FLAG
    return reading.but(
        kind="bench_client", component=Component.CLIENT, action=action, by_frame=False, by_phase=False,
        means="The benchmark program failed; the server is not shown to have a fault.",
        cure="Mend the benchmark's own environment." if action is Action.PIN_VERSION else "Correct the benchmark's arguments.",
    )


_CURES = (
    re.compile(r"(?:[Rr]aise|[Ii]ncrease|[Ll]ower|[Rr]educe|[Dd]ecrease|[Ss]et) `?(?P<flag>--[a-z][\w-]+)`? (?:above|below|to(?: at least| at most)?|=) ?(?P<value>[\d.]+\d)"),
    re.compile(r"(?:[Aa]dd(?:ing)?|[Ss]pecify(?:ing)?|[Pp]ass(?:ing)?|[Uu]s(?:e|ing)|[Ee]nabl(?:e|ing)|[Ii]ncreas(?:e|ing)|[Rr]ais(?:e|ing)|[Ss]et(?:ting)?|[Ll]ower(?:ing)?) `?(?P<flag>--[a-z][\w-]+)`?(?:[ =](?P<value>[\w.]+\b(?<!to)(?<!explicitly)(?<!for)(?<!or)(?<!and)))?"),
    re.compile(r"[Ii]ncreas(?:e|ing) `(?P<flag>gpu_memory_utilization)`(?P<value>)"),
)


def cure_named(text: str) -> tuple[str | None, str | None]:
    """The flag, and its value, that the log itself names as the way out."""
    for pattern in _CURES:
        if match := pattern.search(text):
            flag = match["flag"] if match["flag"].startswith("--") else "--" + match["flag"].replace("_", "-")
            return flag, match["value"] or None
    return None, None


def naming_of(catalogue: Catalogue) -> Names:
    return Names(catalogue.naming)
