import re
from pathlib import Path

import pytest

from settings.catalogue import Catalogue, shipped_catalogue
from settings.literals import required_literals
from settings.source import BadInput, read_toml, validate

ORDINARY = (
    "[2026-07-11 17:04:06 TP0] Decode batch, #running-req: 31, #token: 90458, token usage: 0.56, cuda graph: True, "
    "gen throughput (token/s): 1020.97, #queue-req: 0",
    "[2026-07-11 17:04:06 TP0] Prefill batch, #new-seq: 2, #new-token: 1113, #cached-token: 512, token usage: 0.39, "
    "#running-req: 25, #queue-req: 0, #pending-token: 0, cuda graph: False, input throughput (token/s): 7614.35",
    '[2026-07-11 17:04:03] INFO:     10.138.41.199:37385 - "POST /generate HTTP/1.1" 200 OK',
    "(APIServer pid=1) INFO 02-16 04:53:48 [loggers.py:298] Engine 000: Avg prompt throughput: 1327.5 tokens/s, Avg "
    "generation throughput: 1170.4 tokens/s, Running: 56 reqs, GPU KV cache usage: 29.3%, Prefix cache hit rate: 50.4%",
)


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return shipped_catalogue()


def test_each_example_fits_its_own_entry_and_no_other(catalogue: Catalogue) -> None:
    fits = [[f.pattern for f in catalogue.failure if re.search(f.pattern, e.example)] for e in catalogue.failure]
    assert [[e.pattern] for e in catalogue.failure] == fits


def test_no_entry_is_looked_for_in_the_lines_of_a_serving_engine(catalogue: Catalogue) -> None:
    common = {x for f in catalogue.failure for x in required_literals(f.pattern) for line in ORDINARY if x in line}
    assert set() == common


def test_hints_fit_their_examples(catalogue: Catalogue) -> None:
    assert [] == [h.says for h in catalogue.hint if not re.search(h.pattern, h.example)]


def test_a_second_entry_for_the_same_example_is_refused(tmp_path: Path) -> None:
    values = read_toml(Path(__file__).resolve().parents[2] / "settings" / "failures.toml")
    again = {"pattern": "tensor contains either", "example": "probability tensor contains either"}
    values["failure"].append({**values["failure"][0], **again})
    with pytest.raises(BadInput, match="also fits"):
        validate(Catalogue, values, tmp_path / "failures.toml")


def test_an_unknown_kind_is_refused_with_the_nearest(tmp_path: Path) -> None:
    values = read_toml(Path(__file__).resolve().parents[2] / "settings" / "failures.toml")
    values["failure"][0]["kind"] = "nans"
    with pytest.raises(BadInput, match="did you mean 'nan'"):
        validate(Catalogue, values, tmp_path / "failures.toml")
