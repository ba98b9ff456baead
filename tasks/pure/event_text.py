"""An event of a run as a sentence for a person: for the live lines, and for `bringup logs`."""

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["event_line", "sentence"]

_ALWAYS = ("event", "level", "at", "run_id")
_WIDEST = 18  # columns of an event's name


def event_line(line: str) -> tuple[str, str]:
    """A line of events.jsonl as (time and event, what happened); what is no such line stands as it is."""
    try:
        told = json.loads(line)
        event, at = str(told["event"]), str(told["at"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return "", line
    facts = {k: v for k, v in told.items() if k not in _ALWAYS}
    try:
        said = " ".join(sentence(event, facts).split("\n")).strip()
    except (TypeError, KeyError, ValueError):  # written by another release
        said = ""
    return f"{at[11:19]}  {event:<{_WIDEST}}  ", said or _pairs(facts)


def sentence(event: str, f: Mapping[str, Any]) -> str:
    """A milestone in words; empty for an event that only the log needs. Raises: KeyError when a fact is missing."""
    match event:
        case "run.started":
            return f"{f['ladder']} on {f['target']}; evidence in {f['folder']}"
        case "host.locked":
            return f"host {f['host']} is ours ({f['owner']})" + (f"; left over: {f['left']}" if f["left"] else "")
        case "host.waiting":
            return f"waiting for host {f['host']}, at most {f['at_most_s']:.0f} s: {f['why']}"
        case "host.probed":
            return f"build {f['version'] or 'unknown'}"
        case "lock.compared":
            return "as it was when it was locked" if not f["differs"] else f"not as locked: {'; '.join(f['differs'])}"
        case "attempt.started":
            return f"{f['n']}. {f['rung']}" + (f" with {', '.join(f['remedies'])}" if f["remedies"] else "")
        case "stage.ended":
            reason = f": {f['reason']}" if f["reason"] else ""
            return f"   {f['stage']} {f['outcome']} in {f['wall_s']:.1f} s{reason}"
        case "server.doomed":
            return f"   fatal line {f['line']}: {str(f['text'])[:160]}"
        case "diagnosis.made":
            return f"   cause: {f['kind']} ({f['component']}, {f['phase']}): {f['means']}"
        case "rung.left":
            return f"   -> {f['move']} {f['to'] or ''}: {f['why']}"
        case "rung.skipped":
            return f"   {f['rung']} skipped: {f['why']}"
        case "host.lost" | "step.retried":
            return f"   {event}: {f['why']}"
        case "run.published":
            return f"copied to {f['to']} ({f['files']} files)"
        case "run.not_published":
            return f"could not be copied to {f['to']}: {f['why']}"
        case "run.ended":
            return f"{f['headline']}  [{f['by']}: {f['reason']}]"
        case _:
            return ""


def _pairs(facts: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={_value(value)}" for key, value in facts.items()).replace("\n", " ")


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f'"{text}"' if isinstance(value, str) and (" " in text or not text) else text
