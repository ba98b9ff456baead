"""Why `make prefect` is one command: a Prefect server and a worker on this machine, started together, stopped together.

Loopback only, nothing sent to a third party. The worker and the server are in sessions of their own, so that Ctrl-C
reaches only this process, which then stops them in the order that leaves nothing behind: runs, worker, server.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Annotated

import httpx
import typer

from deployments.plugin import LOCAL_PORT
from tasks.deadline import Deadline, pause

__all__ = ["POOL", "environment", "main", "serving"]

POOL = "glm5"

_HEALTHY_S = 120.0   # 8 s on an idle machine; the first start also makes the database
_RUNS_END_S = 25.0   # Prefect's own grace after a cancel is 30 s
_STOP_S = 15.0

_WELCOME = """
  look    http://127.0.0.1:{port}
{export}  deploy  make deploy
  run     prefect deployment run glm5-bringup     (.venv active)
  end     Ctrl-C
"""
_EXPORT = "  first   export PREFECT_API_URL=http://127.0.0.1:{port}/api\n"


def main(
    port: Annotated[int, typer.Option(help="Port of the server and its UI.", min=1, max=65535)] = LOCAL_PORT,
    database: Annotated[
        str | None,
        typer.Option(
            envvar="PREFECT_SERVER_DATABASE_CONNECTION_URL",
            help="postgresql+asyncpg://user:password@host/name; better given in the environment, which no process "
            "list shows. Default: SQLite in Prefect's home.",
        ),
    ] = None,
) -> None:
    """Run a Prefect server and one worker until Ctrl-C.

    Example: python -m deployments.serve --port 4300
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)   # a shell's background job starts with SIGINT ignored
    if not _is_free(port):
        typer.echo(f"port {port} is taken: end what listens there or choose another with --port", err=True)
        raise typer.Exit(2)
    try:
        with serving(environment(os.environ, port, database)) as processes:
            typer.echo(_WELCOME.format(port=port, export="" if port == LOCAL_PORT else _EXPORT.format(port=port)))
            ended = _first_to_end(*processes)
            typer.echo(f"{ended.args!r} ended by itself with {ended.returncode}", err=True)
            raise typer.Exit(1)
    except KeyboardInterrupt:
        typer.echo("stopped: runs, worker, server")


def environment(base: Mapping[str, str], port: int, database: str | None = None) -> dict[str, str]:
    """`base` plus what server, worker and runs have to agree on.

    Source: with another port than 4200 the pages call 4200 all the same unless PREFECT_UI_API_URL says otherwise
    (prefect#18895); DO_NOT_TRACK alone leaves the server's own telemetry on; the pages of the v2 UI call a third party.
    """
    api = f"http://127.0.0.1:{port}/api"
    given = {"PREFECT_SERVER_DATABASE_CONNECTION_URL": database} if database else {}
    return {
        **base,
        **given,
        "PREFECT_API_URL": api,
        "PREFECT_UI_API_URL": api,
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_UI_V2_ENABLED": "false",
    }


@contextmanager
def serving(env: Mapping[str, str]) -> Iterator[tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]]:
    """Server and worker, healthy; on the way out the runs are told to end, then the worker, then the server."""
    api = httpx.URL(env["PREFECT_API_URL"])
    with ExitStack() as stack:
        server = _started(env, "server", "start", "--host", "127.0.0.1", "--port", str(api.port))
        stack.callback(_stop, server)
        _wait_healthy(server, f"{api}/health", Deadline.after(_HEALTHY_S))
        worker = _started(env, "worker", "start", "--pool", POOL, "--type", "process", "--install-policy", "never")
        stack.callback(_stop, worker)
        stack.callback(_end_runs, worker)
        yield server, worker


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)   # as the server does: TIME_WAIT is no listener
        with suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return True
    return False


def _started(env: Mapping[str, str], *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "prefect", *words], env=dict(env), start_new_session=True)


def _wait_healthy(server: subprocess.Popen[bytes], url: str, deadline: Deadline) -> None:
    while not _answers(url):
        if server.poll() is not None:
            raise typer.Exit(1)
        if deadline.passed:
            typer.echo(f"the Prefect server did not answer on {url} within {_HEALTHY_S:.0f} s", err=True)
            raise typer.Exit(1)
        pause(0.2, deadline)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2.0, trust_env=False).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def _first_to_end(*processes: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
    while True:
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(1.0)
                return process


def _end_runs(worker: subprocess.Popen[bytes]) -> None:
    """SIGTERM to each flow process, and time for its `finally`: a worker that stops takes its runs down without one."""
    deadline = Deadline.after(_RUNS_END_S)
    for pid in _children(worker.pid):
        os.kill(pid, signal.SIGTERM)
    while _children(worker.pid) and not deadline.passed:
        pause(0.2, deadline)


def _children(pid: int) -> list[int]:
    """Direct children, of whichever thread; none where there is no /proc."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    with suppress(OSError):   # a thread may end while we read
        return [int(child) for children in lists for child in children.read_text().split()]
    return []


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


if __name__ == "__main__":
    typer.run(main)
