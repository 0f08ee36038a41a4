"""Personal data is found by what makes it that, and ordinary numbers are left alone; in time linear in the text."""

from __future__ import annotations

import contextlib
import random
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.contracts import personal
from collector.contracts.answer import Answer, NotEvaluatedError
from collector.contracts.ids import IDS
from collector.contracts.personal import PersonalDataError, finder
from collector.contracts.rule import Kind, Personal

KINDS: tuple[Kind, ...] = ("email", "phone", "card", "iban", "national_id")
REGIONS = ("US", "DE", "CN", "FR", "GB", "ES", "NL", "BR", "IN")
FIND = {kind: finder(Personal((kind,), REGIONS)) for kind in KINDS}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("email", "write to bob@acme.io now"),
        ("email", "请联系zhang.wei@163.com谢谢"),
        ("email", "<mailto:first.last+tag@sub.domain.co.uk>"),
        ("phone", "call me at +49 30 123456"),
        ("phone", "tel 2127365000"),
        ("phone", "212-736-5000"),
        ("phone", "(212) 736-5000"),
        ("phone", "电话：010-62345678"),
        ("phone", "13812345678"),  # in a range of mobile phones alone
        ("phone", "06.12.34.56.78"),
        ("phone", "138 1234 5678"),
        ("phone", "0800 123 4567"),
        ("phone", "tel. 212 736 5000"),
        ("card", "4111 1111 1111 1111"),
        ("card", "card 4111111111111111."),
        ("card", "卡号4111111111111111。"),
        ("card", "4111-1111-1111-1111"),
        ("card", "3782 822463 10005"),
        ("card", "5555555555554444 12/29"),
        ("card", "6222021234567890128"),
        ("iban", "DE89 3704 0044 0532 0130 00"),
        ("iban", "IBAN: DE89370400440532013000."),
        ("iban", "to GB82 WEST 1234 5698 7654 32 and no other"),
        ("iban", "de89370400440532013000"),
        ("national_id", "536-90-4399"),
        ("national_id", "SSN: 536904399"),
        ("national_id", "身份证11010519491231002X"),
        ("national_id", "86095742719"),
        ("national_id", "12345678Z"),
        ("national_id", "BSN 111222333"),
        ("national_id", "390.533.447-05"),
        ("national_id", "2 95 10 99 126 111 93"),
    ],
)
def test_personal_data_is_found(kind: Kind, text: str) -> None:
    assert FIND[kind](text) == kind


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("email", "see user@example.com and admin@shop.example"),  # RFC 2606: nobody's
        ("email", "logo@2x.png, git@github.com:a/b, foo@1.2.3, @user, a @ b, a@b"),
        ("phone", "2127365000"),  # digits alone are the number of anything
        ("phone", "order 212-736-5000"),
        ("phone", "订单号13812345678"),
        ("phone", "order_id: 13812345678"),
        ("phone", "on 2024-01-02 10:30:00, and am 01.02.2024 um 10:30"),
        ("phone", "1787150000 or 1787150000123"),
        ("phone", "ISBN 978-3-16-148410-0, 192.168.100.201, 3.14159265358979"),
        ("phone", "1,234,567 EUR, 12 345 678, $2,127,365,000, pages 100-200, 300-400"),
        ("phone", "550e8400-e29b-41d4-a716-446655440000"),
        ("phone", "584/607/598 and .997/.993/.986, 24.1 | 80/2600/4216, .999 .987 .972 .955"),
        ("phone", "212 736 5000 units, 1800-2009, PA 15213-3890, 90000 / 14000 / 2026"),
        ("card", "4111111111111112"),  # no checksum
        ("card", "1787150000123456"),  # no issuer: microseconds
        ("card", "order 4111111111111111"),
        ("card", "invoice no. 4111111111111111"),
        ("card", "x4111111111111111, 41111111111111110, 0.4111111111111111"),  # parts of something longer
        ("iban", "DE89 3704 0044 0532 0130 01"),
        ("iban", "GB82 WEST 1234 5698 7654 32AND"),
        ("iban", "AB12 is the part, XX00 1234"),
        ("national_id", "110105194912310021, 86095742718, 12345678A"),  # no checksum
        ("national_id", "111222333, 536904399"),  # nine digits without a label
        ("national_id", "order 86095742719"),
    ],
)
def test_ordinary_numbers_are_left_alone(kind: Kind, text: str) -> None:
    assert FIND[kind](text) is None


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({"contact": {"mail": "bob\u0040acme.io"}}, "email"),
        ({"bob@acme.io": True}, "email"),
        ({"card": 4111111111111111}, "card"),
        ({"order_id": "4111111111111111"}, None),  # what the member is called tells what its number is
        (["ok", 1, 2.5, None, {"phone": "2127365000"}], "phone"),
        ({"a": ["4111", "1111", "1111", "1111"]}, None),
    ],
)
def test_json_is_looked_through_with_its_names_and_escapes_resolved(value: object, kind: str | None) -> None:
    find = finder(Personal(KINDS, ("US",)))
    assert find(Answer("ignored", value, is_json=True).words) == kind


def test_the_first_kind_that_is_found_is_told_even_where_another_gave_up() -> None:
    find = finder(Personal(("phone", "email"), ("US",)))
    assert find("1-" * 100_000 + " bob@acme.io") == "email"


LENGTH = 262_144  # as much as is kept of an answer
_DRAW = random.Random(7)  # noqa: S311 - the same text each time is the point
HOSTILE = {
    "digits": "".join(_DRAW.choice("0123456789") for _ in range(LENGTH)),
    "groups": " ".join(str(_DRAW.randrange(10**3, 10**10)) for _ in range(30_000)),
    "brackets": "(1 " * (LENGTH // 3),
    "hyphens": "1-" * (LENGTH // 2),
    "plus": "+1" * (LENGTH // 2),
    "at": "@" * LENGTH,
    "letters": "a" * LENGTH,
    "addresses": "a@a." * (LENGTH // 4),
    "domains": "a@" + "a." * (LENGTH // 2),
    "hyphened domains": ("a@" + "a-" * 31 + ".") * (LENGTH // 65),
    "IBAN heads": "DE89 " * (LENGTH // 5),
    "IBANs": ("DE89" + "1" * 18 + " ") * (LENGTH // 23),
    "card groups": "4111 " * (LENGTH // 5),
    "cards": "4111111111111112 " * (LENGTH // 17),
    "ids": "666-66-6666 " * (LENGTH // 12),
    "labels": "phone order 电话订单 " * (LENGTH // 18),
    "blanks": " " * LENGTH,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_time_grows_no_faster_than_the_text(name: str) -> None:
    text = HOSTILE[name][:LENGTH]
    find = finder(Personal(KINDS, ("US", "DE", "CN")))

    def seconds(of: str) -> float:
        took = []
        for _ in range(2):
            began = time.perf_counter()
            with contextlib.suppress(NotEvaluatedError):
                find(of)
            took.append(time.perf_counter() - began)
        return min(took)

    eighth, whole = seconds(text[: LENGTH // 8]), seconds(text)
    assert whole < 16 * eighth + 0.2, f"{eighth:.3f} s for an eighth, {whole:.3f} s for the whole"


@given(st.text(st.sampled_from("0123456789 -+().@aZ/:é电DE#\n\ud800"), max_size=80))
def test_any_text_is_searched(text: str) -> None:
    for find in FIND.values():
        find(Answer(text).words)


def test_every_region_has_modules_that_exist() -> None:
    find = finder(Personal(("national_id",), tuple(IDS)))
    assert find("nothing here") is None


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (Personal(("national_id",)), "national_id needs regions"),
        (Personal(("national_id",), ("XX",)), "no national id of XX is known"),
        (Personal(("phone",), ("XX",)), "XX is no region"),
    ],
)
def test_what_cannot_be_looked_for_is_refused(rule: Personal, said: str) -> None:
    with pytest.raises(PersonalDataError, match=said):
        finder(rule)


def test_without_the_libraries_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    personal._library.cache_clear()
    monkeypatch.setitem(sys.modules, "phonenumbers", None)
    try:
        with pytest.raises(PersonalDataError, match=r"pip install 'semhealth\[contracts\]'"):
            finder(Personal(("phone",)))
    finally:
        personal._library.cache_clear()
