"""What is secret is hidden in text, bytes and values; what only looks like it stays, since logs are evidence."""

import json
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.pure.record import HaltBy, MoveKind
from tasks.pure.redact import MASK, Redactor, names_a_secret
from tasks.store import read_record

ROOT = Path(__file__).resolve().parents[3]
RECORD = read_record(next((ROOT / "tests" / "records").iterdir()))


@pytest.mark.parametrize("name", ["HF_TOKEN", "OPENAI_API_KEY", "apiKey", "api-key", "db_password", "GH_PAT"])
def test_names_of_secrets_are_known(name: str) -> None:
    assert names_a_secret(name)


@pytest.mark.parametrize("name", ["TOKENIZERS_PARALLELISM", "PATH", "PWD", "max_total_tokens", "kv-cache-dtype"])
def test_names_that_only_look_like_it_are_not(name: str) -> None:
    assert not names_a_secret(name)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("using hf_abcdefghijKLMNOPQRSTuvwx now", "using <secret> now"),
        ("key sk-proj-abcdEFGH1234567890 end", "key <secret> end"),
        ("Authorization: Bearer abcdef0123456789.x", "Authorization: Bearer <secret>"),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic <secret>"),
        ("ServerArgs(api_key='correct horse', tp=8)", "ServerArgs(api_key='<secret> horse', tp=8)"),
        ('{"admin_api_key": "s3cr3t-value", "tp": 8}', '{"admin_api_key": "<secret>", "tp": 8}'),
        ('"{\\"api_key\\": \\"s3cr3t-value\\"}"', '"{\\"api_key\\": \\"<secret>\\"}"'),
        ("HF_TOKEN=abcdef123 python", "HF_TOKEN=<secret> python"),
        ("--api-key s3cr3t-value --tp 8", "--api-key <secret> --tp 8"),
        ("postgresql://me:pass@db/x", "postgresql://me:<secret>@db/x"),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "<secret>"),
        ("AKIAIOSFODNN7EXAMPLE", "<secret>"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.sig-sig", "<secret>"),
    ],
)
def test_well_known_shapes_are_hidden(raw: str, shown: str) -> None:
    assert shown == Redactor().text(raw)
    assert shown.encode() == Redactor().bytes(raw.encode())


@pytest.mark.parametrize(
    "line",
    [
        "Prefill batch, #new-seq: 1, #new-token: 4096, #cached-token: 123456, token usage: 0.05",
        "ServerArgs(api_key=None, tokenizer_path='/models/GLM-5-NVFP4', max_total_tokens=667072)",
        "eos_token='<|endoftext|>', pad_token_id=151329, key_dtype=torch.float8_e4m3fn",
        "query and key must have the same dtype; basic attention-backend",
        "http://127.0.0.1:30000/v1 and sk-learn, hf_xet, risk-free",
        "KeyError: 'model.layers.0.self_attn.k_proj.weight_scale'",
    ],
)
def test_what_a_log_says_of_tokens_and_keys_stays(line: str) -> None:
    assert line == Redactor().text(line)


def test_no_line_of_a_real_log_is_touched() -> None:
    for path in sorted((ROOT / "tasks/rehearsal/site/sglang/traces").glob("*.txt")):
        assert path.read_bytes() == Redactor().bytes(path.read_bytes()), path.name


OUR_WORDS = {*get_args(MoveKind), *get_args(HaltBy), "not_run"}  # a secret that is one of them is none


@given(st.text(min_size=6, alphabet=st.characters(exclude_categories=["Cs"])).filter(lambda v: v not in OUR_WORDS))
def test_a_known_value_is_found_as_each_of_our_formats_writes_it(value: str) -> None:
    redactor = Redactor([value])
    assert MASK == redactor.text(value)
    assert value not in json.loads(redactor.text(json.dumps({"x": value})))["x"]
    assert f"<b>{MASK}</b>".encode() == redactor.bytes(f"<b>{value}</b>".encode())


def test_a_value_is_hidden_under_a_secret_name_and_after_a_secret_option() -> None:
    value = {"api_key": "ab", "argv": ("--hf-token", "xyz", "--tp", "8"), "deep": [{"password": "p", "x": None}]}
    hidden = {
        "api_key": MASK, "argv": ("--hf-token", MASK, "--tp", "8"), "deep": [{"password": MASK, "x": None}],
    }  # fmt: skip
    assert hidden == Redactor().value(value)


def test_a_record_without_secrets_is_unchanged_and_one_with_them_still_reads() -> None:
    assert Redactor().model(RECORD) == RECORD
    hidden = Redactor(["probability tensor", "remedy", "preflight"]).model(RECORD)
    assert "probability tensor" not in hidden.model_dump_json()
    assert hidden.attempts[0].move == RECORD.attempts[0].move


def test_the_users_patterns_and_names_are_hidden_as_words() -> None:
    redactor = Redactor(patterns=[r"proj-(\d+)"])
    redactor.learn("learnt later")
    assert f"{MASK} by {MASK}" == redactor.text("proj-17 by learnt later")


def test_a_hidden_host_is_told_apart_from_another_and_is_the_same_in_each_run() -> None:
    redactor, other_run = Redactor(), Redactor()
    for name in ("vm", "gpu8"):
        redactor.hide(name)
    other_run.hide("gpu8")
    vm, gpu8 = redactor.text("vm"), redactor.text("gpu8")
    assert f"{vm} and {gpu8}, not vmlinux" == redactor.text("vm and gpu8, not vmlinux")
    assert gpu8 == other_run.text("gpu8")
    assert len({vm, gpu8, "vm", "gpu8"}) == 4


def test_a_key_of_several_lines_is_hidden_line_by_line_and_leaves_the_numbering() -> None:
    body = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"
    key = f"-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----"
    shown = Redactor().text(f"first\n{key}\nlast")
    assert (body not in shown, shown.count("\n"), shown[-4:]) == (True, 4, "last")
    assert Redactor([key]).text(f"only this line came: {body}") == f"only this line came: {MASK}"
