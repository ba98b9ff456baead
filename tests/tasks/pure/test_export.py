"""Words that mean something to a shell or to systemd arrive as they were; secrets are asked for by name."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from settings.lock import Lock
from tasks.pure.export import shell_files, systemd_files
from tasks.pure.lock import lock_of
from tasks.store import read_record

RECORD = read_record(next((Path(__file__).resolve().parents[2] / "records").iterdir()))
AWKWARD = ("a b", "$HOME", "100%", "it's", 'say "x"', "back\\slash", "`id`", "%h", "$(id)", "")


def _lock(argv: tuple[str, ...], env: dict[str, str], hidden: tuple[str, ...] = ()) -> Lock:
    lock = lock_of(RECORD)
    server = lock.server.model_copy(update={"argv": argv, "env": env, "hidden": hidden})
    return lock.model_copy(update={"server": server, "why": "Serving\nafter 100% NaN"})


def test_the_script_runs_the_words_and_variables_as_they_are(tmp_path: Path) -> None:
    argv = ("python3", "-c", "import os, sys; print([*sys.argv[1:], os.environ['X'], os.environ['TOLD']])", *AWKWARD)
    files = shell_files(_lock(argv, {"X": "$HOME 'q' %"}, ("TOLD",)), "")
    (tmp_path / "serve.sh").write_text(files["serve.sh"])
    (tmp_path / "secrets.env").write_text("TOLD=quiet\n")
    ran = subprocess.run(
        ["bash", tmp_path / "serve.sh", tmp_path / "secrets.env"], capture_output=True, text=True, check=True
    )
    assert str([*AWKWARD, "$HOME 'q' %", "quiet"]) == ran.stdout.strip()
    without = subprocess.run(["bash", tmp_path / "serve.sh"], capture_output=True, text=True, check=False)
    assert without.returncode != 0
    assert "TOLD: is not set" in without.stderr


def test_a_unit_quotes_what_systemd_would_read_otherwise() -> None:
    lock = _lock(("/usr/bin/x", *AWKWARD), {"X": "50% $y"})
    unit = systemd_files(lock, "", folder="/etc/x")["sglang-bf16-kv.service"]
    assert words_of(unit) == ["/usr/bin/x", *AWKWARD]
    assert 'Environment="X=50%% $y"' in unit
    assert "Description=Serving after 100%% NaN" in unit
    assert "EnvironmentFile" not in unit


def test_the_units_have_limits_a_restart_policy_and_a_check_that_means_decode() -> None:
    files = systemd_files(lock_of(RECORD), "the check", folder="/etc/glm5-bringup")
    unit = files["sglang-bf16-kv.service"]
    for line in (
        "Restart=on-failure", "LimitNOFILE=1048576", "LimitMEMLOCK=infinity", "StartLimitBurst=3", "KillMode=mixed",
        "EnvironmentFile=/etc/glm5-bringup/sglang-bf16-kv.env",
    ):  # fmt: skip
        assert line in unit.splitlines()
    assert re.search(r'^ExecStartPost=".*python" "/etc/glm5-bringup/health.py" \d+ --wait 3600$', unit, re.M)
    assert "systemctl restart sglang-bf16-kv.service" in files["sglang-bf16-kv-health.service"]
    assert files["health.py"] == "the check"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed here")
@pytest.mark.parametrize(("slip", "said"), [("", ""), ("Restrat=no", "Restrat")])
def test_systemd_itself_finds_nothing_wrong_with_the_units(tmp_path: Path, slip: str, said: str) -> None:
    lock = _lock((sys.executable, *AWKWARD), {"X": "50% $y"}, ("HF_TOKEN",))
    files = systemd_files(lock, "", folder=str(tmp_path))
    for name, text in files.items():
        (tmp_path / name).write_text(text.replace("[Unit]", f"[Unit]\n{slip}"))
    units = [str(tmp_path / name) for name in files if name.endswith((".service", ".timer"))]
    ran = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *units],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    told = ran.stdout + ran.stderr
    assert (0, "") == (ran.returncode, told) if not slip else said in told


@pytest.mark.parametrize("kind", ["shell", "systemd"])
def test_no_value_of_a_hidden_variable_is_asked_of_anybody_but_its_file(kind: str) -> None:
    lock = lock_of(RECORD)
    files = shell_files(lock, "") if kind == "shell" else systemd_files(lock, "", folder="/etc/x")
    whole = "".join(files.values())
    assert "<secret>" not in whole
    assert all(name in whole for name in lock.server.hidden)


def variables_of(unit: str) -> dict[str, str]:
    """What the unit's Environment= lines set, as systemd reads them."""
    lines = [line.removeprefix("Environment=") for line in unit.splitlines() if line.startswith("Environment=")]
    return dict(shlex.split(line)[0].replace("%%", "%").split("=", 1) for line in lines)


def words_of(unit: str, key: str = "ExecStart") -> list[str]:
    """The words of a command as systemd reads them: its quotes are a shell's, `%%` and `$$` stand for one."""
    line = next(line for line in unit.splitlines() if line.startswith(f"{key}="))
    return [w.replace("%%", "%").replace("$$", "$") for w in shlex.split(line.removeprefix(f"{key}="))]
