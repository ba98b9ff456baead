"""Obstacles are seen on a real machine, in about the time that one command takes."""

import getpass
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from settings.engine import load_engine
from settings.target import Target
from tasks.deadline import Deadline
from tasks.local_host import LocalHost
from tasks.preflight import look, preflight

ENGINE = load_engine("sglang")


def a_target(tmp_path: Path, gpus: int = 1) -> Target:
    (tmp_path / "config.json").write_text('{"architectures": ["X"]}')
    return Target(name="t", python=sys.executable, model=str(tmp_path), state_dir=str(tmp_path), gpus=gpus)


def a_host(tmp_path: Path, smi: str) -> LocalHost:
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{smi}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    return LocalHost("here", env={"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"})


def a_free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def test_a_taken_port_is_seen_before_the_weights_are_loaded(tmp_path: Path) -> None:
    with socket.socket() as taken, a_host(tmp_path, "true") as host:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = preflight(host, a_target(tmp_path), ENGINE, port, deadline=Deadline.after(20))
    assert "port" in [obstacle.kind for obstacle in found]


def test_a_foreign_process_is_named_with_its_owner_and_ours_is_known_by_its_mark(tmp_path: Path) -> None:
    ours = subprocess.Popen(["sleep", "60"], env={**os.environ, "BRINGUP_ATTEMPT": "r1-1"})
    apps = f"1, init, 500, GPU-0\\n{ours.pid}, us, 7, GPU-0\\n{2**22 + 1}, gone, 1, GPU-0\\n"
    smi = f'case "$1" in --query-compute-apps*) printf "{apps}";; esac'
    try:
        with a_host(tmp_path, smi) as host:
            now = look(host, a_target(tmp_path), ENGINE, a_free_port(), deadline=Deadline.after(20))
    finally:
        ours.kill()
        ours.wait()
    me = getpass.getuser()
    told = [(p.pid, p.name, p.ours, p.user) for p in now.processes]
    assert [(1, "init", False, "root"), (ours.pid, "us", True, me), (2**22 + 1, "gone", False, None)] == told


def test_a_machine_in_order_is_passed_in_a_second(tmp_path: Path) -> None:
    with a_host(tmp_path, "true") as host:
        port = a_free_port()
        began = time.monotonic()
        now = look(host, a_target(tmp_path), ENGINE, port, deadline=Deadline.after(20))
        took_s = time.monotonic() - began
    assert (True, True, ()) == (now.port_free, now.model_found, now.processes)
    assert now.shm_free_mib is not None
    assert set(now.disk_free_mib) >= {"/tmp", str(tmp_path)}
    assert took_s < 5.0  # about 0.2 s on an idle machine


def test_a_model_that_is_not_there_is_an_obstacle_and_a_hub_id_is_none(tmp_path: Path) -> None:
    with a_host(tmp_path, "true") as host:
        def kinds(model: str) -> list[str]:
            target = a_target(tmp_path, gpus=0).model_copy(update={"model": model})
            return [o.kind for o in preflight(host, target, ENGINE, a_free_port(), deadline=Deadline.after(20))]

        assert "model_files" in kinds("/nowhere/model")
        assert "model_files" not in kinds("some-org/some-model")
