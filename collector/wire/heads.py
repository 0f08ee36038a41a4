"""HTTP heads → names and values. The proxy has validated them; here they are only told apart."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from itertools import repeat

from collector.model import Headers, Names, ResponseHead

MAX_LINES = 1000  # header lines read; the proxy bounds the head in bytes
MAX_KNOWN = 8192  # bytes of a head whose names are remembered, of up to 256 kinds of heads; values never are
MAX_FIRST = 256  # characters of a first line that is remembered
OFTEN = 30  # heads of one kind, after which a pattern is made of it;
MAX_PATTERN = 64  # lines of such a head,
MAX_KINDS = 4  # patterns for one method or status: the newest,
MAX_PATTERNS = 32  # methods and statuses that have patterns, before all are forgotten


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


_Pattern = tuple[Callable[[str], re.Match[str] | None], Names]  # what matches the lines, and their names
_VALUE = r":[ \t]*+(\S[^\r]*+)(?<!\s)"  # stripped as str.strip does; a head with an empty value does not match


class _Kind:
    """Heads that have the same names, written alike and in one order, and how many of them came."""

    __slots__ = ("names", "pattern", "seen", "told")

    def __init__(self, told: tuple[str, ...]) -> None:
        self.told = told
        self.names = Names(tuple(name.strip().lower() for name in told))
        self.seen = 0
        self.pattern: _Pattern | None = None

    def came(self) -> _Pattern | None:
        """One more came. The pattern of them all, once there were enough."""
        self.seen += 1
        if self.pattern is None and self.seen >= OFTEN and 0 < len(self.told) <= MAX_PATTERN:
            lines = "\r\n".join(re.escape(name) + _VALUE for name in self.told)
            self.pattern = re.compile(lines + "\r\n\r\n").fullmatch, self.names
        return self.pattern


_known_kind = lru_cache(maxsize=256)(_Kind)
_patterns: dict[str | int, tuple[_Pattern, ...]] = {}  # by method or status


def _headers(block: bytes, of: str | int) -> Headers:
    """The lines after the first one; what has no colon is none. `of` is the method, or the status.

    Heads of one method or status are mostly of the same few kinds, so a pattern that was made of such a kind tells
    their values apart: a third of the cost of doing so line by line.
    """
    try:
        text = block.decode()
    except UnicodeDecodeError:  # then each name and each value by itself
        text = "\r\n".join([_text(name) + colon + _text(value) for name, colon, value in _parts(block)])
    for fullmatch, names in _patterns.get(of, ()):
        found = fullmatch(text)
        if found is not None:
            return Headers.of(names, found.groups())
    told, values = _by_lines(text.removesuffix("\r\n\r\n").split("\r\n"))
    kind = _known_kind(told) if len(block) <= MAX_KNOWN else _Kind(told)
    _remember(kind.came(), of)
    return Headers.of(kind.names, values)


def _by_lines(lines: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names as they are written, and values."""
    parts = list(map(str.partition, lines[:MAX_LINES], repeat(":")))
    names, colons, values = zip(*parts)  # noqa: B905 - each has three; a keyword doubles the cost
    if not all(colons):
        parts = [part for part in parts if part[1]]
        names, values = tuple(part[0] for part in parts), tuple(part[2] for part in parts)
    return names, tuple(map(str.strip, values))


def _parts(block: bytes) -> list[tuple[bytes, str, bytes]]:
    parts = (line.partition(b":") for line in block.split(b"\r\n")[:MAX_LINES])
    return [(name, colon.decode(), value) for name, colon, value in parts]


def _remember(pattern: _Pattern | None, of: str | int) -> None:
    """The newest first."""
    known = _patterns.get(of, ())
    if pattern is None or pattern in known:  # one of them did not match: an empty value
        return
    if not known and len(_patterns) >= MAX_PATTERNS:
        _patterns.clear()
    _patterns[of] = (pattern, *known[: MAX_KINDS - 1])


def request_head(head: bytes) -> tuple[str, str, Headers]:
    """Method, target and headers of a request head."""
    first, _, block = head.partition(b"\r\n")
    # A query may hold a key.
    method, target = _known_line(first) if len(first) <= MAX_FIRST and b"?" not in first else _line(first)
    return method, target, _headers(block, method)


def _line(first: bytes) -> tuple[str, str]:
    method, _, rest = first.partition(b" ")
    target, _, _ = rest.partition(b" ")
    return _text(method), _text(target)


_known_line = lru_cache(maxsize=512)(_line)


def response_head(head: bytes) -> ResponseHead:
    """Status and headers of a response head; status 0 where the first line names none."""
    first, _, block = head.partition(b"\r\n")
    status = _known_status(first) if len(first) <= MAX_FIRST else _status(first)
    return ResponseHead(status, _headers(block, status))


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
