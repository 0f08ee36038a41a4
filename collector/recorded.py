"""Recorded exchanges and HAR files → the events that live traffic would have given."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from collector.model import BytesSeen, Event, ExchangeEnded, RequestSeen, ResponseSeen
from collector.signals.values import moment

# What the recorder took off, or what speaks of bytes that are not there any more.
FRAMING = frozenset({"transfer-encoding", "content-encoding", "content-length", "connection", "keep-alive"})
MAX_FILE = 512 * 1024 * 1024


class RecordingError(Exception):
    """A file that holds no recorded exchange; the message says which file, where and what to do."""


class Recording(Struct, frozen=True):
    """One exchange out of a file."""

    id: str
    host: str
    provider: str | None
    events: tuple[Event, ...]


class _Recorded(Struct):
    """The fields that are read; others are ignored."""

    status: int
    id: str | int | None = None
    provider: str | None = None
    host: str | None = None
    method: str = "POST"
    url_path: str = "/"
    query: str | None = None
    request_headers: list[tuple[str, str]] = []
    response_headers: list[tuple[str, str]] = []
    request_body: Any = None
    response_body_b64: str | None = None


class _HarHeader(Struct):
    name: str
    value: str


class _HarPost(Struct):
    text: str = ""


class _HarRequest(Struct, rename="camel"):
    method: str
    url: str
    headers: list[_HarHeader] = []
    post_data: _HarPost | None = None


class _HarContent(Struct):
    text: str = ""
    encoding: str | None = None


class _HarResponse(Struct):
    status: int
    headers: list[_HarHeader] = []
    content: _HarContent = msgspec.field(default_factory=_HarContent)


class _HarEntry(Struct, rename="camel"):
    request: _HarRequest
    response: _HarResponse
    started_date_time: str | None = None


class _HarLog(Struct):
    entries: list[_HarEntry]


class _Har(Struct):
    log: _HarLog


def read_file(path: Path) -> Iterator[Recording]:
    """Every exchange of a file: one JSON object, a JSON list, JSON Lines, or HAR. Raises RecordingError."""
    try:
        size = path.stat().st_size
        if size > MAX_FILE:
            raise RecordingError(f"{path}: more than the {MAX_FILE} bytes that inspect reads; split the file")
        content = path.read_bytes()
    except OSError as error:
        raise RecordingError(f"{path}: cannot be read: {error.strerror or error}") from error
    content = content.removeprefix(b"\xef\xbb\xbf")
    if not content.strip():
        raise RecordingError(f"{path}: empty; expected recorded exchanges as JSON, JSON Lines or HAR")
    if path.suffix.lower() == ".har":
        yield from _har(path, content)
        return
    for place, item in _items(path, content):
        try:
            recorded = msgspec.convert(item, _Recorded, strict=False)
            yield _recording(recorded, f"{path.stem}{place}")
        except (msgspec.ValidationError, binascii.Error, ValueError) as error:
            raise RecordingError(f"{path}{place}: not a recorded exchange: {error}") from error


def _items(path: Path, content: bytes) -> Iterator[tuple[str, Any]]:
    try:
        whole = msgspec.json.decode(content)
    except msgspec.DecodeError as problem:
        lines = [line for line in content.split(b"\n") if line.strip()]
        if len(lines) < 2:
            raise RecordingError(f"{path}: not JSON: {problem}") from problem
        for number, line in enumerate(lines, 1):
            try:
                yield f":{number}", msgspec.json.decode(line)
            except msgspec.DecodeError as error:
                raise RecordingError(f"{path}:{number}: not JSON: {error}") from error
        return
    if isinstance(whole, dict) and "log" in whole and "status" not in whole:
        raise RecordingError(f"{path}: looks like HAR; give the file the suffix .har")
    if isinstance(whole, list):
        for number, item in enumerate(whole):
            yield f"[{number}]", item
    else:
        yield "", whole


def _har(path: Path, content: bytes) -> Iterator[Recording]:
    try:
        entries = msgspec.json.decode(content, type=_Har).log.entries
    except msgspec.DecodeError as error:
        raise RecordingError(f"{path}: not HAR: {error}") from error
    for number, entry in enumerate(entries):
        url = urlsplit(entry.request.url)
        text, encoding = entry.response.content.text, entry.response.content.encoding
        try:
            body = (
                base64.b64decode(text, validate=True) if encoding == "base64" else text.encode("utf-8", "surrogatepass")
            )
        except binascii.Error as error:
            raise RecordingError(f"{path}: log.entries[{number}].response.content.text: not base64: {error}") from error
        recorded = _Recorded(
            status=entry.response.status,
            id=f"{path.stem}[{number}]",
            host=url.netloc.rpartition("@")[2],
            method=entry.request.method,
            url_path=url.path or "/",
            request_headers=[(h.name, h.value) for h in entry.request.headers],
            response_headers=[(h.name, h.value) for h in entry.response.headers],
            request_body=entry.request.post_data.text if entry.request.post_data is not None else None,
            response_body_b64=base64.b64encode(body).decode(),
        )
        yield _recording(recorded, f"{path.stem}[{number}]", entry.started_date_time)


def _recording(recorded: _Recorded, name: str, started: str | None = None) -> Recording:
    wall = moment(started) if started is not None else None
    if wall is None:
        dates = [value for key, value in recorded.response_headers if key.lower() == "date"]
        wall = moment(dates[0]) if dates else None
    request_body = b""
    if isinstance(recorded.request_body, str):
        request_body = recorded.request_body.encode("utf-8", "surrogatepass")
    elif recorded.request_body is not None:
        request_body = msgspec.json.encode(recorded.request_body)
    body = base64.b64decode(recorded.response_body_b64 or "", validate=True)
    target = recorded.url_path.split("?", 1)[0] or "/"
    request_line = f"{_token(recorded.method)} {_one_line(target)} HTTP/1.1"
    status_line = f"HTTP/1.1 {recorded.status} "
    events: list[Event] = [RequestSeen(0, 0.0, wall or 0.0, "", _head(request_line, recorded.request_headers))]
    if request_body:
        events.append(BytesSeen(0, 0.0, False, request_body))
    events.append(ResponseSeen(0, 0.0, 0.0, None, _head(status_line, recorded.response_headers)))
    if body:
        events.append(BytesSeen(0, 0.0, True, body))
    events.append(ExchangeEnded(0, 0.0, "complete", 0.0))
    told = recorded.id if recorded.id is not None else name
    return Recording(str(told), recorded.host or "", recorded.provider, tuple(events))


def _token(text: str) -> str:
    return text if text.isascii() and text.isalpha() else "other"


def _one_line(text: str) -> str:
    return text.replace("\r", "").replace("\n", "").replace(" ", "%20")


def _head(first: str, headers: list[tuple[str, str]]) -> bytes:
    kept = [
        f"{name}: {_one_line_value(value)}"
        for name, value in headers
        if name.lower() not in FRAMING and "\n" not in name
    ]
    return ("\r\n".join([first, *kept]) + "\r\n\r\n").encode("utf-8", "surrogatepass")


def _one_line_value(value: str) -> str:
    return value.replace("\r", " ").replace("\n", " ")
