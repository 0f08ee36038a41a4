"""Recorded exchanges and HAR files → the events that live traffic would have given."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any
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


Status = Annotated[int, msgspec.Meta(ge=100, le=999)]


class _Recorded(Struct):
    """The fields that are read; others are ignored."""

    status: Status
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
    status: int  # 0 where no response came
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
            recording = _recording(recorded, f"{path.stem}{place}")
        except (ValueError, RecursionError) as error:
            raise RecordingError(f"{path}{place}: not a recorded exchange: {error}") from error
        yield recording


def _decode(text: bytes) -> Any:
    """JSON as recorders write it, half surrogate pairs included. Raises ValueError."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as problem:
        if b"\\u" not in text:
            raise
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise problem from None
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def _items(path: Path, content: bytes) -> Iterator[tuple[str, Any]]:
    try:
        whole = _decode(content)
    except ValueError as problem:
        lines = [(number, line) for number, line in enumerate(content.split(b"\n"), 1) if line.strip()]
        if len(lines) < 2:
            raise RecordingError(f"{path}: not JSON: {problem}") from problem
        for number, line in lines:
            try:
                item = _decode(line)
            except ValueError as error:
                raise RecordingError(f"{path}:{number}: not JSON: {error}") from error
            yield f":{number}", item
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
        entries = msgspec.convert(_decode(content), _Har).log.entries
    except (ValueError, RecursionError) as error:
        raise RecordingError(f"{path}: not HAR: {error}") from error
    for number, entry in enumerate(entries):
        try:
            recording = _har_recording(entry, f"{path.stem}[{number}]")
        except ValueError as error:
            raise RecordingError(f"{path}: log.entries[{number}]: not an exchange: {error}") from error
        yield recording


def _har_recording(entry: _HarEntry, name: str) -> Recording:
    url = urlsplit(entry.request.url)
    content = entry.response.content
    body = content.text if content.encoding == "base64" else base64.b64encode(_utf8(content.text)).decode()
    recorded = _Recorded(
        status=entry.response.status,
        id=name,
        host=url.netloc.rpartition("@")[2],
        method=entry.request.method,
        url_path=url.path or "/",
        request_headers=[(header.name, header.value) for header in entry.request.headers],
        response_headers=[(header.name, header.value) for header in entry.response.headers],
        request_body=entry.request.post_data.text if entry.request.post_data is not None else None,
        response_body_b64=body,
    )
    return _recording(recorded, name, entry.started_date_time)


def _recording(recorded: _Recorded, name: str, started: str | None = None) -> Recording:
    date = next((moment(value.strip()) for key, value in recorded.response_headers if key.lower() == "date"), None)
    wall = moment(started) if started is not None else None
    if wall is None:
        wall = date
    # Resets count from the response's own date, however long it took.
    arrived = date - wall if date is not None and wall is not None else 0.0
    request_body = b""
    if isinstance(recorded.request_body, str):
        request_body = _utf8(recorded.request_body)
    elif recorded.request_body is not None:
        request_body = _json(recorded.request_body)
    body = base64.b64decode(recorded.response_body_b64 or "", validate=True)
    target = recorded.url_path.split("?", 1)[0] or "/"
    request_line = f"{_token(recorded.method)} {_one_line(target)} HTTP/1.1"
    events: list[Event] = [RequestSeen(0, 0.0, wall or 0.0, "", _head(request_line, recorded.request_headers))]
    if request_body:
        events.append(BytesSeen(0, 0.0, False, request_body))
    if 100 <= recorded.status <= 999:
        status_line = f"HTTP/1.1 {recorded.status} "
        events.append(ResponseSeen(0, arrived, 0.0, None, _head(status_line, recorded.response_headers)))
        if body:
            events.append(BytesSeen(0, arrived, True, body))
        events.append(ExchangeEnded(0, arrived, "complete", 0.0))
    else:
        events.append(ExchangeEnded(0, arrived, "upstream_failed", 0.0))
    told = str(recorded.id) if recorded.id is not None else name
    provider = _well_formed(recorded.provider) if recorded.provider is not None else None
    return Recording(_well_formed(told), recorded.host or "", provider, tuple(events))


def _well_formed(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _json(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (ValueError, OverflowError):  # half a surrogate pair, or an integer over 64 bits
        return json.dumps(value, separators=(",", ":")).encode()


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
    return _utf8("\r\n".join([first, *kept]) + "\r\n\r\n")


def _one_line_value(value: str) -> str:
    return value.replace("\r", " ").replace("\n", " ")
