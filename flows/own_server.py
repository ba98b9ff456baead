"""Prefect's server of our own, where no other is named: started so that a terminal's Ctrl-C does not reach it."""

import signal
import subprocess
from threading import Thread

from prefect.client.orchestration import get_client
from prefect.settings import get_current_settings

from settings.source import BadInput

__all__ = ["start_own_server"]

_WAITING: list[subprocess.Popen[bytes]] = []  # holds their pipes open


def start_own_server() -> None:
    """Start the server that Prefect would start by itself a moment later, as it would, but deaf to SIGINT and SIGHUP.

    A terminal sends them to every process in front. A server that dies of it leaves the flow, which wants to say
    there how it ended, trying again for minutes (Prefect 3.9.1: 150 s and more; prefect/client/base.py,
    `_send_with_retry`). A child inherits the signals that its thread has blocked, hence a thread for the start; the
    main one can be interrupted meanwhile. Prefect ends its server at our exit; where we are killed, the shell of
    `_end_with_us` does. Raises: BadInput where a server is named (PREFECT_API_URL) and cannot be used.
    """
    settings = get_current_settings()
    if settings.api.url:
        _reach(settings.api.url)
    if settings.api.url or not settings.server.ephemeral.enabled:
        return
    from prefect.server.api.server import SubprocessASGIServer

    failed: list[Exception] = []

    def start() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
        try:
            server = SubprocessASGIServer()
            server.start()
            if server.server_process is not None:
                _end_with_us(server.server_process.pid)
        except Exception as e:
            failed.append(e)

    starting = Thread(target=start, name="prefect-server", daemon=True)
    starting.start()
    starting.join()
    if failed:
        raise failed[0]


def _reach(url: str) -> None:
    with get_client(sync_client=True) as client:
        try:
            client.raise_for_api_version_mismatch()
        except Exception as e:
            told = f"cannot be used: {e}; without it a server of our own is"
            raise BadInput("PREFECT_API_URL", url, told) from e


def _end_with_us(pid: int) -> None:
    """End that process when we are no more, however that came: a shell waits for the end of a pipe that only we hold.

    Not PR_SET_PDEATHSIG: it fires at the end of the thread that started the server, and cannot be set from outside.
    """
    words = ["sh", "-c", 'read -r _; kill "$1" 2>/dev/null', "sh", str(pid)]
    quiet = subprocess.DEVNULL  # whoever reads our output until its end does not wait for the shell
    _WAITING.append(
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True)
    )
