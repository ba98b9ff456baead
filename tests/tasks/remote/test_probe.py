"""The probe's script as a host runs it: from stdin, under an old Python, with one JSON on stdout whatever happens."""

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "tasks" / "remote" / "probe.py"
SPEC = {
    "parts": ["host", "limits", "cuda", "packages", "commit", "model"], "parser": "", "environment": "",
    "packages": ["pydantic", "no-such-package"], "package": "pytest", "model": "/nowhere",
    "folders": ["/tmp", "/no/such"], "limit_s": 5,
}


def run(**changes: Any) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-", json.dumps({**SPEC, **changes})],
        input=SCRIPT.read_text(), capture_output=True, text=True, timeout=60, check=True,
    )
    (line,) = done.stdout.splitlines()
    report: dict[str, Any] = json.loads(line)
    return report


def test_it_is_written_for_python_3_8_and_its_standard_library() -> None:
    tree = ast.parse(SCRIPT.read_text(), feature_version=(3, 8))
    imported = {a.name.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    imported |= {str(n.module).split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert imported <= set(sys.stdlib_module_names)


def test_only_the_parts_asked_for_are_looked_at() -> None:
    assert {"limits", "problems"} == set(run(parts=["limits"]))


def test_what_is_installed_has_its_version_and_what_is_not_is_left_out() -> None:
    report = run(parts=["packages"])
    assert {"pydantic"} == set(report["packages"]["versions"])
    assert 64 == len(report["packages"]["freeze_sha256"])
    assert report["packages"]["freeze_sha256"] == run(parts=["packages"])["packages"]["freeze_sha256"]


def test_a_folder_that_is_not_there_yet_has_the_room_of_its_parent() -> None:
    free = run(parts=["limits"])["limits"]["disk_free_mib"]
    assert free["/no/such"] is not None
    assert free["/tmp"] > 0


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        ("/nowhere", "model: no folder /nowhere on this host"),
        ("~/nowhere", "model: no folder ~/nowhere on this host"),
        ("org/model", "model: org/model is not in this host's cache"),
    ],
)
def test_a_model_that_is_not_there_is_told(model: str, problem: str) -> None:
    (told,) = run(parts=["model"], model=model)["problems"]
    assert told.startswith(problem)


def test_a_hub_model_is_found_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached = tmp_path / "hub" / "models--org--model"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text("abc")
    (cached / "snapshots" / "abc").mkdir(parents=True)
    (cached / "snapshots" / "abc" / "config.json").write_text(
        '{"architectures": ["A"], "quantization_config": {"quant_method": "fp8", "scale_fmt": "ue8m0"}}'
    )
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    model = run(parts=["model"], model="org/model")["model"]
    assert ("A", "fp8", "ue8m0") == (model["architecture"], model["quantization"], model["scale_format"])


def test_the_commit_of_a_checkout_is_told_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "" == run(parts=["commit"])["commit"]
    package = tmp_path / "python" / "engine"  # as in the engine's own repository
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@t"]
    for args in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *args], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    assert head == run(parts=["commit"], package="engine")["commit"]
    vendored = tmp_path / "third" / "party" / "lib"
    vendored.mkdir(parents=True)
    shutil.copytree(package, vendored / "engine")
    subprocess.run([*git, "add", "."], check=True)
    monkeypatch.setenv("PYTHONPATH", str(vendored))
    assert "" == run(parts=["commit"], package="engine")["commit"]


def test_a_part_that_crashes_the_process_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "engine.py").write_text("import ctypes; print('noise', flush=True); ctypes.string_at(0)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    report = run(parts=["build", "limits"], package="engine")
    assert ["build: the process crashed"] == report["problems"]
    assert "limits" in report
