"""A person's words become hosts: each once, and a bad one is a row and never the end."""

from pathlib import Path

import pytest

from settings.source import BadInput
from settings.words import ExitCode
from tasks.fleet import sorted_out, target_files

TARGET = 'host = "HOST"\nmodel = "/models/m"\nstate_dir = "STATE"\n'
LADDER = "glm5-sm120"


def _host(path: Path, host: str, state: str = "~/state") -> str:
    path.write_text(TARGET.replace("HOST", host).replace("STATE", state))
    return str(path)


def test_names_paths_folders_and_patterns_give_each_file_once_and_in_order(tmp_path: Path) -> None:
    b, a = _host(tmp_path / "b.toml", "b"), _host(tmp_path / "a.toml", "a")
    (tmp_path / "notes.txt").touch()
    assert ["rehearsal", a, b] == target_files(["rehearsal", str(tmp_path)])
    assert [b, a] == target_files([b, f"{tmp_path}/*.toml", f"{tmp_path}/[ab].toml"])


@pytest.mark.parametrize("words", [[], ["FOLDER"], ["FOLDER/*.toml"]])
def test_no_host_at_all_is_one_sentence(tmp_path: Path, words: list[str]) -> None:
    with pytest.raises(BadInput, match=r"names no host|holds no target file"):
        target_files([word.replace("FOLDER", str(tmp_path)) for word in words])


def test_a_bad_file_is_a_row_and_not_the_end(tmp_path: Path) -> None:
    good, bad = _host(tmp_path / "good.toml", "g"), tmp_path / "bad.toml"
    bad.write_text('hots = "gpu9"\n')
    hosts, refused = sorted_out([str(bad), good, str(tmp_path / "gone.toml")], LADDER)
    assert {"good": good} == hosts
    assert [("bad", ExitCode.BAD_INPUT), ("gone", ExitCode.BAD_INPUT)] == [(r.target, r.exit) for r in refused]
    assert ["did you mean 'host'?" in refused[0].headline, "cannot be read" in refused[1].headline] == [True, True]


def test_one_host_and_state_folder_is_begun_once(tmp_path: Path) -> None:
    first, twin = _host(tmp_path / "first.toml", "gpu1"), _host(tmp_path / "twin.toml", "gpu1")
    beside = _host(tmp_path / "beside.toml", "gpu1", "~/other")
    hosts, refused = sorted_out([first, twin, beside], LADDER)
    assert {"first": first, "beside": beside} == hosts
    assert [("twin", "Host busy", ExitCode.HOST_BUSY)] == [(r.target, r.state, r.exit) for r in refused]
    assert first in refused[0].headline


def test_two_files_of_one_name_are_two_hosts(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    one, two = _host(tmp_path / "gpu.toml", "a"), _host(tmp_path / "x/gpu.toml", "b")
    hosts, _ = sorted_out([one, two], LADDER)
    assert [one, two] == list(hosts.values())
