"""`bringup judge` as a person and as a program calls it."""

import json
import subprocess
import sys
from pathlib import Path

CORPUS = Path(__file__).parents[1] / "corpus" / "replies.jsonl"


def _judge(*args: str | Path) -> subprocess.CompletedProcess[str]:
    code = "import sys, flows.cli; sys.modules.get('prefect') and sys.exit('Prefect!'); flows.cli.main()"
    argv = [sys.executable, "-c", code, "judge", *map(str, args)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def test_json_gives_one_object_a_line_and_nothing_else() -> None:
    done = _judge(CORPUS, "--json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    labels = [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").split("\n") if line]
    assert 0 == done.returncode
    assert [{"id", "verdict", "why"}] * len(rows) == [set(row) for row in rows]
    assert [(r["id"], r["verdict"]) for r in labels] == [(r["id"], r["verdict"]) for r in rows]


def test_without_json_there_is_a_table() -> None:
    done = _judge(CORPUS)
    assert 0 == done.returncode
    assert any(line.split()[:2] == ["r06", "garbage"] for line in done.stdout.splitlines())


def test_a_bad_line_is_one_sentence_and_the_others_are_answered(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    good = CORPUS.read_text(encoding="utf-8").split("\n")[0]
    lines = [good, '{"id": 1', "", "[1]", '{"id": "b"}', '{"id":"c","status":"ok","reply":""}', good]
    path.write_text("\n".join(lines), encoding="utf-8")
    done = _judge(path, "--json")
    assert (2, 2) == (done.returncode, len(done.stdout.splitlines()))
    said = done.stderr.splitlines()
    assert [f"bringup: {path}: line {n}" for n in (2, 4, 5, 6)] == [": ".join(s.split(": ")[:3]) for s in said]


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    done = _judge(tmp_path / "none.jsonl")
    assert (2, "") == (done.returncode, done.stdout)
    assert [f"bringup: {tmp_path}/none.jsonl: cannot be read: No such file or directory"] == done.stderr.splitlines()


def test_a_file_that_is_something_else_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "core"
    path.write_bytes(bytes(range(256)) * 100)  # 100 newlines, and what follows the last
    done = _judge(path)
    assert (2, "") == (done.returncode, done.stdout)
    assert done.stderr.startswith(f"bringup: {path}: 101 lines could not be read, the first is line 1: ")
    assert 1 == len(done.stderr.splitlines())


def test_nothing_in_a_reply_acts_on_the_terminal_and_secrets_are_hidden(tmp_path: Path) -> None:
    words = ("\x1b]0;title\x07\x9b2J\u202egnirts", "hf_" + "a" * 30, "x" * 85, "hf_" + "b" * 30)
    said = {"error": {"message": " ".join(words)}}
    path = tmp_path / "r.jsonl"
    row = {"id": "a\x1b[2J\u202e", "api": "chat", "status": 200, "request": {}, "reply": said}
    path.write_text(json.dumps(row), encoding="utf-8")
    text, as_json = _judge(path).stdout, _judge(path, "--json").stdout
    assert not set("\x1b\x07\x9b\u202e") & set(text + as_json)
    for out in (text, json.loads(as_json)["why"]):
        assert "<secret>" in out
        assert not {"hf_", "aaa", "bbb"} & {out[i : i + 3] for i in range(len(out))}
