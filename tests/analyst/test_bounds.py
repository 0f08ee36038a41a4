"""Whatever comes, and however long, an open exchange holds no more than docs/limits.md says."""

from __future__ import annotations

import ast
import base64
import importlib
import json
import re
import tracemalloc
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from collector.analyst.accumulate import digest_of
from collector.analyst.answer import Limits
from collector.analyst.fold import ExchangeFold, RouteFacts, Rules
from collector.app import DIALECTS
from collector.config import Analysis, Settings
from collector.dialects.decoding import MAX_NESTED, MAX_VALUES, Decoder, UnreadableError, read_json
from collector.dialects.gemini import MAX_ARGUMENT_CHARS, MAX_OPEN
from collector.model import MAX_CALLS, MAX_CHOICES, BytesSeen, Exchange, ExchangeEnded, RequestSeen, ResponseSeen

from ..dialects.answers import ANSWERS  # noqa: TID252 - the root is not on the path of plain pytest
from ..wire.event_messages import event  # noqa: TID252
from ..wire.memory import KiB, MiB, held_by, is_linear  # noqa: TID252
from ..wire.socket_frames import TEXT, frame  # noqa: TID252

ROOT = Path(__file__).parent.parent.parent
NAMES = [dialect.name for dialect in DIALECTS]
LIMITS = Limits(text=1 * KiB, request=64 * KiB, body=1 * MiB, event=1 * MiB, decoded=64 * MiB)
RULES = Rules(DIALECTS, LIMITS, digest_of("sha256", b""))
TYPES = {
    "sse": "text/event-stream",
    "ndjson": "application/x-ndjson",
    "json_array": "application/json",
    "eventstream": "application/vnd.amazon.eventstream",
    "json": "application/json",
}

# As docs/limits.md has it: the buffers with their reserve, the texts at four bytes a character, and the rest.
BUFFERS = int(1.125 * (LIMITS.request + 2 * LIMITS.body))
TEXT_ROOMS = 3  # what was said, called with, and told again
TEXTS = MAX_CHOICES + MAX_CALLS
A_TEXT = 20 * KiB  # of each, besides its characters: 64 pieces of 64 characters may wait to be joined
REST = 256 * KiB  # names, numbers and words
MOST = BUFFERS + TEXT_ROOMS * 4 * LIMITS.text + TEXTS * A_TEXT + REST
TO_COMPARE = 4 * MiB  # of characters that a dialect keeps to compare them with what is told again
TO_ANSWER = 2 * MiB  # of what the client says over a tunnel
MORE = {
    "openai.responses": TO_COMPARE, "anthropic.completions": TO_COMPARE, "tgi": TO_COMPARE,
    "openai.realtime": TO_ANSWER, "gemini.generate": MAX_OPEN * 4 * MAX_ARGUMENT_CHARS,
}  # fmt: skip


def begun(name: str, transport: str, status: int = 200, headers: str = "") -> ExchangeFold:
    answer = ANSWERS[name]
    path = "/v1/models/m:streamGenerateContent" if transport == "json_array" else answer.path
    seen = RequestSeen(1, 0.0, 0.0, "r", f"{answer.method} {path} HTTP/1.1\r\n\r\n".encode())
    fold = ExchangeFold("x", seen, RouteFacts("r", answer.host, name), RULES)
    if transport == "websocket":
        head = "HTTP/1.1 101 \r\nUpgrade: websocket\r\n"
    else:
        head = f"HTTP/1.1 {status} \r\nContent-Type: {TYPES[transport]}\r\n{headers}"
    fold.response_seen(ResponseSeen(1, 0.1, 0.0, None, f"{head}\r\n".encode()))
    return fold


def told(fold: ExchangeFold, data: bytes, *, by_client: bool = False) -> None:
    fold.bytes_seen(BytesSeen(1, 0.2, not by_client, data))


def ended(fold: ExchangeFold) -> Exchange:
    return fold.ended(ExchangeEnded(1, 9.0, "complete", 0.0))


def framed(transport: str, name: str | None, data: bytes) -> bytes:
    match transport:
        case "sse":
            return (b"event: %s\n" % name.encode() if name else b"") + b"data: %s\n\n" % data
        case "eventstream":
            return event(name or "chunk", data)
        case "websocket":
            return frame(TEXT, data)
        case "json_array":
            return data + b","
    return data + b"\n"


# ---------------------------------------------------------------- growth

KEPT = frozenset({"type", "event_type"})  # words that say what an event is


def varied(value: Any, number: int, much: int, key: str = "") -> Any:
    """The value with another number for each of its numbers and another, longer text for each of its texts."""
    match value:
        case bool() | None:
            return value
        case int() | float():
            return number
        case str():
            return value if key in KEPT else f"{value}{number}" + "x" * much
        case list():
            return [varied(each, number, much) for each in value]
        case dict() if key == "" and set(value) == {"bytes", "p"}:
            inner = varied(json.loads(base64.b64decode(value["bytes"])), number, much)
            return {**value, "bytes": base64.b64encode(json.dumps(inner).encode()).decode()}
        case dict():
            return {name: varied(each, number, much, name) for name, each in value.items()}
    return value


def rounds(name: str, transport: str, much: int, count: int, cycle: int) -> Iterator[bytes]:
    """The messages of an answer again and again, every one with other numbers and texts."""
    for number in range(count):
        for kind, message in ANSWERS[name].messages:
            if isinstance(message, bytes):
                data = message + b"%d" % number if kind == "output" else message
            else:
                data = json.dumps({**varied(message, number % cycle, much), f"k{number}": number}).encode()
            yield framed(transport, kind, data)


# How long each text is, how many rounds, after how many the same numbers come again.
GROWTH = {
    "many short ones": (0, 1500, 1_000_000),
    "the same choices and calls again": (3, 1500, 7),
    "few long ones": (60_000, 280, 1_000_000),
    "middling ones of all choices and calls": (3000, 700, 260),
}


@pytest.mark.parametrize("growth", GROWTH)
@pytest.mark.parametrize("name", NAMES)
def test_an_exchange_holds_no_more_than_it_may(name: str, growth: str) -> None:
    own = ANSWERS[name].transport
    transport = "sse" if own == "json" else own
    most = MOST + MORE.get(name, 0)
    fold = begun(name, transport)
    if transport == "json_array":
        told(fold, b"[")
    held = 0
    for number, piece in enumerate(rounds(name, transport, *GROWTH[growth])):
        told(fold, piece)
        if not number & 1023:
            held = max(held, held_by(fold, (RULES, *DIALECTS)))
    assert max(held, held_by(fold, (RULES, *DIALECTS))) <= most
    found = ended(fold)
    assert held_by(found) <= most
    assert len(msgspec.json.encode(found.record)) <= 256 * KiB


@pytest.mark.parametrize("name", NAMES)
def test_a_reader_keeps_no_long_names(name: str) -> None:
    own = ANSWERS[name].transport
    transport = "sse" if own == "json" else own
    fold = begun(name, transport)
    if transport == "json_array":
        told(fold, b"[")
    for piece in rounds(name, transport, 20_000, 60, 1_000_000):
        told(fold, piece)
    assert held_by(fold._answer.reader, (RULES, *DIALECTS)) <= REST + MORE.get(name, 0) // 2


def test_what_a_client_says_over_a_tunnel_is_bounded() -> None:
    fold = begun("openai.realtime", "websocket")
    for number in range(800):
        schema = {"type": "object", "title": "t" * 20_000}
        tools = [{"type": "function", "name": f"f{number}", "parameters": schema}]
        wish = {"instructions": "i" * 5000, "model": "m" * 5000, "tools": tools}
        told(fold, frame(TEXT, json.dumps({"type": "session.update", "session": wish}).encode()), by_client=True)
        item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "w" * 5000}]}
        told(fold, frame(TEXT, json.dumps({"type": "conversation.item.create", "item": item}).encode()), by_client=True)
    assert 512 * KiB < held_by(fold, (RULES, *DIALECTS)) <= MOST + TO_ANSWER
    assert held_by(ended(fold)) <= MOST + TO_ANSWER


# ---------------------------------------------------------------- one frame


class Leaf(msgspec.Struct):
    a: int | None = None


class Tree(msgspec.Struct):
    leaves: list[Leaf] | None = None
    other: Any = None


def test_more_values_than_are_read_make_a_text_unreadable() -> None:
    decode = Decoder(Tree)
    many = b'{"leaves":[' + b"{}," * (MAX_NESTED - 2) + b"{}]}"
    with pytest.raises(UnreadableError):
        decode(many)
    fewer = decode(b'{"leaves":[' + b"{}," * (MAX_NESTED // 4) + b"{}]}")
    assert fewer.leaves is not None
    assert len(fewer.leaves) == MAX_NESTED // 4 + 1
    numbers = b"[" + b"1," * (MAX_VALUES - 1) + b"1]"
    assert len(read_json(numbers)) == MAX_VALUES
    with pytest.raises(UnreadableError):
        read_json(b"[1," + numbers[1:])


WIDE = {
    "objects in a list": lambda n: b'{"choices":[' + b"{}," * (n // 3) + b"{}]}",
    "calls in a list": lambda n: b'{"choices":[{"delta":{"tool_calls":[' + b"{}," * (n // 3) + b"{}]}}]}",
    "lists in a list": lambda n: b'{"results":[' + b"[]," * (n // 3) + b"[]]}",
    "blocks of text": lambda n: b'{"content":[' + b'{"text":"a","type":"text"},' * (n // 27) + b"{}]}",
    "numbers in an object": lambda n: b'{"message":{' + b'"a":1,' * (n // 6) + b'"a":1}}',
}
TIMES = 80  # bytes that are taken for a byte of a frame while it is read


@pytest.mark.parametrize("shape", WIDE)
def test_a_frame_takes_no_more_than_some_times_its_bytes(shape: str) -> None:
    data = framed("sse", None, WIDE[shape](32 * KiB))
    for name in NAMES:
        fold = begun(name, "sse")
        tracemalloc.start()
        try:
            told(fold, data)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak <= TIMES * len(data)


# ---------------------------------------------------------------- time

HOSTILE: dict[str, Callable[[int], bytes]] = {
    "brackets": lambda n: b"[" * n,
    "depth": lambda n: b'{"choices":' * (n // 11),
    "closed depth": lambda n: b"[" * (n // 2) + b"]" * (n // 2),
    "quotes": lambda n: b'"' * n,
    "a string without end": lambda n: b'{"model":"' + b"x" * n,
    "escaped quotes before brackets": lambda n: b'"' + b'\\"' * (n // 2) + b"[" * 600,
    "backslashes": lambda n: b'{"error":"' + b"\\" * n + b"[" * 600,
    "half surrogates": lambda n: b'{"choices":[{"index":0,"delta":{"content":"' + b"\\ud83d" * (n // 6) + b'"}}]}',
    "digits": lambda n: b'{"usage":{"prompt_tokens":' + b"1" * n + b"}}",
    "decimals": lambda n: b'{"usage":{"prompt_tokens":1.' + b"1" * n + b"}}",
    "names": lambda n: b"{" + b",".join(b'"%d":1' % each for each in range(n // 9)) + b"}",
    "errors": lambda n: b'{"error":{"message":"' + b"rate limit " * (n // 11) + b'","code":[' + b"{}," * 600 + b"{}]}}",
    "details": lambda n: b'{"error":{"code":429,"details":[' + b'{"retryDelay":"1s"},' * (n // 20) + b'"RetryInfo"]}}',
    "paths of arguments": lambda n: b'{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","partialArgs":['
    + b'{"jsonPath":"$[\'a\'].b[\'","stringValue":"c"},' * (n // 44) + b"{}]}}]}}]}",
    **{f"wide: {shape}": make for shape, make in WIDE.items()},
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_takes_time_by_the_byte(name: str) -> None:
    for what, make in HOSTILE.items():
        for transport, status in (("json", 200), ("json", 429), ("sse", 200)):

            def run(size: int, make: Any = make, transport: str = transport, status: int = status) -> None:
                fold = begun(name, transport, status)
                told(fold, framed(transport, None, make(size)))
                ended(fold)

            assert is_linear(run, 32 * KiB), (what, transport, status)


@pytest.mark.parametrize("name", NAMES)
def test_a_request_takes_time_by_the_byte(name: str) -> None:
    for what, make in HOSTILE.items():

        def run(size: int, make: Any = make) -> None:
            seen = RequestSeen(1, 0.0, 0.0, "r", b"POST /x HTTP/1.1\r\n\r\n")
            fold = ExchangeFold("x", seen, RouteFacts("r", "h", name), Rules(DIALECTS))
            told(fold, make(size), by_client=True)
            ended(fold)

        assert is_linear(run, 32 * KiB), what


# ---------------------------------------------------------------- what is written of it

PAGE = ROOT / "docs" / "limits.md"
ROOMS = ("wire", "dialects", "signals", "analyst", "proxy")
UNITS = {"": 1, "KiB": KiB, "MiB": MiB, "GiB": 1024 * MiB}


def rows() -> dict[str, int]:
    """What the page says of each constant: its full name, and its value."""
    found = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and (named := re.fullmatch(r"`([\w.]+)`", cells[2])):
            amount = re.match(r"([\d,.]+)(?: (KiB|MiB|GiB))?", cells[1])
            assert amount is not None, line
            found[named[1]] = int(Decimal(amount[1].replace(",", "")) * UNITS[amount[2] or ""])
    return found


def constants() -> dict[str, int]:
    """Every bound that a room of the analyst states: whole numbers named MAX_…, and the model's own."""
    found = {}
    files = [path for room in ROOMS for path in (ROOT / "collector" / room).glob("*.py")]
    for path in sorted([*files, ROOT / "collector" / "model.py"]):
        names = [
            target.id
            for node in ast.parse(path.read_text(encoding="utf-8")).body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name) and target.id.startswith("MAX_")
        ]
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        found.update({f"{module}.{name}": getattr(importlib.import_module(module), name) for name in names})
    return {name.removeprefix("collector."): value for name, value in found.items() if isinstance(value, int)}


def test_the_page_has_every_bound_with_its_value() -> None:
    told = {name: value for name, value in rows().items() if not name.startswith("analysis.")}
    assert {name: value for name, value in constants().items() if told.get(name) != value} == {}
    for name in told.keys() - constants().keys():  # such as are not called MAX_…
        module, _, constant = name.rpartition(".")
        assert getattr(importlib.import_module(f"collector.{module}"), constant) == told[name]


def test_settings_named_on_the_page_have_the_defaults_that_it_says() -> None:
    named = re.findall(r"^\|[^|]*\| ([\d,]+)(?: (KiB|MiB))? \| setting `([\w.]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert len(named) >= 8
    for amount, unit, path in named:
        value: Any = Settings()
        for name in path.split("."):
            value = getattr(value, name)
        assert value == int(amount.replace(",", "")) * UNITS[unit], path


def test_the_page_has_every_setting_with_its_default() -> None:
    told = {name.removeprefix("analysis."): value for name, value in rows().items() if name.startswith("analysis.")}
    assert told == {name: value for name, value in msgspec.to_builtins(Analysis()).items() if name.endswith("_cap")}
