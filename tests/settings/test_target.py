"""A target comes from its TOML file, then from the environment and `.env`, then from flags; slips are one sentence."""

from pathlib import Path

import pytest

from settings.source import BadInput
from settings.target import Target, load_target, resolve_path

TEXT = """
host = "gpu8"
python = "~/ml-env/bin/python3"
model = "{here}/model"
env = { PATH = "/usr/bin", HF_TOKEN = "hf_secret_value" }
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "gpu8.toml"
    path.write_text(TEXT)
    return path


def test_the_file_gives_the_fields_and_its_name(file: Path) -> None:
    target = load_target(str(file))
    assert (target.name, target.host, target.model) == ("gpu8", "gpu8", str(file.parent / "model"))


def test_the_environment_wins_over_the_file_and_a_flag_over_both(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRINGUP_TARGET__HOST", "from-env")
    monkeypatch.setenv("BRINGUP_TARGET__LEASE_S", "7")
    assert (load_target(str(file)).host, load_target(str(file)).lease_s) == ("from-env", 7.0)
    assert load_target(str(file), host="from-flag").host == "from-flag"


def test_a_dotenv_file_is_read_below_the_environment(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").write_text("BRINGUP_TARGET__HOST=from-dotenv\nBRINGUP_TARGET__USER=me\nOTHER=1\n")
    monkeypatch.chdir(tmp_path)
    assert (load_target(str(file)).host, load_target(str(file)).user) == ("from-dotenv", "me")
    monkeypatch.setenv("BRINGUP_TARGET__HOST", "from-env")
    assert load_target(str(file)).host == "from-env"


def test_a_variable_that_no_field_reads_is_an_error(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRINGUP_TARGET__HOSTT", "x")
    with pytest.raises(BadInput, match="HOSTT: no setting has this name; did you mean 'BRINGUP_TARGET__HOST'"):
        load_target(str(file))


def test_a_variable_of_the_host_keeps_its_case_and_the_others_stay(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRINGUP_TARGET__ENV__HF_TOKEN", "another_secret")
    monkeypatch.setenv("BRINGUP_TARGET__ENV__no_proxy", "x")
    assert load_target(str(file)).plain_env() == {"PATH": "/usr/bin", "HF_TOKEN": "another_secret", "no_proxy": "x"}


def test_secrets_do_not_show_in_any_text_of_the_target(file: Path) -> None:
    target = load_target(str(file))
    assert "hf_secret_value" not in repr(target) + str(target) + target.model_dump_json()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('mdoel = "m"', "mdoel: unknown key; did you mean 'model'?"),
        ('model = "m"\nport = 99999', "port: Input should be less than or equal to 65535"),
        ('model = "m"\nlease_s = "soon"', "lease_s: Input should be a valid number"),
        ("model = ", "is not valid TOML"),
        ('model = "m"\nhost = ""', "host: String should have at least 1 character"),
        ('model = "m"\nenv = { A = "x\\u0000y" }', "env: 'A' and its value cannot stand in an environment"),
        ('model = "m"\nname = "a/b"', "name: 'a/b' is used in file names"),
        ('model = "m"\nname = "' + "a" * 300 + '"', "is used in file names: no '/', no leading '.', 64 at most"),
        ('model = "m"\ngpus = true', "gpus: true and false are no numbers"),
        ('model = "m"\ngpus = 100_000', "gpus: Input should be less than or equal to 1024"),
        ('model = "m"\nlease_s = inf', "lease_s: Input should be a finite number"),
        ('model = "m"\nlease_s = 1e9', "lease_s: Input should be less than or equal to 604800"),
        ('model = "m"\nstate_dir = "state"', "state_dir: 'state' depends on the folder it is read in: begin it with"),
        ('model = "m"\nstate_dir = "~"', "state_dir: '~' is not a folder of our own"),
        ('model = "m"\nstate_dir = "/"', "state_dir: '/' is not a folder of our own"),
        ('model = "m"\npython = "env/bin/python3"', "python: 'env/bin/python3' depends on the folder it is read in"),
        ('model = "./m"', "model: './m' depends on the folder it is read in"),
        ('model = ""', "model: String should have at least 1 character"),
        ('model = "m"\nhost = "gpu8\\nHostName evil"', "host: 'gpu8\\nHostName evil' has a blank at an end"),
        ('model = "m"\nhost = "gpu 8"', "host: 'gpu 8' is no alias and no address"),
        ('model = "m"\nuser = "me "', "user: 'me ' has a blank at an end"),
        ('model = "m"\nenv = { "A B\\n" = "x" }', "env: 'A B\\n' and its value cannot stand in an environment"),
        ("", "model: Field required"),
    ],
)
def test_a_slip_is_one_sentence_with_file_and_key(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "t.toml"
    path.write_text(text)
    with pytest.raises(BadInput) as caught:
        load_target(str(path))
    assert str(caught.value).startswith(str(path))
    assert says in str(caught.value)


def test_a_variable_that_is_no_json_is_a_sentence(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRINGUP_TARGET__ENV", "{bad")
    with pytest.raises(BadInput, match="tables are written as JSON"):
        load_target(str(file))


def test_an_unknown_name_names_the_nearest_shipped_one() -> None:
    with pytest.raises(BadInput, match="did you mean 'rehearsal'"):
        load_target("rehersal")


def test_every_field_is_described() -> None:
    assert [name for name, field in Target.model_fields.items() if not field.description] == []


@pytest.mark.parametrize(
    ("path", "resolved"),
    [("~/a", "/h/a"), ("$HOME/a", "/h/a"), ("~", "/h"), ("~x/a", "~x/a"), ("/x/~/a", "/x/~/a"), ("$HOMER", "$HOMER")],
)
def test_only_a_leading_home_mark_is_resolved(path: str, resolved: str) -> None:
    assert resolve_path(path, "/h") == resolved
