"""What each provider's request asks for, as its documentation writes it, and what an answer to it is judged by."""

from __future__ import annotations

import json
from typing import Any

import pytest

from collector.app import DIALECTS
from collector.dialects.structured import matching, one_of
from collector.measures.validity import tasks
from collector.model import Expectation, Headers, RequestFacts, RequestHead, ResponseHead
from collector.validation.judge import judge

from .wires import exchange

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
GOOGLE = {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}, "required": ["a"], "propertyOrdering": ["a"]}
TEXT = json.dumps(SCHEMA)
CHAT = "/v1/chat/completions"
GEMINI = "/v1beta/models/gemini-2.5-flash:generateContent"
NAMED = {"name": "n", "schema": SCHEMA, "strict": True}
BARE = Expectation("json_schema", TEXT.encode())
WITH_NAME = Expectation("json_schema", TEXT.encode(), "n")
JSON = Expectation("json")
CLAUDE = {"anthropic_version": "bedrock-2023-05-31", "messages": []}


def facts(path: str, body: dict[str, Any], host: str = "api.example.test", hint: str | None = None) -> RequestFacts:
    """What the dialect that speaks this path reads."""
    head = RequestHead("POST", path, host, Headers(), hint)
    answer = ResponseHead(200, Headers((("content-type", "application/json"), ("x-compute-type", "1-gpu"))))
    dialect = next(each for each in DIALECTS if each.speaks(head, answer))
    return dialect.request_facts(json.dumps(body).encode())


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        # OpenAI and those who speak like it: Azure, Mistral, Groq, xAI, Cerebras, OpenRouter, DeepSeek.
        (CHAT, {"response_format": {"type": "json_object"}}, JSON),
        (CHAT, {"response_format": {"type": "json_schema", "json_schema": NAMED}}, WITH_NAME),
        (CHAT, {"response_format": {"type": "text"}}, None),
        ("/openai/deployments/d/chat/completions", {"response_format": {"type": "json_schema", "json_schema": NAMED}},
         WITH_NAME),
        ("/v1/responses", {"text": {"format": {"type": "json_schema", **NAMED}}}, WITH_NAME),
        ("/v1/responses", {"text": {"format": {"type": "json_object"}}}, JSON),
        ("/v1/responses", {"text": {"format": {"type": "text"}}}, None),
        ("/v1/responses", {"text": {"verbosity": "low"}}, None),
        # Together, Fireworks and llama.cpp: the schema stands beside the type.
        (CHAT, {"response_format": {"type": "json_object", "schema": SCHEMA}}, BARE),
        (CHAT, {"response_format": {"type": "grammar", "grammar": "root ::= [a]"}}, None),
        (CHAT, {"json_schema": SCHEMA}, BARE),
        # Perplexity.
        (CHAT, {"response_format": {"type": "regex", "regex": {"regex": "[0-9]+"}}}, matching("[0-9]+")),
        # Text Generation Inference.
        (CHAT, {"response_format": {"type": "json", "value": SCHEMA}}, BARE),
        (CHAT, {"response_format": {"type": "json_object", "value": SCHEMA}}, BARE),
        (CHAT, {"response_format": {"type": "regex", "value": "a+"}}, matching("a+")),
        ("/generate", {"inputs": "q", "parameters": {"grammar": {"type": "json", "value": SCHEMA}}}, BARE),
        # vLLM, before and since version 0.12; watsonx's chat has the first names.
        *[
            (path, {word: {inner: value} if inner else value}, expected)
            for path in (CHAT, "/v1/completions", "/ml/v1/text/chat")
            for word, inner, value, expected in [
                ("guided_json", "", SCHEMA, BARE),
                ("guided_json", "", TEXT, BARE),
                ("guided_choice", "", ["yes", "no"], one_of(["yes", "no"])),
                ("guided_regex", "", "a|b", matching("a|b")),
                ("guided_grammar", "", "root ::= [a]", None),
                ("structured_outputs", "json", SCHEMA, BARE),
                ("structured_outputs", "json", TEXT, BARE),
                ("structured_outputs", "choice", ["yes", "no"], one_of(["yes", "no"])),
                ("structured_outputs", "regex", "a|b", matching("a|b")),
                ("structured_outputs", "json_object", True, JSON),
                ("structured_outputs", "json_object", False, None),
                ("structured_outputs", "grammar", "root ::= [a]", None),
            ]
        ],
        # Anthropic, now and in its beta, and the same on Bedrock.
        ("/v1/messages", {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}, BARE),
        ("/v1/messages", {"output_format": {"type": "json_schema", "schema": SCHEMA}}, BARE),
        ("/v1/messages", {"output_config": {"effort": "low"}}, None),
        ("/model/anthropic.claude/invoke",
         {**CLAUDE, "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}, BARE),
        ("/model/qwen.qwen3/invoke",
         {"messages": [], "response_format": {"type": "json_schema", "json_schema": NAMED}}, WITH_NAME),
        ("/model/m/converse",
         {"outputConfig": {"textFormat": {"type": "json_schema", "structure": {
             "jsonSchema": {"schema": TEXT, "name": "n", "description": "d"}}}}}, WITH_NAME),
        # Gemini.
        (GEMINI, {"generationConfig": {"responseMimeType": "application/json"}}, JSON),
        (GEMINI, {"generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA}}, BARE),
        (GEMINI, {"generation_config": {"response_mime_type": "application/json", "response_json_schema": SCHEMA}},
         BARE),
        (GEMINI, {"generationConfig": {"responseMimeType": "text/x.enum",
                                       "responseSchema": {"type": "STRING", "enum": ["a", "b"]}}},
         Expectation("json_schema", b'{"type":"string","enum":["a","b"]}', is_text=True)),
        ("/v1beta/interactions", {"input": "q", "response_format": SCHEMA}, BARE),
        # Ollama, in both of its APIs.
        ("/api/chat", {"format": "json"}, JSON),
        ("/api/chat", {"format": SCHEMA}, BARE),
        ("/api/generate", {"format": SCHEMA}, BARE),
        ("/api/generate", {"format": ""}, None),
        # Cohere.
        ("/v2/chat", {"response_format": {"type": "json_object", "json_schema": SCHEMA}}, BARE),
        ("/v2/chat", {"response_format": {"type": "json_object", "schema": SCHEMA}}, BARE),
        ("/v2/chat", {"response_format": {"type": "json_object"}}, JSON),
        ("/v2/chat", {"response_format": {"type": "text"}}, None),
    ],
)  # fmt: skip
def test_the_request_says_what_is_expected(path: str, body: dict[str, Any], expected: Expectation | None) -> None:
    assert facts(path, body).expectation == expected


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"tools": [{"type": "function", "function": {"name": "f", "strict": True, "parameters": SCHEMA}}]}),
        (CHAT, {"functions": [{"name": "f", "parameters": SCHEMA}]}),
        ("/v1/responses", {"tools": [{"type": "function", "name": "f", "strict": True, "parameters": SCHEMA},
                                     {"type": "custom", "name": "c"}, {"type": "web_search"}]}),
        ("/v1/messages", {"tools": [{"name": "f", "input_schema": SCHEMA, "strict": True},
                                    {"type": "bash_20250124", "name": "bash"}]}),
        ("/model/anthropic.claude/invoke", {**CLAUDE, "tools": [{"name": "f", "input_schema": SCHEMA}]}),
        ("/model/m/converse", {"toolConfig": {"tools": [
            {"toolSpec": {"name": "f", "inputSchema": {"json": SCHEMA}, "strict": True}}, {"cachePoint": {}}]}}),
        ("/model/amazon.nova/invoke", {"schemaVersion": "messages-v1", "messages": [], "toolConfig": {"tools": [
            {"toolSpec": {"name": "f", "inputSchema": {"json": SCHEMA}}}]}}),
        (GEMINI, {"tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": SCHEMA}]}]}),
        (GEMINI, {"tools": [{"functionDeclarations": [{"name": "f", "parameters": GOOGLE}]}]}),
        ("/v1beta/interactions", {"tools": [{"type": "function", "name": "f", "parameters": SCHEMA}]}),
        ("/api/chat", {"tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]}),
        ("/v2/chat", {"tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]}),
    ],
)  # fmt: skip
def test_the_tools_of_a_request_have_their_schemas(path: str, body: dict[str, Any]) -> None:
    found = facts(path, body).tool_schemas
    assert {name: json.loads(schema) for name, schema in found.items()} == {"f": SCHEMA}


def test_coheres_first_api_names_parameters_in_its_own_way() -> None:
    tools = [{"name": "f", "parameter_definitions": {"a": {"type": "str", "required": True}}}]
    found = facts("/v1/chat", {"message": "q", "tools": tools}, hint="cohere").tool_schemas
    assert {name: json.loads(schema) for name, schema in found.items()} == {"f": SCHEMA}


# ---------------------------------------------------------------- up to the result


def chat_answer(text: str) -> bytes:
    return json.dumps({
        "object": "chat.completion", "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
    }).encode()  # fmt: skip


def verdict(body: dict[str, Any], answer: str) -> tuple[str, str | None]:
    request = {"model": "m", "messages": [{"role": "user", "content": "q"}], **body}
    (task,) = tasks(exchange(CHAT, chat_answer(answer), request=request))
    assert task.result is None
    return judge(task.text, task.schema, task.kind)


@pytest.mark.parametrize(
    ("body", "answer", "expected"),
    [
        ({"guided_choice": ["yes", "no"]}, "yes", ("valid", None)),
        ({"guided_choice": ["yes", "no"]}, "Yes, of course.", ("schema_violation", "enum")),
        ({"guided_choice": ["yes", "no"]}, '"yes"', ("schema_violation", "enum")),
        ({"guided_regex": "[A-Z]{2}|[0-9]"}, "DE", ("valid", None)),
        ({"guided_regex": "[A-Z]{2}|[0-9]"}, "DE 7", ("schema_violation", "pattern")),
        ({"guided_regex": "("}, "DE", ("schema_invalid", None)),
        ({"structured_outputs": {"json": SCHEMA}}, '{"a": "x"}', ("valid", None)),
        ({"structured_outputs": {"json": SCHEMA}}, "{}", ("schema_violation", "required")),
        ({"structured_outputs": {"json_object": True}}, "yes", ("not_json", None)),
    ],
)
def test_a_guided_answer_is_judged(body: dict[str, Any], answer: str, expected: tuple[str, str | None]) -> None:
    assert verdict(body, answer) == expected


@pytest.mark.parametrize(
    ("schema", "answer", "expected"),
    [
        (GOOGLE, '{"a": "x"}', ("valid", None)),
        (GOOGLE, '{"a": null}', ("schema_violation", "type")),
        ({"type": "STRING", "nullable": True}, "null", ("valid", None)),
        ({"type": "INTEGER", "format": "enum", "enum": ["101", "201"]}, "101", ("valid", None)),
        ({"type": "INTEGER", "format": "enum", "enum": ["101", "201"]}, "102", ("schema_violation", "enum")),
        ({"type": "ARRAY", "minItems": "2", "items": {"type": "NUMBER"}}, "[1]", ("schema_violation", "minItems")),
        ({"anyOf": [{"type": "STRING"}, {"type": "INTEGER"}]}, "1.5", ("schema_violation", "anyOf")),
    ],
)  # fmt: skip
def test_a_schema_of_googles_judges_as_google_means_it(schema: Any, answer: str, expected: tuple[str, str]) -> None:
    config = {"responseMimeType": "application/json", "responseSchema": schema}
    expectation = facts(GEMINI, {"generationConfig": config}).expectation
    assert expectation is not None
    assert judge(answer, expectation.schema, expectation.kind) == expected
