"""National ids by region: the form each is written in, what has to stand before it, and the module that checks it.

The modules are those of python-stdnum, whose pages name the issuing authorities. A form needs a label before it where
more than about one in five hundred numbers of that length would pass the check.
"""

from __future__ import annotations

import re

from msgspec import Struct


class NationalId(Struct, frozen=True):
    """`module` is below `stdnum`; without a `label` the form alone is enough."""

    module: str
    form: re.Pattern[str]
    label: re.Pattern[str] | None = None


def _id(module: str, form: str, label: str | None = None) -> NationalId:
    # Not a part of a longer number or word; ASCII, so that words of other scripts may touch.
    whole = rf"(?<![A-Za-z0-9_])(?<![0-9][.,/-])(?:{form})(?![A-Za-z0-9_])(?![.,/-][0-9])"
    named = None if label is None else re.compile(rf"(?:{label})[^0-9\n]{{0,24}}\Z", re.IGNORECASE)
    return NationalId(module, re.compile(whole), named)


IDS: dict[str, tuple[NationalId, ...]] = {
    "AT": (_id("at.vnr", r"[0-9]{4} ?[0-9]{6}", r"\bsvnr\b|sozialversicherung|versicherungsnummer"),),
    "AU": (_id("au.tfn", r"[0-9]{3} ?[0-9]{3} ?[0-9]{2,3}", r"\btfn\b|tax file"),),
    "BE": (_id("be.nn", r"[0-9]{2}\.?[0-9]{2}\.?[0-9]{2}[- ]?[0-9]{3}[. ]?[0-9]{2}"),),
    "BG": (_id("bg.egn", r"[0-9]{10}", r"\begn\b|егн"),),
    "BR": (
        _id("br.cpf", r"[0-9]{3}\.[0-9]{3}\.[0-9]{3}-[0-9]{2}"),
        _id("br.cpf", r"[0-9]{11}", r"\bcpf\b"),
    ),
    "CA": (
        _id("ca.sin", r"[0-9]{3}-[0-9]{3}-[0-9]{3}|[0-9]{3} [0-9]{3} [0-9]{3}|[0-9]{9}", r"\bsin\b|social insurance"),
    ),
    "CH": (_id("ch.ssn", r"756\.[0-9]{4}\.[0-9]{4}\.[0-9]{2}|756[0-9]{10}"),),
    "CL": (_id("cl.rut", r"[0-9]{1,2}\.[0-9]{3}\.[0-9]{3}-[0-9Kk]"),),
    "CN": (_id("cn.ric", r"[0-9]{17}[0-9Xx]"),),
    "CZ": (_id("cz.rc", r"[0-9]{6}/[0-9]{3,4}"),),
    "DE": (_id("de.idnr", r"[0-9]{11}|[0-9]{2} [0-9]{3} [0-9]{3} [0-9]{3}"),),
    "DK": (_id("dk.cpr", r"[0-9]{6}-[0-9]{4}"),),
    "EE": (_id("ee.ik", r"[1-6][0-9]{10}"),),
    "ES": (
        _id("es.dni", r"[0-9]{8}-?[A-Za-z]"),
        _id("es.nie", r"[XYZxyz]-?[0-9]{7}-?[A-Za-z]"),
    ),
    "FI": (_id("fi.hetu", r"[0-9]{6}[+A-FU-Y-][0-9]{3}[0-9A-Y]"),),
    "FR": (_id("fr.nir", r"[12] ?[0-9]{2} ?[0-9]{2} ?[0-9][0-9AB] ?[0-9]{3} ?[0-9]{3} ?[0-9]{2}"),),
    "GB": (_id("gb.nhs", r"[0-9]{3} ?[0-9]{3} ?[0-9]{4}", r"\bnhs\b"),),
    "GR": (_id("gr.amka", r"[0-9]{11}", r"\bamka\b|αμκα"),),
    "HR": (_id("hr.oib", r"[0-9]{11}", r"\boib\b"),),
    "ID": (_id("id.nik", r"[0-9]{16}", r"\bnik\b|\bktp\b"),),
    "IE": (_id("ie.pps", r"[0-9]{7}[A-Wa-w][A-Ia-iWw]?"),),
    "IL": (_id("il.idnr", r"[0-9]{9}", r"teudat|\bid number\b|תעודת זהות|ת\.ז"),),
    "IN": (
        _id("in_.aadhaar", r"[0-9]{4}([ -])[0-9]{4}\1[0-9]{4}"),
        _id("in_.aadhaar", r"[0-9]{12}", r"aadhaa?r|\buidai?\b"),
        _id("in_.pan", r"[A-Z]{5}[0-9]{4}[A-Z]"),
    ),
    "IT": (_id("it.codicefiscale", r"[A-Za-z]{6}[0-9]{2}[A-Za-z][0-9]{2}[A-Za-z][0-9]{3}[A-Za-z]"),),
    "JP": (_id("jp.in_", r"[0-9]{4}[ -]?[0-9]{4}[ -]?[0-9]{4}", r"my ?number|マイナンバー|個人番号"),),
    "KR": (_id("kr.rrn", r"[0-9]{6}-[0-9]{7}"),),
    "LT": (_id("lt.asmens", r"[1-6][0-9]{10}"),),
    "MX": (_id("mx.curp", r"[A-Z]{4}[0-9]{6}[HM][A-Z]{5}[A-Z0-9][0-9]"),),
    "MY": (_id("my.nric", r"[0-9]{6}-[0-9]{2}-[0-9]{4}"),),
    "NL": (_id("nl.bsn", r"[0-9]{9}|[0-9]{4}\.[0-9]{2}\.[0-9]{3}", r"\bbsn\b|burgerservice|sofinummer"),),
    "NO": (_id("no.fodselsnummer", r"[0-9]{6} ?[0-9]{5}"),),
    "PL": (_id("pl.pesel", r"[0-9]{11}"),),
    "PT": (_id("pt.nif", r"[0-9]{9}", r"\bnif\b|contribuinte"),),
    "RO": (_id("ro.cnp", r"[1-9][0-9]{12}"),),
    "SE": (_id("se.personnummer", r"(?:[0-9]{2})?[0-9]{6}[+-][0-9]{4}"),),
    "TH": (_id("th.pin", r"[0-9]-[0-9]{4}-[0-9]{5}-[0-9]{2}-[0-9]"),),
    "TR": (_id("tr.tckimlik", r"[1-9][0-9]{10}", r"kimlik|\btckn?\b|t\.c\."),),
    "US": (
        _id("us.ssn", r"[0-9]{3}-[0-9]{2}-[0-9]{4}"),
        _id("us.itin", r"9[0-9]{2}-[0-9]{2}-[0-9]{4}"),
        _id("us.ssn", r"[0-9]{9}", r"\bssn\b|social security"),
    ),
    "ZA": (_id("za.idnr", r"[0-9]{13}"),),
}  # fmt: skip
