"""The rules of the house that a tool can read off the source: which room may know which, and how a module looks.

ARCHITECTURE.md says why each rule stands. An exception is an entry below with its reason, never a comment in the code.
"""

import ast
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OURS = ("settings", "tasks", "flows", "deployments")

# Lower rooms never know higher ones: settings ← tasks/pure ← tasks ← tasks/steps ← flows ← deployments.
ROOMS = ("settings", "tasks.pure", "tasks", "tasks.steps", "flows", "deployments")
PREFECT_ROOMS = ("tasks.steps", "flows", "deployments")
SLEEPERS = ("tasks.deadline", "tasks.remote", "tasks.rehearsal")
SETTINGS_MAY_IMPORT = {"pydantic", "pydantic_core", "pydantic_settings", "dotenv", *OURS}   # dotenv: the latter's own
IMPURE = {
    *("asyncio", "fabric", "glob", "http", "httpx", "io", "logging", "multiprocessing", "os", "paramiko", "random"),
    *("secrets", "select", "selectors", "shutil", "signal", "socket", "structlog", "subprocess", "tempfile"),
    *("tenacity", "threading", "time", "urllib", "uuid"),
}
IMPURE_CALLS = {"open", "print", "input", "now", "today", "read_text", "write_text", "read_bytes", "write_bytes"}

LONG_FILES: dict[str, str] = {"tasks.remote.supervisor": "it is sent to the host as one file"}
LONG_FUNCTIONS: dict[str, str] = {}
TESTS_OF_MANY = {
    "tests/test_conftest.py": "tests the suite's own conftest",
    "tests/test_layers.py": "reads all sources",
    "tests/test_lock.py": "reads pyproject.toml and the lock",
    "tests/tasks/pure/diagnose/test_corpus.py": "the package as a whole, on every log of the corpus",
    "tests/tasks/test_host_contract.py": "one contract for both hosts",
    "tests/flows/test_chaos.py": "every part killed in every stage",
    "tests/flows/test_nightly.py": "git, recipe, install, ladder and flow over several commits",
    "tests/flows/test_stories.py": "every shipped story through the whole program",
    "tests/flows/test_ways_out.py": "every way out of a run, over a real sshd",
    "tests/tasks/pure/diagnose/test_stream.py": "the whole package as a stream",
    "tests/flows/test_secrets.py": "a secret planted everywhere, looked for in every output",
    "tests/tasks/test_page_in_browser.py": "both pages as Chromium lays them out",
    "tests/deployments/test_systemd.py": "the units are no Python",
    "tests/deployments/test_declared.py": "prefect.yaml is no Python",
    "tests/flows/test_prefect_end_to_end.py": "server, worker, deployment, plugin and flow at once",
}


@dataclass(frozen=True)
class Module:
    """One source file, parsed."""

    path: Path

    @cached_property
    def name(self) -> str:
        parts = self.path.relative_to(ROOT).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, str(self.path))

    @cached_property
    def imports(self) -> frozenset[str]:
        """Every module imported anywhere in the file, also in a function or under TYPE_CHECKING."""
        found: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{self.name}:{node.lineno}: relative import; name the room"
                found.add(node.module or "")
                found.update(f"{node.module}.{alias.name}" for alias in node.names)
        return frozenset(found)

    @cached_property
    def calls(self) -> frozenset[str]:
        """The last name of everything called: `time.sleep(1)` and `sleep(1)` are both `sleep`."""
        called = [node.func for node in ast.walk(self.tree) if isinstance(node, ast.Call)]
        methods = {f.attr for f in called if isinstance(f, ast.Attribute)}
        return frozenset(methods | {f.id for f in called if isinstance(f, ast.Name)})

    def is_in(self, *rooms: str) -> bool:
        return any(_is_within(self.name, room) for room in rooms)


def _is_within(name: str, room: str) -> bool:
    return name == room or name.startswith(f"{room}.")


def _room(name: str) -> int:
    """Which of ROOMS a module lies in: the longest name that holds it."""
    return ROOMS.index(max((room for room in ROOMS if _is_within(name, room)), key=len))


def _modules() -> Iterator[Module]:
    for room in OURS:
        for path in sorted((ROOT / room).rglob("*.py")):
            if "site" not in path.parts:   # the stand-in of a foreign package: its shape is that package's
                yield Module(path)


MODULES = [m for m in _modules() if m.text.strip()]
assert MODULES


def test_no_arrow_points_backwards() -> None:
    wrong = [
        f"{m.name} imports {imported}"
        for m in MODULES
        for imported in sorted(m.imports)
        if imported.split(".")[0] in OURS and _room(imported) > _room(m.name)
    ]
    assert [] == wrong


def test_settings_know_pydantic_and_the_standard_library_only() -> None:
    allowed = SETTINGS_MAY_IMPORT | sys.stdlib_module_names
    assert [] == _importing(lambda m: m.is_in("settings"), lambda imported: imported.split(".")[0] not in allowed)


def _importing(of: Callable[[Module], bool], refused: Callable[[str], bool]) -> list[str]:
    return [f"{m.name} imports {i}" for m in MODULES if of(m) for i in sorted(m.imports) if refused(i)]


def test_decisions_have_no_io_clock_randomness_or_logging() -> None:
    assert [] == _importing(lambda m: m.is_in("tasks.pure"), lambda imported: imported.split(".")[0] in IMPURE)
    impure = {m.name: m.calls & IMPURE_CALLS for m in MODULES if m.is_in("tasks.pure")}
    assert {} == {name: calls for name, calls in impure.items() if calls}


def test_what_runs_on_the_host_needs_nothing_but_its_python() -> None:
    assert [] == _importing(
        lambda m: m.is_in("tasks.remote"), lambda imported: imported.split(".")[0] not in sys.stdlib_module_names
    )


def test_nobody_below_the_flows_knows_of_a_rehearsal() -> None:
    assert [] == _importing(
        lambda m: not m.is_in("tasks.rehearsal", "flows", "deployments"),
        lambda imported: _is_within(imported, "tasks.rehearsal"),
    )


def test_prefect_is_known_in_three_places_only() -> None:
    assert [] == _importing(lambda m: not m.is_in(*PREFECT_ROOMS), lambda imported: _is_within(imported, "prefect"))


def test_only_the_deadline_sleeps() -> None:
    assert [] == [m.name for m in MODULES if "sleep" in m.calls and not m.is_in(*SLEEPERS)]


def test_each_module_says_why_it_exists_and_what_it_gives() -> None:
    wrong = [f"{m.name} has no docstring" for m in MODULES if not ast.get_docstring(m.tree)]
    wrong += [f"{m.name} has no __all__" for m in MODULES if "__all__" not in _assigned(m.tree)]
    assert [] == wrong


def _assigned(tree: ast.Module) -> set[str]:
    targets = [t for node in tree.body if isinstance(node, ast.Assign) for t in node.targets]
    targets += [node.target for node in tree.body if isinstance(node, ast.AnnAssign)]
    return {t.id for t in targets if isinstance(t, ast.Name)}


def test_a_long_file_or_function_has_a_reason() -> None:
    files = {m.name for m in MODULES if len(m.text.splitlines()) > 400}
    functions = {
        f"{m.name}.{node.name}"
        for m in MODULES
        for node in ast.walk(m.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _length(node) > 60
    }
    assert (set(LONG_FILES), set(LONG_FUNCTIONS)) == (files, functions)


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def test_each_package_is_listed_where_the_install_reads_it() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {".".join(m.path.parent.relative_to(ROOT).parts) for m in MODULES}
    assert set() == folders - set(listed)


def test_each_test_lies_where_its_source_does() -> None:
    wrong = [
        relative
        for path in (ROOT / "tests").rglob("test_*.py")
        if (relative := path.relative_to(ROOT).as_posix()) not in TESTS_OF_MANY and "real" not in path.parts
        if not _source_of(path).exists()
    ]
    assert [] == sorted(wrong)


def _source_of(test: Path) -> Path:
    return ROOT / test.relative_to(ROOT / "tests").parent / f"{test.stem.removeprefix('test_')}.py"


@pytest.mark.parametrize(
    ("source", "calls"), [("import time\ntime.sleep(1)", {"sleep"}), ("from time import sleep\nsleep(1)", {"sleep"})]
)
def test_the_reader_itself_sees_both_ways_to_call(tmp_path: Path, source: str, calls: set[str]) -> None:
    (tmp_path / "m.py").write_text(source)
    assert calls == Module(tmp_path / "m.py").calls


def test_the_reader_itself_knows_the_longest_room() -> None:
    names = ["settings.ladder", "tasks.pure.walker", "tasks.launch", "tasks.steps", "tasks.steps_of"]
    assert ["settings", "tasks.pure", "tasks", "tasks.steps", "tasks"] == [ROOMS[_room(name)] for name in names]
