"""Asks a starting server whether it serves, and what it really runs with."""

from typing import Any

import httpx

from settings.engine import Engine

__all__ = ["is_ready", "server_info"]


def is_ready(client: httpx.Client, engine: Engine) -> bool:
    """Whether the ready endpoint answers 200. Refused, 503 and no answer in time all mean: not yet."""
    try:
        return client.get(engine.endpoints.ready).status_code == 200
    except httpx.TransportError:
        return False


def server_info(client: httpx.Client, engine: Engine) -> dict[str, Any]:
    """The effective settings, from whichever name of the endpoint this release has; empty when it has none.

    Some keys of old releases lie one level down, in `server_args`.
    """
    for path in engine.endpoints.server_info:
        try:
            reply = client.get(path)
        except httpx.TransportError:
            return {}
        if reply.status_code == 200:
            try:
                found = reply.json()
            except ValueError:
                return {}
            if not isinstance(found, dict):
                return {}
            nested = found.get("server_args")
            return {**nested, **found} if isinstance(nested, dict) else found
    return {}
