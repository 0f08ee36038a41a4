"""One JSON array whose elements are the messages, as Gemini streams when `alt=sse` is missing."""

from __future__ import annotations

import re
from collections.abc import Iterable

from collector.model import Frame

# What changes where an element ends. Inside an element commas do not, and inside a string only its end does. A string
# that has come whole is passed in one step.
_REST_OF_STRING = rb'[^"\\]*+(?:\\.[^"\\]*+)*+"'
_STRING = rb'"' + _REST_OF_STRING
_TO_TOP_MARK = re.compile(rb'(?:[^"\[\]{},]++|' + _STRING + rb')*+["\[\]{},]', re.DOTALL)
_TO_INNER_MARK = re.compile(rb'(?:[^"\[\]{}]++|' + _STRING + rb')*+["\[\]{}]', re.DOTALL)
_TO_STRING_END = re.compile(_REST_OF_STRING, re.DOTALL)


class JsonArrayCodec:
    """Bytes → one frame per element, as soon as it is complete, wherever the bytes are cut.

    An object or an array is complete with its last bracket, anything else with the comma or bracket after it. What the
    end of the body cuts off is told with `terminated` false. An element of more than `cap` bytes ends the reading.
    """

    def __init__(self, cap: int) -> None:
        self.anomalies: list[str] = []
        self._cap = cap
        self._element = bytearray()  # an element whose end has not come
        self._depth = 0  # 1 inside the array, more inside an element
        self._in_string = False
        self._escaped = False
        self._ended = False

    def feed(self, data: bytes) -> Iterable[Frame]:
        if self._ended or not data:
            return ()
        start = 0
        if not self._depth:
            start = data.find(b"[") + 1
            if not start:
                return ()
            self._depth = 1
        frames: list[Frame] = []
        at = start
        while not self._ended:
            if self._escaped and at < len(data):
                self._escaped = False
                at += 1
            match = self._to_mark().match(data, at)
            if match is None:
                if self._in_string:
                    backslashes = len(data) - max(at, len(data.rstrip(b"\\")))
                    self._escaped = backslashes % 2 == 1
                break
            at = match.end()
            mark = data[at - 1 : at]
            if self._steps(mark):
                # The brackets of an object belong to it; the comma or bracket after an element does not.
                whole = mark in b"}]" and self._depth > 0
                self._take(data[start : at if whole else at - 1], frames)
                start = at
        if not self._ended:
            self._keep(data[start:])
        return frames

    def close(self) -> Iterable[Frame]:
        element = bytes(self._element).strip()
        self._element.clear()
        if self._ended or not element:
            return ()
        self._ended = True
        self.anomalies.append("unterminated_final_event")
        return (Frame(element, terminated=False),)

    def _to_mark(self) -> re.Pattern[bytes]:
        if self._in_string:
            return _TO_STRING_END
        return _TO_INNER_MARK if self._depth > 1 else _TO_TOP_MARK

    def _steps(self, mark: bytes) -> bool:
        """Goes past one mark; whether an element may end at it."""
        if mark == b'"':
            self._in_string = not self._in_string
        elif mark in b"[{":
            self._depth += 1
        elif mark == b",":
            return True
        else:
            self._depth -= 1
            return self._depth <= 1
        return False

    def _keep(self, part: bytes) -> None:
        if not self._element:
            part = part.lstrip()
        self._element += part
        self._over(len(self._element))

    def _take(self, last: bytes, frames: list[Frame]) -> None:
        """The element ends with `last`."""
        if not self._element:
            last = last.lstrip()
        if not self._over(len(self._element) + len(last)):
            element = (bytes(self._element) + last).strip()
            if element:
                frames.append(Frame(element))
            self._element.clear()
            self._ended = self._depth <= 0

    def _over(self, size: int) -> bool:
        if size > self._cap:
            self.anomalies.append("frame_over_cap")
            self._ended = True
            self._element.clear()
            return True
        return False
