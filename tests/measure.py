"""`make bench`: how fast the parts are on this machine, one line each. It measures and judges nothing.

Run it on an idle machine; on a busy one each figure is the load's, not ours.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from settings.catalogue import shipped_catalogue
from settings.literals import required_literals
from settings.milestones import shipped_milestones
from tasks.diagnose import diagnose_file
from tasks.pure.fleet import FleetRow
from tests.flows.conftest import healthy
from tests.flows.controller import Rehearsed, controller, fleet

__all__ = ["main"]

BRINGUP = Path(sys.executable).with_name("bringup")
RECORD = next((Path(__file__).parent / "records").glob("*/record.json"))
RUNS = 3000  # eight years of nights
ORDINARY = Path(__file__).parent / "corpus/real/cpu-0.5.23-healthy.log"


def main(size_mb: int) -> None:
    """Print the table; the log that is read has `size_mb` million bytes of a healthy server's lines."""
    _show("bringup --help", _best(lambda: _run(str(BRINGUP), "--help")), "s")
    _show("bringup ladder check glm5-sm120", _best(lambda: _run(str(BRINGUP), "ladder", "check", "glm5-sm120")), "s")
    with tempfile.TemporaryDirectory() as folder:
        _write_runs(Path(folder), RUNS)
        listed = _best(lambda: _run(str(BRINGUP), "history", "--runs", folder, "--json"))
        _show(f"bringup history, {RUNS} records", listed, "s")
        shown = _best(lambda: _run(str(BRINGUP), "show", "--runs", folder))
        _show(f"bringup show among {RUNS} records", shown, "s")
        drawn = _best(lambda: _run(str(BRINGUP), "report", "--history", "--runs", folder), tries=1)
        _show(f"bringup report --history, {RUNS} records", drawn, "s")
    with tempfile.TemporaryDirectory() as folder:
        log, words = Path(folder, "log"), Path(folder, "literals")
        size = _write_log(log, size_mb * 1_000_000)
        words.write_text("\n".join(_literals()) + "\n")
        catalogue, milestones = shipped_catalogue(), shipped_milestones()
        grep = _best(lambda: _run("grep", "-F", "-c", "-f", str(words), str(log)))
        ours = _best(lambda: diagnose_file(str(log), catalogue, milestones))
        _show(f"grep -F with the catalogue's literals, {size_mb} MB", size / 1e6 / grep, "MB/s")
        _show(f"diagnose, {size_mb} MB", size / 1e6 / ours, "MB/s")
    _show_fleet(4, 2)


def _show_fleet(hosts: int, workers: int) -> None:
    """Simulated hosts at once on a Prefect server of their own: what each takes of the controller."""
    with tempfile.TemporaryDirectory() as name, controller(Path(name), workers) as (prefect, pids):
        folder = Path(name)
        (folder / "story.toml").write_text(healthy())
        for n in range(hosts):
            Rehearsed(folder / f"gpu{n}", folder / "story.toml", f"gpu{n}").written()
        words = ["--targets", f"{folder}/gpu*/*.toml", "--runs", str(folder / "runs"), "--json"]
        began = time.perf_counter()
        ran, took = fleet(prefect, pids, *words)
        wall_s = time.perf_counter() - began
    rows = [FleetRow.model_validate_json(line) for line in ran.stdout.splitlines()]
    if ran.returncode:
        raise SystemExit(f"a host does not serve: {[row.headline for row in rows]}")
    what = f"fleet of {hosts} on {workers} workers"
    _show(f"{what}: whole time, by host", wall_s / hosts, "s")
    _show(f"{what}: a run, median", statistics.median(row.seconds or 0.0 for row in rows), "s")
    _show(f"{what}: memory of a run, most", max(max(of.values()) for of in took.flows.values()), "MB")
    _show(f"{what}: memory of a worker, most", max(took.workers.values()), "MB")


def _write_runs(root: Path, count: int) -> None:
    """The same run night after night, every fourth of them without a winner."""
    record = json.loads(RECORD.read_text())
    for n in range(count):
        at = datetime(2024, 1, 1, 2, tzinfo=UTC) + timedelta(hours=8 * n)
        run = f"{at:%Y%m%d-%H%M%S}-rehearsal-{n:04x}"
        lost = {"winner": None, "outcome": "exhausted"} if n % 4 == 3 else {}
        folder = root / run
        folder.mkdir()
        times = {"started_at": at.isoformat(), "ended_at": (at + timedelta(minutes=41)).isoformat()}
        (folder / "record.json").write_text(json.dumps({**record, "run_id": run, **times, **lost}))


def _literals() -> list[str]:
    catalogue = shipped_catalogue()
    patterns = [*(f.pattern for f in catalogue.failure), *catalogue.deaths, *(h.pattern for h in catalogue.hint)]
    return sorted({literal for pattern in patterns for literal in required_literals(pattern)})


def _write_log(path: Path, size: int) -> int:
    """A healthy start once, then what the engine wrote while it served, again and again; the bytes written."""
    before, ready, rest = ORDINARY.read_bytes().partition(b"The server is fired up and ready to roll!\n")
    again = rest.partition(b"SIGTERM")[0].rpartition(b"\n")[0] + b"\n"
    with path.open("wb") as log:
        log.write(before + ready)
        while log.tell() < size:
            log.write(again * 1000)
        return log.tell()


def _best(work: Callable[[], object], tries: int = 3) -> float:
    """Seconds of the fastest of some tries: what disturbs a measurement only ever adds."""
    return min(_timed(work) for _ in range(tries))


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, check=False)   # into /dev/null, grep would stop at its first hit
    if done.returncode not in (0, 1):   # grep says 1 where nothing matched
        raise SystemExit(f"{argv[0]} ended with {done.returncode}")


def _show(what: str, figure: float, unit: str) -> None:
    print(f"{what:<56} {figure:10.2f} {unit}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
