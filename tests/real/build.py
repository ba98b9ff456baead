"""Builds what `make real` runs against: a real SGLang on this CPU, in an environment of its own, and tiny checkpoints.

A script of the standard library alone: `python tests/real/build.py`. All of it lies in `.real/`, nothing else is
touched. Whatever is already there and still right is kept, so an interrupted build goes on where it stopped, and a
finished one costs nothing. Installing takes one to two minutes where packages come fast.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

__all__ = ["HERE", "MODELS", "PYTHON", "REAL", "SITE", "BuildFailed", "build"]

HERE = Path(__file__).resolve().parent
REAL = HERE.parents[1] / ".real"
PYTHON = REAL / "venv" / "bin" / "python"
MODELS = REAL / "models"
SITE = HERE / "site"  # stand-ins, put on PYTHONPATH

_PINS = HERE / "requirements-sglang.txt"
_MAKER = HERE / "checkpoint.py"
_LOG = REAL / "build.log"
_TORCH = "torch==2.13.0"
_CPU_GB, _CUDA_GB = 2.5, 7.0  # on disk; the first is measured, the second estimated from the sizes of its wheels
_PROGRESS_S = 10.0


class BuildFailed(Exception):
    """A step ended in failure; the message holds the last lines of its output and where the rest lies."""


def build() -> None:
    """Bring `.real/` up to date, and say what is being done. Raises: BuildFailed."""
    REAL.mkdir(exist_ok=True)
    _LOG.write_text("")
    began = time.monotonic()
    work = [step for step, done in ((_install, _installed()), (_make_checkpoints, _made())) if not done]
    for step in work:
        step(began)
    if work:
        _say(began, "ready")


def _install(began: float) -> None:
    if not _works(PYTHON):
        _say(began, "making the environment")
        shutil.rmtree(REAL / "venv", ignore_errors=True)
        _run(began, [sys.executable, "-m", "venv", str(REAL / "venv")])
    gb, which = (_CUDA_GB, "CUDA") if _pip_takes_cuda(began) else (_CPU_GB, "CPU")
    free_gb = shutil.disk_usage(REAL).free / 1e9
    _say(began, f"a real SGLang will take about {gb} GB (pip finds a {which} torch; {free_gb:.0f} GB are free)")
    if free_gb < gb and not _works(PYTHON, "import torch"):
        raise BuildFailed(f"{REAL} has {free_gb:.1f} GB free, {gb} GB are needed")
    _say(began, f"installing {_TORCH}")
    _pip(began, _TORCH, "--constraint", str(_PINS))
    _say(began, "installing sglang and what its server imports")
    _pip(began, "--no-deps", "--requirement", str(_PINS))
    _installed_stamp().write_text(_digest(_PINS))


def _make_checkpoints(began: float) -> None:
    _say(began, "making the tiny checkpoints")
    _run(began, [str(PYTHON), str(_MAKER), str(MODELS)])
    _made_stamp().write_text(_digest(_PINS, _MAKER))


def _installed() -> bool:
    return _reads(_installed_stamp(), _digest(_PINS)) and _works(PYTHON)


def _made() -> bool:
    return _reads(_made_stamp(), _digest(_PINS, _MAKER))


def _installed_stamp() -> Path:
    return REAL / "venv" / ".installed"


def _made_stamp() -> Path:
    return MODELS / ".made"


def _pip_takes_cuda(began: float) -> bool:
    """Whether torch would bring CUDA packages along; asked before anything large is fetched."""
    report = REAL / "torch.json"
    _pip(began, "--dry-run", "--ignore-installed", "--report", str(report), _TORCH, "--constraint", str(_PINS))
    names = [item["metadata"]["name"] for item in json.loads(report.read_text())["install"]]
    return any(name.startswith("nvidia-") for name in names)


def _pip(began: float, *arguments: str) -> None:
    _run(began, [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check", *arguments])


def _run(began: float, argv: Sequence[str]) -> None:
    """Run one command, its output in the log; every ten seconds say the line that it is at."""
    env = {**os.environ, "PYTHONPATH": str(SITE)}
    with _LOG.open("a") as log, subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT, env=env) as process:
        while True:
            try:
                exited = process.wait(_PROGRESS_S)
                break
            except subprocess.TimeoutExpired:
                _say(began, f"  {_last_lines(1).strip():.90}")
    if exited != 0:
        command = " ".join(argv[:5])
        raise BuildFailed(f"exit {exited} from {command} …; all of it in {_LOG}, the end:\n{_last_lines(10)}")


def _last_lines(count: int) -> str:
    lines = _LOG.read_text(errors="replace").splitlines()
    return "\n".join([line for line in lines if not line.startswith("WARNING: Location")][-count:])


def _works(python: Path, code: str = "") -> bool:
    return python.exists() and subprocess.run([python, "-c", code], capture_output=True).returncode == 0


def _reads(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text() == text


def _digest(*paths: Path) -> str:
    return hashlib.sha256(b"\0".join(_contents(paths))).hexdigest()


def _contents(paths: Iterable[Path]) -> Iterable[bytes]:
    yield sys.version.encode()
    for path in paths:
        yield path.read_bytes()


def _say(began: float, what: str) -> None:
    print(f"[{time.monotonic() - began:4.0f} s] {what}", flush=True)


if __name__ == "__main__":
    try:
        build()
    except BuildFailed as e:
        sys.exit(f"build: {e}")
