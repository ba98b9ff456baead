"""The decision tree as a picture: one structure, drawn the same in the terminal and in SVG (tasks/picture.py)."""

import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import ValidationError
from rich.text import Text
from rich.tree import Tree

from settings.ladder import Edge, Ladder
from tasks.pure.ladder_plan import RungPlan
from tasks.pure.record import Attempt, RunRecord

__all__ = ["Node", "draw", "ladder_tree", "run_tree", "walked"]

_STYLE = {
    "planned": "green", "doomed": "yellow", "skipped": "dim",
    "passed": "bold green", "failed": "bold red", "aborted": "magenta",
    "command": "cyan", "edge": "", "taken": "bold cyan", "note": "italic", "title": "bold",
}


@dataclass(frozen=True, slots=True)
class Node:
    """A line of the tree. `role` chooses its style; `mark` stands before the text, e.g. a status."""

    text: str
    role: str = ""
    mark: str = ""
    children: tuple["Node", ...] = ()


def ladder_tree(
    ladder: Ladder, title: str, *, plans: Sequence[RungPlan] = (), trail: Sequence[Attempt] = (), edges: bool = True
) -> Node:
    """The ladder, with what each rung comes to on a build and what really happened, as far as these are given."""
    by_name = {plan.name: plan for plan in plans}
    rungs = (
        _rung(ladder, name, by_name.get(name), [a for a in trail if a.rung == name], edges) for name in ladder.rung
    )
    return Node(title, "title", children=tuple(rungs))


def walked(record: RunRecord) -> Ladder | None:
    """The ladder that a run walked, from its record; None where the record has none, or one of another grammar."""
    try:
        return Ladder.model_validate(tomllib.loads(record.ladder.text)) if record.ladder.text else None
    except (tomllib.TOMLDecodeError, ValidationError):
        return None


def run_tree(record: RunRecord, *, edges: bool = False) -> Node | None:
    """The ladder with the path of this run marked; `edges`: those that were not taken, too."""
    ladder = walked(record)
    title = f"{record.ladder.name}: the path of {record.run_id}"
    return ladder_tree(ladder, title, trail=record.attempts, edges=edges) if ladder else None


def draw(node: Node) -> Tree:
    """`node` as a rich tree. Lines are neither wrapped nor read as markup."""
    tree = Tree(_line(node), guide_style="dim")
    _grow(tree, node)
    return tree


def _grow(tree: Tree, node: Node) -> None:
    for child in node.children:
        _grow(tree.add(_line(child)), child)


def _line(node: Node) -> Text:
    text = Text(no_wrap=False, overflow="fold")
    if node.mark:
        text.append(f"{node.mark} ", _STYLE.get(node.mark.split()[0], ""))
    return text.append(node.text, _STYLE.get(node.role, ""))


def _rung(ladder: Ladder, name: str, plan: RungPlan | None, attempts: Sequence[Attempt], edges: bool) -> Node:
    start = " (start)" if name == ladder.start else ""
    children: list[Node] = []
    if plan:
        if plan.why:
            children.append(Node(plan.why, "note", plan.status if plan.status != "planned" else "note:"))
        if plan.plan:
            children.append(Node(_command(plan.plan.env, plan.plan.argv), "command"))
            if plan.plan.expects:
                children.append(Node(f"expects {_pairs(plan.plan.expects)}"))
    children += [_happened(attempt) for attempt in attempts]
    own = len(ladder.rung[name].on)
    for at, (place, edge) in enumerate(ladder.edges(name)):
        by = [f"taken after {a.n}" for a in attempts if a.move and a.move.edge == place]
        if by or (edges and at < own):
            children.append(Node(_edge(edge), "taken" if by else "edge", ", ".join(by)))
    return Node(f"{name}{start}: {ladder.rung[name].why}", "", plan.status if plan else "", tuple(children))


def _happened(attempt: Attempt) -> Node:
    found = attempt.diagnosis
    what = f": {found.kind} ({found.component}) in {found.stage or found.phase}" if found else ""
    picked = f"; ran with {_pairs(attempt.effective)}" if attempt.effective else ""
    return Node(f"attempt {attempt.n}{what}{picked}", "", str(attempt.outcome))


def _command(env: Mapping[str, str], argv: Sequence[str]) -> str:
    return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in env.items()), shlex.join(argv)])


def _pairs(values: Mapping[str, object]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in values.items())


def _edge(edge: Edge) -> str:
    return f"{' '.join(_matches(edge)) or 'anything'} → {_move(edge)}"


def _matches(edge: Edge) -> Iterator[str]:
    for field in ("kind", "component", "phase", "stage", "action"):
        values: tuple[str, ...] = getattr(edge, field)
        if values:
            yield ("" if field == "kind" else f"{field}=") + "|".join(values)


def _move(edge: Edge) -> str:
    if edge.goto:
        return edge.goto
    if edge.next:
        return "next rung"
    if edge.remedy:
        return f"remedy {edge.remedy}"
    if edge.retry:
        return f"same again, {edge.retry}×"
    return f"stop: {edge.stop}"
