"""Which host keys a person has vouched for: fabric takes any key, and paramiko knows no patterns and no file names."""

import base64
import binascii
import fnmatch
import hashlib
import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import paramiko

from tasks.host import HostKeyRefused

__all__ = ["KnownKey", "check_key", "known_keys"]


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A line of a known_hosts file that speaks of the host in question."""

    file: Path
    line: int  # 1-based
    kind: str  # e.g. "ssh-ed25519"
    blob: bytes
    revoked: bool

    @property
    def fingerprint(self) -> str:
        return "SHA256:" + base64.b64encode(hashlib.sha256(self.blob).digest()).decode().rstrip("=")


def known_keys(files: Sequence[Path], host: str, port: int) -> tuple[KnownKey, ...]:
    """All keys that `files` hold for a host; as in OpenSSH, `host` alone counts when `[host]:port` is not there.

    Certificate authorities are passed over: paramiko cannot check a host certificate.
    """
    name = host if port == 22 else f"[{host}]:{port}"
    found = tuple(key for file in files for key in _keys_of(file, name))
    return found or (tuple(key for file in files for key in _keys_of(file, host)) if port != 22 else ())


def check_key(
    key: paramiko.PKey, known: Sequence[KnownKey], files: Sequence[Path], *, who: str, host: str, port: int
) -> None:
    """Return when a person has vouched for this key.

    Raises: HostKeyRefused, saying which file, which fingerprint, and how to find out whether all is well.
    """
    blob, name = key.asbytes(), host if port == 22 else f"[{host}]:{port}"
    kind, print_ = key.get_name(), key.fingerprint
    if any(k.revoked and k.blob == blob for k in known):
        raise HostKeyRefused(f"{who}: the key of {name} ({kind} {print_}) is marked @revoked in {_places(known)}")
    trusted = [k for k in known if not k.revoked]
    if any(k.blob == blob for k in trusted):
        return
    public = f"/etc/ssh/ssh_host_{kind.removeprefix('ssh-').split('-')[0]}_key.pub"
    look = f"compare it with `ssh-keygen -lf {public}` on the host's own console"
    if not trusted:
        listed = ", ".join(map(str, files))
        raise HostKeyRefused(
            f"{who}: the key of {name} is unknown: it sent {kind} {print_}, and none of {listed} holds a key for it; "
            f"{look}, and if they agree run `ssh-keyscan -p {port} {host} >> {files[0]}`"
        )
    held = ", ".join(f"{k.kind} {k.fingerprint}" for k in trusted)
    raise HostKeyRefused(
        f"{who}: the key of {name} HAS CHANGED: it sent {kind} {print_}, but {_places(trusted)} holds {held}; someone "
        f"may be in between, or the host was installed anew: {look}, and only if they agree run "
        f"`ssh-keygen -R '{name}' -f {trusted[0].file}` and add the new key"
    )


def _places(keys: Iterable[KnownKey]) -> str:
    return ", ".join(f"{k.file}:{k.line}" for k in keys)


def _keys_of(file: Path, name: str) -> Iterable[KnownKey]:
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return  # OpenSSH too takes a file that is not there for an empty one
    for number, line in enumerate(lines, 1):
        fields = line.split()
        marker = fields.pop(0) if fields and fields[0].startswith("@") else ""
        if len(fields) < 3 or fields[0].startswith("#") or marker == "@cert-authority":
            continue
        if _is_named(name, fields[0]):
            try:
                yield KnownKey(file, number, fields[1], base64.b64decode(fields[2]), marker == "@revoked")
            except binascii.Error:
                continue


def _is_named(name: str, patterns: str) -> bool:
    """Does the first field of a line speak of `name`? Source: sshd(8), SSH_KNOWN_HOSTS FILE FORMAT."""
    if patterns.startswith("|1|"):
        _, _, salt, digest = patterns.split("|", 3)
        made = hmac.new(base64.b64decode(salt), name.encode(), hashlib.sha1).digest()
        return hmac.compare_digest(made, base64.b64decode(digest))
    hits = [p for p in patterns.lower().split(",") if _matches(name.lower(), p.removeprefix("!"))]
    return bool(hits) and not any(p.startswith("!") for p in hits)


def _matches(name: str, pattern: str) -> bool:
    """Only * and ? are special; a bracket belongs to `[host]:port`."""
    return fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))
