"""What makes a ladder wrong although each of its parts is well-formed; checked as a whole when it is loaded."""

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from settings.ladder import Edge, Ladder
from settings.source import BadInput, nearest
from settings.words import LOG_KINDS, OWN_KINDS, Stage

__all__ = ["check_ladder"]

GATES = (Stage.READY, Stage.WARMUP, Stage.DECODE, Stage.ACCURACY, Stage.BENCH, Stage.RECHECK)
_TOKENS = {Stage.DECODE, Stage.ACCURACY, Stage.BENCH, Stage.RECHECK}
_CONDITIONS = ("kind", "component", "phase", "stage", "action")
_UNKNOWN = "unknown"


def check_ladder(
    ladder: Ladder, *, file: str | Path, intents: Collection[str], kinds: Collection[str] = LOG_KINDS | OWN_KINDS
) -> None:
    """Accept the ladder, or say what is wrong with it.

    `intents`: names that the engine file knows; any other argument is taken for a plain flag, unless it is so
    close to an intent that it must be a slip. Raises: BadInput for the first fault found.
    """
    _Check(ladder, str(file), intents, kinds).run()


class _Check:
    def __init__(self, ladder: Ladder, file: str, intents: Collection[str], kinds: Collection[str]) -> None:
        self.ladder, self.file, self.intents, self.kinds = ladder, file, intents, kinds

    def run(self) -> None:
        self._names()
        self._arguments()
        self._remedies()
        self._shadows()
        self._ends()
        self._walks()

    def _fail(self, key: str, problem: str, hint: str | None = None) -> BadInput:
        return BadInput(self.file, key, problem, hint)

    def _lists(self) -> Iterator[tuple[str, tuple[Edge, ...]]]:
        for name, rung in self.ladder.rung.items():
            yield f"rung.{name}.on", rung.on
        yield "default.on", self.ladder.default.on

    def _known(self, key: str, what: str, word: str, valid: Iterable[str]) -> None:
        valid = list(valid)
        if word not in valid:
            raise self._fail(key, f"there is no {what} '{word}'", nearest(word, valid))

    def _names(self) -> None:
        self._known("start", "rung", self.ladder.start, self.ladder.rung)
        for i, gate in enumerate(self.ladder.gates):
            if gate not in GATES:
                raise self._fail(f"gates[{i}]", f"'{gate}' is no gate; gates are {', '.join(GATES)}")
            if gate in self.ladder.gates[:i]:
                raise self._fail(f"gates[{i}]", f"'{gate}' stands there twice")
        if not set(self.ladder.gates) & _TOKENS:
            raise self._fail("gates", f"none of them looks at a token; name one of {', '.join(sorted(_TOKENS))}")
        for i, kind in enumerate(self.ladder.guard.exempt):
            self._known(f"guard.exempt[{i}]", "kind", kind, self.kinds)
        for where, edges in self._lists():
            for i, edge in enumerate(edges):
                for kind in edge.kind:
                    self._known(f"{where}[{i}].kind", "kind", kind, self.kinds)
                if edge.goto is not None:
                    self._known(f"{where}[{i}].goto", "rung", edge.goto, self.ladder.rung)
                if edge.remedy is not None:
                    self._known(f"{where}[{i}].remedy", "remedy", edge.remedy, self.ladder.remedy)

    def _arguments(self) -> None:
        places = [("base.args", self.ladder.base.args)]
        places += [(f"rung.{name}.args", rung.args) for name, rung in self.ladder.rung.items()]
        places += [(f"vary.{name}.args", variation.args) for name, variation in self.ladder.vary.items()]
        for name, remedy in self.ladder.remedy.items():
            places += [(f"remedy.{name}.set", remedy.set), (f"remedy.{name}.step", {**remedy.step})]
            places += [(f"remedy.{name}.unset", dict.fromkeys(remedy.unset, True))]
        for where, args in places:
            for arg in args:
                if arg.startswith("-"):
                    raise self._fail(f"{where}.{arg}", "arguments are written without dashes", arg.lstrip("-"))
                if arg in ("api-key", "admin-api-key"):
                    raise self._fail(
                        f"{where}.{arg}", "a key as an argument is in the host's process list; take it out"
                    )
                if arg == "port" and not _is_port(args[arg]):
                    raise self._fail(f"{where}.port", f"'{args[arg]}' is no port (1 to 65535)")
                slip = None if arg in self.intents else nearest(arg, self.intents, cutoff=0.85)
                if slip:
                    raise self._fail(f"{where}.{arg}", "is no intent of this engine", slip)

    def _remedies(self) -> None:
        used = {edge.remedy for _, edges in self._lists() for edge in edges}
        for name, remedy in self.ladder.remedy.items():
            if name not in used:
                raise self._fail(f"remedy.{name}", "no edge uses this remedy")
            for arg in remedy.step:
                without = [r for r, rung in self.ladder.rung.items() if arg not in rung.args]
                if arg not in self.ladder.base.args and without:
                    raise self._fail(
                        f"remedy.{name}.step.{arg}", f"steps an argument that rung '{without[0]}' and [base] do not set"
                    )

    def _shadows(self) -> None:
        for where, edges in self._lists():
            for i, edge in enumerate(edges):
                for j, earlier in enumerate(edges[:i]):
                    if _shadows(earlier, edge):
                        raise self._fail(f"{where}[{i}]", f"can never be taken: {where}[{j}] matches all of it")
        for i, edge in enumerate(self.ladder.default.on):
            if all(any(_shadows(own, edge) for own in rung.on) for rung in self.ladder.rung.values()):
                raise self._fail(f"default.on[{i}]", "can never be taken: each rung has an edge that matches all of it")

    def _ends(self) -> None:
        for name in self.ladder.rung:
            if not any(edge.stop and _is_bare(edge) for _, edge in self.ladder.edges(name)):
                raise self._fail("default.on", f"no final stop: a failure on rung '{name}' may find no edge; "
                                               'add { stop = "no edge for this" }')

    def _walks(self) -> None:
        ways = {name: list(self._ways(name)) for name in self.ladder.rung}
        reached, todo = set(), [self.ladder.start]
        while todo:
            rung = todo.pop()
            if rung not in reached:
                reached.add(rung)
                todo += ways[rung]
        for name in self.ladder.rung:
            if name not in reached:
                raise self._fail(f"rung.{name}", f"no edge leads here from '{self.ladder.start}'")
        # A skipped rung whose edge says stop goes on in file order: that way must not close a circle either.
        skips = {n: [*w, *filter(None, [self.ladder.following(n)])] for n, w in ways.items()}
        circle = _circle(skips)
        if circle:
            raise self._fail(f"rung.{circle[0]}.on", f"the walk may never end: {' -> '.join(circle)}")

    def _ways(self, rung: str) -> Iterator[str]:
        for _, edge in self.ladder.edges(rung):
            onward = edge.goto or (self.ladder.following(rung) if edge.next else None)
            if onward:
                yield onward


def _is_port(value: object) -> bool:
    return str(value).isascii() and str(value).isdigit() and 0 < int(str(value)) < 65_536


def _is_bare(edge: Edge) -> bool:
    return not any(getattr(edge, c) for c in _CONDITIONS)


def _shadows(earlier: Edge, later: Edge) -> bool:
    """Whether `earlier` is taken whenever `later` would match. A remedy or retry can be spent, so it hides nothing."""
    if earlier.remedy is not None or earlier.retry is not None:
        return False
    for condition in _CONDITIONS:
        mine, other = set(getattr(earlier, condition)), set(getattr(later, condition))
        if mine and not (other and other <= mine):
            return False
    # Without `kind` an edge does not match `unknown`, except a stop (contracts §2).
    return not (not earlier.kind and earlier.stop is None and _UNKNOWN in later.kind)


def _circle(ways: dict[str, list[str]]) -> list[str]:
    """Some circle in the graph, first node repeated at its end; empty when there is none."""
    done: set[str] = set()

    def visit(node: str, path: list[str]) -> list[str]:
        if node in path:
            return [*path[path.index(node):], node]
        if node in done:
            return []
        for onward in ways[node]:
            found = visit(onward, [*path, node])
            if found:
                return found
        done.add(node)
        return []

    for start in ways:
        found = visit(start, [])
        if found:
            return found
    return []
