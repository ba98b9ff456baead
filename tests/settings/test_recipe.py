"""A recipe's slips are told when it is loaded."""

import pytest

from settings.recipe import Recipe, load_recipe
from settings.source import SETTINGS_DIR, BadInput, validate


@pytest.mark.parametrize("name", [path.stem for path in (SETTINGS_DIR / "recipes").glob("*.toml")])
def test_the_shipped_ones_are_sound(name: str) -> None:
    assert load_recipe(name).step


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ([{"name": "a", "argv": ["{phyton}"]}], "'{phyton}' is none of"),
        ([{"name": "a", "argv": ["x"]}, {"name": "a", "argv": ["y"], "only": "git"}], "two steps have the same name"),
        ([], "at least 1 item"),
    ],
)
def test_a_slip_is_a_sentence(steps: list[dict[str, object]], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        validate(Recipe, {"source": "s", "package": "p", "step": steps}, "recipe.toml")
