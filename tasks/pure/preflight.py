"""What stands in the way of a launch, found in a second instead of after ten minutes of loading weights."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from settings.engine import Engine
from settings.target import Target
from settings.words import Component

__all__ = ["GpuProcess", "HostNow", "Obstacle", "check"]

BASELINE_MIB = 1024  # an idle GPU with ECC and a display holds some hundred MiB; a CUDA context alone about 500
SHM_MIB_PER_GPU = 256  # NCCL and the tokenizer's queues; containers default to 64 MiB in all
DISK_MIB = 2048  # /tmp and the state folder: log, IPC files, JIT caches
FILES = 4096  # one process per GPU, each with its shards mapped


@dataclass(frozen=True, slots=True)
class GpuProcess:
    pid: int
    name: str
    used_mib: int | None
    gpu: int | None = None  # index; None = could not be told
    ours: bool = False  # carries the mark of one of our attempts
    user: str | None = None  # login name of its owner

    def __str__(self) -> str:
        return f"pid {self.pid}, {self.name}" + (f" of {self.user}" if self.user else "")


@dataclass(frozen=True, slots=True)
class HostNow:
    """The quick facts before a launch. None = could not be told, and is then no obstacle."""

    port_free: bool | None = None
    processes: tuple[GpuProcess, ...] = ()
    gpu_used_mib: Mapping[int, int] = field(default_factory=dict)  # by index
    disk_free_mib: Mapping[str, int] = field(default_factory=dict)  # by folder
    shm_free_mib: int | None = None
    open_files: int | None = None  # hard limit: the supervisor raises the soft one to it; None = unlimited or unknown
    missing_shards: tuple[str, ...] = ()
    model_found: bool | None = None  # None where the model is a hub id


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A reason not to launch, with its cure. `kind` is one of the catalogue's."""

    kind: str
    component: Component
    means: str
    try_: str


def check(facts: HostNow, target: Target, engine: Engine, port: int) -> tuple[Obstacle, ...]:
    """Everything that would make a launch of `engine` fail on this host, the surest first; empty = go."""
    return (*_port(facts, engine, port), *_model(facts, target), *_gpus(facts, target), *_limits(facts, target))


def _port(facts: HostNow, engine: Engine, port: int) -> Iterator[Obstacle]:
    if facts.port_free is False:
        yield Obstacle(
            "port", Component.HOST,
            f"something listens on port {port} already; {engine.name} would notice only after loading the weights",
            "stop it, or set `port` in the ladder's base.args",
        )


def _model(facts: HostNow, target: Target) -> Iterator[Obstacle]:
    if facts.model_found is False:
        yield Obstacle(
            "model_files", Component.LOADER, f"there is no model at {target.model}",
            "correct `model` in the target, or copy the model there",
        )
    if facts.missing_shards:
        n = len(facts.missing_shards)
        yield Obstacle(
            "model_files", Component.LOADER,
            f"{n} weight file{'s' * (n > 1)} named in the index {'are' if n > 1 else 'is'} missing, "
            f"the first is {facts.missing_shards[0]}",
            "complete the download of the model",
        )


def _gpus(facts: HostNow, target: Target) -> Iterator[Obstacle]:
    taken = _taken(facts, target)
    holders = [process for process in facts.processes if target.gpus and (process.gpu is None or process.gpu in taken)]
    for process in holders:
        held = f"{process.used_mib} MiB" if process.used_mib is not None else "some"
        whose = "a server of an earlier run" if process.ours else "a process that is not ours"
        yield Obstacle(
            "gpu_busy", Component.HOST,
            f"{whose} holds {held} of {_of(process.gpu)}: {process}",
            "run `bringup stop` for it" if process.ours else "ask its owner, then run again; we end no foreign process",
        )
    explained = {process.gpu for process in holders}
    for index in sorted(taken - explained if None not in explained else ()):
        used = facts.gpu_used_mib.get(index, 0)
        if used > BASELINE_MIB:
            yield Obstacle(
                "gpu_busy", Component.HOST, f"GPU {index} holds {used} MiB though no process is shown",
                "wait, look for a process in another container or VM, or reset the GPU",
            )


def _taken(facts: HostNow, target: Target) -> set[int]:
    """The GPUs that a run takes: the first ones, or those that CUDA_VISIBLE_DEVICES names by number."""
    visible = target.plain_env().get("CUDA_VISIBLE_DEVICES", "").split(",")
    named = [int(index) for index in visible if index.strip().isdecimal()]
    if len(named) < len(visible):
        return set(range(target.gpus)) if visible == [""] else set(facts.gpu_used_mib)
    return set(named[: target.gpus])


def _of(gpu: int | None) -> str:
    return "GPU memory" if gpu is None else f"GPU {gpu}"


def _limits(facts: HostNow, target: Target) -> Iterator[Obstacle]:
    for folder, free in facts.disk_free_mib.items():
        if free < DISK_MIB:
            yield Obstacle(
                "disk", Component.HOST, f"{free} MiB are free in {folder}, {DISK_MIB} are needed",
                f"make room in {folder}",
            )
    need = SHM_MIB_PER_GPU * target.gpus
    if facts.shm_free_mib is not None and facts.shm_free_mib < need:
        yield Obstacle(
            "disk", Component.HOST, f"{facts.shm_free_mib} MiB are free in /dev/shm, {need} are needed",
            "enlarge it: `mount -o remount,size=…`, or `--shm-size` of the container",
        )
    if facts.open_files is not None and facts.open_files < FILES:
        yield Obstacle(
            "disk", Component.HOST, f"a process may open {facts.open_files} files, {FILES} are needed",
            f"raise the hard limit (`ulimit -Hn`) to {FILES * 16}: limits.conf, or `--ulimit nofile=` of the container",
        )
