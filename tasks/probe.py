"""Asks a host what it is and what its build can do, in one command and without touching a GPU's memory."""

import json
import shlex
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from settings.engine import Engine
from settings.target import Target
from tasks.connect import resolved
from tasks.deadline import Deadline
from tasks.host import Completed, DeadlinePassed, Host
from tasks.pure.capabilities import Capabilities, Parser
from tasks.pure.helptext import parser_from_help
from tasks.pure.probed import capabilities_from

__all__ = ["PARTS", "ask", "probe"]

# Parts that need only a Python, and parts that need the engine's.
HOST_PARTS = ("host", "limits", "nvidia", "topology", "p2p", "cuda", "shared_memory", "model")
BUILD_PARTS = ("packages", "commit", "build")
PARTS = HOST_PARTS + BUILD_PARTS

_ANY_PYTHON = "python3"
_BUILD_S = 45.0  # an import of torch from a cold disk took half a minute
_WIDE = {"COLUMNS": "10000"}  # so that --help wraps nothing


def probe(host: Host, target: Target, engine: Engine, *, deadline: Deadline) -> Capabilities:
    """Everything that a plan needs to know of the host. A part that fails stands in `problems`, and hides no other.

    Raises: HostError when the host itself fails.
    """
    target = resolved(target, host)
    asked_at = time.time()
    report = ask(host, target, engine, PARTS, deadline=deadline)
    if "host" not in report:  # the engine's Python does not run: the machine can still be described
        fallback = ask(host, target.model_copy(update={"python": _ANY_PYTHON}), engine, HOST_PARTS, deadline=deadline)
        report = {**fallback, "problems": [*report["problems"], *fallback["problems"]]}
    if here := (report.get("host") or {}).get("unix_time"):
        report["clock_ahead_s"] = round(here - asked_at, 1)
    parser = None
    if not (report.get("build") or {}).get("parser"):
        parser, problem = _from_help(host, target, engine, deadline)
        report["problems"] += [problem] if problem else []
    return capabilities_from(report, engine, help_parser=parser)


def ask(host: Host, target: Target, engine: Engine, parts: Sequence[str], *, deadline: Deadline) -> dict[str, Any]:
    """The probe's raw report; `{"problems": […]}` alone when it could not be run. `target` has resolved paths."""
    spec = {
        "parts": list(parts),
        "parser": engine.modules.get("parser", ""),
        "environment": engine.modules.get("environment", ""),
        "packages": list(engine.packages),
        "package": engine.package,
        "model": target.model,
        "folders": sorted({"/tmp", target.state_dir, "~/.cache"}),
        "limit_s": min(_BUILD_S, deadline.left_s * 0.6),  # the rest is for --help
    }
    done = host.run([target.python, "-", json.dumps(spec)], deadline=deadline, stdin=_script())
    try:
        report = json.loads(done.out)
    except ValueError:
        return {"problems": [f"probe: {target.python} {_said(done)}"]}
    return report if isinstance(report, dict) else {"problems": [f"probe: {target.python} answered {done.out[:80]!r}"]}


def _from_help(host: Host, target: Target, engine: Engine, deadline: Deadline) -> tuple[Parser | None, str | None]:
    argv = [part.replace("{python}", target.python) for part in engine.launch.argv]
    command = f"{shlex.join(argv)} --help"
    try:
        done = host.run([*argv, "--help"], deadline=deadline, env=_WIDE)
        return parser_from_help(done.out), None
    except DeadlinePassed:
        return None, f"help: {command} did not end in time"
    except ValueError:
        return None, f"help: {command} {_said(done)}"


def _said(done: Completed) -> str:
    lines = (done.err or done.out).strip().splitlines()
    return f"exited {done.exited}: {lines[-1] if lines else 'no output'}"


@cache
def _script() -> bytes:
    return (Path(__file__).parent / "remote" / "probe.py").read_bytes()
