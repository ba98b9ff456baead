"""The page stands alone, tells the whole record, and lets no text of others act in it."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from settings.words import Verdict
from tasks.page import html_report
from tasks.pure.comparison import Comparison, Finding
from tasks.pure.record import LoadSummary, ReplyVerdict, RunRecord
from tasks.pure.report import headline, report
from tasks.store import read_record

RECORD = read_record(Path(__file__).resolve().parents[1] / "records" / "20261129-162655-rehearsal-1ecb")
HOSTILE = (
    "</pre></td><script>alert(1)</script><img src=x onerror=alert(2)> \u202egnp.exe \x1b[2J\x1b[31mred\x1b[0m "
    "](javascript:alert(3)) `code` | cell **bold** ```\n# heading\n<!-- {{ 7*7 }} {% raw %} $x^2$ \\frac"
)


class _Seen(HTMLParser):
    """Elements, attributes and ids of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data

    def values(self, name: str) -> list[str]:
        return [value for key, value in self.attributes if key == name]


def _saying(text: str) -> RunRecord:
    """The record with `text` wherever somebody else chooses the words."""
    attempts = []
    for a in RECORD.attempts:
        found = a.diagnosis and a.diagnosis.model_copy(
            update={
                "means": text, "also_seen": (text,), "try_": text,
                "evidence": a.diagnosis.evidence.model_copy(
                    update={"text": text, "line": 2, "rank": text, "around": ((1, "before"), (2, text))}
                ),
            }
        )  # fmt: skip
        changed = {
            "diagnosis": found, "rung": a.rung + text, "argv": ("python", "--x", text), "env": {text: text},
            "asked": {"a": text}, "effective": {"sparse-decode": text},
            "decode": (ReplyVerdict(id="p", verdict=Verdict.GARBAGE, why=text, reply=text),),
            "bench": tuple(p.model_copy(update={"profile": text, "why": text, "valid": False}) for p in a.bench),
            "stages": tuple(s.model_copy(update={"reason": text}) for s in a.stages),
            "move": a.move and a.move.model_copy(update={"why": text, "to": text}),
        }  # fmt: skip
        attempts.append(a.model_copy(update=changed))
    host = RECORD.host.model_copy(update={"hostname": text, "problems": (text,), "model": {"name": text}})
    worse = Finding(kind="branch", what=text, direction="worse", was=text, now=text, said=text)
    compared = Comparison(last_good=text, nights=1, findings=(worse,), not_judged=(text,))
    changes = {"attempts": tuple(attempts), "host": host, "target": text, "compared": compared}
    return RECORD.model_copy(update=changes)


PAGE, BAD = html_report(RECORD), html_report(_saying(HOSTILE))


def test_the_page_tells_headline_path_causes_commands_and_provenance() -> None:
    text = _Seen(PAGE).text
    for wanted in (
        headline(RECORD), "1. auto: OOM in ready", "torch.OutOfMemoryError: CUDA out of memory",
        "--kv-cache-dtype bfloat16",
        "flashmla_sparse", RECORD.ladder.sha256, str(RECORD.build.freeze_sha256), "Paris", "TTFT",
    ):  # fmt: skip
        assert wanted in text
    assert {"branch", "timeline", "attempts", "load", "provenance", "attempt-6"} <= set(_Seen(PAGE).values("id"))


@pytest.mark.parametrize("page", [PAGE, BAD], ids=["plain", "hostile"])
def test_it_asks_the_network_for_nothing_and_runs_nothing(page: str) -> None:
    seen = _Seen(page)
    assert not {"script", "img", "link", "iframe", "object", "base", "form"} & set(seen.tags)
    assert not [name for name, _ in seen.attributes if name.startswith("on")]
    assert [] == [v for v in (*seen.values("href"), *seen.values("xlink:href"), *seen.values("src")) if v[0] != "#"]
    assert "default-src 'none'" in page
    assert "url(" not in page.replace("url(#", "")


def test_hostile_text_is_shown_as_it_is_and_changes_nothing_of_the_page() -> None:
    assert _Seen(html_report(_saying("plain words"))).tags == _Seen(BAD).tags
    assert "<script>alert(1)</script>" in _Seen(BAD).text
    assert "{{ 7*7 }}" in _Seen(BAD).text
    assert "⟨U+202E⟩" in BAD
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00-\x08\x0b-\x1f]", BAD)


def test_hostile_text_does_not_break_the_markdown_either() -> None:
    page = report(_saying(HOSTILE))
    assert not re.search("[\u202a-\u202e\x1b]", page)
    assert "<script" not in re.sub(r"(?m)^    .*$", "", page)  # indented code shows it as it is
    assert "\n# heading" not in page
    tables = [line for line in page.splitlines() if line.startswith("| 1 |")]
    assert [9] == [len(re.findall(r"(?<!\\)\|", line)) for line in tables]


def test_drawings_have_words_and_what_scrolls_can_be_reached_by_keyboard() -> None:
    seen = _Seen(PAGE)
    assert seen.values("role").count("img") == 4
    assert any("Timeline of attempts: 1. auto" in label for label in seen.values("aria-label"))
    scrolling = re.findall(r'<div class="wide[^>]*>', PAGE)
    assert scrolling
    assert all('tabindex="0"' in tag and "aria-label" in tag for tag in scrolling)
    ids = seen.values("id")
    assert len(ids) == len(set(ids))


def test_the_same_record_gives_the_same_page() -> None:
    assert html_report(RECORD) == PAGE


def test_rungs_behind_the_winner_were_not_needed_those_of_a_refused_run_not_reached() -> None:
    assert "not needed" in PAGE
    assert "not reached" not in PAGE
    refused = html_report(RECORD.model_copy(update={"attempts": (), "winner": None}))
    assert "not reached" in refused
    assert "not needed" not in refused


def test_the_slo_is_a_line_in_the_plot_and_a_word_beside_it() -> None:
    won = next(a for a in RECORD.attempts if a.n == RECORD.winner)
    judged = won.model_copy(update={"load": LoadSummary(slo={"ttft_p99_ms": 250.0})})
    page = html_report(RECORD.model_copy(update={"attempts": (*RECORD.attempts[:-1], judged)}))
    assert "SLO: 250 ms" in page
    assert "the SLO allows 250 ms" in page
    assert "SLO: " not in PAGE


@pytest.mark.parametrize("left", [0, 1])
def test_a_run_that_ended_early_has_a_page_too(left: int) -> None:
    cut = {"attempts": RECORD.attempts[:left], "winner": None, "ended_at": None, "halt": None}
    ladder = RECORD.ladder.model_copy(update={"text": None})
    page = html_report(RECORD.model_copy(update={**cut, "ladder": ladder}))
    assert ("Nothing was tried." in page) == (left == 0)
    assert "no end is written" in page
