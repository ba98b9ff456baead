"""The pages as a browser lays them out: they fit a phone, can be read and walked by keyboard, and print whole."""

import json
import re
import shutil
import subprocess
from html import escape, unescape
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tasks.page import html_report
from tasks.store import read_record
from tasks.trend import html_history

CHROMIUM = shutil.which("chromium")
RECORD = read_record(next((Path(__file__).resolve().parents[1] / "records").iterdir()))
PAGES = {"run": html_report(RECORD), "history": html_history([RECORD], ["x/record.json: Invalid JSON"])}
READABLE, READABLE_LARGE = 4.5, 3.0  # WCAG 2.2, 1.4.3: contrast of text, and of large text

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed here"), pytest.mark.timeout(180),
]

# Looks at the page from outside, through a frame as wide as asked: nothing of the page itself is changed.
LOOK = """
const look = frame => {
  const d = frame.contentDocument, w = frame.contentWindow, of = e => w.getComputedStyle(e), px = parseFloat;
  const rgba = s => { const n = s.match(/[\\d.]+/g).map(Number); return n.length > 3 ? n : [...n, 1]; };
  const light = c => { const [r, g, b] = c.map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
                       return .2126 * r + .7152 * g + .0722 * b; };
  const behind = e => { for (; e; e = e.parentElement) { const c = rgba(of(e).backgroundColor); if (c[3]) return c; }
                        return [255, 255, 255, 1]; };
  const said = e => e.tagName + ': ' + e.textContent.trim().slice(0, 40), all = [...d.querySelectorAll('body *')];
  const html = all.filter(e => !e.closest('svg'));
  const texts = html.filter(e => [...e.childNodes].some(n => n.nodeType == 3 && n.textContent.trim()));
  const contrast = e => { const a = light(rgba(of(e).color).slice(0, 3)), b = light(behind(e).slice(0, 3));
                          return (Math.max(a, b) + .05) / (Math.min(a, b) + .05); };
  const large = e => px(of(e).fontSize) >= 24 || (px(of(e).fontSize) >= 18.66 && of(e).fontWeight >= 700);
  return {
    wide: d.documentElement.scrollWidth, texts: texts.length,
    pale: texts.filter(e => contrast(e) < (large(e) ? LARGE : SMALL)).map(e => said(e) + ' ' + contrast(e).toFixed(2)),
    tiny: texts.filter(e => px(of(e).fontSize) < 11).map(said),
    unreachable: html.filter(e => e.scrollWidth > e.clientWidth + 1 && ['auto', 'scroll'].includes(of(e).overflowX)
                                  && e.tabIndex < 0).map(said),
    nameless: [...d.querySelectorAll('svg, [role=region]')].filter(e => !e.getAttribute('aria-label')
                                  && !e.getAttribute('aria-labelledby')).map(said),
    headings: [...d.querySelectorAll('h1,h2,h3,h4')].map(e => +e.tagName[1]),
    unscoped: [...d.querySelectorAll('th:not([scope])')].map(said),
    dangling: [...d.querySelectorAll('a[href^="#"]')].filter(e => !d.getElementById(e.hash.slice(1))).map(said),
    language: d.documentElement.lang,
  };
};
onload = () => {
  const found = Object.fromEntries([...document.querySelectorAll('iframe')].map(f => [f.id, look(f)]));
  document.body.textContent = 'FOUND' + JSON.stringify(found) + 'END';
};
"""


def _spoilt(page: str) -> str:
    """Pale words, a table that only a mouse can scroll, and a heading of the wrong level."""
    page = page.replace("--soft: #4b5563", "--soft: #c0c0c0").replace('tabindex="0"', "")
    page = page.replace("overflow-x: auto", "overflow-x: scroll").replace("table { ", "table { min-width: 2000px; ")
    return page.replace("<h2>Timeline", "<h4>Timeline")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one start of the browser finds in all frames, by "name-width"."""
    frames = {f"{name}-{width}": (page, width) for name, page in PAGES.items() for width in (360, 1100)}
    frames["spoilt"] = (_spoilt(PAGES["run"]), 360)
    # A sheet has 718 pixels at the usual margins.
    frames |= {f"{name}-on-paper": (page.replace("@media print", "@media screen"), 718) for name, page in PAGES.items()}
    parts = [
        f'<iframe id="{id}" style="border:0" width="{width}" height="900" srcdoc="{escape(page)}"></iframe>'
        for id, (page, width) in frames.items()
    ]
    script = LOOK.replace("LARGE", str(READABLE_LARGE)).replace("SMALL", str(READABLE))
    around = tmp_path_factory.mktemp("pages") / "around.html"
    around.write_text(f"<!doctype html><meta charset=utf-8><body>{''.join(parts)}<script>{script}</script>")
    dom = _chromium("--virtual-time-budget=20000", "--window-size=1400,1000", "--dump-dom", f"file://{around}")
    told = re.search(r"FOUND(\{.*\})END", dom, re.DOTALL)
    assert told, dom[:300]
    found: dict[str, Any] = json.loads(unescape(told[1]))
    return found


@pytest.mark.parametrize("width", [360, 1100])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_reads_and_can_be_walked(name: str, width: int, seen: dict[str, Any]) -> None:
    found = seen[f"{name}-{width}"]
    assert found["texts"] > 20
    assert found["wide"] <= width  # what is wider scrolls in a box of its own
    for fault in ("pale", "tiny", "unreachable", "nameless", "unscoped", "dangling"):
        assert (fault, []) == (fault, found[fault])
    assert found["language"] == "en"
    levels = found["headings"]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_the_check_finds_what_is_wrong(seen: dict[str, Any]) -> None:
    found = seen["spoilt"]
    assert found["pale"]
    assert found["unreachable"]
    assert not all(after <= before + 1 for before, after in pairwise(found["headings"]))


@pytest.mark.parametrize("name", PAGES)
def test_on_paper_nothing_is_cut_off(name: str, seen: dict[str, Any]) -> None:
    assert seen[f"{name}-on-paper"]["wide"] <= 718


def test_it_prints_on_a_few_sheets(tmp_path: Path) -> None:
    page, pdf = tmp_path / "page.html", tmp_path / "page.pdf"
    page.write_text(PAGES["run"])
    _chromium("--no-pdf-header-footer", f"--print-to-pdf={pdf}", f"file://{page}")
    assert 3 < len(re.findall(rb"/Type /Page\b", pdf.read_bytes())) < 30


def test_the_drawing_of_the_path_can_be_read_too() -> None:
    boxes = set(re.findall(r'<rect[^>]* fill="(#\w+)" stroke="(#\w+)"', PAGES["run"]))  # text has the frame's colour
    assert len(boxes) >= 4
    assert [] == [box for box in boxes if _contrast(*box) < READABLE]


def _chromium(*words: str) -> str:
    ran = subprocess.run(
        [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", *words],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return ran.stdout


def _contrast(one: str, other: str) -> float:
    low, high = sorted(_light(colour) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def _light(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    r, g, b = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b
