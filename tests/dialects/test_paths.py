"""Models that only the path names."""

from __future__ import annotations

import pytest

from collector.dialects.paths import MAX_QUERY, model_of, queried_model


@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("/model/amazon.nova-lite-v1%3A0/converse", "amazon.nova-lite-v1:0"),
        ("/model/meta.llama3-v1:0/invoke-with-response-stream", "meta.llama3-v1:0"),
        (
            "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fus.x/converse-stream",
            "arn:aws:bedrock:us-east-1:1:inference-profile/us.x",
        ),
        ("/model/x/count-tokens/", "x"),
        ("/model/x", None),
        ("/model/x/converse/y", None),
        ("/v1beta/models/gemini-2.5-flash:generateContent", "gemini-2.5-flash"),
        ("/v1/projects/p/locations/l/publishers/google/models/g-1%3AstreamGenerateContent", "g-1"),
        ("/v1/projects/p/publishers/anthropic/models/claude@20250219:streamRawPredict", "claude@20250219"),
        ("/v1beta/tunedModels/mine:generateContent", "mine"),
        ("/v1/models/gpt-4o", None),
        ("/v1/models/meta/llama-2-70b-chat/predictions", "meta/llama-2-70b-chat"),
        ("/v1/predictions", None),
        ("/v1/chat/completions", None),
        ("", None),
    ],
)
def test_a_path_names_its_model(path: str, model: str | None) -> None:
    assert model_of(path) == model


@pytest.mark.parametrize(
    ("target", "model"),
    [
        ("/v1/realtime?model=gpt-realtime&x=1", "gpt-realtime"),
        ("/openai/realtime?api-version=1&deployment=mine%20too", "mine too"),
        ("/v1/realtime/?deployment=d&model=a&model=b", "a"),
        ("/v1/realtime?model=", None),
        ("/v1/realtime", None),
        ("/v1/chat/completions?model=gpt", None),
        (f"/v1/realtime?model=m&x={'y' * MAX_QUERY}", None),
    ],
)
def test_only_a_realtime_connection_names_its_model_in_the_query(target: str, model: str | None) -> None:
    assert queried_model(target) == model
