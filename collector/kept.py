"""What is remembered by key, bounded: every state that lives longer than one exchange."""

from __future__ import annotations

from collections.abc import Callable, Hashable, ValuesView
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
State = TypeVar("State")


class Kept(Generic[Key, State]):
    """States by key, at most `bound`; the one longest not asked for is forgotten first."""

    __slots__ = ("_bound", "_new", "_states")

    def __init__(self, new: Callable[[], State], bound: int) -> None:
        self._new = new
        self._bound = bound
        self._states: dict[Key, State] = {}

    def of(self, key: Key) -> State:
        """The state of this key, new where it is not known."""
        state = self._states.pop(key, None)
        if state is None:
            state = self._new()
            if len(self._states) >= self._bound:
                del self._states[next(iter(self._states))]
        self._states[key] = state
        return state

    def known(self, key: Key) -> State | None:
        return self._states.get(key)

    def values(self) -> ValuesView[State]:
        return self._states.values()

    def __len__(self) -> int:
        return len(self._states)
