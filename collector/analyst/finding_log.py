"""Findings in the sidecar's own log, so few of each kind that nobody is woken by their number."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from collector.labels import model_label
from collector.model import Finding, Record

log = logging.getLogger("semhealth.findings")

EVERY = 60.0  # seconds between two lines of one rule on one route; both are closed sets
LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "critical": logging.ERROR}


class FindingLine(Struct, frozen=True, omit_defaults=True):
    """One line: a finding with the exchange it was made on, and how many there were since the last line (`count`)."""

    finding: str
    severity: str
    route: str
    model: str
    exchange: str
    count: int
    trace_id: str | None = None
    facts: dict[str, float | str | bool] = {}


class FindingLog:
    """Writes the first finding of a rule on a route at once, then at most one a minute, with their number."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], float] = {}  # route and rule → when the last line was written
        self._waiting: dict[tuple[str, str], int] = {}

    def tell(self, record: Record, findings: Iterable[Finding], now: float) -> None:
        """`now` is monotonic seconds."""
        for finding in findings:
            key = (record.route, finding.rule)
            number = self._waiting.get(key, 0) + 1
            last = self._told.get(key)
            if last is not None and now - last < EVERY:
                self._waiting[key] = number
                continue
            self._told[key] = now
            self._waiting[key] = 0
            line = FindingLine(
                finding.rule,
                finding.severity,
                record.route,
                model_label(record),
                record.id,
                number,
                record.trace_id,
                finding.facts,
            )
            log.log(LEVELS[finding.severity], "%s", msgspec.json.encode(line).decode())
