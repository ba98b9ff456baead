"""`python -m sglang.launch_server`: parse, resolve, start the schedulers, open the port when they are ready, serve."""

import os
import select
import signal
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, NoReturn

from sglang._effective import ConfigError, Resolved, resolve
from sglang._log import SITE, log, plain
from sglang._process import kill_tree
from sglang._ranks import Pipes
from sglang._scheduler import run_scheduler_process
from sglang._story import STORY, pause
from sglang._stranger import start_stranger
from sglang.srt.server_args import parse

if TYPE_CHECKING:
    from sglang._engine import Engine

__all__ = ["main"]

_NEW = ("0.5.17", "0.5.23")
_POLL_S = 0.02


def main(argv: list[str]) -> None:
    if STORY.release in _NEW:
        plain(
            f"{SITE}/sglang/launch_server.py:71: UserWarning: 'python -m sglang.launch_server' is still supported, but "
            "'sglang serve' is the recommended entrypoint.\n  Example: sglang serve --model-path <model> [options]\n"
            "  warnings.warn(\n"
        )
    asked = parse(argv)
    try:
        setup = resolve(asked)
    except ConfigError as e:
        plain(
            "Traceback (most recent call last):\n"
            f'  File "{SITE}/sglang/launch_server.py", line 84, in <module>\n    run_server(server_args)\n'
            f'  File "{SITE}/sglang/launch_server.py", line 29, in run_server\n    server_args.resolve_once()\n{e}\n'
        )
        sys.exit(1)
    for line in setup.said:
        log(line)
    log(_server_args_line(setup))
    log("Using default HuggingFace chat template with detected content format: string")
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGQUIT,))
    begun = time.monotonic()
    channel, ranks = _start_schedulers(setup)
    if STORY.at("bind", setup.effective):
        ranks.append(start_stranger(setup.effective["host"], setup.effective["port"]))
    kv_tokens = _until_ready(channel, ranks)
    _serve(setup, channel, ranks, kv_tokens, time.monotonic() - begun)


def _server_args_line(setup: Resolved) -> str:
    if STORY.release in _NEW:
        return f"server_args={setup.effective}"
    return "server_args=ServerArgs(" + ", ".join(f"{key}={value!r}" for key, value in setup.effective.items()) + ")"


def _start_schedulers(setup: Resolved) -> tuple[socket.socket, list[int]]:
    ours, theirs = socket.socketpair()
    last_words, me, ranks = os.pipe(), os.getpid(), []
    for rank in range(int(setup.effective["tp_size"])):
        pid = os.fork()
        if pid == 0:
            ours.close()
            run_scheduler_process(rank, setup, Pipes(theirs, last_words), me)
        ranks.append(pid)
    theirs.close()
    return ours, ranks


def _until_ready(channel: socket.socket, ranks: list[int]) -> int:
    """Wait until rank 0 can serve; gives the number of KV tokens. A child that fails takes the tree with it."""
    while True:
        readable, _, _ = select.select([channel], [], [], _POLL_S)
        if signal.sigtimedwait((signal.SIGQUIT,), 0) is not None:
            pause(0.1)  # the other ranks write their own last words
            log("Received sigquit from a child process. It usually means the child failed.")
            kill_tree(ranks, itself=True)
        if readable and (line := channel.recv(4096)):
            return int(line.rpartition(b'"tokens":')[2].strip(b" }\n"))
        _notice_death(ranks)


def _notice_death(ranks: list[int]) -> None:
    """Of a rank that was killed and could not say so."""
    for n, pid in enumerate(ranks):
        gone, status = os.waitpid(pid, os.WNOHANG)
        code = os.waitstatus_to_exitcode(status) if gone else 0
        if code:
            plain(
                f"Traceback (most recent call last):\nRuntimeError: Rank {n} scheduler died during initialization "
                f"(exit code: {code}). Run dmesg -T | grep -i oom to check.\n"
            )
            sys.exit(1)


def _serve(setup: Resolved, channel: socket.socket, ranks: list[int], kv_tokens: int, took_s: float) -> None:
    from sglang._engine import Engine  # here, since http.server is slow to import: only what serves pays for it
    from sglang._http import Server, warm_up

    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
    args, pace = setup.effective, STORY.pace
    startup = {
        "load_weight": pace["load_s"], "kv_cache_allocation": pace["kv_alloc_s"], "scheduler_e2e": took_s * STORY.speed,
        "tokenizer_e2e": took_s * STORY.speed,
    }
    if STORY.release in _NEW:
        log("Engine startup timings (s): " + ", ".join(f"{key}={value:.2f}" for key, value in startup.items()))
    engine = Engine(setup, channel, kv_tokens)
    log(f"INFO:     Started server process [{os.getpid()}]")
    log("INFO:     Waiting for application startup.")
    pause(pace["bind_s"])
    log("INFO:     Application startup complete.")
    try:
        server = Server(args["host"], args["port"], engine, startup)
    except OSError as e:
        log(
            f"ERROR:    [Errno {e.errno}] error while attempting to bind on address "
            f"('{args['host']}', {args['port']}): address already in use"
        )
        log("INFO:     Waiting for application shutdown.")
        _hang()
    log(f"INFO:     Uvicorn running on http://{args['host']}:{args['port']} (Press CTRL+C to quit)")
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def become_ready() -> None:
        if not args["skip_server_warmup"]:
            pause(pace["warmup_s"])
            warm_up(args["host"], args["port"])
        engine.status = "up"
        log("The server is fired up and ready to roll!")

    threading.Thread(target=become_ready, daemon=True).start()
    _until_the_end(engine, ranks)


def _until_the_end(engine: "Engine", ranks: list[int]) -> None:
    while True:
        got = signal.sigtimedwait((signal.SIGTERM, signal.SIGQUIT), 0.05)
        if got is None:
            _watch(ranks)
        elif got.si_signo == signal.SIGTERM:
            _drain(engine, ranks)
        else:
            _crash(ranks)


def _watch(ranks: list[int]) -> None:
    """Releases since 0.5.10 notice a scheduler that was killed; older ones go on without it."""
    for n, pid in enumerate(ranks):
        try:
            gone, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            continue
        code = os.waitstatus_to_exitcode(status) if gone else 0
        if code and STORY.release not in ("0.5.8.post1", "0.5.9"):
            log(
                f"Subprocess scheduler_{n} (pid={pid}) crashed with exit code {code}. Triggering SIGQUIT for cleanup..."
            )
            _crash(ranks)


def _crash(ranks: list[int]) -> NoReturn:
    log("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
    log("Sleeping 5 seconds before crash diagnostics to let GPU activity settle.")
    pause(STORY.pace["diagnostics_s"])
    log("No live scheduler processes found; skipping py-spy and CUDA coredump.")
    kill_tree(ranks, itself=True)
    raise AssertionError("this process has been killed")


def _drain(engine: "Engine", ranks: list[int]) -> NoReturn:
    engine.status = "stopping"
    log("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
    pause(STORY.pace["drain_s"])
    while engine.running:
        _watch(ranks)
        time.sleep(_POLL_S)
    _watch(ranks)
    log("Gracefully exiting... Remaining number of requests 0. Remaining requests remaining_rids=[].")
    kill_tree(ranks, itself=False)
    for line in ("Shutting down", "Waiting for application shutdown.", "Application shutdown complete."):
        log(f"INFO:     {line}")
    log(f"INFO:     Finished server process [{os.getpid()}]")
    kill_tree((), itself=False)
    sys.stderr.flush()
    os._exit(0)


def _hang() -> NoReturn:
    """What the real one does after a failed bind: it stays, and never serves."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
    while True:
        signal.pause()


if __name__ == "__main__":
    main(sys.argv[1:])
