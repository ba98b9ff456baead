"""Why `make prefect` is one command: a Prefect server and a worker on this machine, started and stopped together.

Loopback only, and nothing is sent to a third party, by the server or by the pages it serves.
"""

import os
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Annotated

import httpx
import typer

from deployments.child import first_to_end, start, stop, take_signals
from deployments.plugin import LOCAL_PORT
from deployments.worker import working
from tasks.deadline import Deadline, pause

__all__ = ["environment", "main", "serving"]

_HEALTHY_S = 120.0   # 8 s on an idle machine; the first start also makes the database

_WELCOME = """
  look    http://127.0.0.1:{port}
{export}  deploy  make deploy
  run     . .venv/bin/activate && prefect deployment run glm5-bringup
  end     Ctrl-C
"""
_EXPORT = "  first   export PREFECT_API_URL=http://127.0.0.1:{port}/api\n"


def main(
    port: Annotated[int, typer.Option(help="Port of the server and its UI.", min=1, max=65535)] = LOCAL_PORT,
    database: Annotated[
        str | None,
        typer.Option(
            envvar="PREFECT_SERVER_DATABASE_CONNECTION_URL",
            help="postgresql+asyncpg://user:password@host/name; in the environment no process list shows it. "
            "Default: SQLite in Prefect's home.",
        ),
    ] = None,
    with_worker: Annotated[bool, typer.Option("--worker/--no-worker", help="Start a worker too.")] = True,
) -> None:
    """Run a Prefect server and one worker until Ctrl-C.

    Example: python -m deployments.serve --port 4300
    """
    take_signals()
    if not _is_free(port):
        typer.echo(f"port {port} is taken: end what listens there, or choose another with --port", err=True)
        raise typer.Exit(2)
    env = environment(os.environ, port, database)
    try:
        with serving(env) as server:
            if not with_worker:
                first_to_end(server)
                raise typer.Exit(1)
            with working(env) as worker:
                typer.echo(_WELCOME.format(port=port, export="" if port == LOCAL_PORT else _EXPORT.format(port=port)))
                ended = first_to_end(server, worker)
                typer.echo(f"the {'server' if ended is server else 'worker'} ended by itself", err=True)
                raise typer.Exit(1)
    except KeyboardInterrupt:
        typer.echo("stopped: runs, worker, server")


def environment(base: Mapping[str, str], port: int, database: str | None = None) -> dict[str, str]:
    """`base` plus what server, worker and runs have to agree on.

    Source: with another port than 4200 the pages call 4200 all the same unless PREFECT_UI_API_URL says otherwise
    (prefect#18895); DO_NOT_TRACK alone leaves the server's own telemetry on; the pages of the v2 UI call a third party.
    """
    api = f"http://127.0.0.1:{port}/api"
    chosen = {"PREFECT_SERVER_DATABASE_CONNECTION_URL": database} if database else {}
    return {
        **base,
        **chosen,
        "PREFECT_API_URL": api,
        "PREFECT_UI_API_URL": api,
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_UI_V2_ENABLED": "false",
    }


@contextmanager
def serving(env: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A server that answers on the port of `PREFECT_API_URL`; it ends on the way out."""
    api = httpx.URL(env["PREFECT_API_URL"])
    server = start(env, "server", "start", "--host", "127.0.0.1", "--port", str(api.port))
    try:
        _wait_healthy(server, f"{api}/health", Deadline.after(_HEALTHY_S))
        yield server
    finally:
        stop(server)


def _wait_healthy(server: subprocess.Popen[bytes], url: str, deadline: Deadline) -> None:
    while not _answers(url):
        if deadline.passed or server.poll() is not None:
            typer.echo(f"the Prefect server did not come to answer on {url}: see its lines above", err=True)
            raise typer.Exit(1)
        pause(0.2, deadline)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2.0, trust_env=False).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)   # as the server does: TIME_WAIT is no listener
        with suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return True
    return False


if __name__ == "__main__":
    typer.run(main)
