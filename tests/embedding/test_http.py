"""Servers that embed, that lie, that are slow and that are gone; all over real sockets."""

from __future__ import annotations

import contextlib
import functools
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import collector.embedding.http as http_module
from collector.config import HttpEmbedderSettings
from collector.embedding.failures import EmbeddingError
from collector.embedding.http import HttpEmbedder
from tests.embedding import scripted
from tests.embedding.scripted import Scripted, answered, server, vector

KEY = "sk-not-a-real-key"
CONTENT = "the text of a person"


@contextlib.contextmanager
def embedder(one: Scripted | str, path: str = "/v1/embeddings", **settings: Any) -> Iterator[HttpEmbedder]:
    url = one if isinstance(one, str) else one.url
    made = HttpEmbedder(
        HttpEmbedderSettings(url=url + path, **{"model": "embed-small", "timeout": 1.0, **settings}), {"MY_KEY": KEY}
    )
    yield made
    made.close()


def unit(*texts: str) -> np.ndarray[Any, Any]:
    rows = np.array([vector(text) for text in texts])
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def failure(made: HttpEmbedder, *texts: str) -> EmbeddingError:
    with pytest.raises(EmbeddingError) as raised:
        made.embed(texts or (CONTENT,))
    assert CONTENT not in str(raised.value)
    assert KEY not in str(raised.value)
    return raised.value


# ---------------------------------------------------------------- servers that do as they should


def test_an_openai_compatible_server_is_asked_and_its_vectors_are_of_length_one() -> None:
    with server(scripted.openai) as one, embedder(one, key_env="MY_KEY") as made:
        rows = made.embed(["abc", "d", " ", "abc"])
        np.testing.assert_allclose(rows[[0, 1, 3]], unit("abc", "d", "abc"), atol=1e-6)
        assert not rows[2].any()  # a blank text is not asked for
        assert rows.dtype == np.float32
        last = one.asked[-1]
        assert last.path == "/v1/embeddings"
        assert last.body == {"model": "embed-small", "input": ["abc", "d", "abc"]}
        assert last.headers["authorization"] == f"Bearer {KEY}"
        assert (made.model.name, made.model.version, made.model.dimensions) == ("embed-small", "served-1", 4)
        assert made.embed([]).shape == (0, 4)


def test_text_embeddings_inference_is_asked_in_its_own_words_and_never_to_cut() -> None:
    with server(scripted.tei) as one, embedder(one, "/embed", api="tei", model=None) as made:
        np.testing.assert_allclose(made.embed(["abc", "d"]), unit("abc", "d"), atol=1e-6)
        assert one.asked[-1].path == "/embed"
        assert one.asked[-1].body == {"inputs": ["abc", "d"], "normalize": True, "truncate": False}
        assert "authorization" not in one.asked[-1].headers


def test_no_request_holds_more_texts_than_a_batch() -> None:
    with server(scripted.openai) as one, embedder(one, batch=3, dimensions=4) as made:
        texts = [f"text {number}" for number in range(8)]
        np.testing.assert_allclose(made.embed(texts), unit(*texts), atol=1e-6)
        assert [len(asked.texts) for asked in one.asked] == [3, 3, 2]
        assert one.asked[0].body["dimensions"] == 4


def test_a_long_text_is_asked_for_in_parts_and_gets_their_mean() -> None:
    with server(scripted.openai) as one, embedder(one, max_tokens=16) as made:
        row = made.embed(["a boat and more boats"])
        assert one.asked[-1].texts == ["a boat and more", " boats"]
        mean = unit("a boat and more", " boats").sum(axis=0)
        np.testing.assert_allclose(row[0], mean / np.linalg.norm(mean), atol=1e-6)


def test_the_settings_say_which_calibration_holds_whatever_the_server_calls_its_model() -> None:
    with server(scripted.openai) as one, embedder(one, calibrated_as="all-MiniLM-L6-v2@53aa51172d14") as made:
        made.embed(["abc"])
        assert one.asked[-1].body["model"] == "embed-small"
        assert (made.model.name, made.model.version) == ("all-MiniLM-L6-v2", "53aa51172d14")


# ---------------------------------------------------------------- servers that do not


def listed(*rows: object) -> bytes:
    items = [{"index": index, "embedding": row} for index, row in enumerate(rows)]
    return answered(json.dumps({"data": items, "model": "m"}).encode())


REPLIES: dict[str, tuple[bytes, str]] = {
    "an error": (answered(b'{"error": "overloaded"}', "503 Service Unavailable"), "status"),
    "a wrong key": (answered(b"{}", "401 Unauthorized"), "status"),
    "a redirect": (answered(b"", "307 Temporary Redirect", "Location: http://127.0.0.1:1/"), "status"),
    "no JSON": (answered(b"<html>"), "malformed"),
    "another shape": (answered(b'{"embeddings": [[1, 2]]}'), "malformed"),
    "no vector": (listed(), "malformed"),
    "one vector too many": (listed([1, 2, 3], [1, 2, 3]), "malformed"),
    "an empty vector": (listed([]), "malformed"),
    "a vector of zeros": (listed([0, 0, 0]), "malformed"),
    "numbers beyond float32": (listed([1e300, 1, 1]), "malformed"),
    "not a number": (answered(b'{"data": [{"index": 0, "embedding": [NaN, 1]}]}'), "malformed"),
    "words": (listed(["a", "b"]), "malformed"),
    "an index twice": (answered(b'{"data": [{"index": 1, "embedding": [1]}]}'), "malformed"),
    "too many dimensions": (listed([0.5] * 8193), "malformed"),
    "deep nesting": (answered(b'{"data":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), "malformed"),
    "a compressed body": (answered(b"\x1f\x8b", "200 OK", "Content-Encoding: gzip"), "malformed"),
    "not HTTP": (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "unreachable"),
    "a head without end": (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000, "unreachable"),
}


@pytest.mark.parametrize("name", REPLIES)
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_an_answer_that_is_none_costs_a_reason(name: str) -> None:
    reply, expected = REPLIES[name]
    with server(scripted.saying(reply)) as one, embedder(one) as made:
        assert failure(made).failure == expected


@pytest.mark.parametrize(
    ("play", "expected"),
    [
        (scripted.hanging, "timeout"),
        (scripted.dripping, "timeout"),
        (scripted.hanging_up, "unreachable"),
        (scripted.flooding, "too_large"),
    ],
)
def test_a_server_takes_no_more_than_the_time_out(play: scripted.Play, expected: str) -> None:
    with server(play) as one, embedder(one, timeout=0.5 if expected == "timeout" else 10.0) as made:
        began = time.monotonic()
        assert failure(made).failure == expected
        assert time.monotonic() - began < 8.0


def test_a_server_that_is_not_there_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with embedder(f"http://127.0.0.1:{port}") as made:
        assert failure(made).failure == "unreachable"


def test_a_server_that_changes_its_model_is_not_believed() -> None:
    with server(scripted.openai) as one, embedder(one) as made:
        made.embed(["abc"])
        one.play = functools.partial(scripted.openai, dimensions=5)
        told = failure(made)
        assert (told.failure, "5 dimensions where 4" in str(told)) == ("malformed", True)


def test_one_bad_batch_leaves_none_of_the_vectors() -> None:
    def play(asked: scripted.Asked, connection: socket.socket) -> None:
        scripted.openai(asked, connection, 4 if "good" in asked.texts[0] else 3)

    with server(play) as one, embedder(one, batch=1, dimensions=4) as made:
        assert failure(made, "good", "bad").failure == "malformed"


# ---------------------------------------------------------------- the circuit


def test_a_server_that_fails_too_often_is_left_alone_then_tried_once_then_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    with server(scripted.saying(answered(b"", "500 Internal Server Error"))) as one:
        settings = HttpEmbedderSettings(url=one.url + "/v1/embeddings", model="m", failures=2, timeout=5.0)
        made = HttpEmbedder(settings, {}, lambda: now)
        assert failure(made).wait is None
        assert failure(made).wait == http_module.FIRST_WAIT
        for _ in range(5):
            told = failure(made)
            assert (told.failure, told.wait) == ("circuit_open", http_module.FIRST_WAIT)
        assert len(one.asked) == 2
        now += http_module.FIRST_WAIT
        assert (failure(made).failure, len(one.asked)) == ("status", 3)  # one attempt
        assert failure(made).wait == 2 * http_module.FIRST_WAIT
        now += 2 * http_module.FIRST_WAIT
        one.play = scripted.openai
        assert made.embed(["abc"]).shape == (1, 4)
        one.play = scripted.saying(answered(b"", "500 Internal Server Error"))
        assert failure(made).wait is None  # closed: the count began anew
        made.close()


# ---------------------------------------------------------------- keys


@pytest.mark.parametrize("key", ["", "  ", "two\nlines", "schlüssel"])
def test_a_key_that_cannot_be_sent_is_an_error_that_names_the_variable_and_not_the_key(key: str) -> None:
    with pytest.raises(ValueError, match=r"MY_KEY, which embedder\.http\.key_env names") as raised:
        HttpEmbedder(HttpEmbedderSettings(url="http://127.0.0.1:1", model="m", key_env="MY_KEY"), {"MY_KEY": key})
    assert not key.strip() or key not in str(raised.value)
