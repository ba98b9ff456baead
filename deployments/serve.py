"""Why `make prefect` is one command: a Prefect server and a worker on this machine, started and stopped together.

On loopback, unless it is told another address, and then only with a password. Nothing is sent to a third party, by the
server or by the pages it serves. (Their link "Switch to V2 UI" leads to pages that do.)
"""

import ipaddress
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

__all__ = ["AUTH", "environment", "main", "serving"]

AUTH = "PREFECT_SERVER_API_AUTH_STRING"

_HEALTHY_S = 120.0   # 8 s on an idle machine; the first start also makes the database

# Twenty runs at once wait longer than 30 s for one of Prefect's 5 + 10 connections; PostgreSQL gives 100.
_POOL = {
    "PREFECT_SERVER_DATABASE_SQLALCHEMY_POOL_SIZE": "20", "PREFECT_SERVER_DATABASE_SQLALCHEMY_MAX_OVERFLOW": "20",
}  # fmt: skip

_WELCOME = """
  look    {url}
{export}  deploy  make deploy
  run     . .venv/bin/activate && prefect deployment run glm5-bringup
  end     Ctrl-C
"""
_EXPORT = "  first   export PREFECT_API_URL={url}/api{auth}\n"


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
    host: Annotated[
        str,
        typer.Option(
            envvar="PREFECT_SERVER_API_HOST",
            help=f"Address to listen on. Any but loopback needs a password, user:password in {AUTH}.",
        ),
    ] = "127.0.0.1",
    with_worker: Annotated[bool, typer.Option("--worker/--no-worker", help="Start a worker too.")] = True,
) -> None:
    """Run a Prefect server and one worker until Ctrl-C.

    Example: python -m deployments.serve --port 4300
    """
    take_signals()
    if not _is_loopback(host) and not os.environ.get(AUTH):
        typer.echo(f"{host} can be reached by others: set {AUTH} to user:password, or listen on loopback", err=True)
        raise typer.Exit(2)
    if not _is_free(host, port):
        typer.echo(f"port {port} is taken: end what listens there, or choose another with --port", err=True)
        raise typer.Exit(2)
    env = environment(os.environ, port, database, host=host)
    try:
        with serving(env) as server:
            if not with_worker:
                first_to_end(server)
                raise typer.Exit(1)
            with working(env) as worker:
                typer.echo(_welcome(env))
                ended = first_to_end(server, worker)
                typer.echo(f"the {'server' if ended is server else 'worker'} ended by itself", err=True)
                raise typer.Exit(1)
    except KeyboardInterrupt:
        typer.echo("stopped: runs, worker, server")


def _welcome(env: Mapping[str, str]) -> str:
    url = env["PREFECT_API_URL"].removesuffix("/api")
    found_anyway = url == f"http://127.0.0.1:{LOCAL_PORT}" and AUTH not in env
    auth = f' PREFECT_API_AUTH_STRING="${AUTH}"' if AUTH in env else ""
    return _WELCOME.format(url=url, export="" if found_anyway else _EXPORT.format(url=url, auth=auth))


def environment(
    base: Mapping[str, str], port: int, database: str | None = None, *, host: str = "127.0.0.1"
) -> dict[str, str]:
    """`base` plus what server, worker and runs have to agree on. The server's password is the clients', too.

    Source: the pages call port 4200 of loopback unless PREFECT_UI_API_URL says otherwise (prefect#18895); a bare path
    means where the page came from, so it holds on any port, behind a tunnel or proxy too. DO_NOT_TRACK alone leaves the
    server's own telemetry on; the pages of the v2 UI call a third party.
    """
    chosen = {**_POOL, **base, "PREFECT_SERVER_DATABASE_CONNECTION_URL": database} if database else {}
    if AUTH in base:
        chosen["PREFECT_API_AUTH_STRING"] = base[AUTH]
    return {
        **base,
        **chosen,
        "PREFECT_SERVER_API_HOST": host,
        "PREFECT_API_URL": f"http://{_reached_at(host)}:{port}/api",
        "PREFECT_UI_API_URL": "/api",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_UI_V2_ENABLED": "false",
    }


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _reached_at(host: str) -> str:
    """Where this machine's own clients find a server that listens on `host`."""
    with suppress(ValueError):
        address = ipaddress.ip_address(host)
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        return f"[{host}]" if address.version == 6 else host
    return host


@contextmanager
def serving(env: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A server that answers on the port of `PREFECT_API_URL`; it ends on the way out."""
    api = httpx.URL(env["PREFECT_API_URL"])
    host = env["PREFECT_SERVER_API_HOST"]
    server = start(env, "server", "start", "--host", host, "--port", str(api.port))
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


def _is_free(host: str, port: int) -> bool:
    with suppress(OSError):
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, proto) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)   # as the server does: TIME_WAIT is no listener
            probe.bind(address)
            return True
    return False


if __name__ == "__main__":
    typer.run(main)
