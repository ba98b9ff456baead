"""`bringup export`: the winner of a run as a script, as systemd units, or as data, to run it without this program."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

import tasks.remote.health
from flows.cli_files import written
from flows.cli_show import folder_of
from settings.source import BadInput
from tasks.pure.export import shell_files, systemd_files
from tasks.pure.lock import lock_of, lock_toml
from tasks.pure.visible import escaped, visible
from tasks.store import read_record, replace, runs_root

__all__ = ["Form", "export"]


class Form(StrEnum):
    SHELL = "shell"
    SYSTEMD = "systemd"
    TOML = "toml"
    JSON = "json"


def export(
    run: Annotated[str | None, typer.Argument(help="run id or a part of it; default: the newest that served")] = None,
    as_: Annotated[Form, typer.Option("--as", help="what to make of it")] = Form.TOML,
    out: Annotated[Path | None, typer.Option(help="folder for the files; default: export/ beside the record")] = None,
    at: Annotated[str, typer.Option(help="where systemd's files will lie on the host")] = "/etc/glm5-bringup",
    runs: Annotated[str | None, typer.Option("--runs", help="folder of records; default $BRINGUP_HOME/runs")] = None,
) -> None:
    """Take the winner of a run away: as files for shell and systemd, on stdout for toml and json.

    Secrets stay references: the script and the units name the variables that have to be given.

    Example: bringup export --as systemd --out units
    """
    if not at.startswith("/"):
        raise BadInput("export", "--at", f"'{at}' is no absolute path: systemd takes no other")
    folder = folder_of(run, runs) if run is not None else _served(runs_root(runs))
    lock = lock_of(read_record(folder))
    if as_ is Form.TOML:
        print(escaped(lock_toml(lock)), end="")
    elif as_ is Form.JSON:
        print(lock.model_dump_json(ensure_ascii=True))
    else:
        health = Path(tasks.remote.health.__file__).read_text(encoding="utf-8")
        files = shell_files(lock, health) if as_ is Form.SHELL else systemd_files(lock, health, folder=at)
        where = out or folder / "export"
        with written(where, "--out"):
            where.mkdir(parents=True, exist_ok=True)
            for name, text in files.items():
                replace(where / name, text.encode())
                (where / name).chmod(0o755 if name.endswith((".sh", ".py")) else 0o644)
        for name in files:
            print(where / name)


def _served(root: Path) -> Path:
    """The folder of the newest run that has a winner, and says which. Raises: BadInput when none has."""
    for path in sorted(root.glob("*/record.json"), reverse=True):
        try:
            record = read_record(path.parent)
        except BadInput as e:
            print(f"bringup: left out: {visible(str(e))}", file=sys.stderr)
            continue
        if record.winner is not None:
            print(f"bringup: takes {visible(record.run_id)}, the newest run that served", file=sys.stderr)
            return path.parent
    raise BadInput(root, "", "holds no run that served, so there is nothing to take away")
