"""The lock holds what pyproject.toml asks for, each file by its hash, and names no place to fetch it from."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
LOCK = (ROOT / "requirements.lock").read_text()
# An entry is `name==version ; marker \` followed by indented hashes; a name may stand twice, under other markers.
ENTRIES = re.findall(r"^([\w.-]+)==([^\s;]+).*((?:\n .*)*)", LOCK, re.MULTILINE)
LOCKED = {canonicalize_name(name): version for name, version, _ in ENTRIES}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ASKED = [
    Requirement(line)
    for line in [
        *PROJECT["build-system"]["requires"],
        *PROJECT["project"]["dependencies"],
        *PROJECT["project"]["optional-dependencies"]["dev"],
    ]
]


def test_everything_asked_for_is_locked_in_a_version_that_fits() -> None:
    wrong = [
        f"{asked} is locked as {version}: make lock"
        for asked in ASKED
        if not asked.specifier.contains(version := LOCKED.get(canonicalize_name(asked.name), "0"))
    ]
    assert [] == wrong


def test_each_locked_package_has_a_hash() -> None:
    lines = [line for line in LOCK.splitlines() if line and line[0] not in "# "]
    assert (len(lines), []) == (len(ENTRIES), [name for name, _, hashes in ENTRIES if "--hash=sha256:" not in hashes])


def test_no_place_is_named() -> None:
    assert [] == [line for line in LOCK.splitlines() if "://" in line or "index" in line or "find-links" in line]


def test_torch_stays_out() -> None:
    """A lock of it resolves to the CUDA build, and a local CPU wheel then fails on its hash."""
    assert {"torch", "torchvision", "sglang"}.isdisjoint(LOCKED)
