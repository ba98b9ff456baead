"""The probe against engines that answer, chatter, crash and hang: what can be had is had, the rest is told."""

import os
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from settings.engine import Engine, load_engine
from settings.target import Target
from tasks.connect import connect
from tasks.deadline import Deadline
from tasks.local_host import LocalHost
from tasks.probe import probe
from tasks.pure.capabilities import Capabilities
from tests.tasks.conftest import Sshd

ENGINE = load_engine("sglang")
WORKS = """
    class ServerArgs:
        @staticmethod
        def add_cli_args(parser):
            print("chatter on stdout")
            parser.add_argument("--tp-size", "--tensor-parallel-size", type=int, default=1)
            parser.add_argument("--sampling-backend", choices={"flashinfer", "pytorch"})
            parser.add_argument("--disable-cuda-graph", action="store_true")
"""
HELP = """
    import argparse
    parser = argparse.ArgumentParser()
    parser.add_argument("--tp-size", type=int, help="words " * 60)
    parser.parse_args()
"""
SMI = """\
#!/bin/sh
case "$1" in
  --query-gpu*) echo "0, NVIDIA H200, 9.0, 143771, 3, 580.95.05, GPU-0" ;;
  --query-compute-apps*) echo "$PPID, somebody, 1000, GPU-0" ;;
  topo) echo "GPU0 X" ;;
esac
"""


class Machine:
    """A folder that plays an installed engine, with an nvidia-smi of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.python = folder, sys.executable
        self.write("site/sglang/__init__.py", "__version__ = '0.5.23'")
        self.write("site/sglang/srt/__init__.py", "")
        self.write("site/sglang/srt/environ.py", "class Envs:\n    SGLANG_ENABLE_NAN_LOGITS_CHECK = False\n    _x = 1")
        self.write("site/sglang/srt/server_args.py", WORKS)
        self.write("site/sglang/launch_server.py", HELP)
        self.write("bin/nvidia-smi", SMI)
        (folder / "bin" / "nvidia-smi").chmod(0o755)
        self.write("model/config.json", '{"architectures": ["GlmMoeDsaForCausalLM"], "index_topk": 2048}')
        self.write("model/model.safetensors.index.json", '{"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}')
        self.write("model/1.safetensors", "x" * 10)

    def write(self, path: str, text: str) -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(textwrap.dedent(text))

    def target(self) -> Target:
        return Target(name="t", python=self.python, model=str(self.folder / "model"), state_dir=str(self.folder))

    def host(self) -> LocalHost:
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return LocalHost("here", env={"PYTHONPATH": str(self.folder / "site"), "PATH": path})

    def probe(self, engine: Engine = ENGINE, seconds: float = 30.0) -> Capabilities:
        with self.host() as host:
            return probe(host, self.target(), engine, deadline=Deadline.after(seconds))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def told(found: Capabilities, part: str) -> list[str]:
    return [problem for problem in found.problems if problem.startswith(part)]


def test_a_build_that_answers_describes_its_own_flags(machine: Machine) -> None:
    found = machine.probe()
    assert ("argparse", "0.5.23") == (found.answered, found.build.version)
    assert found.parser is not None
    tp = found.parser.find("--tensor-parallel-size")
    assert tp is not None
    assert (("--tp-size", "--tensor-parallel-size"), "tp_size", 1) == (tp.names, tp.dest, tp.default)
    sampling, graphs = found.parser.find("--sampling-backend"), found.parser.find("--disable-cuda-graph")
    assert sampling is not None
    assert graphs is not None
    assert (("flashinfer", "pytorch"), False) == (sampling.choices, graphs.takes_value)
    assert frozenset({"SGLANG_ENABLE_NAN_LOGITS_CHECK"}) == found.environment


def test_the_machine_and_the_model_are_described(machine: Machine) -> None:
    found = machine.probe()
    (gpu,) = found.gpus
    assert ("NVIDIA H200", 90, 143_771, 3) == (gpu.name, gpu.sm, gpu.memory_mib, gpu.used_mib)
    assert ("GlmMoeDsaForCausalLM", 2048, 2, ("2.safetensors",), 10) == (
        found.model.architecture, found.model.index_topk, found.model.shards, found.model.missing_shards,
        found.model.size_bytes,
    )
    assert found.host.kernel == os.uname().release
    assert found.host.more["cpus"] == os.cpu_count()
    assert found.build.freeze_sha256
    assert ["model: 1 weight files named in the index are missing, the first is 2.safetensors"] == told(found, "model")


BROKEN = {
    "raises": "import no_such_module_anywhere",
    "exits": "raise SystemExit(3)",
    "crashes": "import os; os.abort()",
    "has no such class": "",
}


@pytest.mark.parametrize("how", BROKEN)
def test_help_answers_for_a_build_whose_import_fails(machine: Machine, how: str) -> None:
    machine.write("site/sglang/srt/server_args.py", BROKEN[how])
    found = machine.probe()
    assert "help" == found.answered
    assert found.parser is not None
    assert found.parser.find("--tp-size") is not None
    assert told(found, "build")
    assert 1 == len(found.gpus)
    assert "GlmMoeDsaForCausalLM" == found.model.architecture


def test_a_build_that_hangs_is_left_in_time_and_help_is_asked(machine: Machine) -> None:
    machine.write("site/sglang/srt/server_args.py", "import time; time.sleep(600)")
    began = time.monotonic()
    found = machine.probe(seconds=6.0)
    assert time.monotonic() - began < 6.0
    assert "help" == found.answered
    assert any("no answer within" in problem for problem in told(found, "build"))


def test_a_build_that_tells_nothing_is_reported_and_blocks_nothing(machine: Machine) -> None:
    machine.write("site/sglang/srt/server_args.py", "raise ValueError('torch is broken')")
    machine.write("site/sglang/launch_server.py", "raise ValueError('torch is broken')")
    found = machine.probe()
    assert (None, None) == (found.parser, found.answered)
    assert any("torch is broken" in problem for problem in told(found, "build"))
    assert any("torch is broken" in problem for problem in told(found, "help"))
    assert 1 == len(found.gpus)


def test_a_machine_without_the_engine_s_python_is_still_described(machine: Machine) -> None:
    machine.python = "/nowhere/bin/python"
    found = machine.probe()
    assert told(found, "probe: /nowhere/bin/python")
    assert 1 == len(found.gpus)
    assert found.host.kernel == os.uname().release
    assert "GlmMoeDsaForCausalLM" == found.model.architecture


@pytest.mark.parametrize(
    ("spoil", "part", "still"),
    [
        (lambda m: (m.folder / "bin" / "nvidia-smi").write_text("#!/bin/sh\necho no driver; exit 9\n"), "nvidia",
         lambda f: f.parser),
        (lambda m: m.write("model/config.json", "{"), "model", lambda f: f.gpus),
        (lambda m: m.write("site/sglang/srt/environ.py", "1/0"), "build: environment", lambda f: f.parser),
    ],
)
def test_one_failing_part_hides_no_other(
    machine: Machine, spoil: Callable[[Machine], object], part: str, still: Callable[[Capabilities], object]
) -> None:
    spoil(machine)
    found = machine.probe()
    assert told(found, part)
    assert still(found)


@pytest.mark.sshd
def test_a_host_behind_ssh_is_told_the_same_way(machine: Machine, sshd: Sshd) -> None:
    env = {"PYTHONPATH": str(machine.folder / "site"), "PATH": f"{machine.folder / 'bin'}:/usr/bin:/bin"}
    there = sshd.target(python=machine.python, model=str(machine.folder / "model"), env=env)
    deadline = Deadline.after(30)
    with connect(there, deadline=deadline) as host:
        found = probe(host, there, ENGINE, deadline=deadline)
    here = machine.probe()
    assert (here.parser, here.gpus, here.model, here.build) == (found.parser, found.gpus, found.model, found.build)


def test_a_build_that_hangs_at_help_too_is_told_and_blocks_nothing(machine: Machine) -> None:
    machine.write("site/sglang/__init__.py", "import time; time.sleep(600)")
    found = machine.probe(seconds=4.0)
    assert (None, 1) == (found.parser, len(found.gpus))
    assert any("did not end in time" in problem for problem in told(found, "help"))
