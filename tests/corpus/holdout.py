"""How far the rules carry beyond the signatures: a third of all signatures is withheld, three times.

A signature is one alternative of a pattern. A labelled log counts as unseen when the entry that decides it with
the whole catalogue does not fit its deciding line any more. With `--entries` whole entries are withheld, every third of
a kind.

usage: python -m tests.corpus.holdout
"""

import json
import re
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterator

from settings.catalogue import Catalogue, shipped_catalogue
from settings.milestones import shipped_milestones
from tasks.diagnose import diagnose_file
from tests.corpus.huge import HERE, logs

__all__ = ["main", "without"]


def without(catalogue: Catalogue, third: int, *, entries: bool) -> Catalogue:
    """The catalogue less a third of its signatures. An entry that loses all of them goes as well."""
    kept = []
    for place, entry in enumerate(catalogue.failure):
        if entries:
            nth = sum(e.kind == entry.kind for e in catalogue.failure[:place])
            kept += [] if nth % 3 == third else [entry]
            continue
        left = [a for a in alternatives(entry.pattern) if zlib.crc32(a.encode()) % 3 != third]
        kept += [entry.model_copy(update={"pattern": "|".join(left)})] if left else []
    return catalogue.model_copy(update={"failure": tuple(kept)})


def alternatives(pattern: str) -> Iterator[str]:
    """The alternatives of a pattern outside all its brackets."""
    depth, begin, escaped, in_set = 0, 0, False, False
    for at, char in enumerate(pattern):
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = True
        elif in_set:
            in_set = char != "]"
        elif char == "[":
            in_set = True
        elif char in "()":
            depth += 1 if char == "(" else -1
        elif char == "|" and depth == 0:
            yield pattern[begin:at]
            begin = at + 1
    yield pattern[begin:]


def main() -> None:
    """Print, for each third, kinds and actions that are right among the seen and the unseen."""
    catalogue, milestones, folder = shipped_catalogue(), shipped_milestones(), logs()
    cases = [json.loads(line) for line in (HERE / "cases.jsonl").read_text(encoding="utf-8").splitlines()]
    right: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for third in range(3):
        reduced = without(catalogue, third, entries="--entries" in sys.argv)
        left = {e.means: re.compile(e.pattern) for e in reduced.failure}
        for case in cases:
            path = str(folder / case["file"].removeprefix("logs/"))
            full = diagnose_file(path, catalogue, milestones)
            text = full.evidence.text
            decider = next((e for e in catalogue.failure if re.search(e.pattern, text)), None) if text else None
            unseen = decider is not None and not (decider.means in left and left[decider.means].search(text))
            group = right["unseen" if unseen else "seen"]
            found = diagnose_file(path, reduced, milestones)
            group[0] += found.kind == case["kind"]
            group[1] += found.action == case["action"]
            group[2] += 1
    for name, (kinds, actions, all_) in right.items():
        print(f"{name:7} {all_:4} logs: kind {kinds / all_:.3f}, action {actions / all_:.3f}")


if __name__ == "__main__":
    main()
