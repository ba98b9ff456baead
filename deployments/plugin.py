"""Why `prefect deployment run glm5-bringup` works from a checkout: a hook that Prefect calls while it is imported.

Prefect wants `<flow>/<deployment>`. Each deployment here has a name of its own, so the flow's can be filled in. And
where no API is configured but `make prefect` runs on this machine, Prefect's commands go there. Other programs are left
alone: a `bringup run` depends on no server unless PREFECT_API_URL says so.

Nothing inside Prefect is replaced: the hook completes `sys.argv`, which Prefect's command line reads later, and returns
an environment variable. `[tool.prefect.plugins]` in pyproject.toml switches it on, in the checkout only.
"""

import os
import sys
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from prefect.plugins import HookContext, SetupResult, register_hook

__all__ = ["DEPLOYMENTS", "LOCAL_PORT", "PREFECT_TRIED", "completed", "local_api", "setup_environment"]

DEPLOYMENTS = {"glm5-bringup": "glm5-bringup", "glm5-nightly": "glm5-bringup", "glm5-fleet": "glm5-fleet"}  # to flow
PREFECT_TRIED = "3.9.1"
LOCAL_PORT = 4200

_FLAGS = frozenset({"--watch"})   # options of `prefect deployment …` that take no value


@register_hook
def setup_environment(*, ctx: HookContext) -> SetupResult | None:
    """For Prefect's command line: the address of this machine's server, where none is configured. Completes `sys.argv`.

    Source: prefect 3.9.1, __init__.py:78 (called when the import ends), cli/_app.py:194 (argv is read after that).
    """
    if not _is_prefect(sys.argv):
        return None
    argv = completed(sys.argv)
    if argv != sys.argv and ctx.prefect_version != PREFECT_TRIED:
        ctx.logger_factory(__name__).warning(
            "short deployment names were tried with Prefect %s, this is %s: say %s",
            PREFECT_TRIED, ctx.prefect_version, " ".join(argv[1:]),
        )
    elif argv != sys.argv:
        sys.argv[:] = argv
    if ctx.api_url or "PREFECT_API_URL" in os.environ:
        return None
    api = local_api(LOCAL_PORT, ctx.prefect_version)
    return SetupResult(env={"PREFECT_API_URL": api}, note="the server on this machine") if api else None


def completed(argv: Sequence[str]) -> list[str]:
    """`argv` with `glm5-bringup` spelled `glm5-bringup/glm5-bringup` where a `prefect deployment` command names it.

    A value of an option (`--flow-run-name glm5-nightly`) is left alone, and so is any other program's command line.
    """
    if len(argv) < 4 or not _is_prefect(argv) or argv[1] not in {"deployment", "deployments"}:
        return list(argv)
    is_value = (before.startswith("-") and before not in _FLAGS for before in argv[2:])
    words = zip(argv[3:], is_value, strict=False)
    full = {name: f"{flow}/{name}" for name, flow in DEPLOYMENTS.items()}
    return [*argv[:3], *(word if value else full.get(word, word) for word, value in words)]


def _is_prefect(argv: Sequence[str]) -> bool:
    return bool(argv) and Path(argv[0]).name == "prefect"


def local_api(port: int, version: str) -> str | None:
    """The API of a Prefect server of this very version on loopback; a closed port says no within a millisecond.

    One that wants a password does not say its version; a command without it is then refused there, not led elsewhere.
    """
    connection = HTTPConnection("127.0.0.1", port, timeout=1.0)
    try:
        connection.request("GET", "/api/admin/version")
        answer = connection.getresponse()
        said = answer.read(64).decode(errors="replace").strip('"')
        return f"http://127.0.0.1:{port}/api" if answer.status == 401 or said == version else None
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()
