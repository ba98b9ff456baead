"""A standard error that is gone, closed or never was: what only tells of the work does not end it."""

import io
import logging
import os
import subprocess
import sys

import pytest
from prefect.logging.handlers import PrefectConsoleHandler
from rich.console import Console

from flows.terminal import outlive_readers
from settings.words import ExitCode
from tests.flows.conftest import BRINGUP


@pytest.fixture(autouse=True)
def streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """As they were, after each test."""
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, getattr(sys, name))


@pytest.fixture
def unread() -> io.TextIOWrapper:
    """A pipe whose other end is closed."""
    reads, writes = os.pipe()
    os.close(reads)
    return io.TextIOWrapper(io.FileIO(writes, "w"), write_through=True)


@pytest.fixture
def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("stream", ["unread", "closed", None])
def test_nobody_need_read_what_is_said(
    stream: str | None, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", request.getfixturevalue(stream) if stream else None)
    outlive_readers()
    print("words", file=sys.stderr, flush=True)
    Console(stderr=True).print("more of them")


def test_a_pager_that_was_left_is_no_failure_and_a_full_disk_is_one() -> None:
    command = [str(BRINGUP), "ladder", "show", "glm5-sm120"]
    reads, writes = os.pipe()
    os.close(reads)
    with open(writes, "w") as gone, open("/dev/full", "w") as full:
        left = subprocess.run(command, stdout=gone, stderr=subprocess.PIPE, text=True, check=False)
        lost = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (0, "") == (left.returncode, left.stderr)
    assert (ExitCode.UNEXPECTED, True) == (lost.returncode, "No space left on device" in lost.stderr)
    assert "Traceback" not in lost.stderr


def test_a_line_of_prefect_to_a_closed_pipe_is_no_end_of_the_run(unread: io.TextIOWrapper) -> None:
    logger = logging.getLogger("tests.flows.test_terminal")
    handler = PrefectConsoleHandler(stream=unread)
    logger.addHandler(handler)
    try:
        with pytest.raises(SystemExit):  # what rich makes of it
            logger.error("a line")
        outlive_readers()
        logger.error("another one")
    finally:
        logger.removeHandler(handler)


def test_what_is_read_arrives(capsys: pytest.CaptureFixture[str]) -> None:
    outlive_readers()
    print("words", file=sys.stderr)
    assert "words\n" == capsys.readouterr().err
