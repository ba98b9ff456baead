"""Variables that begin with BRINGUP_ are ours: one that nobody reads would be a setting that silently does nothing."""

from settings import run, target
from settings.source import BadInput, environment_file, nearest, variables

__all__ = ["ALONE", "check_environment"]

# Those that are no field of a target or of the run's settings, and who reads them.
ALONE = {
    "BRINGUP_HOME": "the folder of the runs",
    "BRINGUP_NOTIFY_URL": "deployments/notify.py",
    "BRINGUP_WORKER_LIMIT": "deployments/worker.py",
    "BRINGUP_CHECKOUT": "deployments/deploy.py",
    "BRINGUP_NO_SKIPS": "the tests: none may be skipped",
    "BRINGUP_ATTEMPT": "a mark of the supervisor on what it starts",
    "BRINGUP_STATE": "likewise",
}


def check_environment() -> None:
    """Raises: BadInput for the first variable, around us or in `.env`, that nobody reads."""
    environment_file(target.PREFIX, target.Target.model_fields, tables=target.TABLES)
    environment_file(run.PREFIX, run.RunSettings.model_fields)
    for where, names in variables():
        for name in names:
            if not name.upper().startswith("BRINGUP") or name.upper().startswith((target.PREFIX, run.PREFIX)):
                continue
            if name not in ALONE:
                raise BadInput(where, name, "no setting has this name", _like(name))
            if where == ".env":
                raise BadInput(where, name, "is read from the environment, not from this file")


def _like(name: str) -> str | None:
    fields = [run.PREFIX + field.upper() for field in run.RunSettings.model_fields]
    fields += [target.PREFIX + field.upper() for field in target.Target.model_fields]
    return nearest(name.upper(), [*ALONE, *fields], cutoff=0.7)
