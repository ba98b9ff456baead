"""Another service on the simulated machine, which takes the port while our weights load.

It is started by the server's stand-in, for want of anybody else on that machine, and dies with it.
"""

import os
import signal
import socket
from typing import NoReturn

from sglang._process import become

__all__ = ["start_stranger"]


def start_stranger(host: str, port: int) -> int:
    """The pid of a process that listens on the port already, and answers `/` and `/health` as any web server would."""
    listening = socket.create_server((host, port))
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        become("node /srv/dashboard/server.js", parent)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGQUIT, signal.SIGTERM))
        _answer(listening)
    listening.close()
    return pid


def _answer(listening: socket.socket) -> NoReturn:
    while True:
        client, _ = listening.accept()
        with client:
            try:
                path = client.recv(65_536).partition(b" ")[2].partition(b" ")[0]
                found = path in (b"/", b"/health")
                status, body = ("200 OK", b"dashboard: ok\n") if found else ("404 Not Found", b"not found\n")
                head = f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
                client.sendall(head.encode() + body)
            except OSError:
                continue

