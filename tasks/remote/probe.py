"""Runs on the host, under the engine's Python: finds out what is there and prints one JSON object.

Called as `python - SPEC` with this file on stdin; SPEC is JSON `{parts, parser, environment, packages, package, model,
folders, limit_s}`. Every part fails by itself, and says so under `problems`. No part makes a CUDA context, so no GPU
memory is taken. Standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import importlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import pwd
import re
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

__all__ = ["main"]

Spec = Dict[str, Any]
SHARED_MEMORY_PER_BLOCK_OPTIN = 97  # CUdevice_attribute, cuda.h
MARK = b"BRINGUP_ATTEMPT="
MIB = 1024 * 1024


def main(argv: List[str]) -> None:
    spec = json.loads(argv[1])
    report: Dict[str, Any] = {}
    problems: List[str] = []
    for name in spec["parts"]:
        try:
            report[name] = _PARTS[name](spec)
        except BaseException as e:  # the import of an engine raises anything, SystemExit included
            if isinstance(e, KeyboardInterrupt):
                raise
            problems.append("{}: {}".format(name, str(e) or type(e).__name__))
    report["problems"] = problems
    print(json.dumps(report))


def _host(_: Spec) -> Dict[str, Any]:
    return {
        "hostname": socket.gethostname(),
        "os": _os_release(),
        "kernel": platform.release(),
        "python": "{} ({})".format(platform.python_version(), sys.executable),
        "virtualization": _virtualization(),
        "container": _container(),
        "cpu": _after_colon("/proc/cpuinfo", "model name"),
        "cpus": os.cpu_count(),
        "cpus_allowed": len(os.sched_getaffinity(0)),
        "numa_nodes": len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or None,
        "memory_mib": _meminfo("MemTotal"),
        "memory_free_mib": _meminfo("MemAvailable"),
        "iommu_groups": len(list(Path("/sys/kernel/iommu_groups").glob("*"))),
        "kernel_command_line": _text("/proc/cmdline"),
        "login_shell": pwd.getpwuid(os.getuid()).pw_shell,
        "path": os.environ.get("PATH"),
        "unix_time": time.time(),
        "uptime_s": float((_text("/proc/uptime") or "nan").split()[0]),
    }


def _limits(spec: Spec) -> Dict[str, Any]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return {
        "open_files": None if soft == resource.RLIM_INFINITY else soft,
        "open_files_hard": None if hard == resource.RLIM_INFINITY else hard,
        "locked_memory_mib": None if locked == resource.RLIM_INFINITY else locked // MIB,
        "shm_free_mib": _free_mib("/dev/shm"),
        "disk_free_mib": {folder: _free_mib(folder) for folder in spec.get("folders", ())},
    }


def _nvidia(_: Spec) -> Dict[str, Any]:
    """What nvidia-smi prints, unread: reading it is decided elsewhere, and tested without a GPU."""
    if shutil.which("nvidia-smi") is None:
        raise FileNotFoundError("no nvidia-smi on the non-interactive PATH")
    query = "index,name,compute_cap,memory.total,memory.used,driver_version,uuid"
    answers: Dict[str, Any] = {"gpus": _run(["nvidia-smi", "--query-gpu=" + query, "--format=csv,noheader,nounits"])}
    apps = "pid,process_name,used_memory,gpu_uuid"
    answers["apps"] = _run(["nvidia-smi", "--query-compute-apps=" + apps, "--format=csv,noheader,nounits"])
    pids = [line.split(",")[0].strip() for line in answers["apps"].splitlines()]
    answers["ours"] = [int(pid) for pid in pids if pid.isdigit() and _is_ours(int(pid))]
    answers["users"] = {pid: _user(pid) for pid in pids if pid.isdigit()}
    return answers


def _topology(_: Spec) -> Any:
    return _run(["nvidia-smi", "topo", "-m"]) if shutil.which("nvidia-smi") else None


def _p2p(_: Spec) -> Any:
    return _run(["nvidia-smi", "topo", "-p2p", "r"]) if shutil.which("nvidia-smi") else None


def _cuda(_: Spec) -> Dict[str, Any]:
    nvcc = shutil.which("nvcc")
    homes = sorted(str(path) for path in Path("/usr/local").glob("cuda*") if (path / "bin" / "nvcc").exists())
    found = {"nvcc": nvcc, "nvcc_elsewhere": [] if nvcc else homes, "cuda_home": os.environ.get("CUDA_HOME")}
    if nvcc:
        found["nvcc_version"] = _run([nvcc, "--version"]).strip().splitlines()[-1]
    return found


def _shared_memory(spec: Spec) -> Any:
    """Bytes of shared memory that a block can have at most, per GPU; asks the driver, makes no context."""
    return _apart(_ask_driver, spec, 10.0) if shutil.which("nvidia-smi") else None


def _ask_driver(_: Spec) -> List[int]:
    cuda = ctypes.CDLL("libcuda.so.1")
    count, device, value = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        raise OSError("libcuda finds no device")
    sizes = []
    for i in range(count.value):
        cuda.cuDeviceGet(ctypes.byref(device), i)
        cuda.cuDeviceGetAttribute(ctypes.byref(value), SHARED_MEMORY_PER_BLOCK_OPTIN, device)
        sizes.append(value.value)
    return sizes


def _packages(spec: Spec) -> Dict[str, Any]:
    installed: Dict[str, str] = {}
    for dist in importlib.metadata.distributions():
        name = dist.metadata["Name"]
        if name:
            # The first on the path is the one that is imported.
            installed.setdefault(re.sub(r"[-_.]+", "-", name).lower(), dist.version)
    freeze = "\n".join("{}=={}".format(name, installed[name]) for name in sorted(installed))
    return {
        "versions": {name: installed[name] for name in spec["packages"] if name in installed},
        "freeze_sha256": hashlib.sha256(freeze.encode()).hexdigest(),
        "count": len(installed),
    }


def _commit(spec: Spec) -> str:
    """The commit of a checkout or of an install from git. Nothing for an install from an index."""
    try:
        direct = importlib.metadata.distribution(spec["package"]).read_text("direct_url.json")
        recorded = json.loads(direct)["vcs_info"]["commit_id"] if direct else None
    except (importlib.metadata.PackageNotFoundError, KeyError, ValueError):
        recorded = None
    if recorded:
        return str(recorded)
    found = importlib.util.find_spec(spec["package"])
    if found is None or not found.origin:
        raise ModuleNotFoundError("{} is not installed in {}".format(spec["package"], sys.executable))
    folder = str(Path(found.origin).parent)
    if shutil.which("git") is None or "site-packages" in folder:
        return ""
    # A package that git ignores, or that lies deep in a repository, is in somebody else's: the commit is not its own.
    tracked = subprocess.run(
        ["git", "-C", folder, "ls-files", "--error-unmatch", "__init__.py"], capture_output=True, timeout=5, check=False
    )
    if tracked.returncode != 0 or _run(["git", "-C", folder, "rev-parse", "--show-prefix"]).count("/") > 2:
        return ""
    return _run(["git", "-C", folder, "rev-parse", "HEAD"]).strip()


def _model(spec: Spec) -> Dict[str, Any]:
    folder = _model_folder(spec["model"])
    config = json.loads((folder / "config.json").read_text("utf-8"))
    quantization = config.get("quantization_config") or {}
    recipe = folder / "hf_quant_config.json"
    if not quantization and recipe.exists():
        quantization = json.loads(recipe.read_text("utf-8")).get("quantization", {})
    index = folder / "model.safetensors.index.json"
    named = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values())) if index.exists() else []
    return {
        "path": str(folder),
        "architecture": (config.get("architectures") or [None])[0],
        "index_topk": config.get("index_topk"),
        "quantization": quantization.get("quant_algo") or quantization.get("quant_method"),
        "scale_format": quantization.get("scale_fmt"),
        "size_bytes": sum(path.stat().st_size for path in folder.glob("*.safetensors")),
        "shards": len(named) or len(list(folder.glob("*.safetensors"))),
        "missing_shards": [name for name in named if not (folder / name).exists()],
        "config": {key: value for key, value in config.items() if isinstance(value, (str, int, float, bool))},
    }


def _model_folder(model: str) -> Path:
    folder = Path(os.path.expanduser(model))
    if folder.is_dir():
        return folder
    if model.startswith(("/", "~", ".")) or model.count("/") != 1:
        raise FileNotFoundError("no folder {} on this host".format(model))
    hub = Path(os.environ.get("HF_HUB_CACHE") or Path(os.environ.get("HF_HOME") or "~/.cache/huggingface") / "hub")
    cached = hub.expanduser() / "models--{}".format(model.replace("/", "--"))
    ref = cached / "refs" / "main"
    if not ref.exists():
        raise FileNotFoundError("{} is not in this host's cache ({})".format(model, cached))
    return cached / "snapshots" / ref.read_text("utf-8").strip()


def _build(spec: Spec) -> Any:
    """What the build says of itself. Importing an engine may print, hang or crash: so in a process apart."""
    return _apart(_ask_build, spec, float(spec["limit_s"]))


def _ask_build(spec: Spec) -> Dict[str, Any]:
    answers: Dict[str, Any] = {"problems": []}
    for name, ask in (("version", _imported_version), ("environment", _variables), ("parser", _actions)):
        try:
            answers[name] = ask(spec)
        except BaseException as e:  # noqa: BLE001 - see main
            answers["problems"].append("{}: {}: {}".format(name, type(e).__name__, e))
    return answers


def _imported_version(spec: Spec) -> Any:
    return getattr(importlib.import_module(spec["package"]), "__version__", None)


def _variables(spec: Spec) -> List[str]:
    """Names of the variables that the build declares: an undeclared one is ignored without a word."""
    return sorted(name for name in dir(_lookup(spec["environment"])) if name.isupper() and not name.startswith("_"))


def _actions(spec: Spec) -> List[Dict[str, Any]]:
    """The actions of the build's own argparse."""
    parser = argparse.ArgumentParser()
    _lookup(spec["parser"])(parser)
    return [
        {
            "flags": list(action.option_strings),
            "dest": action.dest,
            "action": type(action).__name__,
            "nargs": action.nargs,
            "choices": None if action.choices is None else sorted(map(str, action.choices)),
            "default": action.default if _is_plain(action.default) else repr(action.default),
        }
        for action in parser._actions
        if action.option_strings
    ]


def _lookup(path: str) -> Any:
    module, _, attributes = path.partition(":")
    found: Any = importlib.import_module(module)
    for name in attributes.split("."):
        found = getattr(found, name)
    return found


def _apart(work: Callable[[Spec], Any], spec: Spec, seconds: float) -> Any:
    """The result of `work` from a forked child. Raises: RuntimeError when it raised, crashed or took too long."""
    sys.stdout.flush()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        os.dup2(2, 1)  # whatever it prints is no part of our answer
        try:
            answer = {"result": work(spec)}
        except BaseException as e:  # noqa: BLE001 - see main
            answer = {"error": "{}: {}".format(type(e).__name__, e)}
        with os.fdopen(writing, "w") as pipe:
            pipe.write(json.dumps(answer))
        os._exit(0)
    os.close(writing)
    try:
        text, in_time = _read_until(reading, time.monotonic() + seconds)
    finally:
        os.close(reading)
        _end(pid)
    if not in_time:
        raise RuntimeError("no answer within {:.0f} s".format(seconds))
    if not text:
        raise RuntimeError("the process crashed")
    answer = json.loads(text)
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return answer["result"]


def _read_until(fd: int, at: float) -> Any:
    chunks: List[bytes] = []
    while True:
        ready, _, _ = select.select([fd], [], [], max(0.0, at - time.monotonic()))
        if not ready:
            return b"".join(chunks).decode(), False
        chunk = os.read(fd, 65536)
        if not chunk:
            return b"".join(chunks).decode(), True
        chunks.append(chunk)


def _end(pid: int) -> None:
    """End our own child, which has answered, crashed or overrun its time."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _run(argv: List[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise RuntimeError("{} exited {}: {}".format(argv[0], done.returncode, said[-1] if said else ""))
    return done.stdout


def _text(path: str) -> Any:
    try:
        return Path(path).read_text("utf-8", "replace").strip()
    except OSError:
        return None


def _after_colon(path: str, key: str) -> Any:
    for line in (_text(path) or "").splitlines():
        if line.startswith(key):
            return line.partition(":")[2].strip()
    return None


def _meminfo(key: str) -> Any:
    value = _after_colon("/proc/meminfo", key)
    return int(value.split()[0]) // 1024 if value else None


def _os_release() -> Any:
    for line in (_text("/etc/os-release") or "").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip('"')
    return platform.platform()


def _virtualization() -> Any:
    """The hypervisor's product name, e.g. QEMU; "none" on bare metal; None when it cannot be told."""
    cpuinfo = _text("/proc/cpuinfo")
    if cpuinfo is None:
        return None
    if " hypervisor" not in cpuinfo:
        return "none"
    return _text("/sys/class/dmi/id/sys_vendor") or "yes"


def _container() -> Any:
    for path, name in (("/.dockerenv", "docker"), ("/run/.containerenv", "podman")):
        if os.path.exists(path):
            return name
    groups = _text("/proc/1/cgroup") or ""
    return next((name for name in ("kubepods", "docker", "lxc", "containerd") if name in groups), None)


def _free_mib(folder: str) -> Any:
    """Free space for a folder that may not be there yet: its nearest parent counts."""
    path = Path(os.path.expanduser(folder))
    while not path.exists() and path != path.parent:
        path = path.parent
    return shutil.disk_usage(str(path)).free // MIB


def _is_ours(pid: int) -> bool:
    try:
        return any(entry.startswith(MARK) for entry in Path("/proc/{}/environ".format(pid)).read_bytes().split(b"\0"))
    except OSError:
        return False


def _user(pid: str) -> Optional[str]:
    """Login name of a process's owner. Source: proc(5); the folder itself belongs to root where a process hides."""
    uid = ""
    try:
        uid = Path("/proc", pid, "status").read_text().partition("\nUid:")[2].split()[0]
        return pwd.getpwuid(int(uid)).pw_name
    except (OSError, IndexError, KeyError):  # KeyError: a uid without a name
        return "uid " + uid if uid else None


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, float, bool))


_PARTS = {
    "host": _host, "limits": _limits, "nvidia": _nvidia, "topology": _topology, "p2p": _p2p, "cuda": _cuda,
    "shared_memory": _shared_memory, "packages": _packages, "commit": _commit, "model": _model, "build": _build,
}

if __name__ == "__main__":
    main(sys.argv)
