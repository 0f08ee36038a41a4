"""The OpenAI dialect, as the vendor's own SDK reads it."""

from __future__ import annotations

import asyncio
import json
from enum import Enum
from typing import Any

import openai
import pytest
from pydantic import BaseModel, Field

from collector.simulator import corpus, tokens
from collector.simulator.delivery import RequestError
from collector.simulator.openai_chat import parse

ITEM = corpus.CORPUS[0]
RAG = [
    {"role": "system", "content": f"Answer from this. <document>{ITEM.passage}</document>"},
    {"role": "user", "content": ITEM.question},
]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
            "required": ["city", "days"],
        },
    },
}
TIME = {"type": "function", "function": {"name": "local_time", "parameters": {"type": "object", "properties": {}}}}


class Kind(Enum):
    LOCK = "lock"
    CRANE = "crane"


class Part(BaseModel):
    name: str
    metres: float = Field(ge=0, le=500)


class Structure(BaseModel):
    answer: str
    kind: Kind
    parts: list[Part]
    note: str | None


async def _gathered(stream: Any) -> list[Any]:
    return [chunk async for chunk in stream]


async def test_an_answer_holds_what_the_passage_says(base, openai_client):
    completion = await openai_client(base).chat.completions.create(model="sim-large", messages=RAG)
    assert ITEM.key in completion.choices[0].message.content
    assert completion.choices[0].finish_reason == "stop"
    assert completion.model == "sim-large"
    assert completion.usage.completion_tokens == tokens.count(completion.choices[0].message.content)
    assert completion.usage.total_tokens == completion.usage.prompt_tokens + completion.usage.completion_tokens
    assert completion._request_id.startswith("req_")


async def test_a_stream_says_the_same_as_the_whole_answer(base, openai_client):
    client = openai_client(base)
    whole = await client.chat.completions.create(model="sim-large", messages=RAG)
    chunks = await _gathered(
        await client.chat.completions.create(
            model="sim-large", messages=RAG, stream=True, stream_options={"include_usage": True}
        )
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices == []
    assert chunks[-1].usage == whole.usage
    assert {chunk.id for chunk in chunks} == {whole.id}


async def test_usage_is_streamed_only_where_it_was_asked_for(base, openai_client):
    chunks = await _gathered(await openai_client(base).chat.completions.create(model="m", messages=RAG, stream=True))
    assert all(chunk.usage is None for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason == "stop"


async def test_the_synchronous_sdk_is_served_too(base):
    def ask() -> tuple[str, str]:
        with openai.OpenAI(base_url=f"{base}/v1", api_key="none", max_retries=0) as client:
            whole = client.chat.completions.create(model="m", messages=RAG).choices[0].message.content
            stream = client.chat.completions.create(model="m", messages=RAG, stream=True)
            return whole, "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)

    whole, streamed = await asyncio.to_thread(ask)
    assert whole == streamed
    assert ITEM.key in whole


async def test_several_choices_advance_together_and_differ(base, openai_client):
    client = openai_client(base)
    messages = [{"role": "user", "content": "Tell me something about gardens."}]
    whole = await client.chat.completions.create(model="m", messages=messages, n=3)
    assert [choice.index for choice in whole.choices] == [0, 1, 2]
    texts = ["", "", ""]
    for chunk in await _gathered(await client.chat.completions.create(model="m", messages=messages, n=3, stream=True)):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == [choice.message.content for choice in whole.choices]
    assert len(set(texts)) > 1


async def test_a_required_tool_is_called_with_fitting_arguments(base, openai_client):
    completion = await openai_client(base).chat.completions.create(
        model="m",
        messages=[{"role": "user", "content": "Weather in Calder?"}],
        tools=[WEATHER],
        tool_choice="required",
    )
    (call,) = completion.choices[0].message.tool_calls
    arguments = json.loads(call.function.arguments)
    assert completion.choices[0].finish_reason == "tool_calls"
    assert completion.choices[0].message.content is None
    assert call.function.name == "weather"
    assert 1 <= arguments["days"] <= 7


async def test_two_tools_are_called_at_once_unless_that_was_forbidden(base, openai_client):
    client = openai_client(base)
    asked = {"model": "m", "messages": [{"role": "user", "content": "Weather and time?"}], "tools": [WEATHER, TIME]}
    both = await client.chat.completions.create(**asked)
    one = await client.chat.completions.create(**asked, parallel_tool_calls=False)
    assert [call.function.name for call in both.choices[0].message.tool_calls] == ["weather", "local_time"]
    assert len(one.choices[0].message.tool_calls) == 1


async def test_a_named_tool_is_called_and_none_means_none(base, openai_client):
    client = openai_client(base)
    asked = {"model": "m", "messages": [{"role": "user", "content": "Weather?"}], "tools": [WEATHER, TIME]}
    named = await client.chat.completions.create(
        **asked, tool_choice={"type": "function", "function": {"name": "local_time"}}
    )
    silent = await client.chat.completions.create(**asked, tool_choice="none")
    assert [call.function.name for call in named.choices[0].message.tool_calls] == ["local_time"]
    assert silent.choices[0].message.tool_calls is None
    assert silent.choices[0].message.content


async def test_streamed_tool_calls_add_up_to_the_whole_ones(base, openai_client):
    client = openai_client(base)
    asked = {"model": "m", "messages": [{"role": "user", "content": "Weather and time?"}], "tools": [WEATHER, TIME]}
    whole = (await client.chat.completions.create(**asked)).choices[0].message.tool_calls
    names, arguments = ["", ""], ["", ""]
    async with client.chat.completions.stream(**asked) as stream:
        async for event in stream:
            if event.type == "chunk" and event.chunk.choices:
                for call in event.chunk.choices[0].delta.tool_calls or []:
                    names[call.index] += call.function.name or ""
                    arguments[call.index] += call.function.arguments or ""
    assert names == [call.function.name for call in whole]
    assert arguments == [call.function.arguments for call in whole]


async def test_after_a_tool_result_the_answer_rests_on_it(base, openai_client):
    completion = await openai_client(base).chat.completions.create(
        model="m",
        messages=[
            {"role": "user", "content": ITEM.question},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "search", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": json.dumps([{"text": ITEM.passage}])},
        ],
        tools=[WEATHER],
    )
    assert ITEM.key in completion.choices[0].message.content


async def test_the_sdk_parses_structured_output_into_a_model(base, openai_client):
    completion = await openai_client(base).chat.completions.parse(model="m", messages=RAG, response_format=Structure)
    parsed = completion.choices[0].message.parsed
    assert isinstance(parsed, Structure)
    assert ITEM.key in parsed.answer


async def test_the_sdk_parses_a_structured_stream(base, openai_client):
    client = openai_client(base)
    whole = await client.chat.completions.parse(model="m", messages=RAG, response_format=Structure)
    async with client.chat.completions.stream(model="m", messages=RAG, response_format=Structure) as stream:
        final = await stream.get_final_completion()
    assert final.choices[0].message.parsed == whole.choices[0].message.parsed


async def test_a_plain_json_object_is_json(base, openai_client):
    completion = await openai_client(base).chat.completions.create(
        model="m", messages=RAG, response_format={"type": "json_object"}
    )
    assert isinstance(json.loads(completion.choices[0].message.content), dict)


async def test_a_reasoning_model_thinks_first(base, openai_client):
    client = openai_client(base)
    whole = await client.chat.completions.create(model="sim-reasoner", messages=RAG)
    thought = whole.choices[0].message.reasoning_content
    deltas = [
        chunk.choices[0].delta
        for chunk in await _gathered(
            await client.chat.completions.create(model="sim-reasoner", messages=RAG, stream=True)
        )
        if chunk.choices
    ]
    assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == thought
    assert whole.usage.completion_tokens_details.reasoning_tokens == tokens.count(thought)


async def test_max_tokens_cuts_and_says_so(base, openai_client):
    completion = await openai_client(base).chat.completions.create(model="m", messages=RAG, max_completion_tokens=3)
    assert completion.choices[0].finish_reason == "length"
    assert completion.usage.completion_tokens == 3


async def test_a_stop_word_ends_the_answer_before_it(base, openai_client):
    completion = await openai_client(base).chat.completions.create(model="m", messages=RAG, stop=["metres"])
    assert "metres" not in completion.choices[0].message.content
    assert completion.choices[0].finish_reason == "stop"


async def test_models_and_embeddings_are_listed_and_made(base, openai_client):
    client = openai_client(base)
    listed = [model.id async for model in client.models.list()]
    found = await client.embeddings.create(model="sim-embedding", input=["a sea lock", "the sea lock"])
    short = await client.embeddings.create(model="sim-embedding", input="a sea lock", dimensions=16)
    assert "sim-large" in listed
    assert (await client.models.retrieve("sim-large")).id == "sim-large"
    assert [len(row.embedding) for row in found.data] == [256, 256]
    assert len(short.data[0].embedding) == 16


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"messages": []}, "messages must not be empty"),
        ({"messages": RAG, "n": 99}, "n must be from 1 to 16"),
        ({"messages": RAG, "max_tokens": 0}, "max_tokens must be at least 1"),
        ({"messages": RAG, "tool_choice": "sometimes"}, "tool_choice must be"),
        ({"messages": RAG, "response_format": {"type": "json_schema"}}, "json_schema.schema is missing"),
        ({"messages": "hello"}, r"\$\.messages"),
    ],
)
async def test_a_wrong_request_is_refused_with_its_reason(base, openai_client, asked, message):
    with pytest.raises(openai.BadRequestError, match=message):
        await openai_client(base).chat.completions.create(model="m", **asked)


def test_the_digest_depends_neither_on_streaming_nor_on_the_order_of_keys():
    one = parse(json.dumps({"model": "m", "messages": RAG}).encode())
    other = parse(json.dumps({"stream": True, "messages": RAG, "model": "m", "stream_options": {}}).encode())
    third = parse(json.dumps({"model": "m2", "messages": RAG}).encode())
    assert one.digest == other.digest != third.digest


def test_a_deeply_nested_body_is_refused_and_not_followed():
    with pytest.raises(RequestError):
        parse(b'{"model":"m","messages":[],"x":' + b"[" * 100_000)
