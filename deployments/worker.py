"""Why a worker has a launcher: Prefect's own, told to stop, drops its runs without their `finally`.

Measured on Prefect 3.9.1: SIGTERM to the worker, or to worker and flow at once, leaves the run "Running" for ever and
nothing of its clean-up done. SIGTERM to the flow first lets it put its server down and end "Crashed"; then the worker.
"""

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated

import typer

from deployments.child import end_children, first_to_end, start, stop, take_signals
from tasks.deadline import Deadline

__all__ = ["POOL", "main", "working"]

POOL = "glm5"

_RUNS_END_S = 25.0   # a cancelled run gets 30 s from Prefect; a flow that keeps to that keeps to this


def main(
    limit: Annotated[
        int | None, typer.Option(envvar="BRINGUP_WORKER_LIMIT", min=1, help="Runs that it takes at once; each 180 MB.")
    ] = None,
) -> None:
    """Run one worker of the pool until SIGTERM or Ctrl-C; the API is PREFECT_API_URL's.

    Example: python -m deployments.worker
    """
    take_signals()
    try:
        with working(os.environ, limit) as worker:
            ended = first_to_end(worker)
            raise typer.Exit(ended.returncode or 1)
    except KeyboardInterrupt:
        typer.echo("stopped: runs, worker")


@contextmanager
def working(env: Mapping[str, str], limit: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of the process pool, which it creates where it is missing. On the way out its runs end first.

    `limit`: runs at once; without one the first worker that asks takes all that wait.
    """
    at_once = ("--limit", str(limit)) if limit else ()
    worker = start(env, "worker", "start", "--pool", POOL, "--type", "process", "--install-policy", "never", *at_once)
    try:
        yield worker
    finally:
        end_children(worker, Deadline.after(_RUNS_END_S))
        stop(worker)


if __name__ == "__main__":
    typer.run(main)
