"""What a contract says beyond its schema: rules, as plain values that travel to where they are tried."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

from collector.model import RuleSet

MAX_RULES = 60  # of one contract, and of all contracts of a configuration by name
MAX_TEXT = 4000  # characters of a CEL expression or a path
MAX_ENTRIES = 200_000  # of one value set
MAX_REGIONS = 10  # of one rule: each costs a look at the whole text
MAX_ENTRY = 256  # characters of one value

Kind = Literal["email", "phone", "card", "iban", "national_id"]


class Cel(Struct, frozen=True, tag="cel"):
    """A CEL expression that is true of a good answer. It may speak of `output` (the JSON) and `text`."""

    expression: str


class Values(Struct, frozen=True, tag="values"):
    """What stands at a path is one of these values, as text."""

    at: str
    entries: tuple[str, ...]


class Bound(Struct, frozen=True, tag="bound"):
    """The number at a path keeps to a bound: `floor` is exclusive, the other two are not."""

    at: str
    kind: Literal["floor", "at_least", "at_most"]
    value: float


class Personal(Struct, frozen=True, tag="personal"):
    """The answer holds no personal data of these kinds. `regions` are ISO 3166 codes in upper case."""

    kinds: tuple[Kind, ...]
    regions: tuple[str, ...] = ()


Check = Cel | Values | Bound | Personal


class Rule(Struct, frozen=True):
    """A named check. It applies where `when`, a CEL expression, is true; unless it `counts`, it is only counted."""

    name: str
    check: Check
    when: str | None = None
    counts: bool = True


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[Rule, ...]).decode


def rule_set(rules: tuple[Rule, ...]) -> RuleSet:
    """Rules as they travel."""
    return RuleSet(_encode(rules), tuple(rule.name for rule in rules))


def rules_of(text: bytes) -> tuple[Rule, ...]:
    """The rules of a set. Raises msgspec.MsgspecError on anything else."""
    return _decode(text)
