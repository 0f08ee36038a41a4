"""AWS event-stream messages, written: a prelude, typed headers, a payload and two checksums."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping

_PRELUDE = struct.Struct(">II")
_CRC = struct.Struct(">I")
_STRING = 7  # the type of a header's value (AWS, event stream encoding)
_EMPTY = 16  # bytes of a message without headers and payload: the prelude, its checksum and the message's


def message(headers: Mapping[str, str], payload: bytes) -> bytes:
    """One message whose headers are strings of at most 65,535 bytes under names of at most 255."""
    block = b"".join(_header(name.encode(), value.encode()) for name, value in headers.items())
    prelude = _PRELUDE.pack(_EMPTY + len(block) + len(payload), len(block))
    checked = prelude + _CRC.pack(zlib.crc32(prelude)) + block + payload
    return checked + _CRC.pack(zlib.crc32(checked))


def event(kind: str, payload: bytes) -> bytes:
    """An event with a JSON payload."""
    return message({":event-type": kind, ":content-type": "application/json", ":message-type": "event"}, payload)


def exception(kind: str, payload: bytes) -> bytes:
    """An exception with a JSON payload, after which a stream ends."""
    headers = {":exception-type": kind, ":content-type": "application/json", ":message-type": "exception"}
    return message(headers, payload)


def _header(name: bytes, value: bytes) -> bytes:
    return bytes((len(name),)) + name + struct.pack(">BH", _STRING, len(value)) + value
