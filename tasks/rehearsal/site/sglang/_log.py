"""Lines as SGLang's logging writes them: on stderr, a time, the rank where there is more than one, no level."""

import os
import sys
import time
from pathlib import Path

__all__ = ["SITE", "bar", "log", "plain", "trace"]

SITE = str(Path(__file__).resolve().parent.parent)
_TRACES = Path(__file__).resolve().parent / "traces"


def log(message: str, rank: str = "") -> None:
    """One log line. `rank` is empty, or like "TP3"."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    plain(f"[{stamp}{' ' + rank if rank else ''}] {message}\n")


def plain(text: str) -> None:
    """Text as it is, in one write, so that processes do not mix within a line."""
    os.write(sys.stderr.fileno(), text.encode())


def bar(title: str, done: int, total: int, seconds: float) -> None:
    """One redraw of a tqdm bar: it begins with a carriage return, and only the last one ends the line."""
    share = done / total if total else 1.0
    pace = f"{done / seconds:.2f}it/s" if done and seconds > 0 else "?it/s"
    took = f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"
    end = "\n" if done == total else ""
    plain(f"\r{title} {share * 100:3.0f}% Completed | {done}/{total} [{took}<?, {pace}]{end}")


def trace(name: str) -> str:
    """The text of a recorded traceback, its paths those of this installation."""
    return (_TRACES / f"{name}.txt").read_text(encoding="utf-8").replace("{site}", SITE)
