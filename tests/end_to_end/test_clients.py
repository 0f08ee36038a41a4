"""The clients that services use get the same objects with and without the sidecar, and its records agree with them."""

from __future__ import annotations

import hashlib
import os
import uuid
from dataclasses import dataclass

import pytest

from . import clients
from .conftest import Sidecar, Simulator


@dataclass(frozen=True)
class Client:
    """A client, and what a record says of its requests."""

    ask: clients.Ask
    dialect: str
    transport: str  # of a stream
    operation: str = "chat"


CLIENTS = {
    "openai": Client(clients.ask_openai, "openai.chat", "sse"),
    "anthropic": Client(clients.ask_anthropic, "anthropic.messages", "sse"),
    "google-genai": Client(clients.ask_google, "gemini.generate", "sse", "generate_content"),
    "cohere": Client(clients.ask_cohere, "cohere.chat", "sse"),
    "mistralai": Client(clients.ask_mistral, "openai.chat", "sse"),
    "boto3": Client(clients.ask_boto3, "bedrock.converse", "eventstream"),
    "ollama": Client(clients.ask_ollama, "ollama", "ndjson"),
    "litellm": Client(clients.ask_litellm, "openai.chat", "sse"),
    "langchain": Client(clients.ask_langchain, "openai.chat", "sse"),
    "curl": Client(clients.ask_curl, "openai.chat", "sse"),
}


def asked(client: Client, base: str, is_stream: bool, request_id: str) -> clients.Said:
    """What the client got. Where it is not installed the test fails under CI, and is skipped elsewhere."""
    try:
        return client.ask(base, is_stream, request_id)
    except ImportError as error:
        reason = f"{error}: the dependency group `clients` brings the packages"
        if os.environ.get("CI"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_gets_the_same_objects_with_the_sidecar_between(
    name: str, is_stream: bool, simulator: Simulator, sidecar: Sidecar
) -> None:
    client, request_id = CLIENTS[name], f"test-{uuid.uuid4().hex}"
    without = asked(client, simulator.base, is_stream, request_id)
    between = asked(client, sidecar.base, is_stream, request_id)
    assert between == without
    assert len(without.text) > 40
    assert len(without.objects) > 10 or not is_stream
    record = sidecar.record_of(request_id)
    assert (record["dialect"], record["operation"]) == (client.dialect, client.operation)
    assert (record["status"], record["outcome"]) == (200, "completed")
    assert (record["transport"], record["stream"]) == (client.transport if is_stream else "json", is_stream)
    assert record["text"]["chars"] == len(without.text)
    assert record["text"]["sha256"] == hashlib.sha256(without.text.encode()).hexdigest()
    assert record["finish_reasons"] == [without.finish]
    assert record["usage"]["input_tokens"] == without.input_tokens
    assert record["usage"]["output_tokens"] == without.output_tokens
    assert record["anomalies"] == []
