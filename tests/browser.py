"""A page of the Prefect UI as a person's browser shows it, and whom the page calls."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

__all__ = ["Page", "browse"]

# Chromium's own calls home are no page's; they carry no origin, and these switch most of them off.
_QUIET = [
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-default-apps",
]  # fmt: skip
_REQUEST = re.compile(r'"initiator":"(https?:[^"]+)".*?"url":"([^"]+)"')


@dataclass(frozen=True)
class Page:
    """`text`: what stands there. `asked`: every address that the page itself asked for."""

    text: str
    asked: frozenset[str]


def browse(url: str, folder: Path) -> Page:
    """The page, once its scripts have run."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("Chromium is not installed (apt install chromium)")
    log = folder / "net.json"
    shown = subprocess.run(
        [
            chromium, *_QUIET, f"--user-data-dir={folder / 'browser'}", f"--log-net-log={log}",
            "--virtual-time-budget=30000", "--dump-dom", url,
        ],
        capture_output=True, text=True, check=True, timeout=150,
    )  # fmt: skip
    asked = {address for _, address in _REQUEST.findall(log.read_text(errors="replace"))}
    return Page(" ".join(re.sub(r"<[^>]+>", " ", shown.stdout).split()), frozenset(asked))
