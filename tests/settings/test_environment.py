"""A variable of ours that nobody reads is told, with the nearest that somebody does."""

from pathlib import Path

import pytest

from settings.environment import check_environment
from settings.source import BadInput


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("BRINGUP_NONSENSE", None),
        ("BRINGUP_HOEM", "BRINGUP_HOME"),
        ("BRINGUPHOME", "BRINGUP_HOME"),
        ("bringup_home", "BRINGUP_HOME"),
        ("BRINGUP_RUN__POL_S", "BRINGUP_RUN__POLL_S"),
        ("BRINGUP_RUN_POLL_S", "BRINGUP_RUN__POLL_S"),
        ("BRINGUP_RUN__QUIET_S__LOAD", "BRINGUP_RUN__QUIET_S"),
        ("BRINGUP_TARGET__HOSTT", "BRINGUP_TARGET__HOST"),
        ("BRINGUP_TARGET__HOST__PORT", "BRINGUP_TARGET__HOST"),
        ("BRINGUP_TARGETS__HOST", "BRINGUP_TARGET__HOST"),
    ],
)
def test_a_slip_is_told_with_what_was_meant(name: str, nearest: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    with pytest.raises(BadInput, match=f"environment: {name}: no setting has this name") as caught:
        check_environment()
    assert nearest in (None, caught.value.nearest)


@pytest.mark.parametrize(
    "name",
    [
        "BRINGUP_HOME", "BRINGUP_NOTIFY_URL", "BRINGUP_CHECKOUT", "BRINGUP_NO_SKIPS", "BRINGUP_ATTEMPT",
        "BRINGUP_STATE", "BRINGUP_RUN__POLL_S", "bringup_run__poll_s", "BRINGUP_TARGET__ENV__ANY_THING",
        "BRINGUP_TARGET__ENV__A__B", "OTHERS_HOME",
    ],
)
def test_what_somebody_reads_is_no_slip(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    check_environment()


def test_in_a_dotenv_file_there_is_only_what_is_read_from_there(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("BRINGUP_RUN__POLL_S=2\nOTHER=1\n")
    check_environment()
    (tmp_path / ".env").write_text("BRINGUP_HOME=/x\n")
    with pytest.raises(BadInput, match=r"\.env: BRINGUP_HOME: is read from the environment, not from this file"):
        check_environment()
    (tmp_path / ".env").write_text("BRINGUP_RUN__POL_S=2\n")
    with pytest.raises(BadInput, match=r"\.env: BRINGUP_RUN__POL_S: no setting has this name"):
        check_environment()
