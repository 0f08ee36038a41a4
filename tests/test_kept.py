"""States by key: at most so many, and those asked for last."""

from __future__ import annotations

from collector.kept import Kept


def test_what_was_asked_for_last_is_kept() -> None:
    kept: Kept[int, list[int]] = Kept(list, 2)
    first = kept.of(1)
    kept.of(2)
    assert kept.of(1) is first
    third = kept.of(3)
    assert kept.known(1) is first
    assert kept.known(2) is None
    assert (len(kept), [state is third for state in kept.values()]) == (2, [False, True])
