"""HTTP heads → names and values. The proxy has validated them; here they are only told apart."""

from __future__ import annotations

from functools import lru_cache
from itertools import repeat

from collector.model import Headers, Names, ResponseHead

MAX_LINES = 1000  # header lines read; the proxy bounds the head in bytes
MAX_KNOWN = 8192  # bytes of a head whose names are remembered, of up to 256 kinds of heads; values never are
MAX_FIRST = 256  # characters of a first line that is remembered


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _names(told: tuple[str, ...]) -> Names:
    return Names(tuple(name.strip().lower() for name in told))


_known_names = lru_cache(maxsize=256)(_names)


def _headers(block: bytes) -> Headers:
    """The lines after the first one. What has no colon is no header."""
    try:
        lines = block.decode("utf-8").removesuffix("\r\n\r\n").split("\r\n")
    except UnicodeDecodeError:  # then each line by itself
        lines = [_text(name) + colon + _text(value) for name, colon, value in _parts(block)]
    parts = list(map(str.partition, lines[:MAX_LINES], repeat(":")))
    names, colons, values = zip(*parts)  # noqa: B905 - each has three; a keyword doubles the cost
    if not all(colons):
        parts = [part for part in parts if part[1]]
        names, values = tuple(part[0] for part in parts), tuple(part[2] for part in parts)
    known = _known_names if len(block) <= MAX_KNOWN else _names
    return Headers.of(known(names), tuple(map(str.strip, values)))


def _parts(block: bytes) -> list[tuple[bytes, str, bytes]]:
    parts = (line.partition(b":") for line in block.split(b"\r\n")[:MAX_LINES])
    return [(name, colon.decode(), value) for name, colon, value in parts]


def request_head(head: bytes) -> tuple[str, str, Headers]:
    """Method, target and headers of a request head."""
    first, _, block = head.partition(b"\r\n")
    # A query may hold a key.
    method, target = _known_line(first) if len(first) <= MAX_FIRST and b"?" not in first else _line(first)
    return method, target, _headers(block)


def _line(first: bytes) -> tuple[str, str]:
    method, _, rest = first.partition(b" ")
    target, _, _ = rest.partition(b" ")
    return _text(method), _text(target)


_known_line = lru_cache(maxsize=512)(_line)


def response_head(head: bytes) -> ResponseHead:
    """Status and headers of a response head; status 0 where the first line names none."""
    first, _, block = head.partition(b"\r\n")
    return ResponseHead(_known_status(first) if len(first) <= MAX_FIRST else _status(first), _headers(block))


def _status(first: bytes) -> int:
    words = first.split(b" ", 2)
    return int(words[1]) if len(words) > 1 and len(words[1]) == 3 and words[1].isdigit() else 0


_known_status = lru_cache(maxsize=128)(_status)


def path_of(target: str) -> str:
    """The path of a request target: no scheme, host, query or fragment."""
    return _known_path(target) if len(target) <= MAX_FIRST and "?" not in target else _path(target)


def _path(target: str) -> str:
    path = target.split("?", 1)[0].split("#", 1)[0]
    if not path.startswith("/") and "://" in path:
        path = "/" + path.split("://", 1)[1].partition("/")[2]
    return path


_known_path = lru_cache(maxsize=512)(_path)
