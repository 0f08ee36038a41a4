"""ORCA load reports (xDS `OrcaLoadReport`) in headers: TEXT, JSON and BIN, as names and values not yet checked."""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Iterator

MAX_REPORT = 16_384  # characters
MAX_VALUES = 500

# Fields of xds.data.orca.v3.OrcaLoadReport (orca_load_report.proto). Maps are from text to double.
DOUBLES = {
    1: "cpu_utilization", 2: "mem_utilization", 6: "rps_fractional", 7: "eps", 9: "application_utilization",
}  # fmt: skip
MAPS = frozenset({5, 8})  # utilization, named_metrics

_REAL = re.compile(r"[0-9]{1,18}(\.[0-9]{0,18})?([eE][+-]?[0-9]{1,3})?")

Pairs = list[tuple[str, object]]


def read_report(text: str) -> Pairs | None:
    """Names and values of a report, with or without the word for its format; None where it is none."""
    if len(text) > MAX_REPORT:
        return None
    body = text.strip()
    prefix, _, rest = body.partition(" ")
    match prefix.upper():
        case "TEXT" | "JSON":
            body = rest.strip()
        case "BIN":
            return _binary(rest.strip())
        case _:
            pass
    if body.startswith("{"):
        return _json(body)
    return _text(body) or _binary(body)


def _json(body: str) -> Pairs | None:
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        return None
    pairs: Pairs = []
    for name, value in told.items():
        if name in ("named_metrics", "utilization") and isinstance(value, dict):
            pairs += value.items()
        else:
            pairs.append((name, value))
    return pairs


def _text(body: str) -> Pairs | None:
    pairs: Pairs = []
    for item in body.split(",")[:MAX_VALUES]:
        name, separator, value = item.partition("=")
        if not separator:
            name, separator, value = item.partition(":")
        if separator and _REAL.fullmatch(value.strip()):
            pairs.append((name.strip().removeprefix("named_metrics.").removeprefix("utilization."), float(value)))
    return pairs or None


def _binary(body: str) -> Pairs | None:
    """Base64 of the protobuf message, padded or not."""
    pairs: Pairs = []
    try:
        message = base64.b64decode(body.rstrip("=") + "=" * (-len(body.rstrip("=")) % 4), validate=True)
        for number, value in _fields(message):
            if number in DOUBLES and isinstance(value, float):
                pairs.append((DOUBLES[number], value))
            elif number in MAPS and isinstance(value, bytes):
                entry = dict(_fields(value))
                name, amount = entry.get(1), entry.get(2, 0.0)  # a 0 is not written (proto3)
                if isinstance(name, bytes) and isinstance(amount, float):
                    pairs.append((name.decode(), amount))
    except ValueError:  # no base64, no message, or no UTF-8
        return None
    return pairs[:MAX_VALUES] or None


def _fields(message: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    """Fields of a protobuf message (encoding guide): number, and a whole number, a double or bytes.

    Raises ValueError where it is cut off or no message.
    """
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise ValueError("a field has no number")
        if kind == 0:
            value, at = _varint(message, at)
            yield number, value
            continue
        length = {1: 8, 5: 4}.get(kind)
        if kind == 2:
            length, at = _varint(message, at)
        if length is None or at + length > len(message):
            raise ValueError("a field is cut off, or of no known kind")
        part = message[at : at + length]
        at += length
        if kind == 1:
            yield number, float(struct.unpack("<d", part)[0])
        elif kind == 2:
            yield number, part


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            raise ValueError("a number is cut off")
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number is too long")
