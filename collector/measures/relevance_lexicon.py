"""Words, numbers and sentences of a text in any script, as far as relevance compares texts by their letters."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Container, Iterable, Sequence

from msgspec import Struct

MAX_PIECE_CHARS = 1000  # a longer sentence is cut into parts of this size, none is lost
MIN_PIECE_CHARS = 12  # a shorter sentence is glued to the one before it
GRAM = 5  # letters that are compared at a time; 2 where the script writes no spaces

# Scripts that write no spaces between words: Han, kana, Hangul, Thai. Compared by pairs of characters.
_DENSE = "ᄀ-ᇿ⺀-〇々-〇〡-〩぀-ヿ㄀-ㄯ㄰-㆏㐀-䶿一-鿿가-힯豈-﫿ｦ-ﾟ฀-๿\U00020000-\U0003ffff"
_TOKEN = re.compile(
    rf"(?P<dense>[{_DENSE}]+)|(?P<number>\d+(?:[.,:]\d+)*)(?:(?:st|nd|rd|th|s)(?![^\W\d_]))?|(?:(?![{_DENSE}])[^\W\d_])+"
)
_DENSE_CHARACTER = re.compile(f"[{_DENSE}]")
# Characters so common that a pair with one of them tells little.
_COMMON_DENSE = frozenset("的了是在吗呢什么谁哪几多少年有和与为之其这那个也都就而及被把于我你他她它们请问")

_ENGLISH = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
)
_SPANISH = (
    "cero uno dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince dieciséis diecisiete "
    "dieciocho diecinueve veinte"
)
_GERMAN = (
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn "
    "achtzehn neunzehn zwanzig"
)
_ORDINALS = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth "
    "sixteenth seventeenth eighteenth nineteenth twentieth"
)
_TENS = "ten twenty thirty forty fifty sixty seventy eighty ninety hundred"
NUMBER_WORDS: dict[str, str] = {
    **{word: str(value) for words in (_ENGLISH, _SPANISH, _GERMAN) for value, word in enumerate(words.split())},
    **{word: str(value) for value, word in enumerate(_ORDINALS.split(), 1)},
    **{word: str(value * 10) for value, word in enumerate(_TENS.split(), 1)},
}


class Words(Struct, frozen=True):
    """The tokens of a text with their weights and the sum of these, and the numbers that it writes in digits."""

    weights: dict[str, float]
    total: float
    numbers: frozenset[str]

    def share_in(self, *others: Container[str]) -> float:
        """The weighted share of these tokens that occur in one of the others; 0 where there are none."""
        if self.total == 0.0:
            return 0.0
        return sum(weight for token, weight in self.weights.items() if any(token in one for one in others)) / self.total


def normal(text: str) -> str:
    """NFKC, lower case, white space made single."""
    return " ".join(unicodedata.normalize("NFKC", text).lower().split())


def words(normal_text: str) -> Words:
    """Tokens of a text that `normal` returned, in the canonical forms of the study that the weights come from."""
    weights: dict[str, float] = {}
    numbers: set[str] = set()
    for match in _TOKEN.finditer(normal_text):
        token = match.group()
        if match.lastgroup == "number":
            number = match["number"].replace(",", "")  # "3rd" and "1970s" without their ends
            numbers.add(number)
            weights[number] = 1.0
        elif match.lastgroup == "dense":
            for pair in _pairs(token):
                weights[pair] = 0.1 if _COMMON_DENSE.intersection(pair) else 0.8
        elif token in NUMBER_WORDS:
            weights[NUMBER_WORDS[token]] = 1.0
        else:
            weight = min(max((len(token) - 2) / 4, 0.05), 1.0)
            stem = token[:5]
            weights[stem] = max(weight, weights.get(stem, 0.0))
    return Words(weights, sum(weights.values()), frozenset(numbers))


def without(all_words: Words, known: Words) -> Words:
    """The tokens that are not known yet; all of them where none is new."""
    new = {token: weight for token, weight in all_words.weights.items() if token not in known.weights}
    return Words(new, sum(new.values()), all_words.numbers) if new else all_words


def _pairs(run: str) -> Iterable[str]:
    if len(run) == 1:
        return (run,)
    return (run[index : index + 2] for index in range(len(run) - 1))


def gram_size(normal_text: str) -> int:
    """2 for a text written mostly without spaces, else 5."""
    dense = len(_DENSE_CHARACTER.findall(normal_text))
    return 2 if dense * 2 > len(normal_text.replace(" ", "")) else GRAM


def grams(normal_text: str, size: int) -> set[str]:
    """Every run of `size` characters."""
    return {normal_text[index : index + size] for index in range(len(normal_text) - size + 1)}


class Whole:
    """A text that others are looked for in, by runs of characters."""

    def __init__(self, normal_text: str) -> None:
        self._text = normal_text
        self._grams: dict[int, set[str]] = {}

    def share_of(self, normal_text: str) -> float:
        """The share of a text's runs that occur here.

        A text shorter than one run counts 1 where it occurs, else 0; so does an empty one.
        """
        size = gram_size(normal_text)
        own = grams(normal_text, size)
        if not own:
            return 1.0 if normal_text and normal_text in self._text else 0.0
        if size not in self._grams:
            self._grams[size] = grams(self._text, size)
        return len(own & self._grams[size]) / len(own)


# ---------------------------------------------------------------- sentences

_SENTENCE_END = re.compile(r"(?<=[.!?])[\"'”’)\]]*\s+|(?<=[。！？])[”’」』）]*|\n+")
_LIST_MARKER = re.compile(r"^[ \t]*(?:[-*•‣▪·]|\(?\d{1,3}[.)、]|#{1,6}|>)[ \t]+", re.MULTILINE)
_CITATION = re.compile(r"[\[【]\^?(?:\d{1,3}(?:\s*[,;–-]\s*\d{1,3})*|\d{1,3}[†:][^\]】]{0,40})[\]】]")
_PREFIX = re.compile(
    r"^\s*(?:(?:the\s+)?(?:final\s+|short\s+)?answer(?:\s+is)?\s*:|answer\s*:|a\s*:|"
    r"(?:la\s+)?respuesta(?:\s+es)?\s*:|(?:die\s+)?antwort(?:\s+(?:ist|lautet))?\s*:|(?:la\s+)?réponse(?:\s+est)?\s*:|"
    r"(?:the\s+)?answer\s+is\s+(?=[\"'\d]|(?-i:[A-Z]))|答案(?:是|为)?\s*[:：]?|回答\s*[:：]|答\s*[:：]|答え\s*[:：は]|回答は)\s*",
    re.IGNORECASE,
)


def answer_text(text: str) -> str:
    """The answer without what is no part of it: a prefix such as `Answer:` and the marks of citations."""
    return _CITATION.sub("", _PREFIX.sub("", text, count=1)).strip()


def sentences(text: str) -> tuple[str, ...]:
    """Sentences of a text in order: none blank, none longer than MAX_PIECE_CHARS, short ones glued to the last.

    They are cut after .!? and white space, after 。！？, and at line ends. Marks of lists are left out.
    """
    text = _LIST_MARKER.sub("", text)
    found: list[str] = []
    start = 0
    bounds = [(match.start(), match.end()) for match in _SENTENCE_END.finditer(text)]
    for stop, following in [*bounds, (len(text), len(text))]:
        piece = " ".join(text[start : _after_quotes(text, stop, following)].split())
        start = following
        if not piece:
            continue
        if found and len(piece) < MIN_PIECE_CHARS and len(found[-1]) + len(piece) < MAX_PIECE_CHARS:
            found[-1] = f"{found[-1]} {piece}"
        else:
            found.extend(_parts(piece))
    return tuple(found)


def _after_quotes(text: str, stop: int, following: int) -> int:
    """Closing quotes belong to the sentence that they close."""
    while stop < following and not text[stop].isspace():
        stop += 1
    return stop


def _parts(piece: str) -> Iterable[str]:
    """A piece in parts of at most MAX_PIECE_CHARS, cut at spaces where there are some."""
    while len(piece) > MAX_PIECE_CHARS:
        cut = piece.rfind(" ", MAX_PIECE_CHARS // 2, MAX_PIECE_CHARS)
        cut = cut if cut > 0 else MAX_PIECE_CHARS
        yield piece[:cut].strip()
        piece = piece[cut:].strip()
    if piece:
        yield piece


# ---------------------------------------------------------------- scripts

_SUPPORTED_OTHERS = ("CYRILLIC", "ARABIC", "THAI")  # beside Latin and CJK, what the encoder was trained on
_CJK = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC")
LANGUAGE_SAMPLE = 2000  # characters that are looked at to tell the script
_NO_LETTERS = bytes(code for code in range(128) if not chr(code).isalpha())  # of ASCII
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
DOMINANT = 0.8  # share of letters from which a text counts as written in one script


class Scripts(Struct, frozen=True):
    """Letters by script. One CJK character counts as two letters, since it carries about as much."""

    latin: int = 0
    cjk: int = 0
    other: int = 0
    unsupported: int = 0  # part of `other`

    @property
    def total(self) -> int:
        return self.latin + self.cjk + self.other


def scripts(text: str) -> Scripts:
    """Counts of the letters in the first LANGUAGE_SAMPLE characters."""
    sample = text[:LANGUAGE_SAMPLE]
    latin = len(sample.encode("ascii", "ignore").translate(None, _NO_LETTERS))
    if sample.isascii():
        return Scripts(latin)
    cjk = other = unsupported = 0
    for character in _NOT_ASCII.findall(sample):
        script = _script(character)
        latin += script == "latin"
        cjk += 2 * (script == "cjk")
        other += script in ("supported", "unsupported")
        unsupported += script == "unsupported"
    return Scripts(latin, cjk, other, unsupported)


@functools.lru_cache(maxsize=8192)  # about as many as a language writes with
def _script(character: str) -> str | None:
    """The script of a letter; None of what is no letter."""
    if not character.isalpha():
        return None
    name = unicodedata.name(character, "")
    if name.startswith(("LATIN", "FULLWIDTH LATIN", "MODIFIER LETTER", "FEMININE", "MASCULINE")):
        return "latin"
    if name.startswith(_CJK) or name.startswith("HALFWIDTH KATAKANA"):
        return "cjk"
    return "supported" if name.startswith(_SUPPORTED_OTHERS) else "unsupported"


def strongest(pieces: Sequence[str], wanted: Words, keep: int) -> tuple[int, ...]:
    """Indices, in order, of the `keep` pieces that share most words with the wanted ones (first ones on a tie)."""
    shares = [wanted.share_in(words(normal(piece)).weights) for piece in pieces]
    ranked = sorted(range(len(pieces)), key=lambda index: (-shares[index], index))
    return tuple(sorted(ranked[:keep]))
