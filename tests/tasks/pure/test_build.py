"""What a ref means, which environments may go, whom an installer blames, and when a run would only repeat the last."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from settings.recipe import Recipe, RecipeStep
from settings.words import Action, AttemptOutcome, Phase, RunOutcome, Stage
from tasks.pure.build import (
    TOO_LONG,
    Found,
    Ref,
    collectable,
    filled,
    key_of,
    last_run,
    moved,
    parse_ref,
    steps_for,
    unchanged,
    why_not_installed,
)
from tasks.pure.comparison import Confirmation
from tasks.pure.record import Attempt, Build, Diagnosis, HostSummary, LadderRef, RunRecord, Source

RECIPE = Recipe(
    source="https://example.org/x.git", package="sglang", keep=2,
    step=(
        RecipeStep(name="checkout", argv=("git", "clone", "{source}"), only="git"),
        RecipeStep(name="install", argv=("{python}", "-m", "pip", "install", "{spec}"), only="package"),
    ),
)  # fmt: skip
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("text", "ref"),
    [
        ("main", Ref("git", "main")),
        ("v0.5.9", Ref("git", "v0.5.9")),
        (COMMIT, Ref("git", COMMIT)),
        ("0.5.9", Ref("package", "0.5.9", "sglang==0.5.9")),
        ("==0.5.8.post1", Ref("package", "==0.5.8.post1", "sglang==0.5.8.post1")),
        ("https://h/sglang-0.5.9-py3-none-any.whl", Ref("package", *["https://h/sglang-0.5.9-py3-none-any.whl"] * 2)),
    ],
)
def test_a_ref_is_a_release_a_wheel_or_of_git(text: str, ref: Ref) -> None:
    assert ref == parse_ref(text, RECIPE)


def test_the_key_tells_commits_releases_and_recipes_apart() -> None:
    other = RECIPE.model_copy(update={"step": (RecipeStep(name="checkout", argv=("git", "init"), only="git"),)})
    git, release = Ref("git", "main"), parse_ref("0.5.9", RECIPE)
    keys = [key_of(git, COMMIT, RECIPE), key_of(git, COMMIT, other), key_of(git, COMMIT[::-1], RECIPE),
            key_of(release, None, RECIPE)]  # fmt: skip
    assert 4 == len(set(keys))
    assert keys[0] == key_of(Ref("git", "v1"), COMMIT, RECIPE)   # another name of the same commit
    assert all("/" not in key and "=" not in key for key in keys)


def test_a_command_is_filled_word_by_word() -> None:
    assert ("git", "clone", "a b") == filled(RECIPE.step[0].argv, {"source": "a b"})
    assert ["install"] == [step.name for step in steps_for(RECIPE, Ref("package", "x"))]


def test_the_last_good_build_outlives_newer_bad_ones() -> None:
    found = [Found("old-good", 1, good=1), Found("older-good", 0, good=0.5), Found("bad1", 2), Found("bad2", 3)]
    assert {"older-good", "bad1", "bad2"} == set(collectable([*found, Found("new", 4)], RECIPE, using="new"))


def test_what_was_never_complete_goes_first_and_takes_no_place() -> None:
    found = [Found("good", 1, good=1), Found("older", 2), Found("cut", 3, complete=False)]
    assert ["cut"] == collectable([*found, Found("failed", 4, complete=False)], RECIPE, using="failed")
    assert ["cut", "older"] == collectable([*found, Found("new", 4)], RECIPE, using="new")


@given(st.lists(st.tuples(st.floats(0, 9), st.none() | st.floats(0, 9)), max_size=8), st.integers(1, 4))
def test_the_last_good_one_and_the_one_in_use_always_stay(builds: list[tuple[float, float | None]], keep: int) -> None:
    found = [Found(str(n), used, good) for n, (used, good) in enumerate(builds)]
    gone = collectable([*found, Found("using", 5)], RECIPE.model_copy(update={"keep": keep}), using="using")
    good = [f for f in found if f.good is not None]
    assert "using" not in gone
    assert not good or any(f.key not in gone and f.good == max(g.good or 0 for g in good) for f in good)
    assert len(found) + 1 - len(gone) <= max(keep, 2)


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("ERROR: No matching distribution found for sgl-kernel==0.9.9", "sgl-kernel"),
        ("ERROR: Could not find a version that satisfies the requirement torch==2.99 (from versions: 2.8.0)", "torch"),
        ("  x No solution found when resolving dependencies:\n  Because flashinfer-python was not found in the package "
         "registry", "flashinfer-python"),
        ("  Because only xgrammar<=0.1.9 is available and sglang depends on", "xgrammar"),
        ("ERROR: Failed building wheel for outlines_core", "outlines_core"),
        ("  x Failed to build `deep-gemm==1.0`", "deep-gemm"),
        ("ModuleNotFoundError: No module named 'setuptools_scm'", "setuptools_scm"),
        ("fatal: unable to access", None),
        ("Retrying after connection broken by 'NewConnectionError'\nERROR: Failed building wheel for outlines_core",
         "outlines_core"),
    ],
)
def test_the_dependency_that_the_installer_blames_is_named(said: str, name: str | None) -> None:
    good = ["sgl-kernel==0.9.1", "torch==2.8.0"]
    found = why_not_installed("install", 1, f"Collecting things\n{said}\n", good, [])
    assert name == found.flag
    assert ("unknown" if name is None else "version_mismatch") == found.kind
    assert (found.evidence.line or 0) > 1
    assert {"sgl-kernel": "0.9.1", "torch": "2.8.0"}.get(name or "") == found.value


@pytest.mark.parametrize(
    ("said", "exited", "kind", "action"),
    [
        ("OSError: [Errno 28] No space left on device\nERROR: Failed building wheel for torch", 1, "disk", Action.STOP),
        ("fatal: unable to access 'https://h/': Could not resolve host: h", 128, "unknown", Action.RETRY_SAME),
        ("fatal: unable to access 'https://h/': The requested URL returned error: 503", 128, "unknown",
         Action.RETRY_SAME),
        ("WARNING: Retrying after connection broken by 'NewConnectionError(...)': /simple/torch/\n"
         "ERROR: Could not find a version that satisfies the requirement torch (from versions: none)\n"
         "ERROR: No matching distribution found for torch", 1, "unknown", Action.RETRY_SAME),
        ("error: Failed to fetch: `https://h/simple/torch/`\n  Caused by: error sending request for url", 2, "unknown",
         Action.RETRY_SAME),
        ("`uv pip install x` was not through before its deadline", TOO_LONG, "unknown", Action.RETRY_SAME),
    ],
)  # fmt: skip
def test_an_outage_accuses_no_dependency_and_no_commit(said: str, exited: int, kind: str, action: Action) -> None:
    found = why_not_installed("install", exited, said, ["torch==2.8.0"], [])
    assert (kind, action, None) == (found.kind, found.action, found.flag)
    assert record(source=Source(ref="main", folder="k", diagnosis=found)).obstacle


def test_what_moved_is_told_with_both_versions() -> None:
    assert ["new absent -> 1", "torch 2.8 -> 2.9"] == moved(["a==1", "torch==2.8"], ["a==1", "torch==2.9", "new==1"])


def record(**changes: object) -> RunRecord:
    base = RunRecord(
        run_id="r", started_at=datetime.now(UTC), outcome=RunOutcome.EXHAUSTED, target="t",
        ladder=LadderRef(name="l", sha256="1"), build=Build(engine="sglang", commit=COMMIT),
        host=HostSummary(name="t", driver="580", gpus=({"index": 0, "used_mib": 3},)), lease_s=90,
    )  # fmt: skip
    return base.model_copy(update=changes)


def test_a_run_repeats_the_last_only_where_nothing_changed() -> None:
    idle = record().host.model_copy(update={"gpus": ({"index": 0, "used_mib": 700},), "problems": ("a clock",)})
    assert unchanged(record(), record(host=idle))
    assert not unchanged(record(), record(host=record().host.model_copy(update={"driver": "590"})))
    assert not unchanged(record(), record(build=Build(engine="sglang", commit="f" * 40)))
    assert not unchanged(record(), record(ladder=LadderRef(name="l", sha256="2")))


def test_a_run_that_came_to_no_decision_is_no_last_run() -> None:
    lost = record(outcome=RunOutcome.HOST_LOST)
    busy = Diagnosis(kind="gpu_busy", phase=Phase.ARGS, means="pid 7 holds 70 GB")
    refused = Attempt(
        n=1, id="1", rung="auto", outcome=AttemptOutcome.FAILED, failed_stage=Stage.PREFLIGHT, diagnosis=busy
    )
    night = record(run_id="night")
    for other in (
        record(outcome=RunOutcome.STOPPED, attempts=(refused,)),
        *(record(confirmed=Confirmation(verdict=v, why="")) for v in ("noise", "host", "unclear")),
    ):
        assert night == last_run([other, night], target="t", ladder="l")
    serves = record(winner=1, outcome=RunOutcome.SERVING, attempts=(refused,))  # a variation that was refused
    assert (busy.means, None) == (record(attempts=(refused,)).obstacle, serves.obstacle)
    assert serves == last_run([serves, night], target="t", ladder="l")
    code = record(confirmed=Confirmation(verdict="code", why=""))
    assert code == last_run([code, night], target="t", ladder="l")
    assert record().ladder == getattr(last_run([lost, record()], target="t", ladder="l"), "ladder", None)
    assert None is last_run([lost, record(target="other")], target="t", ladder="l")
