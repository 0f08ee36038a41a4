"""The Anthropic dialect, as the vendor's own SDK reads it."""

from __future__ import annotations

import asyncio
import json

import anthropic
import pytest
from pydantic import BaseModel

from collector.simulator import corpus, tokens
from collector.simulator.anthropic_messages import parse

ITEM = corpus.CORPUS[0]
OTHER = corpus.CORPUS[20]
ASKED = {
    "model": "sim-opus",
    "max_tokens": 500,
    "system": f"Answer from this. <document>{ITEM.passage}</document>",
    "messages": [{"role": "user", "content": ITEM.question}],
}
WEATHER = {
    "name": "weather",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
        "required": ["city", "days"],
    },
}
TIME = {"name": "local_time", "input_schema": {"type": "object", "properties": {}}}
ERRAND = {"model": "m", "max_tokens": 500, "messages": [{"role": "user", "content": "Weather and time?"}]}


class Answer(BaseModel):
    answer: str
    confidence: float


def _document(item: corpus.Item, is_cited: bool) -> dict[str, object]:
    return {
        "type": "document",
        "title": item.title,
        "source": {"type": "text", "media_type": "text/plain", "data": item.passage},
        "citations": {"enabled": is_cited},
    }


async def test_an_answer_holds_what_the_passage_says(base, anthropic_client):
    message = await anthropic_client(base).messages.create(**ASKED)
    assert ITEM.key in message.content[0].text
    assert message.stop_reason == "end_turn"
    assert message.model == "sim-opus"
    assert message.usage.output_tokens == tokens.count(message.content[0].text)
    assert message._request_id.startswith("req_")


async def test_a_stream_adds_up_to_the_whole_message(base, anthropic_client):
    client = anthropic_client(base)
    whole = await client.messages.create(**ASKED)
    async with client.messages.stream(**ASKED) as stream:
        text = "".join([piece async for piece in stream.text_stream])
        final = await stream.get_final_message()
    assert text == whole.content[0].text
    assert final.to_dict() == whole.to_dict()


async def test_raw_events_come_in_the_documented_order(base, anthropic_client):
    stream = await anthropic_client(base).messages.create(**ASKED, stream=True)
    kinds = [event.type async for event in stream]
    middle = {"content_block_delta"}
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert set(kinds[2:-3]) == middle
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]


async def test_the_synchronous_sdk_is_served_too(base):
    def ask() -> tuple[str, str]:
        with anthropic.Anthropic(base_url=base, api_key="none", max_retries=0) as client:
            whole = client.messages.create(**ASKED).content[0].text
            with client.messages.stream(**ASKED) as stream:
                return whole, "".join(stream.text_stream)

    whole, streamed = await asyncio.to_thread(ask)
    assert whole == streamed
    assert ITEM.key in whole


@pytest.mark.parametrize("is_stream", [False, True])
async def test_tools_are_used_with_fitting_input(base, anthropic_client, is_stream):
    client = anthropic_client(base)
    asked = ERRAND | {"tools": [WEATHER, TIME], "tool_choice": {"type": "any"}}
    if is_stream:
        async with client.messages.stream(**asked) as stream:
            message = await stream.get_final_message()
    else:
        message = await client.messages.create(**asked)
    assert message.stop_reason == "tool_use"
    assert [block.name for block in message.content] == ["weather", "local_time"]
    assert 1 <= message.content[0].input["days"] <= 7


async def test_a_named_tool_is_used_and_none_means_none(base, anthropic_client):
    client = anthropic_client(base)
    named = await client.messages.create(
        **ERRAND, tools=[WEATHER, TIME], tool_choice={"type": "tool", "name": "local_time"}
    )
    silent = await client.messages.create(**ERRAND, tools=[WEATHER], tool_choice={"type": "none"})
    single = await client.messages.create(
        **ERRAND, tools=[WEATHER, TIME], tool_choice={"type": "auto", "disable_parallel_tool_use": True}
    )
    assert [block.type for block in named.content] == ["tool_use"]
    assert named.content[0].name == "local_time"
    assert [block.type for block in silent.content] == ["text"]
    assert [block.type for block in single.content] == ["text", "tool_use"]


async def test_after_a_tool_result_the_answer_rests_on_it(base, anthropic_client):
    message = await anthropic_client(base).messages.create(
        model="m",
        max_tokens=500,
        tools=[WEATHER],
        messages=[
            {"role": "user", "content": ITEM.question},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "search", "input": {}}]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": ITEM.passage}]}
                ],
            },
        ],
    )
    assert ITEM.key in message.content[0].text


async def test_structured_output_is_parsed_by_the_sdk(base, anthropic_client):
    client = anthropic_client(base)
    parsed = await client.messages.parse(**ASKED, output_format=Answer)
    assert ITEM.key in parsed.parsed_output.answer


async def test_both_spellings_of_the_output_format_are_understood(base, anthropic_client):
    schema = {"type": "object", "properties": {"n": {"const": 5}}, "required": ["n"]}
    client = anthropic_client(base)
    new = await client.messages.create(**ASKED, output_config={"format": {"type": "json_schema", "schema": schema}})
    old = await client.messages.create(**ASKED, extra_body={"output_format": {"type": "json_schema", "schema": schema}})
    assert json.loads(new.content[0].text) == json.loads(old.content[0].text) == {"n": 5}


@pytest.mark.parametrize("is_stream", [False, True])
async def test_thinking_comes_before_the_text_and_is_signed(base, anthropic_client, is_stream):
    client = anthropic_client(base)
    asked = ASKED | {"max_tokens": 4000, "thinking": {"type": "adaptive"}}
    if is_stream:
        async with client.messages.stream(**asked) as stream:
            message = await stream.get_final_message()
    else:
        message = await client.messages.create(**asked)
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert message.content[0].signature
    assert ITEM.key in message.content[1].text


@pytest.mark.parametrize("is_stream", [False, True])
async def test_documents_are_cited_where_citations_are_on(base, anthropic_client, is_stream):
    client = anthropic_client(base)
    content = [_document(OTHER, True), _document(ITEM, True), {"type": "text", "text": ITEM.question}]
    asked = {"model": "m", "max_tokens": 500, "messages": [{"role": "user", "content": content}]}
    if is_stream:
        async with client.messages.stream(**asked) as stream:
            message = await stream.get_final_message()
    else:
        message = await client.messages.create(**asked)
    (citation,) = message.content[0].citations
    assert citation.cited_text == ITEM.answer_sentence
    assert citation.document_index == 1
    assert ITEM.passage[citation.start_char_index : citation.end_char_index] == ITEM.answer_sentence


async def test_documents_are_not_cited_otherwise(base, anthropic_client):
    content = [_document(ITEM, False), {"type": "text", "text": ITEM.question}]
    message = await anthropic_client(base).messages.create(
        model="m", max_tokens=500, messages=[{"role": "user", "content": content}]
    )
    assert message.content[0].citations is None
    assert ITEM.key in message.content[0].text


async def test_cached_tokens_are_outside_of_input_tokens(base, anthropic_client):
    client = anthropic_client(base)
    plain = await client.messages.create(**ASKED)
    marked = [{"type": "text", "text": ASKED["system"], "cache_control": {"type": "ephemeral"}}]
    cached = (await client.messages.create(**ASKED | {"system": marked})).usage
    of_cache = cached.cache_read_input_tokens + cached.cache_creation_input_tokens
    assert of_cache == tokens.count(ASKED["system"])
    assert cached.input_tokens + of_cache == plain.usage.input_tokens


async def test_max_tokens_and_stop_sequences_end_an_answer(base, anthropic_client):
    client = anthropic_client(base)
    short = await client.messages.create(**ASKED | {"max_tokens": 3})
    stopped = await client.messages.create(**ASKED, stop_sequences=["metres"])
    assert (short.stop_reason, short.usage.output_tokens) == ("max_tokens", 3)
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "metres")


async def test_tokens_can_be_counted_without_max_tokens(base, anthropic_client):
    client = anthropic_client(base)
    counted = await client.messages.count_tokens(model="m", system=ASKED["system"], messages=ASKED["messages"])
    message = await client.messages.create(**ASKED)
    assert counted.input_tokens == message.usage.input_tokens


async def test_models_are_listed(base, anthropic_client):
    client = anthropic_client(base)
    assert "sim-opus" in [model.id async for model in client.models.list()]
    assert (await client.models.retrieve("sim-opus")).display_name == "Sim Opus"
    with pytest.raises(anthropic.NotFoundError):
        await client.models.retrieve("nobody")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"messages": []}, "at least one message"),
        ({"max_tokens": 0}, "max_tokens: must be"),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "other"}}, "not among tools"),
        ({"output_config": {"format": {"type": "xml"}}}, "expected type json_schema"),
    ],
)
async def test_a_wrong_request_is_refused_with_its_reason(base, anthropic_client, changed, message):
    with pytest.raises(anthropic.BadRequestError, match=message):
        await anthropic_client(base).messages.create(**ASKED | changed)


def test_the_digest_does_not_depend_on_streaming():
    assert parse(json.dumps(ASKED).encode()).digest == parse(json.dumps(ASKED | {"stream": True}).encode()).digest


def test_tool_results_and_documents_are_part_of_the_prompt_but_not_the_question():
    content = [_document(ITEM, False), {"type": "tool_result", "tool_use_id": "t", "content": "42 seals"}]
    body = {
        "model": "m",
        "max_tokens": 5,
        "messages": [{"role": "user", "content": "How many?"}, {"role": "user", "content": content}],
    }
    ask = parse(json.dumps(body).encode())
    assert ask.question == "How many?"
    assert ask.tool_result == "42 seals"
    assert ITEM.passage in ask.prompt
