"""Records → spans and log records, by the OpenTelemetry SDK's own types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)

from collector.catalogue import FINDING_RULE
from exporters.otel_attributes import (
    EVALUATION,
    FINDING,
    Attributes,
    Server,
    Told,
    error_type,
    evaluation_attributes,
    evaluations,
    finding_attributes,
    span_attributes,
    span_name,
)

SEVERITIES = {"info": SeverityNumber.INFO, "warning": SeverityNumber.WARN, "critical": SeverityNumber.ERROR}
SAMPLED, UNSAMPLED = TraceFlags(TraceFlags.SAMPLED), TraceFlags(TraceFlags.DEFAULT)
UNSET, ERROR = Status(StatusCode.UNSET), Status(StatusCode.ERROR)


class SpanConversion:
    """Makes spans and log records of one resource. `newer` takes the newer of the conventions' names, by which
    evaluations are log records too. `servers` are the upstreams by route."""

    def __init__(
        self, resource: Resource, scope: InstrumentationScope, servers: Mapping[str, Server], *, newer: bool
    ) -> None:
        self._resource = resource
        self._scope = scope
        self._servers = servers
        self._newer = newer

    def spans(self, told: Told) -> Iterator[ReadableSpan]:
        """The exchange as one client span, under the client's own where it told one."""
        facts, record = told.facts, told.facts.record
        ended = int(facts.ended * 1e9)
        yield ReadableSpan(
            span_name(record),
            context=_context(told),
            parent=_parent(told),
            resource=self._resource,
            attributes=span_attributes(facts, self._servers.get(record.route), newer=self._newer),
            events=[Event(EVALUATION, evaluation_attributes(each), ended) for each in evaluations(record)],
            kind=SpanKind.CLIENT,
            status=UNSET if error_type(record) is None else ERROR,
            start_time=int(facts.started * 1e9),
            end_time=ended,
            instrumentation_scope=self._scope,
        )

    def logs(self, told: Told) -> Iterator[ReadableLogRecord]:
        """One per finding, and by the newer conventions one per evaluation."""
        record = told.facts.record
        for finding in record.findings:
            severity = SEVERITIES[finding.severity]
            saw = FINDING_RULE[finding.rule].saw
            yield self._log(told, FINDING, severity, saw, finding_attributes(record, finding))
        for evaluation in evaluations(record) if self._newer else ():
            yield self._log(told, EVALUATION, SeverityNumber.INFO, None, evaluation_attributes(evaluation))

    def _log(
        self, told: Told, event: str, severity: SeverityNumber, body: str | None, attributes: Attributes
    ) -> ReadableLogRecord:
        at = int(told.facts.ended * 1e9)
        written = LogRecord(
            timestamp=at,
            observed_timestamp=at,
            context=set_span_in_context(NonRecordingSpan(_context(told))),
            severity_text=severity.name,
            severity_number=severity,
            body=body,
            attributes=attributes,
            event_name=event,
        )
        return ReadableLogRecord(written, self._resource, self._scope)


def _context(told: Told) -> SpanContext:
    parent = told.facts.parent
    state = TraceState.from_header([parent.state]) if parent is not None and parent.state else None
    flags = SAMPLED if told.is_sampled else UNSAMPLED
    return SpanContext(told.trace_id, told.span_id, is_remote=False, trace_flags=flags, trace_state=state)


def _parent(told: Told) -> SpanContext | None:
    parent = told.facts.parent
    if parent is None:
        return None
    flags = SAMPLED if parent.is_sampled else UNSAMPLED
    return SpanContext(told.trace_id, int(parent.span_id, 16), is_remote=True, trace_flags=flags)
