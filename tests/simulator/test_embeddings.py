"""Vectors of the simulated embedding model."""

from __future__ import annotations

import base64
import math
import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from collector.simulator.embeddings import as_base64, embed


def _cosine(one: str, other: str) -> float:
    return sum(a * b for a, b in zip(embed(one), embed(other), strict=True))


@settings(deadline=None)
@given(st.text(), st.integers(1, 300))
def test_every_text_has_a_vector_of_length_one(text, dimensions):
    vector = embed(text, dimensions)
    assert len(vector) == dimensions
    assert math.isclose(sum(value * value for value in vector), 1.0, rel_tol=1e-9)


def test_texts_that_share_words_are_nearer():
    near = _cosine("How long is the sea lock?", "The sea lock is 214 metres long.")
    far = _cosine("How long is the sea lock?", "Tarn Blue ripens in caves.")
    assert near > far + 0.2
    assert (
        _cosine("石湾窑要烧多长时间", "石湾窑要连烧五十六个小时")
        > _cosine("石湾窑要烧多长时间", "飞鹭会员分为两级") + 0.2
    )


def test_base64_holds_the_same_numbers():
    vector = embed("a sea lock", 8)
    read = struct.unpack("<8f", base64.b64decode(as_base64(vector)))
    assert all(math.isclose(a, b, abs_tol=1e-6) for a, b in zip(read, vector, strict=True))
