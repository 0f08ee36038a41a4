"""The provider's id of an answer, out of the frame that tells it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.dialects.response_id import MAX_FRAME, response_id

# Synthetic; shapes as in the vendors' API references (OpenAI chat and responses, Anthropic messages, Gemini).
TOLD = [
    (b'{"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[]}', "chatcmpl-1"),
    (b'{"type":"response.created","response":{"id":"resp_1","status":"in_progress"}}', "resp_1"),
    (b'{"type":"message_start","message":{"id":"msg_1","content":[]}}', "msg_1"),
    (b'{"candidates":[],"responseId":"r-1"}', "r-1"),
    (b'\n {"id":"co-1","message":{"role":"assistant"}}', "co-1"),
    (b'{"model":"llama","response":"Hello"}', None),
    (b'{"id":17}', None),
    (b'{"id":null,"responseId":"r-2"}', None),
    (b'{"id":""}', None),
    (b'{"id":"a\\u0000b"}', None),
    (b'{"id":"' + b"x" * 129 + b'"}', None),
    (b'{"message":{"id":3}}', None),
    (b'{"id":"cut', None),
    (b"[1]", None),
    (b"", None),
    (b'{"id":"' + b" " * MAX_FRAME + b'"}', None),
]


@pytest.mark.parametrize(("frame", "expected"), TOLD)
def test_the_id_is_found_where_each_provider_tells_it(frame: bytes, expected: str | None) -> None:
    assert response_id(frame) == expected


@given(st.binary(max_size=200) | st.binary(max_size=50).map(lambda junk: b'{"id":' + junk + b"}"))
def test_junk_tells_no_id_or_a_bounded_one(junk: bytes) -> None:
    found = response_id(junk)
    assert found is None or (0 < len(found) <= 128 and found.isprintable())
