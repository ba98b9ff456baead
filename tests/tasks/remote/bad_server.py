"""A server with a family as bad as they come: `bad_server.py PORT FAMILY_FOLDER [deaf] [slow] [scrubbed] [ghost]`.

Always: a child in its session that ignores SIGTERM, and one that left it by a double fork and setsid.
`deaf`: ignores SIGTERM itself. `slow`: stays in loading. `scrubbed`: also a child in the session without any
environment. `ghost`: also one that has left session and environment both. Each writes its pid into FAMILY_FOLDER.
"""

import os
import signal
import socket
import sys
import time

PORT, FAMILY, WORDS = int(sys.argv[1]), sys.argv[2], sys.argv[3:]


def enlist(role: str) -> None:
    part = os.path.join(FAMILY, "." + role)
    with open(part, "w") as f:
        f.write(str(os.getpid()))
    os.replace(part, os.path.join(FAMILY, role))


def child(role: str, *, leaves: bool = False, scrubs: bool = False) -> None:
    if os.fork():
        return
    if leaves:
        os.setsid()
        if os.fork():
            os._exit(0)
    argv = [sys.executable, "-I", "-S", __file__, str(PORT), FAMILY, "role=" + role]
    os.execve(argv[0], argv, {} if scrubs else dict(os.environ))


def main() -> None:
    for word in WORDS:
        if word.startswith("role="):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            enlist(word[len("role="):])
            time.sleep(600)
            return
    if "deaf" in WORDS:
        signal.signal(signal.SIGTERM, lambda *_: print("heard SIGTERM", flush=True))
    os.makedirs(FAMILY, exist_ok=True)
    enlist("server")
    child("child")
    child("escaped", leaves=True)
    roles = ["server", "child", "escaped"]
    if "scrubbed" in WORDS:
        child("scrubbed", scrubs=True)
        roles.append("scrubbed")
    if "ghost" in WORDS:
        child("ghost", leaves=True, scrubs=True)
        roles.append("ghost")
    while not all(os.path.exists(os.path.join(FAMILY, role)) for role in roles):
        time.sleep(0.01)
    print("loading", flush=True)
    while "slow" in WORDS:
        time.sleep(1)
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", PORT))
        s.listen()
        print("serving", flush=True)
        while True:
            s.accept()[0].close()


main()
