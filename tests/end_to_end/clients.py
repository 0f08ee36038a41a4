"""The clients that services use: what each is asked, and what its objects say, in one form for all.

Every one is asked the same by its own interface. A package that is not installed is named by ImportError.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

QUESTION = "Explain what a token bucket is to a ten-year-old. 🪣"
ID_HEADER = "X-Client-Request-Id"
# What differs from one request to the next: times, and ids and headers that clients keep with their objects.
PASSING = frozenset({"created", "created_at", "sdk_http_response", "ResponseMetadata", "_response_ms", "response_ms"})


@dataclass(frozen=True)
class Said:
    """What came back: the client's objects as plain values, and what they come to."""

    objects: list[Any]
    text: str
    finish: str | None
    input_tokens: int | None
    output_tokens: int | None


Ask = Callable[[str, bool, str], Said]  # base URL, whether to stream, and the id to send


def plain(value: Any, passing: frozenset[str] = PASSING) -> Any:
    """A client's object as JSON values, without what differs from one request to the next."""
    if hasattr(value, "model_dump"):
        value = value.model_dump(mode="json", warnings=False)
    if isinstance(value, Mapping):
        return {key: plain(inner, passing) for key, inner in value.items() if key not in passing}
    if isinstance(value, list | tuple):
        return [plain(inner, passing) for inner in value]
    return value


def _last(values: Iterable[Any]) -> Any:
    """The last that was given, None where none was."""
    found = [value for value in values if value is not None]
    return found[-1] if found else None


# ---------------------------------------------------------------- the clients


def ask_openai(base: str, is_stream: bool, request_id: str) -> Said:
    import openai

    with openai.OpenAI(
        base_url=f"{base}/v1", api_key="sk-test", max_retries=0, default_headers={ID_HEADER: request_id}
    ) as client:
        asked: dict[str, Any] = {"model": "sim-large", "messages": [{"role": "user", "content": QUESTION}]}
        if is_stream:
            chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
            return _openai_chunks(chunks)
        return _openai_whole(client.chat.completions.create(**asked))


def _openai_whole(answer: Any) -> Said:
    choice = answer.choices[0]
    usage = answer.usage
    return Said(
        [plain(answer)], choice.message.content, choice.finish_reason, usage.prompt_tokens, usage.completion_tokens
    )


def _openai_chunks(chunks: list[Any], passing: frozenset[str] = PASSING) -> Said:
    choices = [choice for chunk in chunks for choice in chunk.choices]
    usage = _last(getattr(chunk, "usage", None) for chunk in chunks)
    return Said(
        [plain(chunk, passing) for chunk in chunks],
        "".join(choice.delta.content or "" for choice in choices),
        _last(choice.finish_reason for choice in choices),
        usage.prompt_tokens,
        usage.completion_tokens,
    )


def ask_anthropic(base: str, is_stream: bool, request_id: str) -> Said:
    import anthropic

    asked: dict[str, Any] = {
        "model": "sim-opus",
        "max_tokens": 500,
        "messages": [{"role": "user", "content": QUESTION}],
    }
    with anthropic.Anthropic(
        base_url=base, api_key="sk-test", max_retries=0, default_headers={ID_HEADER: request_id}
    ) as client:
        objects = []
        if is_stream:
            with client.messages.stream(**asked) as stream:
                objects = [plain(event) for event in stream]
                answer = stream.get_final_message()
        else:
            answer = client.messages.create(**asked)
        text = "".join(block.text for block in answer.content if block.type == "text")
        usage = answer.usage
        return Said([*objects, plain(answer)], text, answer.stop_reason, usage.input_tokens, usage.output_tokens)


def ask_google(base: str, is_stream: bool, request_id: str) -> Said:
    from google import genai

    options = genai.types.HttpOptions(base_url=base, headers={ID_HEADER: request_id})
    client = genai.Client(api_key="none", http_options=options, vertexai=False)
    asked: dict[str, Any] = {"model": "sim-flash", "contents": QUESTION}
    models = client.models
    answers = list(models.generate_content_stream(**asked)) if is_stream else [models.generate_content(**asked)]
    usage = answers[-1].usage_metadata
    return Said(
        [plain(answer) for answer in answers],
        "".join(answer.text or "" for answer in answers),
        _last(answer.candidates[0].finish_reason for answer in answers).value,
        usage.prompt_token_count,
        usage.candidates_token_count,
    )


def ask_cohere(base: str, is_stream: bool, request_id: str) -> Said:
    import cohere

    client = cohere.ClientV2(api_key="none", base_url=base)
    asked: dict[str, Any] = {
        "model": "command-sim",
        "messages": [{"role": "user", "content": QUESTION}],
        "request_options": {"additional_headers": {ID_HEADER: request_id}, "max_retries": 0},
    }
    if not is_stream:
        answer = client.chat(**asked)
        tokens = answer.usage.tokens
        text = "".join(part.text for part in answer.message.content)
        return Said([plain(answer)], text, answer.finish_reason, int(tokens.input_tokens), int(tokens.output_tokens))
    events = list(client.chat_stream(**asked))
    ended = next(event.delta for event in events if event.type == "message-end")
    text = "".join(event.delta.message.content.text for event in events if event.type == "content-delta")
    tokens = ended.usage.tokens
    return Said(
        [plain(event) for event in events],
        text,
        ended.finish_reason,
        int(tokens.input_tokens),
        int(tokens.output_tokens),
    )


def ask_mistral(base: str, is_stream: bool, request_id: str) -> Said:
    from mistralai.client import Mistral

    asked: dict[str, Any] = {
        "model": "mistral-sim",
        "messages": [{"role": "user", "content": QUESTION}],
        "http_headers": {ID_HEADER: request_id},
    }
    with Mistral(api_key="none", server_url=f"{base}/mistral") as client:
        if is_stream:
            with client.chat.stream(**asked) as stream:
                return _openai_chunks([event.data for event in stream])
        return _openai_whole(client.chat.complete(**asked))


def bedrock(base: str, request_id: str, **more: Any) -> Any:
    """A client of Bedrock's runtime that sends its requests to `base`, with an id of the test's."""
    import boto3
    from botocore.config import Config

    settings: dict[str, Any] = {
        "aws_access_key_id": "AKIASIMULATED",
        "aws_secret_access_key": "simulated-secret-key",
        "config": Config(retries={"total_max_attempts": 1}),
    }
    client = boto3.client("bedrock-runtime", endpoint_url=base, region_name="us-east-1", **(settings | more))
    client.meta.events.register("before-call", lambda params, **_: params["headers"].update({ID_HEADER: request_id}))
    return client


def converse(client: Any, is_stream: bool) -> Said:
    """One call of Converse, or one stream of it."""
    asked: dict[str, Any] = {
        "modelId": "anthropic.sim-opus-v1:0",
        "messages": [{"role": "user", "content": [{"text": QUESTION}]}],
    }
    if not is_stream:
        answer = client.converse(**asked)
        text = "".join(block["text"] for block in answer["output"]["message"]["content"])
        usage = answer["usage"]
        return Said([plain(answer)], text, answer["stopReason"], usage["inputTokens"], usage["outputTokens"])
    events = list(client.converse_stream(**asked)["stream"])
    merged = {name: event[name] for event in events for name in event}
    deltas = [event["contentBlockDelta"]["delta"] for event in events if "contentBlockDelta" in event]
    usage = merged["metadata"]["usage"]
    return Said(
        [plain(event) for event in events],
        "".join(delta["text"] for delta in deltas),
        merged["messageStop"]["stopReason"],
        usage["inputTokens"],
        usage["outputTokens"],
    )


def ask_boto3(base: str, is_stream: bool, request_id: str) -> Said:
    return converse(bedrock(base, request_id), is_stream)


def ask_ollama(base: str, is_stream: bool, request_id: str) -> Said:
    import ollama

    client = ollama.Client(host=base, headers={ID_HEADER: request_id})
    answer = client.chat(model="llama-sim", messages=[{"role": "user", "content": QUESTION}], stream=is_stream)
    lines = list(answer) if is_stream else [answer]
    return Said(
        [plain(line) for line in lines],
        "".join(line.message.content or "" for line in lines),
        lines[-1].done_reason,
        lines[-1].prompt_eval_count,
        lines[-1].eval_count,
    )


def ask_litellm(base: str, is_stream: bool, request_id: str) -> Said:
    # Else it asks for a price list on the Internet when it is loaded.
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm

    asked: dict[str, Any] = {
        "model": "openai/sim-large",
        "api_base": f"{base}/v1",
        "api_key": "sk-test",
        "messages": [{"role": "user", "content": QUESTION}],
        "extra_headers": {ID_HEADER: request_id},
        "num_retries": 0,
    }
    if is_stream:
        chunks = litellm.completion(**asked, stream=True, stream_options={"include_usage": True})
        return _openai_chunks(list(chunks))
    return _openai_whole(litellm.completion(**asked))


def ask_langchain(base: str, is_stream: bool, request_id: str) -> Said:
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(
        model="sim-large",
        base_url=f"{base}/v1",
        api_key="sk-test",
        max_retries=0,
        stream_usage=True,
        default_headers={ID_HEADER: request_id},
    )
    pieces = list(model.stream(QUESTION)) if is_stream else [model.invoke(QUESTION)]
    usage = _last(piece.usage_metadata for piece in pieces)
    return Said(
        [plain(piece, PASSING | {"id"}) for piece in pieces],  # its ids are of the run
        "".join(piece.content for piece in pieces),
        _last(piece.response_metadata.get("finish_reason") for piece in pieces),
        usage["input_tokens"],
        usage["output_tokens"],
    )


def ask_curl(base: str, is_stream: bool, request_id: str) -> Said:
    asked: dict[str, Any] = {"model": "sim-large", "messages": [{"role": "user", "content": QUESTION}]}
    if is_stream:
        asked |= {"stream": True, "stream_options": {"include_usage": True}}
    try:
        told = subprocess.run(
            [
                "curl", "--silent", "--show-error", "--no-buffer", "--fail", f"{base}/v1/chat/completions",
                "--noproxy", "*", "--header", f"{ID_HEADER}: {request_id}",
                "--header", "Content-Type: application/json", "--data-binary", "@-",
            ],
            input=json.dumps(asked).encode(),
            capture_output=True,
            check=True,
            timeout=60,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise ImportError("curl") from error
    if not is_stream:
        answer = json.loads(told.stdout)
        choice, usage = answer["choices"][0], answer["usage"]
        text, finish = choice["message"]["content"], choice["finish_reason"]
        return Said([plain(answer)], text, finish, usage["prompt_tokens"], usage["completion_tokens"])
    events = told.stdout.split(b"\n\n")
    assert events[-2:] == [b"data: [DONE]", b""]
    chunks = [json.loads(event.removeprefix(b"data: ")) for event in events[:-2]]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    usage = chunks[-1]["usage"]
    return Said(
        [plain(chunk) for chunk in chunks],
        "".join(choice["delta"].get("content") or "" for choice in choices),
        _last(choice["finish_reason"] for choice in choices),
        usage["prompt_tokens"],
        usage["completion_tokens"],
    )
