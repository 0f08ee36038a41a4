"""What was used, as the provider counts it? Only what it said."""

from __future__ import annotations

import msgspec

from collector.measures.usage import measure
from collector.model import (
    Reading,
    Usage,
)

from .records import RECORD, Heard


def read(usage: Usage | None) -> list[Reading]:
    heard = Heard()
    measure(msgspec.structs.replace(RECORD, usage=usage), heard)
    return heard.readings


def test_every_kind_of_token_that_was_reported_is_counted() -> None:
    assert [(reading.labels, reading.value) for reading in read(Usage(32, 15, 3, 4, 9))] == [
        (("main", "m-1", "input"), 32.0), (("main", "m-1", "output"), 15.0), (("main", "m-1", "cache_read"), 3.0),
        (("main", "m-1", "cache_write"), 4.0), (("main", "m-1", "reasoning"), 9.0), (("main", "m-1"), 3.0 / 32.0),
    ]  # fmt: skip


def test_0_is_counted_and_unknown_is_not() -> None:
    assert [reading.labels[-1] for reading in read(Usage(None, 0))] == ["output"]
    assert read(None) == []


def test_the_share_from_the_cache_needs_both_numbers_and_some_input() -> None:
    def share(usage: Usage) -> list[float]:
        return [each.value for each in read(usage) if each.metric == "semantic_health_prompt_cache_hit_ratio"]

    assert share(Usage(10, None, 0)) == [0.0]
    assert share(Usage(10, None, 10)) == [1.0]
    assert share(Usage(10)) == share(Usage(None, None, 5)) == share(Usage(0, None, 0)) == share(Usage(5, None, 6)) == []
