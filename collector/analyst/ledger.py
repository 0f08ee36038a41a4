"""The records of late, in memory: how an alert leads to its evidence."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from msgspec import Struct

from collector.model import Record


class Wanted(Struct, frozen=True):
    """Which records are asked for; None lets all pass."""

    route: str | None = None
    model: str | None = None
    outcome: str | None = None
    finding: str | None = None
    validity: str | None = None

    def lets_pass(self, record: Record) -> bool:
        return (
            (self.route is None or record.route == self.route)
            and (self.model is None or self.model in (record.response_model, record.request_model))
            and (self.outcome is None or record.outcome == self.outcome)
            and (self.finding is None or any(finding.rule == self.finding for finding in record.findings))
            and (self.validity is None or (record.validity is not None and record.validity.result == self.validity))
        )


class Ledger:
    """The last `size` records."""

    def __init__(self, size: int) -> None:
        self._records: deque[Record] = deque(maxlen=size)

    def add(self, record: Record) -> None:
        self._records.append(record)

    def newest_first(self) -> Iterator[Record]:
        return reversed(tuple(self._records))

    def find(self, wanted: Wanted, limit: int) -> list[Record]:
        """At most `limit` records that are wanted, newest first."""
        found = []
        for record in self.newest_first():
            if wanted.lets_pass(record):
                found.append(record)
                if len(found) >= limit:
                    break
        return found

    def look_up(self, request_id: str) -> Record | None:
        """The newest record with this id: its own first, then the upstream's, then the client's."""
        records = tuple(self.newest_first())
        for told in (_own_id, _upstream_id, _client_id):
            for record in records:
                if told(record) == request_id:
                    return record
        return None


def _own_id(record: Record) -> str | None:
    return record.id


def _upstream_id(record: Record) -> str | None:
    return record.upstream.request_id


def _client_id(record: Record) -> str | None:
    return record.client_request_id
