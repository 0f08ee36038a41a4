"""Words, numbers and sentences of a text in any script, as far as relevance compares texts by their letters."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterable, Sequence

from msgspec import Struct

MAX_PIECE_CHARS = 1000  # a longer sentence is cut into parts of this size, none is lost
MIN_PIECE_CHARS = 12  # a shorter sentence is glued to the one before it
GRAM = 5  # letters that are compared at a time; 2 where the script writes no spaces

# Scripts that write no spaces between words: Han, kana, Hangul, Thai. Compared by pairs of characters.
_DENSE = "ᄀ-ᇿ⺀-〇々-〇〡-〩぀-ヿ㄀-ㄯ㄰-㆏㐀-䶿一-鿿가-힯豈-﫿ｦ-ﾟ฀-๿\U00020000-\U0003ffff"
_TOKEN = re.compile(rf"[{_DENSE}]+|\d+(?:[.,:]\d+)*(?:(?:st|nd|rd|th|s)(?![^\W\d_]))?|(?:(?![{_DENSE}])[^\W\d_])+")
_ASCII_TOKEN = re.compile(r"[a-zA-Z]+|[0-9]+(?:[.,:][0-9]+)*(?:(?:st|nd|rd|th|s)(?![a-zA-Z]))?")  # the same, faster
_NUMBER = re.compile(rf"(?![{_DENSE}])\d+(?:[.,:]\d+)*")
_WEIGHTS = (0.05, 0.05, 0.05, 0.25, 0.5, 0.75)  # of a word of so many letters; longer ones weigh 1
_LETTERS = re.compile(r"[^\W\d_]+")
_OPENING_CHARS = 6
_OPENING = re.compile(r"[.!?:。！？¿¡]\s*[\"'“(]*$")  # what stands before the first word of a sentence
SHORTEST_NAME = 2  # letters; "I" is none
MOST_CAPITALS = 0.6  # of a text's words that may have one, where they tell names
_DENSE_CHARACTER_RUN = re.compile(f"[{_DENSE}]+")
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
_TENS = (
    "ten twenty thirty forty fifty sixty seventy eighty ninety hundred",
    "diez veinte treinta cuarenta cincuenta sesenta setenta ochenta noventa cien",
    "zehn zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig hundert",
)
NUMBER_WORDS: dict[str, str] = {
    **{word: str(value) for words in (_ENGLISH, _SPANISH, _GERMAN) for value, word in enumerate(words.split())},
    **{word: str(value) for value, word in enumerate(_ORDINALS.split(), 1)},
    **{word: str(value * 10) for words in _TENS for value, word in enumerate(words.split(), 1)},
}
_SCALES = {
    "hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "mil": 1000, "millones": 10**6,
    "millón": 10**6, "tausend": 1000, "millionen": 10**6,
}  # fmt: skip
_SAYS_NUMBER = frozenset((*NUMBER_WORDS, *_SCALES))
_SPELLED = re.compile(r"[^\W\d_]+|\d+(?:[.,]\d+)*")
MAX_CONTEXT_WORDS = 10_000  # looked at for numbers in words
# Chinese and Japanese numerals. A run of several is a number, but for those that are words.
_NUMERALS = re.compile("[〇零一二两三四五六七八九十百千万亿]+")
_NUMERAL_DIGITS = {character: value for value, character in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
_NUMERAL_UNITS = {"十": 10, "百": 100, "千": 1000}
_NUMERAL_SCALES = {"万": 10**4, "亿": 10**8}
_NO_NUMERALS = frozenset(("千万", "万一", "一一", "万千"))
MAX_NUMERALS = 16  # characters of one number


class Words(Struct, frozen=True):
    """The tokens of a text with their weights and the sum of these, and the numbers that it writes in digits or in
    several Chinese numerals.
    """

    weights: dict[str, float]
    total: float
    numbers: frozenset[str]


class Places:
    """Which of several places (sentences, or neighbours together) hold which tokens."""

    def __init__(self, places: Iterable[Iterable[str]]) -> None:
        self._holding: dict[str, list[int]] = {}
        self._count = 0
        for index, tokens in enumerate(places):
            self._count += 1
            for token in tokens:
                self._holding.setdefault(token, []).append(index)

    def shares(self, wanted: Words) -> list[float]:
        """The weighted share of the wanted tokens that each place holds; 0 where there are none."""
        found = [0.0] * self._count
        if wanted.total == 0.0:
            return found
        for token, weight in wanted.weights.items():
            for index in self._holding.get(token, ()):
                found[index] += weight
        return [weight / wanted.total for weight in found]

    def __contains__(self, token: object) -> bool:
        return token in self._holding

    def numbers(self) -> Iterable[str]:
        """The tokens that begin with a digit."""
        return (token for token in self._holding if token[0].isdigit())


def normal(text: str) -> str:
    """NFKC, lower case, white space made single."""
    return " ".join(unicodedata.normalize("NFKC", text).lower().split())


def words(normal_text: str) -> Words:
    """Tokens of a text that `normal` returned, in the canonical forms of the study that the weights come from."""
    weights: dict[str, float] = {}
    numbers: set[str] = set()
    for token in (_ASCII_TOKEN if normal_text.isascii() else _TOKEN).findall(normal_text):
        if token in NUMBER_WORDS:
            weights[NUMBER_WORDS[token]] = 1.0
        elif token[0].isdecimal():
            number = _NUMBER.match(token)[0].replace(",", "")  # type: ignore[index] # "3rd" and "1970s" without their ends
            numbers.add(number)
            weights[number] = 1.0
        elif token.isascii() or not _DENSE_CHARACTER.match(token):
            stem = token[:5]
            weight = _WEIGHTS[len(token)] if len(token) < len(_WEIGHTS) else 1.0
            if weight > weights.get(stem, 0.0):
                weights[stem] = weight
        else:
            for pair in _pairs(token):
                weights[pair] = 0.1 if _COMMON_DENSE.intersection(pair) else 0.8
            for number in _numerals(token, least=2):
                numbers.add(number)
                weights[number] = 1.0
    return Words(weights, sum(weights.values()), frozenset(numbers))


def without(all_words: Words, known: Words) -> Words:
    """The tokens that are not known yet; all of them where none is new."""
    new = {token: weight for token, weight in all_words.weights.items() if token not in known.weights}
    return Words(new, sum(new.values()), all_words.numbers) if new else all_words


def names(text: str) -> dict[str, float]:
    """Tokens, with their weights, of what a text calls by name: words with a capital inside a sentence, and numbers.

    A text in capitals (a shout, a title) has no names but numbers; scripts without capitals have none either.
    """
    found = dict.fromkeys(words(normal(text)).numbers, 1.0)
    written = list(_LETTERS.finditer(text))
    capitals = [match for match in written if match.group()[0].isupper()]
    if len(capitals) > MOST_CAPITALS * len(written):
        return found
    for match in capitals:
        if match is written[0] or len(match.group()) < SHORTEST_NAME or _begins_sentence(text, match.start()):
            continue
        found.update(words(normal(match.group())).weights)
    return found


def _begins_sentence(text: str, at: int) -> bool:
    return _OPENING.search(text[max(0, at - _OPENING_CHARS) : at]) is not None


def _numerals(run: str, least: int) -> Iterable[str]:
    """Values of the Chinese numerals in a run, of those that have at least so many characters."""
    for match in _NUMERALS.finditer(run):
        text = match.group()
        if least <= len(text) <= MAX_NUMERALS and text not in _NO_NUMERALS:
            yield str(_numeral_value(text))


def _numeral_value(text: str) -> int:
    """`四十二` is 42, `一八七一` is 1871, `三千二百` is 3200."""
    if not any(character in _NUMERAL_UNITS or character in _NUMERAL_SCALES for character in text):
        return int("".join(str(_NUMERAL_DIGITS[character]) for character in text))
    total = part = digit = 0
    for character in text:
        if character in _NUMERAL_DIGITS:
            digit = _NUMERAL_DIGITS[character]
        elif character in _NUMERAL_UNITS:
            part += max(digit, 1) * _NUMERAL_UNITS[character]
            digit = 0
        else:
            total += max(part + digit, 1) * _NUMERAL_SCALES[character]
            part = digit = 0
    return total + part + digit


def numbers_told(normal_text: str) -> set[str]:
    """Every number that a text tells in digits or words: also `forty-two`, `forty thousand`, `1.9 million`, `六`."""
    told = {number.replace(",", "") for number in _NUMBER.findall(normal_text)}
    for match in _DENSE_CHARACTER_RUN.finditer(normal_text):
        told.update(_numerals(match.group(), least=1))
    before: float | None = None
    for word in _SPELLED.findall(normal_text)[:MAX_CONTEXT_WORDS]:
        if word not in _SAYS_NUMBER and word.isalpha():  # most
            before = None
            continue
        scale = _SCALES.get(word)
        if scale is not None and before is not None:
            before *= scale
            told.add(_written(before))
            continue
        value = _value(word)
        if value is None:
            before = None
            continue
        if before is not None and 20 <= before < 100 and before % 10 == 0 and 0 < value < 10:
            value += before
        told.add(_written(value))
        before = value
    return told


def _value(word: str) -> float | None:
    if word in NUMBER_WORDS:
        return float(NUMBER_WORDS[word])
    digits = word.replace(",", "")
    return float(digits) if digits[0].isdecimal() and digits.count(".") <= 1 and len(digits) <= MAX_NUMERALS else None


def _written(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


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


def cited_numbers(text: str) -> frozenset[int]:
    """The numbers of passages that marks such as `[2]`, `[1, 3]` and `【4†source】` in an answer name."""
    found: set[int] = set()
    for match in _CITATION.finditer(text):
        listed = re.split(r"[†:]", match.group(), maxsplit=1)[0]
        found.update(int(number) for number in re.findall(r"\d{1,3}", listed))
    return frozenset(found)


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


# ---------------------------------------------------------------- scripts and languages

_CJK = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC")
LANGUAGE_SAMPLE = 2000  # characters that are looked at to tell the script
_NO_LETTERS = bytes(code for code in range(128) if not chr(code).isalpha())  # of ASCII
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
DOMINANT = 0.8  # share of letters from which a text counts as written in one script

# ISO 639-1 codes of the languages that are written in each script, of those that embedders name.
_WRITTEN_IN: dict[str, frozenset[str]] = {
    "cjk": frozenset(("zh", "ja", "ko")),
    "cyrillic": frozenset(("ru", "uk", "bg", "sr", "mk", "be", "kk", "mn")),
    "arabic": frozenset(("ar", "fa", "ur")),
    "thai": frozenset(("th",)),
    "greek": frozenset(("el",)),
    "hebrew": frozenset(("he", "yi")),
    "devanagari": frozenset(("hi", "mr", "ne")),
    "georgian": frozenset(("ka",)),
    "armenian": frozenset(("hy",)),
    "bengali": frozenset(("bn",)),
    "tamil": frozenset(("ta",)),
}
# Words that stand in nearly every sentence of one language and seldom in another.
_ENGLISH_WORDS = (
    "the of and is are was were to in that it for on with as by at from what who when where which how does did do "
    "this be has have had an its their not can"
)
_OTHERS_WORDS = (
    "el la los las un una que qué de del y en es por para con se su lo al cuándo dónde quién cómo cuánto cuál "
    "der die das und ist ein eine nicht mit auf zu den dem des von wie wer wann welche wird im "
    "le les et est une des du dans pour qui sur pas quel quelle où comment au il elle "
    "o os as um uma é não da do em dos com mais quem quando onde "
    "il lo gli di che non è della sono chi dove een het van niet wat"
)
_FUNCTION_WORDS = {"en": frozenset(_ENGLISH_WORDS.split()), "others": frozenset(_OTHERS_WORDS.split())}
_AMBIGUOUS = frozenset.intersection(*_FUNCTION_WORDS.values())
FEWEST_FUNCTION_WORDS = 2  # of other languages, from which a text in Latin script is not taken for English


class Scripts(Struct, frozen=True):
    """Letters by script. One CJK character counts as two letters, since it carries about as much."""

    latin: int = 0
    cjk: int = 0
    other: int = 0
    others: dict[str, int] = {}  # those of `other`, by the name of their script

    @property
    def total(self) -> int:
        return self.latin + self.cjk + self.other


def scripts(text: str) -> Scripts:
    """Counts of the letters in the first LANGUAGE_SAMPLE characters."""
    sample = text[:LANGUAGE_SAMPLE]
    latin = len(sample.encode("ascii", "ignore").translate(None, _NO_LETTERS))
    cjk = 0
    others: dict[str, int] = {}
    if not sample.isascii():
        for character in _NOT_ASCII.findall(sample):
            script = _script(character)
            if script == "latin":
                latin += 1
            elif script == "cjk":
                cjk += 2
            elif script is not None:
                others[script] = others.get(script, 0) + 1
    return Scripts(latin, cjk, sum(others.values()), others)


def unknown_letters(text: str, languages: Sequence[str] | None) -> float:
    """The share of a text's letters in scripts of none of these languages (ISO 639-1); 0 where none are named.

    Latin letters are unknown where English alone is known and the text's function words are of another language.
    """
    counts = scripts(text)
    if languages is None or counts.total == 0:
        return 0.0
    told = {"latin": counts.latin, "cjk": counts.cjk, **counts.others}
    return sum(count for script, count in told.items() if not _knows(script, languages, text)) / counts.total


def _knows(script: str, languages: Sequence[str], text: str) -> bool:
    if script != "latin":
        return not _WRITTEN_IN.get(script, frozenset()).isdisjoint(languages)
    not_latin = frozenset().union(*_WRITTEN_IN.values())
    own = [language for language in languages if language not in not_latin]
    return bool(own) and (own != ["en"] or not _is_foreign(text))


def _is_foreign(text: str) -> bool:
    """Whether a text in Latin script is written in another language than English, as far as function words tell."""
    lower = text[:LANGUAGE_SAMPLE].lower()
    if "¿" in lower or "¡" in lower:
        return True
    said = [word for word in _LETTERS.findall(lower) if word not in _AMBIGUOUS]
    english, others = (sum(word in _FUNCTION_WORDS[kind] for word in said) for kind in ("en", "others"))
    return others >= FEWEST_FUNCTION_WORDS and others > english


@functools.lru_cache(maxsize=8192)  # about as many as a language writes with
def _script(character: str) -> str | None:
    """The script of a letter, in lower case; None of what is no letter."""
    if not character.isalpha():
        return None
    name = unicodedata.name(character, "")
    if name.startswith(("LATIN", "FULLWIDTH LATIN", "MODIFIER LETTER", "FEMININE", "MASCULINE")):
        return "latin"
    if name.startswith(_CJK) or name.startswith("HALFWIDTH KATAKANA"):
        return "cjk"
    return name.partition(" ")[0].lower() or "unnamed"


def strongest(pieces: Sequence[str], wanted: Words, keep: int) -> tuple[int, ...]:
    """Indices, in order, of the `keep` pieces that share most words with the wanted ones (first ones on a tie)."""
    shares = Places(words(normal(piece)).weights for piece in pieces).shares(wanted)
    ranked = sorted(range(len(pieces)), key=lambda index: (-shares[index], index))
    return tuple(sorted(ranked[:keep]))
