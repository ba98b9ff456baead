"""Scripts of a text, and whether they mix in a way that the request does not explain."""

import re
import unicodedata
from collections import Counter
from functools import lru_cache

__all__ = ["mixed_scripts", "scripts_in"]

_FAMILY = {
    "CJK": "Han",
    "BOPOMOFO": "Han",
    "IDEOGRAPHIC": "Han",
    "HIRAGANA": "Kana",
    "KATAKANA": "Kana",
    "KATAKANA-HIRAGANA": "Kana",
    "HANGUL": "Hangul",
}
_IGNORED = re.compile(  # first words of the names of letters that stand in texts of any script
    "MODIFIER|FULLWIDTH|HALFWIDTH|MATHEMATICAL|SUPERSCRIPT|SUBSCRIPT|FEMININE|MASCULINE|MICRO|DOUBLE-STRUCK|SCRIPT"
    "|BLACK-LETTER|ALEF|BET|OHM|KELVIN|ANGSTROM|PLANCK|TURNED"
)
_NAMED = {  # how a request names a language -> the scripts that its answer may hold
    "Han": r"chin|mandarin|cantonese|中文|汉|漢|kanji|japan|hanzi|tokyo|kyoto|beijing|pinyin",
    "Kana": r"japan|日本|kana\b|tokyo|kyoto",
    "Hangul": r"korea|hangul|seoul|한국",
    "CYRILLIC": r"russ|ukrain|bulgar|serb|belarus|kazakh|mongol|macedon|cyrill|moscow|русск",
    "GREEK": r"greek|greece|athens|alpha|omega|physic|math|formula|ελλ",
    "ARABIC": r"arab|persian|farsi|urdu|iran|egypt|quran|عرب",
    "HEBREW": r"hebrew|israel|yiddish|עבר",
    "DEVANAGARI": r"hindi|sanskrit|marathi|nepal|india|हिन्द",
    "THAI": r"thai",
    "GEORGIAN": r"georgia",
    "ARMENIAN": r"armenia",
    "TAMIL": r"tamil|india|sri lanka",
    "TELUGU": r"telugu|india",
    "BENGALI": r"bengali|bangla|india",
    "ETHIOPIC": r"amharic|ethiop",
}
_ANY = re.compile(
    r"languages|translat|multilingual|alphabets?\b|scripts\b|unicode"
    r"|in (two|three|four|five|six|several|many|different)",
    re.I,
)
_ASIDE = re.compile(r"\([^()]*\)|（[^（）]*）|\[[^\[\]]*\]|\"[^\"]*\"|“[^”]*”|'[^'\n]*'|「[^」]*」|`[^`]*`|\*[^*\n]*\*")


@lru_cache(maxsize=8192)
def _script(char: str) -> str | None:
    """The script of a letter; None for all else and for letters that belong to all scripts."""
    if not char.isalpha():
        return None
    name = unicodedata.name(char, "").split(" ")[0]
    return None if not name or _IGNORED.fullmatch(name) else _FAMILY.get(name, name)


def scripts_in(text: str) -> Counter[str]:
    """Letters by script."""
    return Counter(s for c in text if (s := _script(c)))


def mixed_scripts(text: str, prompt: str, thinking: bool = False) -> str | None:
    """Why the scripts of `text` do not fit `prompt`; None when they do. A thinking model may use any one language.

    A gloss in brackets or quotes and a single foreign name are fine; so are Greek letters as symbols. Not fine: scripts
    that come and go, several of them, or an answer mostly in a script that the request neither uses nor names.
    """
    if _ANY.search(prompt):
        return None
    expected = _expected(prompt)
    counts = scripts_in(text)
    foreign = {s: n for s, n in counts.items() if s not in expected and not (s == "GREEK" and _symbols_only(text))}
    if not foreign:
        return None
    total, names = sum(counts.values()), ", ".join(sorted(s.title() for s in foreign))
    if len(foreign) >= 2:
        return f"mixed scripts: {names} in an answer that calls for none of them"
    runs = _runs(_ASIDE.sub(" ", text), set(foreign))
    share = sum(foreign.values()) / total
    if runs >= 2 and share < 0.9:
        return f"mixed scripts: {names} comes and goes {runs} times"
    if share >= 0.6 and total >= 8 and not thinking:
        return f"the answer is in {names}, which the request neither uses nor names"
    return None


def _expected(prompt: str) -> set[str]:
    named = {script for script, pattern in _NAMED.items() if re.search(pattern, prompt, re.I)}
    used = set(scripts_in(prompt))
    return {"LATIN"} | named | used | ({"Han"} if "Kana" in used else set()) | ({"Han"} if "Hangul" in used else set())


def _symbols_only(text: str) -> bool:
    """Whether Greek letters stand alone or in pairs, as in formulas."""
    return not re.search(r"[\u0370-\u03ff\u1f00-\u1fff]{3,}", text)


def _runs(text: str, foreign: set[str]) -> int:
    """How often the text changes over into a foreign script."""
    runs, inside = 0, False
    for char in text:
        script = _script(char)
        if script is None:
            continue
        if script in foreign and not inside:
            runs += 1
        inside = script in foreign
    return runs
