"""HTTP heads → names and values. The proxy has validated them; here they are only told apart."""

from __future__ import annotations

from collector.model import Headers, ResponseHead

MAX_LINES = 1000  # header lines read; the proxy bounds the head in bytes


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _headers(lines: list[bytes]) -> Headers:
    found = []
    for line in lines[:MAX_LINES]:
        name, colon, value = line.partition(b":")
        if colon:
            found.append((_text(name).strip().lower(), _text(value).strip()))
    return Headers(tuple(found))


def request_head(head: bytes) -> tuple[str, str, Headers]:
    """Method, target and headers of a request head."""
    first, *lines = head.split(b"\r\n")
    method, _, rest = first.partition(b" ")
    target, _, _ = rest.partition(b" ")
    return _text(method), _text(target), _headers(lines)


def response_head(head: bytes) -> ResponseHead:
    """Status and headers of a response head; status 0 where the first line names none."""
    first, *lines = head.split(b"\r\n")
    words = first.split(b" ", 2)
    status = int(words[1]) if len(words) > 1 and len(words[1]) == 3 and words[1].isdigit() else 0
    return ResponseHead(status, _headers(lines))


def path_of(target: str) -> str:
    """The path of a request target: no scheme, host, query or fragment."""
    path = target.split("?", 1)[0].split("#", 1)[0]
    if not path.startswith("/") and "://" in path:
        path = "/" + path.split("://", 1)[1].partition("/")[2]
    return path
