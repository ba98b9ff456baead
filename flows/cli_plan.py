"""`bringup probe` asks a host what its build can do; `bringup plan` shows what a ladder comes to there."""

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from flows.cli_files import written
from settings.engine import Engine, load_engine
from settings.ladder import Ladder
from settings.ladder_check import check_ladder
from settings.source import SETTINGS_DIR, BadInput, find, load
from settings.target import Target, load_target
from settings.words import ExitCode
from tasks.deadline import Deadline
from tasks.picture import draw_svg
from tasks.pure.capabilities import Capabilities, Gpu, ModelFacts, Parser
from tasks.pure.draw import Node, draw, ladder_tree
from tasks.pure.expect import cannot_serve, not_there, proved_release
from tasks.pure.helptext import parser_from_actions, parser_from_help, version_in
from tasks.pure.ladder_plan import as_json, check_args, plan_ladder
from tasks.pure.probed import probe_json, probe_rows
from tasks.pure.record import Build
from tasks.pure.visible import visible

__all__ = ["plan", "probe"]

ENGINE = "sglang"
PROBE_S = 60.0

FOUNDING = ModelFacts(architecture="GlmMoeDsaForCausalLM", index_topk=2048)

LadderName = Annotated[str | None, typer.Option("--ladder", help="name in settings/ladders/, or a path")]
TargetName = Annotated[str | None, typer.Option("--target", help="name in settings/targets/, or a path")]


def plan(
    target: TargetName = None,
    ladder: LadderName = None,
    as_json_: Annotated[bool, typer.Option("--json", help="one JSON object on stdout")] = False,
    svg: Annotated[Path | None, typer.Option(help="write the picture to this file too")] = None,
    args_json: Annotated[Path | None, typer.Option(help="a build's argparse actions as JSON; no host is asked")] = None,
    help_file: Annotated[Path | None, typer.Option(help="a build's --help; no host is asked")] = None,
    build: Annotated[str | None, typer.Option(help="its release; default: from its name or flags")] = None,
    sm: Annotated[int | None, typer.Option(min=10, max=999, help="compute capability of the GPUs, e.g. 120")] = None,
    gpus: Annotated[int, typer.Option(min=0, help="number of GPUs")] = 8,
    architecture: Annotated[str | None, typer.Option(help="the model's; default: GLM-5's")] = None,
) -> None:
    """Show the whole tree with the exact command of each rung on this build, and why a rung is skipped or doomed.

    Example: bringup plan --target ./gpu8.toml --ladder glm5-sm120
    """
    at = load_target(target) if target else None
    file = args_json or help_file
    if file is None and at is None:
        raise BadInput("plan", "--target", "needs a host to ask, or a file: --args-json or --help-file")
    early = _ladder(ladder) if ladder else None  # a slip in it is told before a host is asked
    engine = early[1] if early else load_engine(ENGINE)
    if file is not None:
        found = _from_file(file, file is args_json, engine, build, sm, gpus, architecture)
    else:
        assert at is not None
        at, found = _ask(at, engine)
    name = ladder or _family(found.sm)
    tree, engine = early or _ladder(name)
    path = find("ladders", name)
    check_args(tree, engine, found, file=str(path))
    python, model = (at.python, at.model) if at else ("python3", "MODEL")
    rungs = plan_ladder(tree, engine, found, python=python, model=model)
    title = (
        f"{path.stem} on {engine.name} {found.build.version or 'of unknown release'}, SM{found.sm or '?'}; "
        f"flags told by {found.answered or 'nobody'}; rungs expected to fail: {tree.doomed}"
    )
    drawn = ladder_tree(tree, title, plans=rungs)
    if svg:
        with written(svg, "--svg"):
            svg.write_text(draw_svg(drawn), encoding="utf-8")
    missing = _missing(at, engine, found) if at else False
    if as_json_:
        print(json.dumps(as_json(rungs, engine, found, ladder=path.stem)))
    else:
        _show(drawn, [cannot_serve(engine, found), *found.problems])
    if missing:
        raise typer.Exit(ExitCode.PREFLIGHT)


def probe(
    target: Annotated[str, typer.Option("--target", help="name in settings/targets/, or a path")],
    engine_name: Annotated[str, typer.Option("--engine", help="name in settings/engines/, or a path")] = ENGINE,
    as_json_: Annotated[bool, typer.Option("--json", help="one JSON object on stdout")] = False,
) -> None:
    """Ask the host and its installed build what they are and can do, without taking GPU memory.

    Example: bringup probe --target ./gpu8.toml --json
    """
    engine = load_engine(engine_name)
    at, found = _ask(load_target(target), engine)
    facts, missing = probe_json(found, at.name), _missing(at, engine, found)
    if as_json_:
        print(json.dumps(facts))
    else:
        _tell(facts)
    if missing:
        raise typer.Exit(ExitCode.PREFLIGHT)


def _missing(at: Target, engine: Engine, found: Capabilities) -> bool:
    """Whether the engine, or the Python that should import it, is not there. It is said before all else."""
    said = not_there(engine, found, python=at.python, on=at.name)
    if said:
        print(f"bringup: {visible(said)}", file=sys.stderr, flush=True)
    return said is not None


def _tell(facts: Mapping[str, Any]) -> None:
    console = Console()
    for heading, rows in probe_rows(facts):
        console.print(heading, style="bold", markup=False)
        for name, value in rows:
            console.print(f"  {name:<22} {value}", markup=False, highlight=False, soft_wrap=True)


def _ask(target: Target, engine: Engine) -> tuple[Target, Capabilities]:
    """The target with its paths resolved on the host, and what the host can do. Raises: HostError."""
    from tasks.connect import connect, resolved  # here, since a plan from a file needs no SSH (0.2 s to import)
    from tasks.probe import probe as ask_host

    deadline = Deadline.after(PROBE_S)
    with connect(target, deadline=deadline) as host:
        return resolved(target, host), ask_host(host, target, engine, deadline=deadline)


def _show(tree: Node, problems: Iterable[str | None]) -> None:
    console = Console()
    for problem in filter(None, problems):
        console.print(problem, style="bold yellow", markup=False)
    console.print(draw(tree))


def _ladder(name: str) -> tuple[Ladder, Engine]:
    path = find("ladders", name)
    tree = load(Ladder, path)
    engine = load_engine(tree.engine)
    check_ladder(tree, file=path, intents=engine.intents)
    return tree, engine


def _family(sm: int | None) -> str:
    """The shipped GLM-5 ladder for a GPU family; SM121 goes with SM120. Raises: BadInput."""
    if sm is None:
        raise BadInput("plan", "--ladder", "needs a ladder, or --sm to choose one")
    name = f"glm5-sm{sm // 10 * 10}"
    shipped = {path.stem for path in (SETTINGS_DIR / "ladders").glob("*.toml")}
    return name if name in shipped else "glm5-sm120"


def _from_file(
    path: Path, is_json: bool, engine: Engine, build: str | None, sm: int | None, gpus: int, architecture: str | None
) -> Capabilities:
    """What a file tells of a build. Raises: BadInput."""
    parser = _read_parser(path, is_json)
    problems = []
    version = build or version_in(path.name)
    if version is None:
        version = proved_release(parser, engine)
        problems.append(
            f"the release is not told; its flags are those of {version} or a later one" if version
            else "the release is not told, and its flags do not tell it: nothing is expected of it"
        )
    if sm is None:
        problems.append("no --sm: nothing is expected of the GPUs")
    named = FOUNDING
    if architecture not in (None, FOUNDING.architecture):
        named = ModelFacts(architecture=architecture)
        problems.append(f"the config of {architecture} is not told: nothing is expected of its attention")
    return Capabilities(
        build=Build(engine=engine.name, version=version), parser=parser, answered="file",
        gpus=tuple(Gpu(i, f"SM{sm}", sm) for i in range(gpus)) if sm else (),
        model=named, problems=tuple(problems),
    )


def _read_parser(path: Path, is_json: bool) -> Parser:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as e:
        raise BadInput(path, "", f"cannot be read: {e.strerror or e}") from e
    except UnicodeDecodeError as e:
        raise BadInput(path, "", f"is not UTF-8 text (byte {e.start})") from e
    try:
        if not is_json:
            return parser_from_help(text)
        return parser_from_actions(json.loads(text))
    except (ValueError, RecursionError) as e:
        kind = "a list of argparse actions" if is_json else "the output of --help"
        why = "it is nested too deeply" if isinstance(e, RecursionError) else e
        raise BadInput(path, "", f"is not {kind}: {why}") from e
