"""HTTP heads → names and values. The proxy has validated them; here they are only told apart."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from collector.model import Headers, ResponseHead

MAX_KNOWN = 8192  # bytes of a response head whose lines are remembered
MAX_LINES = 1000  # header lines read; the proxy bounds the head in bytes


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _line(line: str) -> tuple[str, str] | None:
    name, colon, value = line.partition(":")
    return (name.strip().lower(), value.strip()) if colon else None


# Lines of requests that hold no keys and no ids, and come with every request of a client library.
PLAIN_NAMES = frozenset({
    "accept", "accept-encoding", "accept-language", "anthropic-version", "connection", "content-length", "content-type",
    "host", "openai-beta", "transfer-encoding", "user-agent",
})  # fmt: skip
PLAIN_PREFIX = "x-stainless-"  # what the SDKs of OpenAI and Anthropic say of themselves
MAX_LINE = 256  # characters of a line of a request that is remembered,
MAX_REMEMBERED = 1024  # and how many are, before all are forgotten


class PlainLines(dict[str, tuple[str, str] | None]):
    """Lines of requests, read as `_line` does. Some hold keys: only those with a plain name are remembered."""

    def __missing__(self, line: str) -> tuple[str, str] | None:
        told = _line(line)
        if told is not None and len(line) <= MAX_LINE and (told[0] in PLAIN_NAMES or told[0].startswith(PLAIN_PREFIX)):
            if len(self) >= MAX_REMEMBERED:
                self.clear()
            self[line] = told
        return told


request_lines = PlainLines()
# Lines of responses; an upstream says most of them with every answer.
known_line = lru_cache(maxsize=1024)(_line)


def _headers(block: bytes, read: Callable[[str], tuple[str, str] | None] = _line) -> Headers:
    found = []
    try:
        lines = block.decode("utf-8").split("\r\n")[:MAX_LINES]
        found = list(filter(None, map(read, lines)))
    except UnicodeDecodeError:  # then each part by itself
        for line in block.split(b"\r\n")[:MAX_LINES]:
            name, separator, value = line.partition(b":")
            if separator:
                found.append((_text(name).strip().lower(), _text(value).strip()))
    return Headers(tuple(found))


def request_head(head: bytes) -> tuple[str, str, Headers]:
    """Method, target and headers of a request head."""
    first, _, block = head.partition(b"\r\n")
    method, _, rest = first.partition(b" ")
    target, _, _ = rest.partition(b" ")
    return _text(method), _text(target), _headers(block, request_lines.__getitem__)


def response_head(head: bytes) -> ResponseHead:
    """Status and headers of a response head; status 0 where the first line names none."""
    first, _, block = head.partition(b"\r\n")
    words = first.split(b" ", 2)
    status = int(words[1]) if len(words) > 1 and len(words[1]) == 3 and words[1].isdigit() else 0
    return ResponseHead(status, _headers(block, known_line if len(block) <= MAX_KNOWN else _line))


def path_of(target: str) -> str:
    """The path of a request target: no scheme, host, query or fragment."""
    path = target.split("?", 1)[0].split("#", 1)[0]
    if not path.startswith("/") and "://" in path:
        path = "/" + path.split("://", 1)[1].partition("/")[2]
    return path
