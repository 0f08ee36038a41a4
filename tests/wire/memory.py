"""What something holds while it is fed, and how its time grows, measured."""

from __future__ import annotations

import gc
import itertools
import sys
import time
import tracemalloc
import types
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from msgspec import Struct

KiB = 1024
MiB = 1024 * 1024
PATIENCE = 0.05  # seconds of processor time that are short, however the time grows
GROWTH = 4.0  # times as long for twice as much is a square
TRIES = 3


class Memory(NamedTuple):
    """Bytes: the most that was held between two feeds, and the most at any time, within a feed too."""

    held: int
    peak: int


def memory_of(
    begin: Callable[[], Any], feed: Callable[[Any, bytes], object], pieces: Iterable[bytes], *, traced: int
) -> Memory:
    """Of what `begin` makes, while it is fed with the pieces.

    The first `traced` bytes are followed by tracemalloc, which makes all slow; what comes after them is only held
    against the objects that can be reached.
    """
    told = iter(pieces)
    held = size = number = 0
    gc.collect()
    tracemalloc.start()
    try:
        subject = begin()
        for piece in told:
            feed(subject, piece)
            size += len(piece)
            if not number & 7:
                held = max(held, tracemalloc.get_traced_memory()[0])
            number += 1
            if size >= traced:
                break
        del piece
        gc.collect()
        now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    held = max(held, now, held_by(subject))
    for number, piece in enumerate(told):
        feed(subject, piece)
        if not number & 127:
            held = max(held, held_by(subject))
    return Memory(max(held, held_by(subject)), peak)


def held_by(root: object, apart: Iterable[object] = ()) -> int:
    """Bytes of all objects that can be reached, but for code, classes and what is `apart`."""
    seen = {id(each) for each in apart}
    waiting: list[Any] = [root]
    size = 0
    while waiting:
        each = waiting.pop()
        if id(each) in seen or isinstance(each, (type, types.ModuleType, types.FunctionType)):
            continue
        seen.add(id(each))
        size += sys.getsizeof(each)
        if isinstance(each, (str, bytes, bytearray, int, float)):
            continue
        if isinstance(each, dict):
            waiting += itertools.chain(each.keys(), each.values())
        elif isinstance(each, (list, tuple, set, frozenset, deque)):
            waiting += each
        elif isinstance(each, Struct):
            waiting += [getattr(each, name) for name in each.__struct_fields__]
        elif isinstance(each, types.GeneratorType):
            raise AssertionError("a generator that still runs holds what cannot be reached")
        elif isinstance(each, (types.MethodType, types.BuiltinMethodType)):
            waiting.append(each.__self__)
        else:
            waiting += vars(each).values() if hasattr(each, "__dict__") else ()
            waiting += [getattr(each, name) for name in getattr(each, "__slots__", ()) if hasattr(each, name)]
    return size


def is_linear(run: Callable[[int], object], size: int) -> bool:
    """Whether twice the size takes less than GROWTH times as long, the best of several tries; short times always do."""
    best: dict[int, float] = {}
    for _ in range(TRIES):
        for much in (size, 2 * size):
            started = time.process_time()
            run(much)
            best[much] = min(best.get(much, 1e9), time.process_time() - started)
        if best[2 * size] < max(PATIENCE, 0.75 * GROWTH * best[size]):
            return True
    return best[2 * size] < GROWTH * best[size]
