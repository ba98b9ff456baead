"""What a run is told, as a whole."""

from pathlib import Path

import pytest

from settings.inputs import check_wait, load_inputs, narrowed
from settings.source import BadInput

SANITISE = "SGLANG_SANITIZE_NAN_LOGITS"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "t.toml"
    path.write_text(f"model = '/m'\n\n[env]\n{SANITISE} = '1'\n")
    return path


def test_a_target_may_not_switch_on_what_makes_nan_into_numbers(target: Path) -> None:
    with pytest.raises(BadInput, match=f"target t: env.{SANITISE}: may not be set: it writes numbers over NaN"):
        load_inputs(str(target), "glm5-sm120")
    target.write_text(target.read_text().replace("'1'", "'0'"))
    assert "glm5-sm120" == load_inputs(str(target), "glm5-sm120").ladder_name


def test_the_load_test_of_a_ladder_comes_with_its_profiles() -> None:
    inputs = load_inputs("rehearsal", "rehearsal-load")
    assert ((4, 12), ["smoke"]) == (inputs.load_test.concurrency, [p.name for p in inputs.profiles])


def test_a_budget_is_narrowed_and_never_widened() -> None:
    inputs = load_inputs("rehearsal", "glm5-sm120")
    declared = inputs.ladder.budget
    assert declared == narrowed(inputs, None, None).ladder.budget
    assert declared.model_copy(update={"attempts": 2}) == narrowed(inputs, 2, None).ladder.budget
    assert declared == narrowed(inputs, 100, 500_000.0).ladder.budget
    assert declared.model_copy(update={"wall_s": 60.0}) == narrowed(inputs, None, 60.0).ladder.budget
    assert inputs.ladder_sha256 == narrowed(inputs, 2, 60.0).ladder_sha256  # it is the same tree


@pytest.mark.parametrize("wait_s", [-1.0, float("nan"), float("inf")])
def test_a_wait_that_nobody_can_mean_is_one_sentence(wait_s: float) -> None:
    with pytest.raises(BadInput, match=r"^run: wait_s: is .*: give seconds from 0 to 604800, a week"):
        check_wait(wait_s)


@pytest.mark.parametrize(("attempts", "wall_s"), [(0, None), (None, 0.0), (None, -1.0)])
def test_no_budget_at_all_is_one_sentence(attempts: int | None, wall_s: float | None) -> None:
    with pytest.raises(BadInput, match=r"^budget: (attempts|wall_s): Input should be greater than"):
        narrowed(load_inputs("rehearsal", "glm5-sm120"), attempts, wall_s)
