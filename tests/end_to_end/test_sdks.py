"""The vendors' own SDKs get the same objects with and without the sidecar, and its records agree with them."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import anthropic
import openai
import pytest
from pydantic import BaseModel

from .conftest import Sidecar, Simulator


class Boat(BaseModel):
    """What structured output is asked for."""

    name: str
    crew: int
    is_afloat: bool


def _object(**properties: object) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


WEATHER = _object(city={"type": "string"}, days={"type": "integer", "minimum": 1})
BERTH = _object(vessel={"type": "string"}, services={"type": "array", "items": {"enum": ["water", "power"]}})

OPENAI_TOOLS = [
    {"type": "function", "function": {"name": name, "description": name, "parameters": schema}}
    for name, schema in (("weather", WEATHER), ("book_berth", BERTH))
]
ANTHROPIC_TOOLS = [
    {"name": name, "description": name, "input_schema": schema}
    for name, schema in (("weather", WEATHER), ("book_berth", BERTH))
]
ERRAND = "Book a berth for the Morwenna and tell me the weather in Velmar for two days."

# What a create call is asked, by what the answer has in it.
OPENAI: dict[str, dict[str, Any]] = {
    "a plain answer": {
        "model": "sim-large",
        "messages": [{"role": "user", "content": "Explain what a token bucket is to a ten-year-old. 🪣"}],
    },
    "two choices": {
        "model": "sim-small",
        "n": 2,
        "messages": [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": "How do I start learning to sail?"},
        ],
    },
    "reasoning": {"model": "sim-reasoner", "messages": [{"role": "user", "content": "怎样养成早起的习惯？"}]},
    "tool calls": {
        "model": "sim-large",
        "messages": [{"role": "user", "content": ERRAND}],
        "tools": OPENAI_TOOLS,
        "tool_choice": "required",
    },
    "a schema": {
        "model": "sim-large",
        "messages": [{"role": "user", "content": "Describe a boat."}],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "boat", "strict": True, "schema": _object(name={"type": "string"})},
        },
    },
    "a cut by length": {
        "model": "sim-large",
        "max_tokens": 5,
        "messages": [{"role": "user", "content": "Give me three ideas for a rainy afternoon."}],
    },
}
ANTHROPIC: dict[str, dict[str, Any]] = {
    "a plain answer": {
        "model": "sim-opus",
        "max_tokens": 500,
        "system": "You are a helpful assistant.",
        "messages": [{"role": "user", "content": "Explain what a token bucket is to a ten-year-old. 🪣"}],
    },
    "thinking": {
        "model": "sim-opus",
        "max_tokens": 2000,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "messages": [{"role": "user", "content": "怎样养成早起的习惯？"}],
    },
    "tool calls": {
        "model": "sim-haiku",
        "max_tokens": 1000,
        "messages": [{"role": "user", "content": ERRAND}],
        "tools": ANTHROPIC_TOOLS,
        "tool_choice": {"type": "any"},
    },
    "a schema": {
        "model": "sim-opus",
        "max_tokens": 1000,
        "messages": [{"role": "user", "content": "Describe a boat."}],
        "output_config": {"format": {"type": "json_schema", "schema": _object(name={"type": "string"})}},
    },
    "a cut by length": {
        "model": "sim-opus",
        "max_tokens": 5,
        "messages": [{"role": "user", "content": "Give me three ideas for a rainy afternoon."}],
    },
}


def openai_client(base: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{base}/v1", api_key="sk-test", max_retries=0, timeout=30)


def anthropic_client(base: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=base, api_key="sk-test", max_retries=0, timeout=30)


@pytest.fixture
async def async_openai(simulator: Simulator, sidecar: Sidecar) -> AsyncIterator[tuple[openai.AsyncOpenAI, ...]]:
    """Without and with the sidecar."""
    clients = tuple(
        openai.AsyncOpenAI(base_url=f"{each.base}/v1", api_key="sk-test", max_retries=0, timeout=30)
        for each in (simulator, sidecar)
    )
    yield clients
    for client in clients:
        await client.close()


@pytest.fixture
async def async_anthropic(
    simulator: Simulator, sidecar: Sidecar
) -> AsyncIterator[tuple[anthropic.AsyncAnthropic, ...]]:
    """Without and with the sidecar."""
    clients = tuple(
        anthropic.AsyncAnthropic(base_url=each.base, api_key="sk-test", max_retries=0, timeout=30)
        for each in (simulator, sidecar)
    )
    yield clients
    for client in clients:
        await client.close()


@pytest.fixture
def identity() -> dict[str, dict[str, str]]:
    """A request id of the test's own, by which the record is found."""
    return {"extra_headers": {"X-Client-Request-Id": f"test-{uuid.uuid4().hex}"}}


def the_id(identity: dict[str, dict[str, str]]) -> str:
    return identity["extra_headers"]["X-Client-Request-Id"]


def plain(answer: BaseModel) -> tuple[str, dict[str, Any]]:
    """An SDK object as its type and fields; the simulator repeats all of them but the time of creation."""
    fields = answer.model_dump(mode="json", warnings=False)
    if "created" in fields:
        fields["created"] = 0
    for nested in ("chunk", "snapshot"):
        if isinstance(fields.get(nested), dict) and "created" in fields[nested]:
            fields[nested]["created"] = 0
    return type(answer).__name__, fields


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def text_hash(text: str) -> str | None:
    """As a record has it: null where there is no text."""
    return sha256(text) if text else None


def agrees_with_openai(record: dict[str, Any], whole: openai.types.chat.ChatCompletion) -> None:
    """The record says of a completed exchange what the SDK's object says."""
    assert record["dialect"] == "openai.chat"
    assert record["outcome"] == ("incomplete" if whole.choices[0].finish_reason == "length" else "completed")
    assert record["status"] == 200
    assert record["response_model"] == whole.model
    assert record["finish_reasons"] == [choice.finish_reason for choice in whole.choices]
    texts = [choice.message.content or "" for choice in whole.choices]
    assert record["text"]["sha256"] == text_hash("".join(texts))
    assert [choice["chars"] for choice in record["text"]["choices"]] == [len(text) for text in texts]
    usage = whole.usage
    assert usage is not None
    assert record["usage"]["input_tokens"] == usage.prompt_tokens
    assert record["usage"]["output_tokens"] == usage.completion_tokens
    calls = [call for choice in whole.choices for call in choice.message.tool_calls or []]
    assert [call["name"] for call in record["tool_calls"]] == [call.function.name for call in calls]
    assert [c["arguments_sha256"] for c in record["tool_calls"]] == [sha256(c.function.arguments) for c in calls]


def agrees_with_anthropic(record: dict[str, Any], whole: anthropic.types.Message) -> None:
    assert record["dialect"] == "anthropic.messages"
    assert record["outcome"] == ("incomplete" if whole.stop_reason == "max_tokens" else "completed")
    assert record["status"] == 200
    assert record["response_model"] == whole.model
    assert record["finish_reasons"] == [whole.stop_reason]
    text = "".join(block.text for block in whole.content if block.type == "text")
    assert (record["text"]["sha256"], record["text"]["chars"]) == (text_hash(text), len(text))
    usage = whole.usage
    cached = (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
    assert record["usage"]["input_tokens"] == usage.input_tokens + cached
    assert record["usage"]["output_tokens"] == usage.output_tokens
    calls = [block.name for block in whole.content if block.type == "tool_use"]
    assert [call["name"] for call in record["tool_calls"]] == calls


# ---------------------------------------------------------------- OpenAI


@pytest.mark.parametrize("asked", OPENAI.values(), ids=OPENAI.keys())
def test_openai_objects_are_the_same_with_the_sidecar_between(
    asked: dict[str, Any], simulator: Simulator, sidecar: Sidecar, identity: dict[str, Any]
) -> None:
    without = openai_client(simulator.base).chat.completions.create(**asked)
    between = openai_client(sidecar.base).chat.completions.create(**asked, **identity)
    assert plain(between) == plain(without)
    record = sidecar.record_of(the_id(identity))
    assert (record["transport"], record["stream"]) == ("json", False)
    agrees_with_openai(record, without)


@pytest.mark.parametrize("asked", OPENAI.values(), ids=OPENAI.keys())
def test_openai_streams_are_the_same_chunk_by_chunk(
    asked: dict[str, Any], simulator: Simulator, sidecar: Sidecar, identity: dict[str, Any]
) -> None:
    streamed = {**asked, "stream": True, "stream_options": {"include_usage": True}}
    without = [plain(chunk) for chunk in openai_client(simulator.base).chat.completions.create(**streamed)]
    between = [plain(chunk) for chunk in openai_client(sidecar.base).chat.completions.create(**streamed, **identity)]
    assert between == without
    assert len(without) > 3
    record = sidecar.record_of(the_id(identity))
    assert (record["transport"], record["stream"]) == ("sse", True)
    assert record["frames"]["data"] == len(without)
    assert record["frames"]["done_marker"]
    agrees_with_openai(record, openai_client(simulator.base).chat.completions.create(**asked))


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "streamed"])
async def test_openai_objects_are_the_same_with_the_asynchronous_client(
    is_stream: bool, async_openai: tuple[openai.AsyncOpenAI, ...], sidecar: Sidecar, identity: dict[str, Any]
) -> None:
    asked = OPENAI["tool calls"]
    got = []
    for client in async_openai:
        answer = await client.chat.completions.create(**asked, **identity, stream=is_stream)
        got.append([plain(chunk) async for chunk in answer] if is_stream else [plain(answer)])
    assert got[0] == got[1]
    record = sidecar.record_of(the_id(identity))
    assert record["outcome"] == "completed"
    assert record["tool_calls"] != []


@pytest.mark.parametrize("ask", ["parse", "stream"])
def test_openai_parses_structured_output_to_the_same_model(
    ask: str, simulator: Simulator, sidecar: Sidecar, identity: dict[str, Any]
) -> None:
    asked: dict[str, Any] = {
        "model": "sim-large",
        "messages": [{"role": "user", "content": "Describe a boat of the harbour."}],
        "response_format": Boat,
    }

    def parsed(client: openai.OpenAI) -> tuple[Any, Any]:
        if ask == "parse":
            answer = client.chat.completions.parse(**asked, **identity)
            return [], answer
        with client.chat.completions.stream(**asked, **identity) as stream:
            events = [event.type for event in stream]
            return events, stream.get_final_completion()

    events, without = parsed(openai_client(simulator.base))
    same_events, between = parsed(openai_client(sidecar.base))
    assert plain(between) == plain(without)
    assert same_events == events
    assert isinstance(between.choices[0].message.parsed, Boat)
    assert between.choices[0].message.parsed == without.choices[0].message.parsed
    record = sidecar.record_of(the_id(identity))
    assert record["validity"]["result"] == "valid"
    assert record["validity"]["kind"] == "json_schema"
    assert record["text"]["sha256"] == sha256(without.choices[0].message.content)


def test_tool_calls_are_judged_against_the_schema_of_their_tool(sidecar: Sidecar, identity: dict[str, Any]) -> None:
    answer = openai_client(sidecar.base).chat.completions.create(**OPENAI["tool calls"], **identity)
    record = sidecar.record_of(the_id(identity))
    judged = record["validity"]["judgements"]
    assert len(judged) == len(answer.choices[0].message.tool_calls or [])
    assert {(each["kind"], each["result"]) for each in judged} == {("tool_arguments", "valid")}


def test_openai_headers_reach_the_sdk_untouched(simulator: Simulator, sidecar: Sidecar) -> None:
    asked = OPENAI["a plain answer"]
    answers = [
        openai_client(each.base).chat.completions.with_raw_response.create(**asked) for each in (simulator, sidecar)
    ]
    without, between = ({name.lower() for name in answer.headers} for answer in answers)
    assert between == without
    for name in ("x-ratelimit-limit-requests", "openai-organization", "content-type", "server", "x-cache-hit"):
        assert answers[1].headers[name] == answers[0].headers[name]
    assert answers[1].request_id != answers[0].request_id  # the upstream's own id, of another request
    assert str(answers[1].request_id).startswith("req_")


def test_other_endpoints_of_openai_pass_too(simulator: Simulator, sidecar: Sidecar) -> None:
    clients = [openai_client(each.base) for each in (simulator, sidecar)]
    without, between = (
        [
            plain(client.embeddings.create(model="sim-embedding", input=["one", "二"], encoding_format="base64")),
            plain(client.models.retrieve("sim-large")),
            [plain(model) for model in client.models.list()],
        ]
        for client in clients
    )
    assert between == without


# ---------------------------------------------------------------- Anthropic


@pytest.mark.parametrize("asked", ANTHROPIC.values(), ids=ANTHROPIC.keys())
def test_anthropic_objects_are_the_same_with_the_sidecar_between(
    asked: dict[str, Any], simulator: Simulator, sidecar: Sidecar, identity: dict[str, Any]
) -> None:
    without = anthropic_client(simulator.base).messages.create(**asked)
    between = anthropic_client(sidecar.base).messages.create(**asked, **identity)
    assert plain(between) == plain(without)
    record = sidecar.record_of(the_id(identity))
    assert (record["transport"], record["stream"]) == ("json", False)
    agrees_with_anthropic(record, without)


@pytest.mark.parametrize("asked", ANTHROPIC.values(), ids=ANTHROPIC.keys())
def test_anthropic_streams_are_the_same_event_by_event(
    asked: dict[str, Any], simulator: Simulator, sidecar: Sidecar, identity: dict[str, Any]
) -> None:
    streamed = {**asked, "stream": True}
    without = [plain(event) for event in anthropic_client(simulator.base).messages.create(**streamed)]
    between = [plain(event) for event in anthropic_client(sidecar.base).messages.create(**streamed, **identity)]
    assert between == without
    assert without[-1][0] == "RawMessageStopEvent"
    record = sidecar.record_of(the_id(identity))
    assert (record["transport"], record["stream"]) == ("sse", True)
    agrees_with_anthropic(record, anthropic_client(simulator.base).messages.create(**asked))


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "streamed"])
async def test_anthropic_objects_are_the_same_with_the_asynchronous_client(
    is_stream: bool, async_anthropic: tuple[anthropic.AsyncAnthropic, ...], sidecar: Sidecar, identity: dict[str, Any]
) -> None:
    asked = ANTHROPIC["tool calls"]
    got = []
    for client in async_anthropic:
        if is_stream:
            async with client.messages.stream(**asked, **identity) as stream:
                events = [event.type async for event in stream]
                got.append((events, plain(await stream.get_final_message())))
        else:
            got.append(([], plain(await client.messages.create(**asked, **identity))))
    assert got[0] == got[1]
    record = sidecar.record_of(the_id(identity))
    assert record["outcome"] == "completed"
    assert record["tool_calls"] != []


def test_anthropic_parses_structured_output_to_the_same_model(
    simulator: Simulator, sidecar: Sidecar, identity: dict[str, Any]
) -> None:
    asked: dict[str, Any] = {
        "model": "sim-opus",
        "max_tokens": 500,
        "messages": [{"role": "user", "content": "Describe a boat of the harbour."}],
        "output_format": Boat,
    }
    without = anthropic_client(simulator.base).messages.parse(**asked)
    between = anthropic_client(sidecar.base).messages.parse(**asked, **identity)
    assert plain(between) == plain(without)
    assert isinstance(between.parsed_output, Boat)
    record = sidecar.record_of(the_id(identity))
    assert record["validity"]["result"] == "valid"
    assert record["validity"]["kind"] == "json_schema"


def test_anthropic_counts_tokens_through_the_sidecar(simulator: Simulator, sidecar: Sidecar) -> None:
    asked = {"model": "sim-opus", "messages": [{"role": "user", "content": "How long is this?"}]}
    without, between = (anthropic_client(each.base).messages.count_tokens(**asked) for each in (simulator, sidecar))
    assert plain(between) == plain(without)


# ---------------------------------------------------------------- errors


def _openai_error(base: str, identity: dict[str, Any], **more: Any) -> openai.APIError:
    with pytest.raises(openai.APIError) as caught:
        for _ in openai_client(base).chat.completions.create(
            **OPENAI["a plain answer"] | more, stream=True, **identity
        ):
            pass
    return caught.value


def _anthropic_error(base: str, identity: dict[str, Any], **more: Any) -> anthropic.APIError:
    with pytest.raises(anthropic.APIError) as caught:
        for _ in anthropic_client(base).messages.create(**ANTHROPIC["a plain answer"] | more, stream=True, **identity):
            pass
    return caught.value


ERRORS: dict[str, tuple[Callable[..., Any], dict[str, Any], type[Exception], int | None, dict[str, Any]]] = {
    "OpenAI's overload": (
        _openai_error,
        {"overload": {"share": 1, "mode": "model"}},
        openai.RateLimitError,
        429,
        {"outcome": "upstream_error", "type": "engine_overloaded_error", "kind": "overloaded", "mid_stream": False},
    ),
    "OpenAI's rate limit": (
        _openai_error,
        {"overload": {"share": 1, "mode": "gateway"}},
        openai.RateLimitError,
        429,
        {"outcome": "upstream_error", "code": "rate_limit_exceeded", "kind": "rate_limited", "limiter": "gateway"},
    ),
    "OpenAI's error in a stream": (
        _openai_error,
        {"error_event": 1},
        openai.APIError,
        None,
        {"outcome": "error_event", "type": "server_error", "kind": "server_error", "mid_stream": True},
    ),
    "Anthropic's overload": (
        _anthropic_error,
        {"overload": {"share": 1, "mode": "model"}},
        anthropic.InternalServerError,
        529,
        {"outcome": "upstream_error", "type": "overloaded_error", "kind": "overloaded", "mid_stream": False},
    ),
    "Anthropic's rate limit": (
        _anthropic_error,
        {"overload": {"share": 1, "mode": "gateway"}},
        anthropic.RateLimitError,
        429,
        {"outcome": "upstream_error", "type": "rate_limit_error", "kind": "rate_limited", "limiter": "gateway"},
    ),
    "Anthropic's error in a stream": (
        _anthropic_error,
        {"error_event": 1},
        anthropic.APIStatusError,
        200,
        {"outcome": "error_event", "type": "overloaded_error", "kind": "overloaded", "mid_stream": True},
    ),
}


@pytest.mark.parametrize("named", ERRORS)
def test_the_sdk_raises_the_same_error(
    named: str, faults: Simulator, sidecar: Sidecar, identity: dict[str, Any]
) -> None:
    raises, switched, class_, status, fact = ERRORS[named]
    faults.switch(**switched)
    without = raises(faults.base, identity)
    between = raises(sidecar.base, identity)
    assert type(between) is type(without)
    assert isinstance(between, class_)
    assert getattr(between, "status_code", None) == status
    record = sidecar.record_of(the_id(identity))
    assert record["outcome"] == fact["outcome"]
    assert {name: record["error"][name] for name in fact if name != "outcome"} | {"outcome": fact["outcome"]} == fact
    assert record["error"]["source"] == "upstream"


def test_a_request_that_the_api_refuses_is_refused_alike(
    simulator: Simulator, sidecar: Sidecar, identity: dict[str, Any]
) -> None:
    raised = []
    for each in (simulator, sidecar):
        with pytest.raises(openai.BadRequestError) as caught:
            openai_client(each.base).chat.completions.create(model="sim-large", messages=[], **identity)
        raised.append(caught.value)
    assert raised[0].body == raised[1].body
    assert raised[0].message == raised[1].message
    record = sidecar.record_of(the_id(identity))
    assert (record["status"], record["outcome"], record["error"]["kind"]) == (400, "upstream_error", "invalid_request")


def test_an_unreachable_api_is_an_internal_server_error_that_names_the_sidecar(
    start: Callable[..., Sidecar], free_port: int
) -> None:
    sidecar = start("--upstream", f"http://127.0.0.1:{free_port}")
    with pytest.raises(openai.InternalServerError) as caught:
        openai_client(sidecar.base).chat.completions.create(**OPENAI["a plain answer"])
    assert caught.value.status_code == 502
    assert "semhealth" in str(caught.value.body)
