"""Messages of AWS event streams, made to measure."""

from __future__ import annotations

import struct
import zlib

Value = bool | int | bytes | str


def header(name: str, kind: int, value: bytes) -> bytes:
    return bytes([len(name)]) + name.encode() + bytes([kind]) + value


def text(name: str, value: str) -> bytes:
    return header(name, 7, struct.pack(">H", len(value.encode())) + value.encode())


def message(headers: bytes, payload: bytes = b"") -> bytes:
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    whole = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + payload
    return whole + struct.pack(">I", zlib.crc32(whole))


def event(name: str, payload: bytes) -> bytes:
    heads = text(":event-type", name) + text(":content-type", "application/json") + text(":message-type", "event")
    return message(heads, payload)


def exception(name: str, payload: bytes) -> bytes:
    return message(text(":exception-type", name) + text(":message-type", "exception"), payload)


def error(code: str, words: str) -> bytes:
    return message(text(":error-code", code) + text(":error-message", words) + text(":message-type", "error"))
