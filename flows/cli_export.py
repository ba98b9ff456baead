"""`bringup export`: the winner of a run as a script, as systemd units, or as data, to run it without this program."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

import tasks.remote.health
from flows.cli_show import folder_of
from tasks.pure.export import shell_files, systemd_files
from tasks.pure.lock import lock_of, lock_toml
from tasks.store import read_record, replace

__all__ = ["Form", "export"]


class Form(StrEnum):
    SHELL = "shell"
    SYSTEMD = "systemd"
    TOML = "toml"
    JSON = "json"


def export(
    run: Annotated[str | None, typer.Argument(help="run id or folder; default: the newest run")] = None,
    as_: Annotated[Form, typer.Option("--as", help="what to make of it")] = Form.TOML,
    out: Annotated[Path | None, typer.Option(help="folder for the files; default: export/ beside the record")] = None,
    at: Annotated[str, typer.Option(help="where systemd's files will lie on the host")] = "/etc/glm5-bringup",
    runs: Annotated[str | None, typer.Option("--runs", help="folder of records; default $BRINGUP_HOME/runs")] = None,
) -> None:
    """Take the winner of a run away: as files for shell and systemd, on stdout for toml and json.

    Secrets stay references: the script and the units name the variables that have to be given.

    Example: bringup export --as systemd --out units
    """
    folder = folder_of(run, runs)
    lock = lock_of(read_record(folder))
    if as_ is Form.TOML:
        print(lock_toml(lock), end="")
    elif as_ is Form.JSON:
        print(lock.model_dump_json())
    else:
        health = Path(tasks.remote.health.__file__).read_text(encoding="utf-8")
        files = shell_files(lock, health) if as_ is Form.SHELL else systemd_files(lock, health, folder=at)
        where = out or folder / "export"
        where.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            replace(where / name, text.encode())
            (where / name).chmod(0o755 if name.endswith((".sh", ".py")) else 0o644)
            print(where / name)
