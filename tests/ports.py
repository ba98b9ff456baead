"""Ports for tests: below the range from which the kernel takes the near ends of outgoing connections."""

import random
import socket

__all__ = ["free_port"]

_LOW, _HIGH = 15_000, 32_000  # net.ipv4.ip_local_port_range begins at 32,768


def free_port() -> int:
    """A loopback port that nobody has. An ephemeral one might become the near end of a connection a moment later."""
    while True:
        port = random.SystemRandom().randrange(_LOW, _HIGH)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
