"""The dialects of Gemini, Cohere, Mistral, Ollama and Bedrock, as they stand on the wire; real clients read them in
tests/end_to_end/test_clients.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from yarl import URL

from collector.simulator import corpus
from collector.simulator.faults import FaultSetting
from collector.wire.eventstream import EventStreamCodec

ITEM = corpus.CORPUS[0]
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string"}, "parts": {"type": "array", "items": {"type": "integer"}}},
    "required": ["answer", "parts"],
}
LIMIT = 5


@dataclass
class Told:
    """What an answer says, whatever its dialect."""

    text: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)  # name and arguments
    finish: str | None = None
    tokens: tuple[int, int] | None = None
    error: str | None = None

    def call(self, index: int, name: str | None, arguments: str) -> None:
        """A call, or more of one."""
        if index == len(self.calls):
            self.calls.append(("", ""))
        before = self.calls[index]
        self.calls[index] = (before[0] + (name or ""), before[1] + arguments)


@dataclass(frozen=True)
class Spoken:
    """How to ask in a dialect, and how to read what comes back."""

    path: Callable[[bool], str]
    body: Callable[..., dict[str, Any]]
    read: Callable[[bytes, bool], Told]
    finishes: tuple[str, str, str]  # of a whole answer, of one cut by length, of calls
    overloaded: int = 503


# ---------------------------------------------------------------- asking


def _functions(tools: bool) -> dict[str, Any]:
    function = {"name": "search", "description": "search", "parameters": SCHEMA}
    return {"tools": [{"type": "function", "function": function}]} if tools else {}


def _gemini(*, tools: bool = False, schema: bool = False, limit: int | None = None, **_: Any) -> dict[str, Any]:
    openapi = {
        "type": "OBJECT",
        "properties": {"answer": {"type": "STRING"}, "parts": {"type": "ARRAY", "items": {"type": "INTEGER"}}},
        "required": ["answer", "parts"],
    }
    config: dict[str, Any] = {} if limit is None else {"maxOutputTokens": limit}
    if schema:
        config |= {"responseMimeType": "application/json", "responseSchema": openapi}
    asked: dict[str, Any] = {
        "contents": [{"role": "user", "parts": [{"text": ITEM.question}]}],
        "systemInstruction": {"parts": [{"text": ITEM.passage}]},
        "generationConfig": config,
    }
    if tools:
        asked["tools"] = [{"functionDeclarations": [{"name": "search", "parameters": openapi}]}]
        asked["toolConfig"] = {"functionCallingConfig": {"mode": "ANY"}}
    return asked


def _messages() -> list[dict[str, str]]:
    return [{"role": "system", "content": ITEM.passage}, {"role": "user", "content": ITEM.question}]


def _cohere(*, is_stream: bool, tools: bool = False, schema: bool = False, limit: int | None = None) -> dict[str, Any]:
    asked: dict[str, Any] = {"model": "sim", "stream": is_stream, "messages": _messages(), **_functions(tools)}
    asked |= {"tool_choice": "REQUIRED"} if tools else {}
    asked |= {"response_format": {"type": "json_object", "json_schema": SCHEMA}} if schema else {}
    return asked | ({} if limit is None else {"max_tokens": limit})


def _mistral(*, is_stream: bool, tools: bool = False, schema: bool = False, limit: int | None = None) -> dict[str, Any]:
    asked: dict[str, Any] = {"model": "sim", "stream": is_stream, "messages": _messages(), **_functions(tools)}
    asked |= {"tool_choice": "any"} if tools else {}
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}
    asked |= {"response_format": form} if schema else {}
    return asked | ({} if limit is None else {"max_tokens": limit})


def _ollama(*, is_stream: bool, tools: bool = False, schema: bool = False, limit: int | None = None) -> dict[str, Any]:
    messages = [{"role": "user", "content": ITEM.question}] if tools else _messages()  # there is no forced call
    asked: dict[str, Any] = {"model": "sim", "messages": messages, **_functions(tools)}
    asked |= {} if is_stream else {"stream": False}
    asked |= {"format": SCHEMA} if schema else {}
    return asked | ({} if limit is None else {"options": {"num_predict": limit}})


def _bedrock(*, tools: bool = False, schema: bool = False, limit: int | None = None, **_: Any) -> dict[str, Any]:
    asked: dict[str, Any] = {
        "system": [{"text": ITEM.passage}],
        "messages": [{"role": "user", "content": [{"text": ITEM.question}]}],
    }
    if tools:
        spec = {"name": "search", "inputSchema": {"json": SCHEMA}}
        asked["toolConfig"] = {"tools": [{"toolSpec": spec}], "toolChoice": {"any": {}}}
    if schema:
        structure = {"jsonSchema": {"name": "a", "schema": json.dumps(SCHEMA)}}
        asked["outputConfig"] = {"textFormat": {"type": "json_schema", "structure": structure}}
    return asked | ({} if limit is None else {"inferenceConfig": {"maxTokens": limit}})


# ---------------------------------------------------------------- reading


def _events(raw: bytes) -> list[dict[str, Any]]:
    """The JSON of server-sent events; an end marker is left out."""
    lines = [line.removeprefix(b"data: ") for line in raw.splitlines() if line.startswith(b"data: ")]
    return [json.loads(line) for line in lines if line != b"[DONE]"]


def _read_gemini(raw: bytes, is_stream: bool) -> Told:
    return _gemini_chunks(_events(raw) if is_stream else [json.loads(raw)])


def _read_gemini_array(raw: bytes, is_stream: bool) -> Told:
    return _gemini_chunks(json.loads(raw) if is_stream else [json.loads(raw)])


def _gemini_chunks(chunks: list[dict[str, Any]]) -> Told:
    told = Told()
    for chunk in chunks:
        if "error" in chunk:
            told.error = chunk["error"]["status"]
            continue
        candidate = chunk["candidates"][0]
        for part in candidate["content"]["parts"]:
            told.text += part.get("text", "")
            if "functionCall" in part:
                told.call(len(told.calls), part["functionCall"]["name"], json.dumps(part["functionCall"]["args"]))
        told.finish = candidate.get("finishReason", told.finish)
        usage = chunk["usageMetadata"]
        if "candidatesTokenCount" in usage:
            told.tokens = (usage["promptTokenCount"], usage["candidatesTokenCount"])
    return told


def _read_cohere(raw: bytes, is_stream: bool) -> Told:
    told = Told()
    if not is_stream:
        answer = json.loads(raw)
        told.text = "".join(part["text"] for part in answer["message"].get("content", []))
        for index, call in enumerate(answer["message"].get("tool_calls", [])):
            told.call(index, call["function"]["name"], call["function"]["arguments"])
        ended = answer
    else:
        for event in _events(raw):
            message = event.get("delta", {}).get("message", {})
            if event["type"] == "content-delta":
                told.text += message["content"]["text"]
            elif event["type"].startswith("tool-call-") and message:
                function = message["tool_calls"]["function"]
                told.call(event["index"], function.get("name"), function["arguments"])
            elif event["type"] == "message-end":
                ended = event["delta"]
                told.error = ended.get("error")
    told.finish = ended["finish_reason"]
    if "usage" in ended:
        told.tokens = (ended["usage"]["tokens"]["input_tokens"], ended["usage"]["tokens"]["output_tokens"])
    return told


def _read_mistral(raw: bytes, is_stream: bool) -> Told:
    told = Told()
    for answer in _events(raw) if is_stream else [json.loads(raw)]:
        if "error" in answer:
            told.error = answer["error"]["type"]
            continue
        choice = answer["choices"][0]
        said = choice["delta" if is_stream else "message"]
        told.text += said.get("content") or ""
        for call in said.get("tool_calls") or []:
            told.call(call["index"], call["function"]["name"], call["function"]["arguments"])
        told.finish = choice["finish_reason"] or told.finish
        if "usage" in answer:
            told.tokens = (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"])
    return told


def _read_ollama(raw: bytes, is_stream: bool) -> Told:
    told = Told()
    lines = [json.loads(line) for line in raw.splitlines()]
    assert len(lines) == 1 or is_stream
    for line in lines:
        if "error" in line:
            told.error = line["error"]
            continue
        told.text += line["message"]["content"]
        for call in line["message"].get("tool_calls", []):
            told.call(len(told.calls), call["function"]["name"], json.dumps(call["function"]["arguments"]))
        if line["done"]:
            told.finish = line["done_reason"]
            told.tokens = (line["prompt_eval_count"], line["eval_count"])
    return told


def _read_bedrock(raw: bytes, is_stream: bool) -> Told:
    told = Told()
    if not is_stream:
        answer = json.loads(raw)
        for block in answer["output"]["message"]["content"]:
            told.text += block.get("text", "")
            if "toolUse" in block:
                told.call(len(told.calls), block["toolUse"]["name"], json.dumps(block["toolUse"]["input"]))
        told.finish = answer["stopReason"]
        told.tokens = (answer["usage"]["inputTokens"], answer["usage"]["outputTokens"])
        return told
    codec = EventStreamCodec(1 << 20)
    for frame in [*codec.feed(raw), *codec.close()]:
        payload = json.loads(frame.data)
        match frame.event:
            case "contentBlockDelta":
                told.text += payload["delta"].get("text", "")
                if "toolUse" in payload["delta"]:
                    told.call(len(told.calls) - 1, None, payload["delta"]["toolUse"]["input"])
            case "contentBlockStart":
                told.call(len(told.calls), payload["start"]["toolUse"]["name"], "")
            case "messageStop":
                told.finish = payload["stopReason"]
            case "metadata":
                told.tokens = (payload["usage"]["inputTokens"], payload["usage"]["outputTokens"])
            case "exception:modelStreamErrorException":
                told.error = payload["message"]
    assert codec.anomalies == []
    return told


def _gemini_path(query: str) -> Callable[[bool], str]:
    return lambda is_stream: (
        f"/v1beta/models/sim-pro:streamGenerateContent{query}"
        if is_stream
        else "/v1beta/models/sim-pro:generateContent"
    )


DIALECTS = {
    "gemini": Spoken(_gemini_path("?alt=sse"), _gemini, _read_gemini, ("STOP", "MAX_TOKENS", "STOP")),
    "gemini, as an array": Spoken(_gemini_path(""), _gemini, _read_gemini_array, ("STOP", "MAX_TOKENS", "STOP")),
    "cohere": Spoken(lambda _: "/v2/chat", _cohere, _read_cohere, ("COMPLETE", "MAX_TOKENS", "TOOL_CALL")),
    "mistral": Spoken(
        lambda _: "/mistral/v1/chat/completions", _mistral, _read_mistral, ("stop", "length", "tool_calls")
    ),
    "ollama": Spoken(lambda _: "/api/chat", _ollama, _read_ollama, ("stop", "length", "stop")),
    "bedrock": Spoken(
        lambda is_stream: f"/model/sim-opus-v1%3A0/converse{'-stream' if is_stream else ''}",
        _bedrock,
        _read_bedrock,
        ("end_turn", "max_tokens", "tool_use"),
    ),
}
every_dialect = pytest.mark.parametrize("spoken", DIALECTS.values(), ids=DIALECTS.keys())


async def post(base: str, path: str, body: Any) -> tuple[int, dict[str, str], bytes]:
    url = URL(base + path, encoded=True)  # as it is written: `%3A` stays
    async with aiohttp.ClientSession() as session, session.post(url, json=body) as response:
        return response.status, {name.lower(): value for name, value in response.headers.items()}, await response.read()


async def ask(base: str, spoken: Spoken, *, is_stream: bool, **wishes: Any) -> Told:
    status, _, raw = await post(base, spoken.path(is_stream), spoken.body(is_stream=is_stream, **wishes))
    assert status == 200, raw
    return spoken.read(raw, is_stream)


@every_dialect
async def test_an_answer_holds_what_the_passage_says_and_its_stream_says_the_same(base, spoken):
    whole = await ask(base, spoken, is_stream=False)
    assert ITEM.key in whole.text
    assert (whole.finish, whole.error, whole.calls) == (spoken.finishes[0], None, [])
    assert whole.tokens is not None
    assert min(whole.tokens) > 5
    assert await ask(base, spoken, is_stream=True) == whole


@every_dialect
async def test_a_limit_of_tokens_cuts_the_answer(base, spoken):
    for is_stream in (False, True):
        told = await ask(base, spoken, is_stream=is_stream, limit=LIMIT)
        assert (told.finish, told.tokens[1]) == (spoken.finishes[1], LIMIT)


@every_dialect
async def test_a_schema_is_followed(base, spoken):
    for is_stream in (False, True):
        document = json.loads((await ask(base, spoken, is_stream=is_stream, schema=True)).text)
        assert set(document) == {"answer", "parts"}
        assert all(isinstance(part, int) for part in document["parts"])


@every_dialect
async def test_a_tool_is_called_with_what_its_schema_asks_for(base, spoken):
    for is_stream in (False, True):
        told = await ask(base, spoken, is_stream=is_stream, tools=True)
        assert told.finish == spoken.finishes[2]
        assert {name for name, _ in told.calls} == {"search"}
        assert set(json.loads(told.calls[0][1])) == {"answer", "parts"}


@every_dialect
async def test_structured_output_is_broken_by_the_fault_of_that_name(serve, spoken):
    async with serve("invalid_json") as base:
        for is_stream in (False, True):
            told = await ask(base, spoken, is_stream=is_stream, schema=True)
            with pytest.raises(ValueError):
                json.loads(told.text)


@every_dialect
async def test_a_stream_that_began_well_ends_in_an_error(serve, spoken):
    async with serve("error_event") as base:
        told = await ask(base, spoken, is_stream=True)
        assert told.error is not None
        assert told.text
        assert told.tokens is None
        assert (await ask(base, spoken, is_stream=False)).error is None


@every_dialect
async def test_truncation_closes_the_connection_before_the_end(serve, spoken):
    async with serve(FaultSetting("truncation", mode="cut")) as base:
        for is_stream in (False, True):
            with pytest.raises(aiohttp.ClientPayloadError):
                await ask(base, spoken, is_stream=is_stream)


@every_dialect
async def test_an_overloaded_model_and_a_full_gateway_refuse_in_the_words_of_the_dialect(serve, spoken):
    for mode, status in (("model", spoken.overloaded), ("gateway", 429)):
        async with serve(FaultSetting("overload", mode=mode)) as base:
            told, headers, raw = await post(base, spoken.path(True), spoken.body(is_stream=True))
        assert told == status
        assert headers["content-type"].startswith("application/json")
        assert headers["x-ratelimit-source"] == mode
        assert "retry-after" in headers
        assert "error" in json.loads(raw) or "message" in json.loads(raw)


@every_dialect
async def test_a_stall_pauses_the_stream_and_changes_no_byte(serve, base, spoken):
    _, _, smooth = await post(base, spoken.path(True), spoken.body(is_stream=True))
    async with serve(FaultSetting("stall", seconds=1.0)) as stalling:
        assert (await post(stalling, spoken.path(True), spoken.body(is_stream=True)))[2] == smooth


@every_dialect
@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"{}", b'{"model": 1}', b'{"model": "a", "messages": [], "contents": []}']
)
async def test_what_is_no_request_is_refused(base, spoken, body):
    async with aiohttp.ClientSession() as session, session.post(base + spoken.path(False), data=body) as response:
        assert response.status == 400
        assert "message" in await response.text() or "error" in await response.text()


async def test_bedrock_names_its_refusals_in_a_header(serve, base):
    path, body = "/model/sim/converse", _bedrock()
    assert (await post(base, path, {}))[1]["x-amzn-errortype"] == "ValidationException"
    for mode, name in (("model", "ServiceUnavailableException"), ("gateway", "ThrottlingException")):
        async with serve(FaultSetting("overload", mode=mode)) as refusing:
            assert (await post(refusing, path, body))[1]["x-amzn-errortype"] == name


async def test_gemini_has_no_other_methods(base):
    status, _, raw = await post(base, "/v1beta/models/sim-pro:countTokens", _gemini())
    assert (status, json.loads(raw)["error"]["status"]) == (404, "NOT_FOUND")


async def test_another_model_is_another_answer_where_the_path_names_it(base):
    texts = [(await post(base, f"/v1/models/{name}:generateContent", _gemini()))[2] for name in ("a", "b")]
    assert json.loads(texts[0])["responseId"] != json.loads(texts[1])["responseId"]
