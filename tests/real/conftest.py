"""The real environment, brought up to date once per session; building it takes minutes the first time."""

import subprocess
import sys

import pytest

from tests.real import build

__all__ = ["real_environment"]


@pytest.fixture(scope="session")
def real_environment() -> None:
    """`.real/` is there and current. Its progress goes straight to the terminal (pytest -s)."""
    subprocess.run([sys.executable, build.__file__], check=True)
