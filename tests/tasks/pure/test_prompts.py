import pytest

from tasks.pure.prompts import FILLER_SAMPLE, hidden_fact


@pytest.mark.parametrize("tokens", [100, 2_300, 64_000])
def test_a_prompt_has_the_wanted_length_and_hides_its_answer_once(tokens: int) -> None:
    made = hidden_fact(tokens, 4.0)
    assert len(made.prompt) == pytest.approx(tokens * 4, abs=120)
    assert 1 == made.prompt.count(f" {made.answer}.")
    assert made.prompt.endswith("The code of the lighthouse is")


def test_the_sample_that_the_server_counts_is_the_text_of_the_prompts() -> None:
    assert FILLER_SAMPLE[:200] in hidden_fact(2_300, 4.0).prompt
