"""`bringup diagnose` as a person or a script runs it."""

import json
import subprocess
import sys
from pathlib import Path

BRINGUP = Path(sys.executable).with_name("bringup")
LOG = b"Traceback (most recent call last):\n" + (
    b"RuntimeError: probability tensor contains either `inf`, `nan` or element < 0\n"
)
KEYS = [
    "file", "engine", "kind", "phase", "component", "action", "evidence", "means", "try", "flag", "value", "also_seen",
]  # fmt: skip


def bringup(*argv: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run([str(BRINGUP), "diagnose", *argv], input=stdin, capture_output=True, check=False, timeout=60)


def test_json_has_one_object_a_line_with_the_agreed_keys(tmp_path: Path) -> None:
    logs = [tmp_path / "a.log", tmp_path / "b.log"]
    for log in logs:
        log.write_bytes(LOG)
    done = bringup("--json", *map(str, logs))
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert (0, b"") == (done.returncode, done.stderr)
    assert [str(log) for log in logs] == [a["file"] for a in answers]
    assert [KEYS, KEYS] == [list(a) for a in answers]
    assert ["line", "text", "rank"] == list(answers[0]["evidence"])
    assert ("nan", 2) == (answers[0]["kind"], answers[0]["evidence"]["line"])


def test_a_dash_is_standard_input() -> None:
    done = bringup("--json", "-", stdin=LOG)
    assert ("-", "nan") == tuple(json.loads(done.stdout)[k] for k in ("file", "kind"))


def test_an_unreadable_file_is_one_sentence_and_the_others_are_answered(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(LOG)
    done = bringup(str(tmp_path / "gone.log"), str(log), "--json")
    assert (2, 1, 1) == (done.returncode, done.stderr.count(b"\n"), done.stdout.count(b"\n"))
    assert b"gone.log: cannot be read: No such file or directory" in done.stderr


def test_the_page_shows_the_excerpt_what_it_means_and_what_to_try(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"\x1b[31mred\x1b[0m before\n" + LOG)
    page = bringup(str(log)).stdout.decode()
    for shown in ("nan", "red before", ">", "probability tensor contains either", "attention backend", "next_backend"):
        assert shown in page
    assert "\x1b[31m" not in page


def test_prefect_is_not_imported(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(LOG)
    code = f"import sys; sys.argv = ['bringup', 'diagnose', {str(log)!r}]\n"
    code += "from flows.cli import main\ntry: main()\nexcept SystemExit: pass\n"
    code += "print([m for m in sys.modules if m.split('.')[0] == 'prefect'], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=60)
    assert b"[]\n" == done.stderr


def test_no_secret_and_nothing_that_acts_on_the_terminal_is_shown(tmp_path: Path) -> None:
    log = tmp_path / "a\x1b[2J\u202e.log"
    secret = "hf_" + "a" * 30
    log.write_bytes(LOG.replace(b"inf`", f"inf` \x9b2J\u202e {secret}".encode()) + f"token {secret}\n".encode())
    for done in (bringup(str(log)), bringup("--json", str(log))):
        out = done.stdout.decode()
        assert done.returncode == 0
        assert "<secret>" in out
        assert secret not in out
        assert not set("\x1b\x9b\u202e") & set(out)


def test_an_engine_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(LOG)
    done = bringup("--engine", "vlm", str(log))
    assert (2, b"") == (done.returncode, done.stdout)
    assert b"bringup: diagnose: --engine: 'vlm' is not sglang or vllm; did you mean 'vllm'?\n" == done.stderr
