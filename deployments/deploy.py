"""Why deploying is a module: without a server `prefect deploy` starts one of its own, which is gone a moment later."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import httpx
import typer
from prefect.settings import get_current_settings

from deployments.plugin import LOCAL_PORT
from deployments.worker import POOL
from tasks.deadline import Deadline, pause

__all__ = ["main", "refusal"]

_CHECKOUT = Path(__file__).resolve().parent.parent


def main(
    wait_s: Annotated[float, typer.Option(help="Seconds to wait for a server that has just been started.")] = 60.0,
) -> None:
    """Deploy glm5-bringup, glm5-nightly and glm5-fleet to the server of PREFECT_API_URL, else to this machine's.

    Example: python -m deployments.deploy
    """
    settings = get_current_settings().api
    api = settings.url or f"http://127.0.0.1:{LOCAL_PORT}/api"
    user, _, password = (settings.auth_string.get_secret_value() if settings.auth_string else "").partition(":")
    auth = (user, password) if user else None
    if why := refusal(api, auth, wait_s):
        typer.echo(f"nothing is deployed: {why}", err=True)
        raise typer.Exit(2)
    env = {**os.environ, "PREFECT_API_URL": api, "BRINGUP_CHECKOUT": str(_CHECKOUT)}
    pool = _answer(f"{api}/work_pools/{POOL}", auth)
    if pool is not None and pool.status_code == httpx.codes.NOT_FOUND:
        _prefect(env, "work-pool", "create", POOL, "--type", "process")  # fails where a worker has just made it as well
    raise typer.Exit(_prefect(env, "deploy", "--all", "--prefect-file", "deployments/prefect.yaml"))


def refusal(api: str, auth: tuple[str, str] | None, wait_s: float) -> str | None:
    """Why nothing can be deployed there; None once a Prefect server answers us. `auth`: user and password.

    Waits for a server that does not answer yet, and says so; what a server says by itself does not change by waiting.
    """
    deadline, said = Deadline.after(wait_s), False
    while (answer := _answer(f"{api}/admin/version", auth)) is None:
        if deadline.passed:
            return f"no Prefect server answers at {api}; `make prefect` starts one here, PREFECT_API_URL names another"
        if not said:
            typer.echo(f"waiting up to {wait_s:.0f} s for the Prefect server at {api}", err=True)
        said = True
        pause(0.5, deadline)
    if answer.status_code == httpx.codes.UNAUTHORIZED and auth:
        return f"the Prefect server at {api} does not take the password in PREFECT_API_AUTH_STRING"
    if answer.status_code == httpx.codes.UNAUTHORIZED:
        return f"the Prefect server at {api} wants a password: set PREFECT_API_AUTH_STRING to user:password"
    if answer.status_code != httpx.codes.OK or "json" not in answer.headers.get("content-type", ""):
        return f"what answers at {api} is no Prefect API (PREFECT_API_URL ends with /api)"
    return None


def _answer(url: str, auth: tuple[str, str] | None) -> httpx.Response | None:
    try:
        answer = httpx.get(url, auth=auth, timeout=5.0)
    except httpx.TransportError:
        return None
    return None if answer.is_server_error else answer  # its database may still be on the way


def _prefect(env: dict[str, str], *words: str) -> int:
    """How `prefect <words>` in the checkout ended."""
    argv = [sys.executable, "-m", "prefect", "--no-prompt", *words]
    return subprocess.run(argv, cwd=_CHECKOUT, env=env, check=False).returncode


if __name__ == "__main__":
    typer.run(main)
