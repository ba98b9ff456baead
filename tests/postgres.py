"""A PostgreSQL of a test's own: Debian's binaries, a folder and a port of its own, and not run as root."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.ports import free_port

__all__ = ["Postgres", "postgres_running"]

_USER = "postgres"  # Debian's package makes it; initdb refuses root


@dataclass(frozen=True)
class Postgres:
    """One cluster; `start` and `stop` it as an operator would."""

    binaries: Path
    folder: Path
    port: int

    @property
    def url(self) -> str:
        """As PREFECT_SERVER_DATABASE_CONNECTION_URL takes it."""
        return f"postgresql+asyncpg://{_USER}@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        self.run("pg_ctl", "start", "--wait", "--silent", "--log", str(self.folder / "log"), "--options", options)

    def stop(self) -> None:
        """At once, without waiting for who is connected."""
        self.run("pg_ctl", "stop", "--wait", "--silent", "--mode", "fast")

    def run(self, program: str, *words: str) -> None:
        as_root = os.geteuid() == 0
        who = {"user": _USER, "group": _USER, "extra_groups": list[str]()} if as_root else {}
        subprocess.run(
            [self.binaries / program, "-D", str(self.folder / "data"), *words], cwd=self.folder, check=True,
            timeout=120, stdout=subprocess.DEVNULL, **who,
        )  # type: ignore[call-overload]  # fmt: skip


@contextmanager
def postgres_running() -> Iterator[Postgres]:
    """A new cluster that runs; it is gone afterwards."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    if not found:
        pytest.skip("PostgreSQL is not installed (apt install postgresql)")
    folder = Path(tempfile.mkdtemp(prefix="pg-"))  # pytest's own folders let no other user in
    if os.geteuid() == 0:
        os.chown(folder, pwd.getpwnam(_USER).pw_uid, pwd.getpwnam(_USER).pw_gid)
    cluster = Postgres(found[-1].parent, folder, free_port())
    try:
        cluster.run("initdb", "--username", _USER, "--auth", "trust", "--no-sync")
        cluster.start()
        yield cluster
    finally:
        if (folder / "data/postmaster.pid").exists():
            cluster.stop()
        shutil.rmtree(folder)
