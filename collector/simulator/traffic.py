"""Traffic for the simulated API: retrieval, tools, structured output and chat, as services send them."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Literal

import aiohttp
import msgspec
import uvloop
from msgspec import Struct

from collector.simulator import corpus

DEFAULT_BASE = "http://127.0.0.1:8080"
MOST_IN_FLIGHT = 64
POLL_SECONDS = 1.0
POLL_TIMEOUT = 2.0
ANSWER_TIMEOUT = 180.0
# At the end of the duration, answers in flight may finish; a signal leaves them less time.
GRACE_AT_END = 15.0
GRACE_AT_SIGNAL = 2.0
READ_BYTES = 65_536

Dialect = Literal["openai", "anthropic"]
PATHS: dict[Dialect, str] = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}
OPENAI_MODELS = ("sim-large", "sim-large", "sim-small", "sim-reasoner")
ANTHROPIC_MODELS = ("sim-opus", "sim-haiku")


class TrafficSettings(Struct, frozen=True):
    """Where to send what. `rate` is requests a second; `duration` in seconds, None is until stopped."""

    base: str = DEFAULT_BASE
    rate: float = 4.0
    duration: float | None = None
    seed: int = 7
    stream_share: float = 0.7
    faults_from: str | None = None
    most_in_flight: int = MOST_IN_FLIGHT


class Counts(Struct):
    """What became of the requests. `failed` are those that got no whole answer; `skipped` were not sent."""

    sent: int = 0
    answered: int = 0
    throttled: int = 0
    refused: int = 0
    failed: int = 0
    abandoned: int = 0  # still in flight when the traffic was stopped
    skipped: int = 0  # as many as allowed were in flight already
    context_lost: int = 0
    context_cut: int = 0


class Shares(Struct, frozen=True):
    """How often the two faults of the traffic strike."""

    context_lost: float = 0.0
    context_cut: float = 0.0


class Query(Struct, frozen=True):
    """A question with the passages that a retriever would bring, as (title, text)."""

    item: corpus.Item
    passages: tuple[tuple[str, str], ...]
    fault: Literal["context_lost", "context_cut"] | None = None


class Message(Struct, frozen=True):
    """One request that is ready to be sent."""

    dialect: Dialect
    kind: str
    body: dict[str, Any]
    fault: Literal["context_lost", "context_cut"] | None = None


# ---------------------------------------------------------------- what is asked


def query(rng: Random, shares: Shares) -> Query:
    """A question of the corpus with its passage among others; the faults lose the passage or cut its sentence."""
    item = rng.choice(corpus.CORPUS)
    lost, cut = rng.random() < shares.context_lost, rng.random() < shares.context_cut
    same = [other for other in corpus.of_domain(item.domain) if other is not item]
    beside = rng.sample(same, rng.randint(0, 2))
    if lost:
        held = [(other.title, other.passage) for other in rng.sample(same, len(beside) + 1)]
        return Query(item, tuple(held), "context_lost")
    held = [(item.title, item.passage_cut if cut else item.passage)]
    held += [(other.title, other.passage) for other in beside]
    rng.shuffle(held)
    return Query(item, tuple(held), "context_cut" if cut else None)


def compose(rng: Random, shares: Shares, stream_share: float) -> Message:
    """One request of the mix; the same for the same generator state and shares."""
    dialect: Dialect = "openai" if rng.random() < 0.55 else "anthropic"
    draw = rng.random()
    if draw < 0.62:
        message = _retrieval(dialect, query(rng, shares), rng)
    elif draw < 0.78:
        message = _structured(dialect, query(rng, shares), rng)
    elif draw < 0.92:
        message = _tools(dialect, rng)
    else:
        message = _chat(dialect, rng)
    body = message.body
    is_stream = rng.random() < stream_share
    if is_stream:
        body["stream"] = True
        # Not every service asks for its usage.
        if dialect == "openai" and rng.random() < 0.85:
            body["stream_options"] = {"include_usage": True}
    return message


def _retrieval(dialect: Dialect, asked: Query, rng: Random) -> Message:
    openai: tuple[Callable[[Query, Random], dict[str, Any]], ...] = (
        _openai_tagged,
        _openai_numbered,
        _openai_json,
        _openai_tool_result,
    )
    anthropic: tuple[Callable[[Query, Random], dict[str, Any]], ...] = (
        _anthropic_tagged,
        _anthropic_numbered,
        _anthropic_documents,
        _anthropic_tool_result,
    )
    write = rng.choice(openai if dialect == "openai" else anthropic)
    return Message(dialect, write.__name__.removeprefix("_"), write(asked, rng), asked.fault)


def _tagged(asked: Query) -> str:
    """Passages in tags, as Anthropic's documentation writes long contexts."""
    documents = "\n".join(
        f'<document index="{index}">\n<source>{title}</source>\n<document_content>\n{text}\n</document_content>\n'
        f"</document>"
        for index, (title, text) in enumerate(asked.passages, 1)
    )
    return f"<documents>\n{documents}\n</documents>"


def _numbered(asked: Query) -> str:
    passages = "\n\n".join(f"[{index}] {text}" for index, (_, text) in enumerate(asked.passages, 1))
    if asked.item.language == "zh":
        return f"已知信息：\n{passages}\n\n问题：{asked.item.question}"
    return f"Context:\n{passages}\n\nQuestion: {asked.item.question}"


def _as_json(asked: Query) -> str:
    rows = [{"title": title, "text": text} for title, text in asked.passages]
    return json.dumps(rows, ensure_ascii=False)


def _instruction(asked: Query) -> str:
    if asked.item.language == "zh":
        return "你是一名细心的助手，只根据给出的资料回答问题。"
    return "You are a careful assistant. Answer from the documents that are given, and briefly."


def _openai_model(rng: Random) -> str:
    return rng.choice(OPENAI_MODELS)


def _openai_body(rng: Random, *messages: dict[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = {"model": _openai_model(rng), "messages": list(messages)}
    if rng.random() < 0.5:
        body["temperature"] = 0.2
    if rng.random() < 0.4:
        body["max_completion_tokens"] = 400
    return body


def _anthropic_body(rng: Random, *messages: dict[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = {"model": rng.choice(ANTHROPIC_MODELS), "max_tokens": 1024, "messages": list(messages)}
    if rng.random() < 0.1:
        body["thinking"] = {"type": "enabled", "budget_tokens": 1024}
        body["max_tokens"] = 2048
    return body


def _openai_tagged(asked: Query, rng: Random) -> dict[str, Any]:
    system = f"{_instruction(asked)}\n\n{_tagged(asked)}"
    return _openai_body(rng, {"role": "system", "content": system}, {"role": "user", "content": asked.item.question})


def _openai_numbered(asked: Query, rng: Random) -> dict[str, Any]:
    return _openai_body(
        rng, {"role": "system", "content": _instruction(asked)}, {"role": "user", "content": _numbered(asked)}
    )


def _openai_json(asked: Query, rng: Random) -> dict[str, Any]:
    parts = [{"type": "text", "text": _as_json(asked)}, {"type": "text", "text": asked.item.question}]
    return _openai_body(rng, {"role": "system", "content": _instruction(asked)}, {"role": "user", "content": parts})


def _openai_tool_result(asked: Query, rng: Random) -> dict[str, Any]:
    arguments = json.dumps({"query": asked.item.question}, ensure_ascii=False)
    call = {"id": "call_search_1", "type": "function", "function": {"name": "search", "arguments": arguments}}
    body = _openai_body(
        rng,
        {"role": "system", "content": _instruction(asked)},
        {"role": "user", "content": asked.item.question},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_search_1", "content": _as_json(asked)},
    )
    body["tools"] = [_openai_tool(_SEARCH)]
    return body


def _anthropic_tagged(asked: Query, rng: Random) -> dict[str, Any]:
    body = _anthropic_body(rng, {"role": "user", "content": asked.item.question})
    system: dict[str, Any] = {"type": "text", "text": f"{_instruction(asked)}\n\n{_tagged(asked)}"}
    if rng.random() < 0.5:
        system["cache_control"] = {"type": "ephemeral"}
    body["system"] = [system]
    return body


def _anthropic_numbered(asked: Query, rng: Random) -> dict[str, Any]:
    body = _anthropic_body(rng, {"role": "user", "content": _numbered(asked)})
    body["system"] = _instruction(asked)
    return body


def _anthropic_documents(asked: Query, rng: Random) -> dict[str, Any]:
    is_cited = rng.random() < 0.5
    blocks: list[dict[str, Any]] = []
    for title, text in asked.passages:
        block: dict[str, Any] = {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": text},
            "title": title,
        }
        if is_cited:
            block["citations"] = {"enabled": True}
        blocks.append(block)
    blocks.append({"type": "text", "text": asked.item.question})
    body = _anthropic_body(rng, {"role": "user", "content": blocks})
    body["system"] = _instruction(asked)
    return body


def _anthropic_tool_result(asked: Query, rng: Random) -> dict[str, Any]:
    result = [{"type": "text", "text": text} for _, text in asked.passages]
    body = _anthropic_body(
        rng,
        {"role": "user", "content": asked.item.question},
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "toolu_search_1", "name": "search", "input": {"query": asked.item.question}}
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_search_1", "content": result}]},
    )
    body["system"] = _instruction(asked)
    body["tools"] = [_SEARCH]
    body.pop("thinking", None)
    return body


def _structured(dialect: Dialect, asked: Query, rng: Random) -> Message:
    name, schema = rng.choice(_SCHEMAS)
    if dialect == "anthropic":
        body = _anthropic_tagged(asked, rng)
        body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        return Message(dialect, "anthropic_structured", body, asked.fault)
    body = _openai_numbered(asked, rng)
    if rng.random() < 0.15:
        body["response_format"] = {"type": "json_object"}
        body["messages"][0]["content"] += " Answer in JSON."
    else:
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": name, "schema": schema, "strict": True},
        }
    return Message(dialect, "openai_structured", body, asked.fault)


def _tools(dialect: Dialect, rng: Random) -> Message:
    request = rng.choice(_ERRANDS)
    tools = [_SEARCH, *rng.sample((_BOOK, _WEATHER, _INVOICE), 2)]
    if dialect == "anthropic":
        body = _anthropic_body(rng, {"role": "user", "content": request})
        body["tools"] = tools
        body["tool_choice"] = rng.choice(({"type": "auto"}, {"type": "any"}))
        if body["tool_choice"]["type"] == "any":
            body.pop("thinking", None)  # the real API refuses the two together
        return Message(dialect, "anthropic_tools", body)
    body = _openai_body(rng, {"role": "user", "content": request})
    body["tools"] = [_openai_tool(tool) for tool in tools]
    body["tool_choice"] = rng.choice(("auto", "required"))
    return Message(dialect, "openai_tools", body)


def _chat(dialect: Dialect, rng: Random) -> Message:
    request = rng.choice(_CHATS)
    if dialect == "anthropic":
        return Message(dialect, "anthropic_chat", _anthropic_body(rng, {"role": "user", "content": request}))
    body = _openai_body(
        rng, {"role": "system", "content": "You are a helpful assistant."}, {"role": "user", "content": request}
    )
    if rng.random() < 0.3:
        body["n"] = 2
    return Message(dialect, "openai_chat", body)


def _openai_tool(tool: dict[str, Any]) -> dict[str, Any]:
    function = {"name": tool["name"], "description": tool["description"], "parameters": tool["input_schema"]}
    return {"type": "function", "function": function}


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_TEXT = {"type": "string"}
_SEARCH = {
    "name": "search",
    "description": "Search the knowledge base.",
    "input_schema": _object(query=_TEXT),
}
_BOOK = {
    "name": "book_berth",
    "description": "Book a berth for a vessel.",
    "input_schema": _object(
        vessel_name=_TEXT,
        arrival={"type": "string", "format": "date"},
        length_metres={"type": "number", "minimum": 3, "maximum": 90},
        services={"type": "array", "items": {"enum": ["water", "power", "waste"]}, "uniqueItems": True},
    ),
}
_WEATHER = {
    "name": "weather",
    "description": "The forecast for a place.",
    "input_schema": _object(city=_TEXT, unit={"enum": ["celsius", "kelvin"]}, days={"type": "integer", "minimum": 1}),
}
_INVOICE = {
    "name": "create_invoice",
    "description": "Write an invoice.",
    "input_schema": _object(
        customer=_object(name=_TEXT, email={"type": "string", "format": "email"}),
        lines={
            "type": "array",
            "minItems": 1,
            "items": _object(title=_TEXT, amount={"type": "number", "minimum": 0}),
        },
    ),
}
_SCHEMAS: tuple[tuple[str, dict[str, Any]], ...] = (
    (
        "grounded_answer",
        _object(
            answer=_TEXT,
            confidence={"type": "number", "minimum": 0, "maximum": 1},
            sources={"type": "array", "items": {"type": "integer", "minimum": 1}},
        ),
    ),
    (
        "ticket",
        _object(
            summary=_TEXT,
            category={"enum": ["question", "complaint", "request"]},
            urgent={"type": "boolean"},
            follow_up={"anyOf": [{"type": "string"}, {"type": "null"}]},
        ),
    ),
    (
        "extraction",
        _object(
            answer=_TEXT,
            entities={
                "type": "array",
                "maxItems": 4,
                "items": _object(name=_TEXT, kind={"enum": ["place", "person", "thing", "amount"]}),
            },
        ),
    ),
)
_ERRANDS = (
    "Book a berth for the Morwenna on Thursday and tell me the weather in Velmar.",
    "Write an invoice for two nights at Quay Nine.",
    "What is the weather in Calder for the next three days?",
    "Find out how long Tarn Blue ripens and book a berth for the cheese boat.",
    "查一下青螺镇明天的天气。",
)
_CHATS = (
    "Give me three ideas for a rainy afternoon.",
    "How do I start learning to sail?",
    "Rewrite this politely: send the numbers today.",
    "Explain what a token bucket is to a ten-year-old.",
    "怎样养成早起的习惯？",
)


# ---------------------------------------------------------------- sending


async def drive(settings: TrafficSettings, stop: asyncio.Event | None = None) -> Counts:
    """Send traffic until the duration is over or `stop` is set; never fails on what the other side does.

    Arrivals are a Poisson process. The shares of the two context faults are read from `faults_from` once a second.
    """
    stop = asyncio.Event() if stop is None else stop
    driver = _Driver(settings, stop)
    return await driver.run()


class _Driver:
    def __init__(self, settings: TrafficSettings, stop: asyncio.Event) -> None:
        self._settings = settings
        self._stop = stop
        self._counts = Counts()
        self._shares = Shares()
        self._in_flight: set[asyncio.Task[None]] = set()

    async def run(self) -> Counts:
        timeout = aiohttp.ClientTimeout(total=ANSWER_TIMEOUT, connect=10.0)
        connector = aiohttp.TCPConnector(limit=self._settings.most_in_flight + 2)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
            poller: asyncio.Task[None] | None = None
            if self._settings.faults_from is not None:
                await self._read_shares(session, self._settings.faults_from)
                poller = asyncio.create_task(self._poll(session, self._settings.faults_from))
            try:
                await self._send_all(session)
                await self._finish()
            finally:
                leftover = [*self._in_flight, *([] if poller is None else [poller])]
                for task in leftover:
                    task.cancel()
                await asyncio.gather(*leftover, return_exceptions=True)
        return self._counts

    async def _send_all(self, session: aiohttp.ClientSession) -> None:
        loop = asyncio.get_running_loop()
        rng = Random(self._settings.seed)
        due = loop.time()
        end = None if self._settings.duration is None else due + self._settings.duration
        while not self._stop.is_set():
            due += rng.expovariate(self._settings.rate)
            if end is not None and due >= end:
                await self._pause_until(end)
                return
            await self._pause_until(due)
            if self._stop.is_set():
                return
            message = compose(rng, self._shares, self._settings.stream_share)
            if len(self._in_flight) >= self._settings.most_in_flight:
                self._counts.skipped += 1
                continue
            self._counts.sent += 1
            if message.fault is not None:
                setattr(self._counts, message.fault, getattr(self._counts, message.fault) + 1)
            task = asyncio.create_task(self._send(session, message))
            self._in_flight.add(task)
            task.add_done_callback(self._in_flight.discard)

    async def _pause_until(self, due: float) -> None:
        """Wait for a time of the loop's clock, or for the stop."""
        left = due - asyncio.get_running_loop().time()
        if left <= 0:
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(left):
                await self._stop.wait()
        except TimeoutError:
            return

    async def _finish(self) -> None:
        """Let what is in flight end, for a time."""
        if not self._in_flight:
            return
        loop = asyncio.get_running_loop()
        end = loop.time() + (GRACE_AT_SIGNAL if self._stop.is_set() else GRACE_AT_END)
        stopped = asyncio.create_task(self._stop.wait())
        while self._in_flight and loop.time() < end:
            waiting = self._in_flight if self._stop.is_set() else {*self._in_flight, stopped}
            await asyncio.wait(waiting, timeout=end - loop.time(), return_when=asyncio.FIRST_COMPLETED)
            if stopped.done():
                end = min(end, loop.time() + GRACE_AT_SIGNAL)
        stopped.cancel()
        self._counts.abandoned += len(self._in_flight)

    async def _send(self, session: aiohttp.ClientSession, message: Message) -> None:
        headers = {"User-Agent": "simulated-traffic"}
        if message.dialect == "openai":
            headers["Authorization"] = "Bearer simulated"
        else:
            headers |= {"x-api-key": "simulated", "anthropic-version": "2023-06-01"}
        try:
            async with session.post(
                self._settings.base.rstrip("/") + PATHS[message.dialect], json=message.body, headers=headers
            ) as response:
                async for _ in response.content.iter_chunked(READ_BYTES):
                    pass
        except (aiohttp.ClientError, TimeoutError, OSError):
            self._counts.failed += 1
            return
        if response.status < 400:
            self._counts.answered += 1
        elif response.status in (429, 529):
            self._counts.throttled += 1
        else:
            self._counts.refused += 1

    # -- the faults of the traffic

    async def _poll(self, session: aiohttp.ClientSession, address: str) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await self._read_shares(session, address)

    async def _read_shares(self, session: aiohttp.ClientSession, address: str) -> None:
        """Take over the shares as the API states them; keep the last ones where it does not answer."""
        timeout = aiohttp.ClientTimeout(total=POLL_TIMEOUT)
        try:
            async with session.get(_faults_address(address), timeout=timeout) as response:
                answer = _decode_board(await response.read())
        except (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError):
            return
        shares = {row.fault: row.share for row in answer.faults}
        self._shares = Shares(shares.get("context_lost", 0.0), shares.get("context_cut", 0.0))


class _Row(Struct):
    fault: str
    share: float


class _Board(Struct):
    faults: list[_Row]


_decode_board = msgspec.json.Decoder(_Board).decode


def _faults_address(address: str) -> str:
    """The API's base URL or the endpoint itself."""
    trimmed = address.rstrip("/")
    return trimmed if trimmed.endswith("/-/faults") else f"{trimmed}/-/faults"


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="collector.simulator.traffic", description=__doc__)
    parser.add_argument("--base", default=DEFAULT_BASE, metavar="URL", help="where the requests go")
    parser.add_argument("--rate", type=float, default=4.0, metavar="N", help="requests a second")
    parser.add_argument("--duration", type=float, metavar="SECONDS", help="stop by itself after so long")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--stream-share", type=float, default=0.7, metavar="SHARE")
    parser.add_argument("--faults-from", metavar="URL", help="the simulated API whose /-/faults to follow")
    parsed = parser.parse_args(argv)
    if parsed.rate <= 0:
        parser.error(f"--rate: expected a number above 0, got {parsed.rate}")
    if not 0 <= parsed.stream_share <= 1:
        parser.error(f"--stream-share: expected a share from 0 to 1, got {parsed.stream_share}")
    for name, address in (("--base", parsed.base), ("--faults-from", parsed.faults_from)):
        if address is not None and not address.startswith(("http://", "https://")):
            parser.error(f"{name}: expected http(s)://host, got {address!r}")
    return parsed


async def _drive_until_stopped(settings: TrafficSettings) -> Counts:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return await drive(settings, stop)


def main(argv: Sequence[str] | None = None) -> int:
    """Send traffic until the duration is over, SIGTERM or SIGINT."""
    parsed = arguments(sys.argv[1:] if argv is None else argv)
    uvloop.run(
        _drive_until_stopped(
            TrafficSettings(
                base=parsed.base,
                rate=parsed.rate,
                duration=parsed.duration,
                seed=parsed.seed,
                stream_share=parsed.stream_share,
                faults_from=parsed.faults_from,
            )
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
