import subprocess
from pathlib import Path

import paramiko
import pytest

from tasks.host import HostKeyRefused
from tasks.known_hosts import check_key, known_keys


@pytest.fixture(scope="module")
def key() -> paramiko.PKey:
    return paramiko.ECDSAKey.generate()


@pytest.fixture(scope="module")
def other() -> paramiko.PKey:
    return paramiko.ECDSAKey.generate()


def line(names: str, key: paramiko.PKey, marker: str = "") -> str:
    return f"{marker} {names} {key.get_name()} {key.get_base64()} a comment\n".lstrip()


def check(file: Path, key: paramiko.PKey, host: str = "gpu-a", port: int = 22) -> None:
    check_key(key, known_keys([file], host, port), [file], who="gpu", host=host, port=port)


@pytest.mark.parametrize(
    ("names", "host", "port"),
    [
        ("gpu-a", "gpu-a", 22),
        ("other,gpu-a,10.0.0.1", "gpu-a", 22),
        ("GPU-A", "gpu-a", 22),
        ("[gpu-a]:2222", "gpu-a", 2222),
        ("gpu-a", "gpu-a", 2222),  # ssh accepts the key of the plain name for any port
        ("gpu-?", "gpu-a", 22),
        ("*.example.org,!bad.example.org", "good.example.org", 22),
        ("[*.example.org]:2222", "good.example.org", 2222),
    ],
)
def test_a_key_is_known_by_each_form_of_its_name(
    tmp_path: Path, key: paramiko.PKey, names: str, host: str, port: int
) -> None:
    (tmp_path / "known").write_text("# a comment\n\nnonsense\n" + line(names, key))
    check(tmp_path / "known", key, host, port)


@pytest.mark.parametrize(
    ("names", "host", "port"),
    [
        ("gpu-b", "gpu-a", 22),
        ("[gpu-a]:2222", "gpu-a", 22),
        ("[gpu-a]:2222", "gpu-a", 2223),
        ("*.example.org,!bad.example.org", "bad.example.org", 22),
        ("!bad.example.org", "good.example.org", 22),
    ],
)
def test_a_key_of_another_host_is_no_key_of_this_one(
    tmp_path: Path, key: paramiko.PKey, names: str, host: str, port: int
) -> None:
    (tmp_path / "known").write_text(line(names, key))
    with pytest.raises(HostKeyRefused, match="unknown"):
        check(tmp_path / "known", key, host, port)


@pytest.mark.parametrize(("name", "port"), [("gpu-a", 22), ("[gpu-a]:2222", 2222)])
def test_hashed_names_are_known(tmp_path: Path, key: paramiko.PKey, name: str, port: int) -> None:
    file = tmp_path / "known"
    file.write_text(line("before", key) + line(name, key))
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(file)], check=True, capture_output=True)
    assert "gpu-a" not in file.read_text()
    check(file, key, "gpu-a", port)
    with pytest.raises(HostKeyRefused):
        check(file, key, "gpu-b", port)


def test_an_unknown_key_is_refused_with_file_fingerprint_and_a_way_to_check(
    tmp_path: Path, key: paramiko.PKey
) -> None:
    file = tmp_path / "absent"
    with pytest.raises(HostKeyRefused) as refused:
        check(file, key, "gpu-a", 2222)
    said = str(refused.value)
    checks = ("ssh-keygen -lf /etc/ssh/ssh_host_ecdsa_key.pub", "ssh-keyscan -p 2222 gpu-a")
    for part in ("gpu:", "[gpu-a]:2222", str(file), str(key.fingerprint), *checks):
        assert part in said


def test_a_changed_key_is_refused_with_both_fingerprints_and_the_line(
    tmp_path: Path, key: paramiko.PKey, other: paramiko.PKey
) -> None:
    (tmp_path / "known").write_text("# first\n" + line("gpu-a", other))
    with pytest.raises(HostKeyRefused) as refused:
        check(tmp_path / "known", key)
    said = str(refused.value)
    where = f"{tmp_path}/known:2"
    for part in ("CHANGED", str(key.fingerprint), str(other.fingerprint), where, "ssh-keygen -R 'gpu-a'"):
        assert part in said


def test_a_second_key_of_a_host_is_as_good_as_the_first(
    tmp_path: Path, key: paramiko.PKey, other: paramiko.PKey
) -> None:
    (tmp_path / "known").write_text(line("gpu-a", other) + line("gpu-a", key))
    check(tmp_path / "known", key)


def test_a_revoked_key_is_refused_even_when_another_line_trusts_it(tmp_path: Path, key: paramiko.PKey) -> None:
    (tmp_path / "known").write_text(line("gpu-a", key) + line("*", key, "@revoked"))
    with pytest.raises(HostKeyRefused, match="revoked"):
        check(tmp_path / "known", key)


def test_a_certificate_authority_is_not_taken_for_a_host_key(tmp_path: Path, key: paramiko.PKey) -> None:
    (tmp_path / "known").write_text(line("gpu-a", key, "@cert-authority"))
    with pytest.raises(HostKeyRefused, match="unknown"):
        check(tmp_path / "known", key)
