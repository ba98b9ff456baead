"""What would make a launch fail is told before it, with its cure; what cannot be told is no obstacle."""

import pytest

from settings.engine import Engine
from settings.target import Target
from settings.words import LOG_KINDS
from tasks.pure.preflight import GpuProcess, HostNow, Obstacle, check

FINE = HostNow(
    port_free=True, gpu_used_mib=dict.fromkeys(range(8), 2), disk_free_mib={"/tmp": 50_000}, shm_free_mib=32_000,
    open_files=1_048_576, model_found=True,
)


def target(gpus: int = 8) -> Target:
    return Target(name="t", model="/models/glm", gpus=gpus)


def obstacles(facts: HostNow, engine: Engine, gpus: int = 8) -> tuple[Obstacle, ...]:
    return check(facts, target(gpus), engine, 30_000)


def changed(**changes: object) -> HostNow:
    values = {name: getattr(FINE, name) for name in HostNow.__dataclass_fields__}
    return HostNow(**{**values, **changes})


CASES = [
    ({"port_free": False}, "port", "something listens on port 30000"),
    ({"model_found": False}, "model_files", "no model at /models/glm"),
    ({"missing_shards": ("model-3.safetensors",)}, "model_files", "1 weight file named in the index is missing"),
    ({"missing_shards": ("a", "b")}, "model_files", "2 weight files named in the index are missing, the first is a"),
    ({"processes": (GpuProcess(7, "vllm", 4_000, user="eve"),)}, "gpu_busy", "4000 MiB of GPU memory: pid 7, vllm of"),
    ({"processes": (GpuProcess(77, "x", None, ours=True),)}, "gpu_busy", "an earlier run holds some of GPU memory"),
    ({"gpu_used_mib": {0: 2, 1: 30_000}}, "gpu_busy", "GPU 1 holds 30000 MiB though no process is shown"),
    ({"disk_free_mib": {"/tmp": 100}}, "disk", "100 MiB are free in /tmp"),
    ({"shm_free_mib": 64}, "disk", "64 MiB are free in /dev/shm, 2048 are needed"),
    ({"open_files": 1024}, "disk", "may open 1024 files"),
]


@pytest.mark.parametrize(("changes", "kind", "means"), CASES)
def test_each_obstacle_is_named_with_a_cure(engine: Engine, changes: dict[str, object], kind: str, means: str) -> None:
    (found,) = obstacles(changed(**changes), engine)
    assert kind == found.kind
    assert means in found.means
    assert found.try_
    assert found.kind in LOG_KINDS


def test_a_host_in_order_has_no_obstacle(engine: Engine) -> None:
    assert () == obstacles(FINE, engine)


def test_what_could_not_be_told_is_no_obstacle(engine: Engine) -> None:
    assert () == obstacles(HostNow(), engine)


def test_gpus_that_the_run_does_not_take_may_be_busy(engine: Engine) -> None:
    busy = changed(gpu_used_mib={0: 2, 7: 30_000}, processes=(), shm_free_mib=64)
    assert () == obstacles(busy, engine, gpus=0)
    assert () == obstacles(changed(gpu_used_mib={0: 2, 7: 30_000}), engine, gpus=4)


def test_memory_that_a_named_process_holds_is_told_once(engine: Engine) -> None:
    held = changed(processes=(GpuProcess(7, "x", 30_000, gpu=0),), gpu_used_mib={0: 30_002, 1: 20_000})
    assert ["not ours holds 30000 MiB of GPU 0", "GPU 1 holds 20000 MiB"] == [
        o.means.removeprefix("a process that is ").split(":")[0].split(" though")[0] for o in obstacles(held, engine)
    ]


@pytest.mark.parametrize(
    ("visible", "gpus", "busy", "stopped"),
    [
        (None, 4, 3, True), (None, 4, 4, False), ("4,5,6,7", 4, 4, True), ("4,5,6,7", 4, 0, False),
        ("GPU-5e1f", 1, 6, True),
    ],
)
def test_only_the_gpus_that_the_run_takes_have_to_be_free(
    engine: Engine, visible: str | None, gpus: int, busy: int, stopped: bool
) -> None:
    env = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    at = Target.model_validate({"name": "t", "model": "m", "gpus": gpus, "env": env})
    by_process = changed(processes=(GpuProcess(7, "x", 30_000, gpu=busy),))
    by_memory = changed(gpu_used_mib={**FINE.gpu_used_mib, busy: 30_000})
    assert [stopped, stopped] == [bool(check(facts, at, engine, 30_000)) for facts in (by_process, by_memory)]
