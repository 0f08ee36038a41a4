"""Embeddings and rankings: the model, the tokens and the error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.dialects.decoding import UnreadableError
from collector.dialects.openai_embeddings import EmbeddingsReader, OpenAiEmbeddings, Rerank
from collector.model import Delta, Dialect, Frame, Headers, ReportedUsage, RequestHead, ResponseHead, Usage, WireError


def reader(status: int = 200) -> EmbeddingsReader:
    return EmbeddingsReader(ResponseHead(status, Headers()))


def read(body: Any, by: EmbeddingsReader | None = None) -> Delta | None:
    by = by if by is not None else reader()
    return by.read(Frame(body if isinstance(body, bytes) else json.dumps(body).encode()))


@pytest.mark.parametrize(
    ("usage", "reported", "normal"),
    [
        ({"prompt_tokens": 3, "total_tokens": 3}, ReportedUsage(3), Usage(3)),
        ({"prompt_tokens": 3, "completion_tokens": 0, "total_tokens": 3}, ReportedUsage(3, 0), Usage(3, 0)),
        ({"total_tokens": 17}, ReportedUsage(), Usage(17)),
        ({}, ReportedUsage(), Usage()),
    ],
)
def test_tokens_are_reported_as_told_and_a_total_alone_is_input(
    usage: dict[str, int], reported: ReportedUsage, normal: Usage
) -> None:
    by = reader()
    body = {"object": "list", "data": [{"embedding": [0.1, 2]}, {"embedding": "AAAA"}], "model": "m", "usage": usage}
    assert read(body, by) == Delta(model="m", usage=reported, terminal=True)
    assert by.normal_usage(reported) == normal


def test_an_answer_without_usage_or_model_says_nothing_of_them() -> None:
    assert read({"data": []}) == Delta(terminal=True)
    assert read(b"[") == Delta(malformed=True)


def test_errors_are_told_with_any_status() -> None:
    error = {"error": {"type": "invalid_request_error", "code": None, "message": "m"}}
    for status in (200, 400):
        delta = read(error, reader(status))
        assert delta is not None
        assert delta.error == WireError("invalid_request_error", None, "invalid_request")
    detail = read({"detail": "No such model"}, reader(400))
    assert detail is not None
    assert detail.error == WireError(None, None, "invalid_request")


@pytest.mark.parametrize(("dialect", "path"), [(OpenAiEmbeddings(), "/v1/embeddings"), (Rerank(), "/api/v1/rerank/")])
def test_it_speaks_where_such_bodies_are_posted(dialect: Dialect, path: str) -> None:
    response = ResponseHead(200, Headers())
    assert dialect.speaks(RequestHead("POST", path, "h", Headers()), response)
    assert not dialect.speaks(RequestHead("GET", path, "h", Headers()), response)
    assert not dialect.speaks(RequestHead("POST", "/v1/chat/completions", "h", Headers()), response)
    assert dialect.request_facts(b'{"model":"m","input":["a"]}').model == "m"
    with pytest.raises(UnreadableError):
        dialect.request_facts(b"<xml/>")


@given(st.binary(max_size=40) | st.from_regex(rb'\{"(usage|model|error)":[\[\]{}0-9"a-z]{0,8}\}'))
def test_any_body_is_survived(body: bytes) -> None:
    assert read(body) is not None
