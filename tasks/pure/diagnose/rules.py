"""What cannot be a pattern: rules that look at phase, frames and words. Each is named after what it decides."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from settings.catalogue import Catalogue, Naming
from settings.words import Action, Component, Phase
from tasks.pure.diagnose.reading import Reading
from tasks.pure.diagnose.traces import Frame, Raised

__all__ = ["Facts", "Names", "Rules", "action_of", "asks_for_another_setting", "cure_named", "serving_phase"]

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
    several_nodes: bool = False
    compiles_at: int | None = None  # the line where a kernel's compilation was last said to begin
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


_SUPPORT = re.compile(
    r"not (?:yet )?(?:be )?(?:support|implement|compatib|available|validated|allowed)|unsupported"
    r"|\bonly (?:be )?(?:support|available|works?|valid|used|enabled)"
    r"|\bsupports? only|\bonly on\b|\brequires?\b.*(?:SM|Hopper|Blackwell|Ampere|capability"
    r"|arch|GPU|CUDA|ROCm|backend|kernel|dtype|page|newer)"
    r"|incompatib|cannot be used (?:with|together)|does(?:n't| not) (?:support|work)"
    r"|no (?:valid|suitable|available) (?:kernel|backend|tactic)"
    r"|can(?:'t|not) (?:run|be enabled|use)|is disabled|(?:is|are) not (?:enabled|registered)|currently"
)

_SETTING = re.compile(
    r"\bkv[ _-]?cache[ _-]?d?type|KV dtype|\brequires? an? [\w.]+ KV|\bpage[ _-]?size|\bchunked"
    r"|\btp[ _-]?size|TP size|cuda graph"
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
    if kind in {"cuda_fault", "device_assert"}:
        return Action.RETRY_SAME if component is Component.UNKNOWN else Action.OTHER_FLAG
    if kind == "oom_runtime":
        return Action.OTHER_FLAG if component is Component.INDEXER else Action.LOWER_MEM
    return Action.OTHER_FLAG if kind in {"nan", "unsupported", "jit_compile"} else reading.action


def serving_phase(phase: Phase, frames: Sequence[Frame]) -> Phase:
    """While serving, the frames know better than the last batch line what was being computed."""
    if phase not in _SERVING:
        return phase
    for frame in frames:
        if re.search(r"forward_extend|prefill|_extend\b", frame.function):
            return Phase.PREFILL
        if re.search(r"forward_decode|_decode\b|graph_runner\.py:replay", str(frame)):
            return Phase.DECODE
    return phase


_FLAG = r"`?(?P<flag>--[a-z][\w-]+)`?"
_CURES = (
    re.compile(
        rf"(?:[Rr]aise|[Ii]ncrease|[Ll]ower|[Rr]educe|[Dd]ecrease|[Ss]et) {_FLAG}"
        r" (?:above|below|to(?: at least| at most)?|=) ?(?P<value>[\d.]+\d)"
    ),
    re.compile(
        r"(?:[Aa]dd(?:ing)?|[Ss]pecify(?:ing)?|[Pp]ass(?:ing)?|[Uu]s(?:e|ing)|[Ee]nabl(?:e|ing)|[Ii]ncreas(?:e|ing)"
        rf"|[Rr]ais(?:e|ing)|[Ss]et(?:ting)?|[Ll]ower(?:ing)?) {_FLAG}"
        r"(?:[ =](?!to\b|explicitly\b|for\b|or\b|and\b|when\b|in\b|if\b|is\b|with\b)(?P<value>\w[\w.]*\b))?"
    ),
    re.compile(r"[Ii]ncreas(?:e|ing) `(?P<flag>gpu_memory_utilization)`(?P<value>)"),
)


def cure_named(text: str) -> tuple[str | None, str | None]:
    """The flag, and its value, that the log itself names as the way out."""
    if "--" not in text and "`gpu_memory_utilization`" not in text:
        return None, None
    for pattern in _CURES:
        if match := pattern.search(text):
            flag = match["flag"] if match["flag"].startswith("--") else "--" + match["flag"].replace("_", "-")
            return flag, match["value"] or None
    return None, None


_SERVING = {Phase.PREFILL, Phase.DECODE}
_COMPUTING = {Phase.KV_ALLOC, Phase.GRAPH_CAPTURE}  # nothing but the engine's own code runs there
_BUILDING = {Phase.ARGS, Phase.LOAD}
_PACKAGES = {
    r"flash_?infer|flash_?attn|flash_?mla": Component.ATTENTION,
    r"deep_?gemm": Component.GEMM,
    r"tokenizers|sentencepiece|tiktoken": Component.TOKENIZER,
    r"transformers|compressed_tensors|safetensors": Component.LOADER,
}
_NO_ATTRIBUTE = re.compile(r"module '[\w.]+' has no attribute|partially initialized module")
_OTHER_ARGUMENTS = re.compile(r"got an unexpected keyword argument|missing \d+ required (?:positional|keyword)")
_HTTP_FRAME = re.compile(r"api_server|http_server|uvicorn|create_server_socket|setup_server|asyncio/.*:create_server$")
# What the frame above an exception does, where the exception's own words fit several kinds.
_BINDS = re.compile(r"\.bind\(|:(?:bind\w*|create_server\w*)(?: |$)")
_OF_SOCKETS = {"PermissionError", "OSError"}
_PATH = re.compile(r"['\"][^\s'\"/]*/")
_PARSES_ARGUMENTS = re.compile(
    r"^(?:argparse\.py|.*(?:server_args|arg_utils|argparse_utils|cli_args)\.py):|:\w*_(?:args|argument)(?: |$)"
    r"|json\.loads\([^)]*(?:arg|override|flag|option)"
)
_READS_A_FILE = re.compile(r"json\.load\(|\bopen\(|\.read\w*\(")
_COMPILES = re.compile(
    r"tilelang/(?:engine|transform|autotuner)|tilelang/jit/(?!\S*:(?:__call__|\w*forward\w*|<lambda>)$)|triton/(?:compiler|backends)|tvm/\S*(?:build|driver|transform)"
    r"|:(?:lower\w*|[Ll]owerAnd\w+|compile\w*)(?: |$)"
)
_OF_A_COMPILER = re.compile(r"^(?:Internal check failed|Check failed)")
_OF_COMPILERS = {"InternalError", "TVMError", "PassManagerError"}
_SPECULATES = re.compile(r"(?:speculative|spec_decode)/|eagle")
_COMM_FRAME = re.compile(
    r"device_communicators/|custom_all_?reduce|pynccl|parallel_state|shm_broadcast|mscclpp|quick_all_reduce"
    r"|distributed/(?:distributed_c10d|rendezvous)"
)
_CONFIG_FRAME = re.compile(
    r"configs/|hf_transformers|transformers_utils|configuration_|config\.py|models/|rope|rotary|transformers/"
)
_WEIGHTS_FRAME = re.compile(r"load_weights|weight_loader|weight_utils|loader\.py|load_model")
_ARGS_FRAME = re.compile(r"server_args|arg_groups|engine/arg_utils|__post_init__|argparse|config/|launch_server|cli/")
_CONFIG_KEY = re.compile(r"^'[a-z]\w*'$|[Cc]onfig")
_OF_PYTHON = {"KeyError", "AttributeError", "TypeError", "NameError", "StrictDataclassFieldValidationError"}
_OF_VALUES = {"ValueError", "AssertionError", "TypeError", "ArgumentError", "ValidationError"}
# What an exception says when another part has gone: nothing.
_SAYS_NOTHING = re.compile(
    r"^\W*(?:(?:the )?(?:operation|task|request|call|future|worker\S*|process)? ?(?:was |is |has been )?"
    r"(?:cancel+ed|aborted|interrupted|terminated|closed|shut ?down|killed|died)(?: unexpectedly)?)?\W*$",
    re.IGNORECASE,
)
_REFERENCE = re.compile(r"^\(?Request ID\b[^)]*\)?\W*$")  # to what was asked; the answer stands below
_PEER_GONE = re.compile(
    r"[Cc]onnection (?:was )?(?:closed|reset|aborted)|[Bb]roken pipe|remote process exit|closed by (?:remote )?peer"
    r"|peer (?:has )?(?:closed|gone|exited|disconnected)|Call to recv\w* .*failed"
)
# Packages whose code computes for the engine; an exception from anywhere else says nothing about what it supports.
_COMPUTES = re.compile(
    r"^(?:torch|triton|flash\w*|sgl_kernel|deep_gemm|deep_ep|tvm|tvm_ffi|cutlass|tilelang|transformers|xgrammar|outlines"
    r"|compressed_tensors|safetensors|quack|aiter|bitsandbytes|gguf|xformers|mscclpp|nvshmem|tokenizers|cuda)\w*/"
)


class Rules:
    """The rules that end in a ruling of the catalogue."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._ruling = {name: Reading.of(ruling) for name, ruling in catalogue.ruling.items()}
        self._consequences = frozenset(catalogue.consequences)
        self._words = [(re.compile(r.words, re.I), name) for name, r in catalogue.ruling.items() if r.words]

    def __getitem__(self, name: str) -> Reading:
        return self._ruling[name]

    def device_memory(self, text: str, phase: Phase, frames: Sequence[Frame], *, weights_begun: bool) -> Reading:
        """Which memory ran out: the same sentence means another thing, and another cure, in each phase."""
        if phase in _BUILDING:
            unasked = (
                phase is Phase.LOAD and not weights_begun and not any(_WEIGHTS_FRAME.search(str(f)) for f in frames)
            )
            return self["gpu_held" if unasked or _held_by_others(text) else "memory_load"]
        return self[f"memory_{phase}" if phase in {Phase.KV_ALLOC, Phase.GRAPH_CAPTURE} else "memory_running"]

    def bound(self, reading: Reading, frames: Sequence[Frame]) -> Reading:
        """The address that an HTTP front end wanted is the user's to choose; any other is the engine's own."""
        http = any(_HTTP_FRAME.search(str(f)) for f in frames)
        return reading.at(Component.HOST, Action.OTHER_FLAG) if http else reading

    def typed(self, raised: Raised, phase: Phase, frames: Sequence[Frame]) -> Reading | None:
        """Text that is no JSON is an argument's where arguments are parsed, and a model file's anywhere else."""
        if raised.name != "JSONDecodeError" or phase not in _BUILDING:
            return None
        above = _above([f for f in frames if not f.path.startswith("json/")])
        return self["argument"] if _PARSES_ARGUMENTS.search(above) and not _READS_A_FILE.search(above) else None

    def done_above(self, raised: Raised, frames: Sequence[Frame], *, compiling: bool) -> Reading | None:
        """What the frames right above say of an exception whose own words fit several kinds."""
        if raised.name in _OF_SOCKETS and _BINDS.search(_above(frames)) and not _PATH.search(raised.message):
            return self["address"]
        if raised.name in _OF_COMPILERS and _OF_A_COMPILER.match(raised.message):
            return self["lowering"] if compiling or any(_COMPILES.search(str(f)) for f in frames[:3]) else None
        return None

    def not_finite(self, reading: Reading, facts: Facts, frames: Sequence[Frame]) -> Reading:
        """Whom NaN accuses other than attention."""
        if facts.ue8m0_warned and facts.deep_gemm_moe:
            return reading.at(Component.MOE, Action.OTHER_FLAG)
        if any(_SPECULATES.search(f.path) for f in frames):
            return reading.at(Component.SPECULATIVE, Action.OTHER_FLAG)
        return reading

    def from_a_peer(self, reading: Reading, text: str, *, serving: bool) -> Reading:
        """A connection that breaks while serving tells that the other side went away; its log holds the cause."""
        gone = serving and reading.kind == "nccl" and _PEER_GONE.search(text)
        return self["consequence"] if gone else reading

    def in_bench(self, reading: Reading, text: str) -> Reading:
        """The same error means another thing in a benchmark program: the server is not what failed."""
        if reading.kind in {"bench_client", "unknown", "auth", "disk", "host_oom"}:
            return reading
        packages = reading.kind in {"version_mismatch", "no_kernel_image"} or "okenizer" in text
        return self["benchmark_packages" if packages else "benchmark_arguments"]

    def exception(self, raised: Raised, source: str, phase: Phase, frames: Sequence[Frame]) -> Reading | None:
        """What an exception that no entry knows says by its name, its place and its words. None: no evidence."""
        if raised.name.endswith("Warning"):
            return None
        text = raised.message or source
        reading = (
            self._by_name(raised, phase, frames)
            or self._by_words(raised.message)
            or self._by_place(raised, text, phase, frames)
        )
        # Without a message there may be a better text below.
        told = raised.message and not _REFERENCE.match(raised.message)
        return reading if told or reading.general else Reading.of(reading.meaning.model_copy(update={"general": True}))

    def _by_name(self, raised: Raised, phase: Phase, frames: Sequence[Frame]) -> Reading | None:
        name, message = raised.name, raised.message
        if name in self._consequences or (message and _SAYS_NOTHING.match(message)):
            return self["consequence"]
        if name == "ValidationError" and phase is Phase.ARGS:
            return self["argument"]
        if name == "MemoryError":
            return self["host_memory"]
        if name in {"ImportError", "ModuleNotFoundError"} or _NO_ATTRIBUTE.search(message):
            package = next((c for p, c in _PACKAGES.items() if re.search(p, message)), Component.HOST)
            return self["import_failed"].at(package, Action.PIN_VERSION)
        if phase not in _SERVING and _OTHER_ARGUMENTS.search(message):
            return self["library_call"]
        if name == "PermissionError":
            return self["not_permitted"]
        if any(_COMM_FRAME.search(str(f)) for f in frames[:3]):
            return self["communication"]
        if name in {"FileNotFoundError", "NotADirectoryError", "IsADirectoryError"} and phase not in _SERVING:
            return self["file_missing"]
        return None

    def _by_words(self, message: str) -> Reading | None:
        if _SUPPORT.search(message):
            return None
        return next((self[name] for pattern, name in self._words if pattern.search(message)), None)

    def _by_place(self, raised: Raised, text: str, phase: Phase, frames: Sequence[Frame]) -> Reading:
        name = raised.name
        config = any(_CONFIG_FRAME.search(str(f)) for f in frames[: None if phase is Phase.ARGS else 2])
        if phase is Phase.ARGS and not _SUPPORT.search(text):
            in_args = any(_ARGS_FRAME.search(str(f)) for f in frames)
            if name in _OF_PYTHON and not in_args:
                return self["config_key"]
            of_values = name in _OF_VALUES and (in_args or not frames or not config)
            if text and (of_values or (not config and _of_the_engine(frames))):
                return self["argument"]
            return self["config_key" if config else "unread"]
        if phase is Phase.LOAD:
            weights = any(_WEIGHTS_FRAME.search(str(f)) for f in frames[:4])
            if name == "KeyError" and "." in text and weights:
                return self["weight_name"]
            if name in {"KeyError", "AttributeError"} and config and _CONFIG_KEY.search(text):
                return self["config_key"]
            if weights:
                return self["weight_layout"]
        computed = _of_the_engine(frames) or (not frames and phase in _COMPUTING)
        says = raised.message or name == "AssertionError"  # any other without a message has no content
        known = _SUPPORT.search(text) or text.startswith("assert ") or (says and computed)
        return self["no_code" if known else "unread"]


def _above(frames: Sequence[Frame]) -> str:
    return f"{frames[0]} {frames[0].source}" if frames else ""


def _of_the_engine(frames: Sequence[Frame]) -> bool:
    """Whether the innermost frame is the engine's own, or one of a package that computes for it."""
    return bool(frames) and (frames[0].engine or _COMPUTES.match(frames[0].path) is not None)


def _held_by_others(text: str) -> bool:
    capacity = _CAPACITY.search(text)
    held = sum(_gib(m) for m in _OTHERS_MEMORY.finditer(text))
    return capacity is not None and held > _MUCH * _gib(capacity)


def _gib(match: re.Match[str]) -> float:
    return float(match[1]) / (1024 if match[2] == "M" else 1)
