"""How requests ask for structured output in words that many servers share: `response_format`, guided decoding."""

from __future__ import annotations

import json
from typing import Any

from msgspec import Raw, Struct

from collector.dialects.decoding import Decoder, UnreadableError, raw_bytes, read_json
from collector.model import Expectation


class NamedSchema(Struct, gc=False):
    name: str | None = None
    schema: Raw = Raw()


class ResponseFormat(Struct, gc=False):
    """`json_schema` is OpenAI's; `schema` is llama.cpp's, Together's and Fireworks'; `value` is Hugging Face's TGI's.

    `regex` is a text, or Perplexity's object around one.
    """

    type: str | None = None
    json_schema: NamedSchema | None = None
    schema: Raw = Raw()
    value: Raw = Raw()
    regex: Raw = Raw()


class _StructuredOutputs(Struct, gc=False):
    json: Raw = Raw()
    choice: list[str] | None = None
    regex: str | None = None
    json_object: bool | None = None


class Guided(Struct, gc=False):
    """Fields of a request beside `response_format`: vLLM's and watsonx's (docs.vllm.ai, Structured Outputs, with the
    names before and since version 0.12), and llama.cpp's `json_schema` (tools/server/README)."""

    response_format: ResponseFormat | None = None
    structured_outputs: _StructuredOutputs | None = None
    guided_json: Raw = Raw()
    guided_choice: list[str] | None = None
    guided_regex: str | None = None
    json_schema: Raw = Raw()


_decode_regex = Decoder(ResponseFormat)
_decode_named = Decoder(NamedSchema)


def expected(asked: Guided) -> Expectation | None:
    """The structured output that a request asks for; None for text, and for grammars, which are not judged."""
    if not (asked.structured_outputs or asked.guided_json or asked.json_schema) and (
        asked.guided_choice is None and asked.guided_regex is None
    ):
        return None if asked.response_format is None else of_format(asked.response_format)
    told = asked.structured_outputs or _StructuredOutputs()
    schema = schema_text(told.json) or schema_text(asked.guided_json) or schema_text(asked.json_schema)
    if schema is not None:
        return Expectation("json_schema", schema)
    choice = told.choice if told.choice is not None else asked.guided_choice
    if choice is not None:
        return one_of(choice)
    regex = told.regex if told.regex is not None else asked.guided_regex
    if regex is not None:
        return matching(regex)
    if told.json_object is True:
        return Expectation("json")
    return of_format(asked.response_format)


def of_format(wish: ResponseFormat | None) -> Expectation | None:
    """What `response_format` asks for; None for text."""
    if wish is None:
        return None
    if wish.type == "regex":
        regex = _regex(wish)
        return None if regex is None else matching(regex)
    if wish.type not in ("json_object", "json_schema", "json"):
        return None
    inner = wish.json_schema
    if inner is not None and (schema := schema_text(inner.schema)) is not None:
        return Expectation("json_schema", schema, inner.name)
    schema = schema_text(wish.schema)
    if schema is None and (value := raw_bytes(wish.value)) is not None:
        return of_value(value, is_named=wish.type == "json_schema")
    return Expectation("json" if schema is None else "json_schema", schema)


def of_value(value: bytes, is_named: bool) -> Expectation:
    """TGI's `value`: a schema, or with `is_named` a schema in `schema` beside its name."""
    if is_named:
        try:
            named = _decode_named(value)
        except UnreadableError:
            named = NamedSchema()
        if (schema := schema_text(named.schema)) is not None:
            return Expectation("json_schema", schema, named.name)
    schema = schema_text(Raw(value))
    return Expectation("json" if schema is None else "json_schema", schema)


def schema_text(written: Raw) -> bytes | None:
    """A schema's JSON text, also where it stands in a string; None where there is none."""
    text = raw_bytes(written)
    if text is None or not text.lstrip().startswith(b'"'):
        return text
    told = _string(text)
    return told.encode("utf-8", "replace") if told else None


def one_of(choices: list[str]) -> Expectation:
    """One of these texts, and nothing around it."""
    return Expectation("json_schema", _compact({"enum": choices}), is_text=True)


def matching(regex: str) -> Expectation:
    """A text that the pattern matches from end to end."""
    return Expectation("json_schema", _compact({"pattern": f"^(?:{regex})$"}), is_text=True)


def _regex(wish: ResponseFormat) -> str | None:
    for written in (wish.regex, wish.value):
        text = raw_bytes(written)
        if text is not None and text.startswith(b"{"):
            try:
                text = raw_bytes(_decode_regex(text).regex)
            except UnreadableError:
                text = None
        if text is not None and (told := _string(text)) is not None:
            return told
    return None


def _string(text: bytes) -> str | None:
    try:
        told = read_json(text)
    except UnreadableError:
        return None
    return told if isinstance(told, str) else None


def _compact(schema: dict[str, Any]) -> bytes:
    return json.dumps(schema, separators=(",", ":")).encode()
