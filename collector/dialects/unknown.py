"""A provider nobody knows: status, timing, sizes and headers are still told, and the error of an error body."""

from __future__ import annotations

from collector.dialects.errors import error_of_body, says_limits
from collector.model import Delta, Frame, Reader, ReportedUsage, RequestFacts, RequestHead, ResponseHead, Usage


class UnknownReader:
    def __init__(self, response: ResponseHead) -> None:
        self._status = response.status
        self._limited = says_limits(response.headers)

    def read(self, frame: Frame) -> Delta | None:
        if frame.kind != "data":
            return None
        if self._status >= 400:
            return Delta(error=error_of_body(frame.data, self._status, self._limited))
        if frame.data.strip() == b"[DONE]":
            return Delta(terminal=True, marker=True)
        return Delta(ping=frame.event == "ping")

    def ended_well(self) -> bool:
        """Nothing is known of its end: a body that ends as HTTP says it should is whole."""
        return True

    def normal_usage(self, reported: ReportedUsage) -> Usage:
        return Usage()


class Unknown:
    name = "unknown"
    operation = ""

    def speaks(self, request: RequestHead, response: ResponseHead) -> bool:
        return True

    def request_facts(self, body: bytes) -> RequestFacts:
        return RequestFacts()

    def reader(self, request: RequestHead, response: ResponseHead) -> Reader:
        return UnknownReader(response)
