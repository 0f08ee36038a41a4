"""Deterministic vectors in which texts that share words lie near one another."""

from __future__ import annotations

import base64
import hashlib
import math
import re
import struct
from functools import lru_cache

DIMENSIONS = 256
MOST_DIMENSIONS = 4096
PLACES_A_FEATURE = 4
MOST_CACHED_FEATURES = 20_000

_FEATURE = re.compile(r"[^\W\d_]+|\d+")


def embed(text: str, dimensions: int = DIMENSIONS) -> list[float]:
    """A vector of length 1: every word, and every pair of Chinese characters, adds to a few places."""
    vector = [0.0] * dimensions
    for feature in features(text):
        for place, sign in _places(feature):
            vector[place % dimensions] += sign
    length = math.sqrt(sum(value * value for value in vector))
    if length == 0:
        vector[0] = length = 1.0
    return [value / length for value in vector]


def features(text: str) -> list[str]:
    """Lower-case words cut to a stem, numbers, and pairs of characters where there are no spaces."""
    found: list[str] = []
    for word in _FEATURE.findall(text.lower()):
        if word[0] >= "⺀":
            found.extend(word[at : at + 2] for at in range(max(1, len(word) - 1)))
        else:
            found.append(word[:6])
    return found


def as_base64(vector: list[float]) -> str:
    """Little-endian 32-bit floats in base64, as `encoding_format: base64` asks for."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


@lru_cache(maxsize=MOST_CACHED_FEATURES)
def _places(feature: str) -> tuple[tuple[int, float], ...]:
    digest = hashlib.blake2b(feature.encode(), digest_size=4 * PLACES_A_FEATURE).digest()
    numbers = struct.unpack(f"<{PLACES_A_FEATURE}I", digest)
    return tuple((number >> 1, 1.0 if number & 1 else -1.0) for number in numbers)
