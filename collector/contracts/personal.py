"""Personal data in a text: e-mail addresses, phone numbers, payment cards, IBANs and national ids.

Each is looked for by its form, then held against a library that knows its checksum and ranges. A number that only
might be one is none: what follows `order` or `invoice` is not, and where a checksum says little, a label has to stand
before it. Time is linear in the text: forms are bounded, and so is how many candidates are tried.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from typing import Any

from collector.contracts.answer import NotEvaluatedError
from collector.contracts.cel import EXTRA
from collector.contracts.ids import IDS, NationalId
from collector.contracts.rule import Kind, Personal

MAX_TRIES = 2000  # candidates of one text that are held against a library, per kind
MAX_PHONE_CHARS = 65_536  # characters of one text that look like phone numbers and are read as such, over all regions
LABEL_BEFORE = 40  # characters before a number in which its label is looked for

Find = Callable[[str], bool]


class PersonalDataError(ValueError):
    """What a rule asks for cannot be looked for; the message says why."""


def finder(rule: Personal) -> Callable[[str], str | None]:
    """A function from a text to the first kind of personal data in it, or None.

    It raises NotEvaluatedError where a text has more candidates than are tried. Raises PersonalDataError.
    """
    found = tuple((kind, _FINDERS[kind](rule.regions)) for kind in rule.kinds)

    def find(text: str) -> str | None:
        over: NotEvaluatedError | None = None
        for kind, finds in found:
            try:
                if finds(text):
                    return kind
            except NotEvaluatedError as error:
                over = error
        if over is not None:
            raise over
        return None

    return find


class _Tries:
    """How many candidates may still be tried."""

    def __init__(self) -> None:
        self._left = MAX_TRIES

    def take(self) -> None:
        if self._left == 0:
            raise NotEvaluatedError("over_bounds")
        self._left -= 1


@cache
def _library(name: str) -> Any:
    """A module of a library of the extra. Raises PersonalDataError."""
    try:
        return import_module(name)
    except ImportError as error:
        raise PersonalDataError(f"needs a library that is not installed; {EXTRA}") from error


# What a number is that is no personal data, and ends right before it.
_OTHER_NUMBER = re.compile(
    r"(?:order|invoice|receipt|ticket|case|reference|ref|serial|tracking|shipment|parcel|article|item|part|product"
    r"|sku|version|transaction|batch|id|uuid|no\.?|nr\.?|num|number|bestellung|rechnung|auftrag|commande|pedido|factura"
    r"|[#№]|订单|单号|编号|工单|流水号|序号|发票)[号码]?[\"']?[\s:：=#_-]{0,4}\Z",
    re.IGNORECASE,
)


def _is_another_number(text: str, at: int) -> bool:
    return _OTHER_NUMBER.search(text[max(0, at - LABEL_BEFORE) : at]) is not None


# ---------------------------------------------------------------- e-mail

# RFC 5321's lengths and the characters that addresses have in practice; ASCII, so that other scripts may touch them.
_EMAIL = re.compile(
    r"(?<![A-Za-z0-9._%+-])([A-Za-z0-9._%+-]{1,64})@((?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.){1,8}[A-Za-z]{2,24})"
)
# RFC 2606 and 6761: names that are nobody's.
_NOBODYS = re.compile(r"(?:^|\.)(?:example\.(?:com|net|org|edu)|example|test|invalid|localhost|local)\Z", re.IGNORECASE)
_FILES = re.compile(r"\.(?:png|jpe?g|gif|svg|webp|ico|css|js|map|json|ya?ml|py|md|txt|pdf|html?)\Z", re.IGNORECASE)


def _emails(_: tuple[str, ...]) -> Find:
    return lambda text: (
        "@" in text
        and any(
            found[1].lower() != "git" and _NOBODYS.search(found[2]) is None and _FILES.search(found[2]) is None
            for found in _EMAIL.finditer(text)
        )
    )


# ---------------------------------------------------------------- phone

_PHONE_LIKE = re.compile(r"[+＋(（\d][\d ()（）.\-–/+]*")
_PHONE_LABEL = re.compile(
    r"(?:\b(?:tel|telephone|phone|mobile|cell|call|fax|whatsapp|handy|telefon|t[ée]l[ée]phone|tel[ée]fono|m[óo]vil|celular)\b"
    r"|电话|手机|联系|传真|電話|携帯|전화|휴대폰)[^0-9\n]{0,24}\Z",
    re.IGNORECASE,
)
_LEAST_DIGITS = 7
# National numbers as people write them, and not as tables write several: one separator throughout, brackets around the
# area, or a leading 0 before groups with blanks.
_PHONE_FORM = re.compile(
    r"[(（]0?\d{1,5}[)）][ -]?\d{2,8}(?:[ -]\d{2,8}){0,4}"
    r"|\d{2,5}(?:-\d{2,8}){2,4}|0\d{1,4}-\d{4,9}"
    r"|0\d{1,4}(?:\.\d{2,4}){2,4}|\d{3}\.\d{3}\.\d{4}"
    r"|0\d{1,5}(?: \d{2,8}){1,4}|0\d{1,4} \d{3,4}-\d{3,4}"
)
_BLANKS_ALONE = re.compile(r"\d{3,11}(?: \d{3,4}){0,2}")
_BEFORE_A_NUMBER = (".", ",", "/", "-", "–", "=")  # what comes after it is a part of a number or of a list of some
_AROUND = 4  # characters on both sides: enough to tell a time of day or a word
# Days, which with the hour after them have as many digits as a phone number.
_DAY = re.compile(
    r"(?<![0-9])(?:(?:19|20)[0-9]{2}[-./](?:0[1-9]|1[0-2])[-./][0-3][0-9]|[0-3]?[0-9][-./][0-3]?[0-9][-./](?:19|20)[0-9]{2})"
    r"(?![0-9])"
)


def _phones(regions: tuple[str, ...]) -> Find:
    phones = _library("phonenumbers")
    unknown = [region for region in regions if region not in phones.SUPPORTED_REGIONS]
    if unknown:
        raise PersonalDataError(f"regions: {unknown[0]} is no region that phone numbers are known of")
    places: tuple[str | None, ...] = regions or (None,)

    def find(text: str) -> bool:
        left = MAX_PHONE_CHARS
        text = _DAY.sub(lambda day: " " * len(day[0]), text)
        for start, end in _phone_like(text):
            left -= (end - start) * len(places)
            if left < 0:
                raise NotEvaluatedError("over_bounds")
            if any(_is_phone(phones, text, start, end, region) for region in places):
                return True
        return False

    return find


def _phone_like(text: str) -> Iterator[tuple[int, int]]:
    for found in _PHONE_LIKE.finditer(text):
        if sum(map(str.isdigit, found[0])) >= _LEAST_DIGITS:
            yield found.span()


def _is_phone(phones: Any, text: str, start: int, end: int, region: str | None) -> bool:
    """Whether a phone number stands in a stretch of digits; the characters around it tell whether it is a part of
    something else."""
    before = max(0, start - _AROUND)
    stretch = text[before : end + _AROUND]
    for match in phones.PhoneNumberMatcher(stretch, region, phones.Leniency.STRICT_GROUPING, MAX_TRIES):
        at, raw = before + match.start, match.raw_string
        if raw.startswith(("+", "＋")) or _is_labelled(_PHONE_LABEL, text, at):
            return True
        if _is_another_number(text, at) or text[max(0, at - 1) : at] in _BEFORE_A_NUMBER:
            continue
        # Digits alone, or with blanks between, are any numbers, unless in a range that only mobile phones have.
        if _PHONE_FORM.fullmatch(raw):
            return True
        if _BLANKS_ALONE.fullmatch(raw) and phones.number_type(match.number) == phones.PhoneNumberType.MOBILE:
            return True
    return False


def _is_labelled(label: re.Pattern[str], text: str, at: int) -> bool:
    return label.search(text[max(0, at - LABEL_BEFORE) : at]) is not None


# ---------------------------------------------------------------- card

# Digits in one piece or grouped as on the card; not a part of a longer number, word or decimal.
_CARD = re.compile(
    r"(?<![A-Za-z0-9_])(?<![0-9][.,-])"
    r"(?:[0-9]{13,19}|[0-9]{4}([ -])[0-9]{4}\1[0-9]{4}\1[0-9]{4}(?:\1[0-9]{3})?|[0-9]{4}([ -])[0-9]{6}\2[0-9]{4,5})"
    r"(?![A-Za-z0-9_])(?![.,-][0-9])"
)
# Issuers and the lengths of their numbers (ISO/IEC 7812 ranges as the networks publish them).
_ISSUERS: tuple[tuple[re.Pattern[str], frozenset[int]], ...] = (
    (re.compile("4"), frozenset({13, 16, 19})),  # Visa
    (re.compile("5[1-5]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720"), frozenset({16})),  # Mastercard
    (re.compile("3[47]"), frozenset({15})),  # American Express
    (re.compile("6011|64[4-9]|65"), frozenset({16, 19})),  # Discover
    (re.compile("352[89]|35[3-8]"), frozenset({16, 19})),  # JCB
    (re.compile("30[0-5]|3095|36|3[89]"), frozenset({14, 16})),  # Diners Club
    (re.compile("62"), frozenset({16, 17, 18, 19})),  # UnionPay
    (re.compile("5018|5020|5038|5893|6304|6759|676[1-3]"), frozenset({16, 18, 19})),  # Maestro
    (re.compile("220[0-4]"), frozenset({16})),  # Mir
)


def _cards(_: tuple[str, ...]) -> Find:
    luhn = _library("stdnum.luhn")

    def find(text: str) -> bool:
        tries = _Tries()
        for found in _CARD.finditer(text):
            digits = re.sub("[ -]", "", found[0])
            if not any(issuer.match(digits) and len(digits) in lengths for issuer, lengths in _ISSUERS):
                continue
            tries.take()
            if luhn.is_valid(digits) and not (found[0].isdigit() and _is_another_number(text, found.start())):
                return True
        return False

    return find


# ---------------------------------------------------------------- IBAN

_IBAN_START = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{2}[0-9]{2}(?=[ -]?[A-Za-z0-9])")
_LONGEST_IBAN = 34


def _ibans(_: tuple[str, ...]) -> Find:
    iban = _library("stdnum.iban")
    lengths = _iban_lengths()

    def find(text: str) -> bool:
        tries = _Tries()
        for found in _IBAN_START.finditer(text):
            length = lengths.get(found[0][:2].upper())
            number = None if length is None else _spelled(text, found.start(), length)
            if number is not None:
                tries.take()
                if iban.is_valid(number):
                    return True
        return False

    return find


@cache
def _iban_lengths() -> dict[str, int]:
    """Length by country, from the registry that python-stdnum carries."""
    registry = _library("stdnum.numdb").get("iban")
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    lengths = {}
    for country in (first + second for first in letters for second in letters):
        structure = registry.info(country + "00")[0][1].get("bban")
        if structure is not None:
            lengths[country] = 4 + sum(int(part) for part in re.findall(r"(\d+)!", structure))
    return lengths


def _spelled(text: str, start: int, length: int) -> str | None:
    """`length` letters and digits from `start` on, single blanks and hyphens between them left out; None where there
    are fewer, or more follow at once."""
    found = re.compile(rf"(?:[A-Za-z0-9][ -]?){{{min(length, _LONGEST_IBAN) - 1}}}[A-Za-z0-9](?![A-Za-z0-9])").match(
        text, start
    )
    return None if found is None else re.sub("[ -]", "", found[0]).upper()


# ---------------------------------------------------------------- national ids


def _national_ids(regions: tuple[str, ...]) -> Find:
    if not regions:
        raise PersonalDataError(f"national_id needs regions, of {', '.join(sorted(IDS))}")
    unknown = [region for region in regions if region not in IDS]
    if unknown:
        raise PersonalDataError(
            f"regions: no national id of {unknown[0]} is known; those known: {', '.join(sorted(IDS))}"
        )
    ids = tuple((each, _library(f"stdnum.{each.module}")) for region in regions for each in IDS[region])

    def find(text: str) -> bool:
        tries = _Tries()
        return any(
            _has_id(each, checker, text, stretch, tries) for stretch in _with_digits(text) for each, checker in ids
        )

    return find


# Every id has so many digits so near to one another; looking at nothing else is ten times as fast on prose.
_SOME_DIGITS = re.compile(r"[0-9](?:[^0-9\n]{0,2}[0-9]){3}")
_REACH = 24  # characters of an id before and after such digits


def _with_digits(text: str) -> Iterator[tuple[int, int]]:
    """The stretches of a text that may hold an id, none touching another."""
    start = end = 0
    for found in _SOME_DIGITS.finditer(text):
        if found.start() - _REACH > end:
            if end > 0:
                yield start, end
            start = max(0, found.start() - _REACH)
        end = found.end() + _REACH
    if end > 0:
        yield start, end


def _has_id(each: NationalId, checker: Any, text: str, stretch: tuple[int, int], tries: _Tries) -> bool:
    for found in each.form.finditer(text, *stretch):
        if each.label is not None and not _is_labelled(each.label, text, found.start()):
            continue
        tries.take()
        if checker.is_valid(found[0]) and not (found[0].isdigit() and _is_another_number(text, found.start())):
            return True
    return False


_FINDERS: dict[Kind, Callable[[tuple[str, ...]], Find]] = {
    "email": _emails,
    "phone": _phones,
    "card": _cards,
    "iban": _ibans,
    "national_id": _national_ids,
}
