"""The dialects that the simulated API speaks: how each is read, written, streamed and refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from collector.simulator import (
    anthropic_messages,
    bedrock_converse,
    cohere_chat,
    gemini,
    mistral_chat,
    ollama_chat,
    openai_chat,
)
from collector.simulator.answers import Ask, Reply
from collector.simulator.delivery import Identity, Part, Refusal

EVENTS = "text/event-stream; charset=utf-8"


class Dialect(Struct, frozen=True):
    """What the API needs to know of a dialect.

    `pause` is what a stream sends while nothing comes, empty where the dialect has nothing to say. `overloaded` is the
    status by which a model that is too busy refuses.
    """

    name: str
    whole: Callable[[Ask, list[Reply], Identity], bytes]
    stream: Callable[[Ask, list[Reply], Identity], Iterator[Part]]
    error_body: Callable[[Refusal], bytes]
    error_event: Callable[[], bytes]
    media: str = EVENTS  # of a stream
    pause: bytes = b""
    overloaded: int = 503
    may_hide_usage: bool = False  # what the fault `no_usage` can take away
    may_correct: bool = False


def _openai_error(refusal: Refusal) -> bytes:
    return openai_chat.error_body(refusal.message, refusal.kind, refusal.code, refusal.param)


def _anthropic_error(refusal: Refusal) -> bytes:
    return anthropic_messages.error_body(refusal.message, refusal.kind, refusal.request_id)


OPENAI = Dialect(
    "openai",
    openai_chat.whole,
    openai_chat.stream,
    _openai_error,
    openai_chat.error_event,
    pause=openai_chat.KEEP_ALIVE,
    overloaded=429,
    may_hide_usage=True,
    may_correct=True,
)
ANTHROPIC = Dialect(
    "anthropic",
    anthropic_messages.whole,
    anthropic_messages.stream,
    _anthropic_error,
    anthropic_messages.error_event,
    pause=anthropic_messages.PING,
    overloaded=529,
)
GEMINI = Dialect("gemini", gemini.whole, gemini.stream, gemini.error_body, gemini.error_event)
GEMINI_ARRAY = Dialect(
    "gemini",
    gemini.whole,
    gemini.stream_array,
    gemini.error_body,
    gemini.error_element,
    media="application/json; charset=utf-8",
)
COHERE = Dialect("cohere", cohere_chat.whole, cohere_chat.stream, cohere_chat.error_body, cohere_chat.error_event)
MISTRAL = Dialect("mistral", mistral_chat.whole, mistral_chat.stream, mistral_chat.error_body, mistral_chat.error_event)
OLLAMA = Dialect(
    "ollama",
    ollama_chat.whole,
    ollama_chat.stream,
    ollama_chat.error_body,
    ollama_chat.error_event,
    media="application/x-ndjson",
)
BEDROCK = Dialect(
    "bedrock",
    bedrock_converse.whole,
    bedrock_converse.stream,
    bedrock_converse.error_body,
    bedrock_converse.error_event,
    media="application/vnd.amazon.eventstream",
)
DIALECTS = (OPENAI, ANTHROPIC, GEMINI, COHERE, MISTRAL, OLLAMA, BEDROCK)
