"""Word salad: words that no grammar joins. A few counts for Latin script whose healthy range is known."""

import itertools
import re
from collections.abc import Sequence

from tasks.pure.words import CODE, WORD

__all__ = ["word_salad"]


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MATH = re.compile(r"\\[a-zA-Z]+|[=≈≤≥∑∫√^]|\$")
_ABOUT_CODE = re.compile(
    r"\b(code|python|function|sql|shell|bash|script|json|xml|html|css|regex|command|program|loop|class|java\w*|c\+\+"
    r"|rust|yaml|url|latex|formula|equation)\b",
    re.I,
)
_ABOUT_WORDS = re.compile(
    r"\b(list|name|words|separated|enumerate|give|keywords|alphabet\w*|vocabulary|synonyms|translat\w+|\w+ian|\w+ish)\b",
    re.I,
)
_VOWELS = re.compile(r"vowel|conson|abbrev|acron", re.I)
_ENGLISH = _set("the of is are what who how why was and to about write tell")
_ALPHABETS = tuple(  # letters that only some languages have
    frozenset(letters)
    for letters in ("ąęłśźżćń", "äöüß", "ñ", "åøæ", "ãõ", "şğı", "őű", "čšžřěů", "đơư", "ţăș", "èêëîïôûœ")
)
_PREPOSITIONS = frozenset(["of", "to", "from", "at", "for", "into", "with", "in", "by"])
_DETERMINERS = frozenset(["the", "a", "an"])
_LINKS = _set("of the a an and or to in with for from by at as into than")  # none ends a clause
_PLAIN = re.compile(  # a word or a number, with what may stand around it
    r"[(\[\"'“‘*_#>-]*([^\W\d_]+(?:['’.-][^\W\d_]+)*|[\d.,:%$€£/-]+(?:st|nd|rd|th|s)?)[)\]\"'”’*_.,;:!?…-]*$"
)
_COMMON = _set(
    "the a an of to in is are was were be been and or but that this it its he she they we you i as at by for from on "
    "with not no has have had will can if so there which who what when "
    "le la les un une des de du et est en que qui dans pour sur pas au il elle "
    "der die das und ist ein eine nicht zu den dem mit von auf für im ich sie es wird "
    "el los las y es una que en por con para del se no su al lo "
    "il di che è per non si con una gli della sono o da os um uma não com do em "
    "het een van en niet dat op zijn te voor met som och att det en på är av för"
)


def word_salad(text: str, prompt: str) -> str | None:
    """Why these words make no sentence; None when they may, and always for code and for a list that was asked for.

    Of 45,672 passages of English documentation seven or so are called salad, all of them code or figures.
    """
    plain = re.sub(r"\w+://\S+|\S*\d\S*", "0", text)  # addresses and figures are no words
    words = [w.casefold() for w in WORD.findall(plain)]
    if len(words) < 8 or "```" in text or _ABOUT_CODE.search(prompt) or CODE.search(prompt):
        return None
    pieces = text.split()
    odd = [p for p in pieces if not _PLAIN.match(p) and re.search(r"[a-zA-Z]", p)]
    if len(pieces) >= 8 and len(odd) / len(pieces) >= 0.4 and "\n" not in text.strip() and not _balanced(text):
        return f"word salad: {len(odd)} of {len(pieces)} pieces are no words"
    if CODE.search(text) or _MATH.search(text):
        return None
    clashes = sum(_clash(a, b) for a, b in itertools.pairwise(words))
    if clashes >= 3 and clashes / len(words) >= 0.12:
        return f"word salad: {clashes} of {len(words) - 1} neighbours cannot stand together"
    stutters = sum(a == b and a.isalpha() and len(a) > 1 for a, b in itertools.pairwise(words))
    if stutters >= 4 and stutters / len(words) >= 0.3:
        return f"word salad: {stutters} of {len(words)} words are said twice"
    if (homes := _homes_of_letters(words)) >= 3 and _calls_for_english_prose(prompt):
        return f"word salad: letters of {homes} languages"
    latin = [w for w in words if re.fullmatch(r"[a-zà-öø-ÿ'’]+", w)]
    mute = [w for w in latin if len(w) >= 3 and not re.search(r"[aeiouyà-öø-ÿ]", w)]
    mostly = len(latin) / len(words) >= 0.6
    if mostly and len(latin) >= 6 and len(mute) / len(latin) >= 0.4 and not _VOWELS.search(prompt):
        return f"word salad: {len(mute)} of {len(latin)} words have no vowel"
    common = sum(w in _COMMON for w in latin)
    if len(latin) >= 16 and common / len(latin) >= 0.9:
        return f"word salad: {common} of {len(latin)} words only join others"
    breaks = len(re.findall(r"[.,;:!?\n•|/]", text)) + 1
    alone = len(latin) >= 12 and len(latin) / breaks >= 10 and len(latin) / len(words) > 0.8
    if alone and common / len(latin) < 0.08 and _calls_for_english_prose(prompt):
        return f"word salad: {common} of {len(latin)} words join the others"
    return None


def _calls_for_english_prose(prompt: str) -> bool:
    said = set(re.findall(r"[a-z]+", prompt.casefold()))
    return len(said & _ENGLISH) >= 2 and not _ABOUT_WORDS.search(prompt)


def _homes_of_letters(words: Sequence[str]) -> int:
    """From how many alphabets the special letters come, where such words are no rare exception."""
    special = [w for w in words if re.search(r"[à-öø-ÿā-ž]", w)]
    if len(special) < 3 or len(special) < 0.15 * len(words):
        return 0
    return sum(any(set(w) & letters for w in special) for letters in _ALPHABETS)


def _balanced(text: str) -> bool:
    """Whether each bracket that opens is closed: so it is in code, and hardly ever by chance."""
    open_ones: list[str] = []
    for char in re.sub(r"->|=>|<=|>=", "", text):
        if char in "([{":
            open_ones.append(char)
        elif char in ")]}" and (not open_ones or open_ones.pop() + char not in ("()", "[]", "{}")):
            return False
    return not open_ones


def _clash(a: str, b: str) -> bool:
    """Two neighbours that English does not put side by side: "the of", "of ,", ", )", "of of"."""
    if a in _DETERMINERS and (b in _LINKS or not re.match(r"[\w(\"'“‘*_`$#-]", b)):
        return True
    if a in _LINKS and re.fullmatch(r"[.,;:)!?]+", b):
        return True
    if a in _PREPOSITIONS and b in {"of", "and", "or", "is", "are", "was", "than", "to"}:
        return True
    if re.fullmatch(r"[,;(]", a) and re.fullmatch(r"[.,;:)!?-]", b):
        return True
    return a == b and a in _LINKS
