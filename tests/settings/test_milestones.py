import pytest
from pydantic import ValidationError

from settings.milestones import Milestone, shipped_milestones


def test_each_engine_begins_again_gets_ready_and_shows_batches() -> None:
    for name, marks in shipped_milestones().engines.items():
        has = {"restart": 0, "ready": 0, "batch": 0}
        for mark in marks:
            for what in has:
                has[what] += getattr(mark, what)
        assert (name, True) == (name, all(has.values()))


def test_a_pattern_that_does_not_fit_its_example_is_refused() -> None:
    with pytest.raises(ValidationError, match="does not fit its example"):
        Milestone.model_validate({"phase": "load", "pattern": "Load weight begin", "example": "Load weight end"})


def test_the_pattern_of_a_batch_line_is_a_plain_literal() -> None:
    with pytest.raises(ValidationError, match="plain literal"):
        Milestone.model_validate(
            {"phase": "decode", "pattern": "Decode .*batch", "example": "Decode a batch", "batch": True}
        )
