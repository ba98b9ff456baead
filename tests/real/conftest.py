"""The real environment, brought up to date once per session, and a target that reaches it over a real sshd."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.real import build
from tests.real.server import ENV
from tests.tasks.conftest import Sshd, sshd, start_sshd

__all__ = ["WriteTarget", "real_environment", "sshd", "start_sshd", "write_target"]

WriteTarget = Callable[[str], Path]


@pytest.fixture(scope="session")
def real_environment() -> None:
    """`.real/` is there and current. Its progress goes straight to the terminal (pytest -s)."""
    subprocess.run([sys.executable, build.__file__], check=True)


@pytest.fixture
def write_target(sshd: Sshd, tmp_path: Path) -> WriteTarget:
    """Write a target TOML for one form of the checkpoint, and get its path."""

    def write(form: str) -> Path:
        given = sshd.target()
        fields: Mapping[str, str | int | None] = {
            "name": f"real-{form}", "host": given.host, "port": given.port, "user": given.user,
            "identity_file": given.identity_file, "known_hosts_file": given.known_hosts_file,
            "ssh_config": os.devnull, "python": str(build.PYTHON), "state_dir": str(tmp_path / "state"),
            "model": str(build.MODELS / form), "gpus": 0, "lease_s": 30,
        }
        lines = [f"{name} = {_toml(value)}" for name, value in fields.items() if value is not None]
        lines += ["", "[env]", *(f"{name} = {_toml(value)}" for name, value in ENV.items())]
        path = tmp_path / f"real-{form}.toml"
        path.write_text("\n".join(lines) + "\n")
        return path

    return write


def _toml(value: str | int) -> str:
    return str(value) if isinstance(value, int) else f"'{value}'"
