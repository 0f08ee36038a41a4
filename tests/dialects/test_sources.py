"""What an answer cites, and what the provider retrieved for it (synthetic frames, after the vendors' pages)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from collector.analyst.said import MAX_SOURCE_CHARS, MAX_SOURCES, _keep_texts
from collector.dialects.anthropic_messages import AnthropicMessages
from collector.dialects.bedrock_converse import BedrockConverse
from collector.dialects.cohere import CohereChat
from collector.dialects.gemini import GeminiGenerate
from collector.dialects.openai_responses import OpenAiResponses
from collector.model import Dialect, Frame, Headers, RequestHead, ResponseHead, Sources

ONE = "The lighthouse was built by Edda Finch."
TWO = "It opened in 1871."

# Anthropic: docs.anthropic.com, citations. Bedrock: Converse, CitationsContentBlock. Cohere: v2 chat, citations.
# OpenAI: Responses, file search with include=["file_search_call.results"]. Gemini: GroundingChunk.retrievedContext.
FRAMES: list[tuple[str, Dialect, dict[str, Any], str | None, Sources]] = [
    (
        "anthropic stream",
        AnthropicMessages(),
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {
                "type": "citations_delta",
                "citation": {"type": "char_location", "cited_text": ONE, "document_index": 0},
            },
        },
        "content_block_delta",
        Sources((ONE,)),
    ),
    (
        "anthropic whole",
        AnthropicMessages(),
        {
            "type": "message",
            "content": [
                {"type": "text", "text": "Edda.", "citations": [{"cited_text": ONE}, {"cited_text": TWO}]},
                {"type": "text", "text": "So it is.", "citations": None},
            ],
        },
        None,
        Sources((ONE, TWO)),
    ),
    (
        "bedrock whole",
        BedrockConverse(),
        {
            "output": {
                "message": {
                    "content": [
                        {
                            "citationsContent": {
                                "content": [{"text": "Edda."}],
                                "citations": [{"title": "a", "sourceContent": [{"text": ONE}]}],
                            }
                        }
                    ]
                }
            },
            "stopReason": "end_turn",
        },
        None,
        Sources((ONE,)),
    ),
    (
        "cohere whole",
        CohereChat(),
        {
            "message": {
                "content": [{"type": "text", "text": "Edda."}],
                "citations": [
                    {"text": "Edda", "sources": [{"type": "document", "document": {"id": "a", "snippet": ONE}}]}
                ],
            },
            "finish_reason": "COMPLETE",
        },
        None,
        Sources((ONE,)),
    ),
    (
        "cohere stream",
        CohereChat(),
        {
            "type": "citation-start",
            "index": 0,
            "delta": {"message": {"citations": {"sources": [{"type": "document", "document": {"text": TWO}}]}}},
        },
        "citation-start",
        Sources((TWO,)),
    ),
    (
        "responses whole",
        OpenAiResponses(),
        {
            "object": "response",
            "status": "completed",
            "output": [
                {"type": "file_search_call", "results": [{"text": ONE, "score": 0.9}, {"text": None}]},
                {"type": "message", "content": [{"type": "output_text", "text": "Edda."}]},
            ],
        },
        None,
        Sources(retrieved=(ONE,)),
    ),
    (
        "responses stream",
        OpenAiResponses(),
        {
            "type": "response.output_item.done",
            "output_index": 0,
            "item": {"type": "file_search_call", "results": [{"text": TWO}]},
        },
        "response.output_item.done",
        Sources(retrieved=(TWO,)),
    ),
    (
        "gemini",
        GeminiGenerate(),
        {
            "candidates": [
                {
                    "content": {"parts": [{"text": "Edda."}]},
                    "groundingMetadata": {
                        "groundingChunks": [{"retrievedContext": {"text": ONE, "title": "a"}}, {"web": {"uri": "x"}}]
                    },
                }
            ]
        },
        None,
        Sources(retrieved=(ONE,)),
    ),
]


@pytest.mark.parametrize(("name", "dialect", "body", "event", "expected"), FRAMES, ids=[frame[0] for frame in FRAMES])
def test_what_an_answer_rests_on_is_told(
    name: str, dialect: Dialect, body: dict[str, Any], event: str | None, expected: Sources
) -> None:
    reader = dialect.reader(RequestHead("POST", "/", "api", Headers()), ResponseHead(200, Headers()))
    delta = reader.read(Frame(json.dumps(body).encode(), event))
    assert delta is not None, name
    assert delta.sources == expected
    assert not delta.malformed


@pytest.mark.parametrize(("name", "dialect", "body", "event", "expected"), FRAMES, ids=[frame[0] for frame in FRAMES])
def test_citations_of_another_shape_spoil_nothing(
    name: str, dialect: Dialect, body: dict[str, Any], event: str | None, expected: Sources
) -> None:
    del expected
    odd = json.loads(json.dumps(body).replace(json.dumps(ONE), "17").replace(json.dumps(TWO), "[]"))
    reader = dialect.reader(RequestHead("POST", "/", "api", Headers()), ResponseHead(200, Headers()))
    delta = reader.read(Frame(json.dumps(odd).encode(), event))
    assert delta is not None, name
    assert delta.sources is None
    assert not delta.malformed


def test_what_is_kept_of_them_is_bounded_and_without_repeats() -> None:
    kept: dict[str, None] = {}
    _keep_texts(kept, (ONE, TWO, ONE))
    assert tuple(kept) == (ONE, TWO)
    _keep_texts(kept, (f"passage {number}" for number in range(1000)))
    assert len(kept) == MAX_SOURCES
    large: dict[str, None] = {}
    _keep_texts(large, ("x" * (MAX_SOURCE_CHARS - 10), "y" * 20, "z" * 5))
    assert sum(map(len, large)) == MAX_SOURCE_CHARS - 5
