"""Streams: the first token, gaps, stalls, how they end, and corrections."""

from __future__ import annotations

from tools.dashboards.model import Dashboard, Panel, Query, Row
from tools.dashboards.shared import FINDINGS, MODEL_CHANGES, OF_WHOM, WHO, quantiles
from tools.expressions import events, increase, rate, ratio

START = Row(
    "When does it start?",
    (
        Panel(
            "First token",
            "From forwarding the request to the first generated token, median and 95th percentile.",
            "s",
            quantiles("semantic_health_time_to_first_token_seconds", 0.5, 0.95),
        ),
        Panel(
            "First chunk",
            "From forwarding the request to the first byte of a streamed body. Far before the first token: "
            "the upstream answers early and thinks late.",
            "s",
            quantiles("semantic_health_time_to_first_chunk_seconds", 0.5, 0.95),
        ),
        Panel(
            "Streams",
            "Streams with at least one content frame, per second.",
            "reqps",
            (Query(rate("semantic_health_streams_total", *WHO), OF_WHOM),),
        ),
    ),
)

FLOW = Row(
    "Is it smooth?",
    (
        Panel(
            "Standard deviation of gaps",
            "Per stream, median and 95th percentile. Good: below 15 ms.",
            "s",
            quantiles("semantic_health_stream_gap_stddev_seconds", 0.5, 0.95),
        ),
        Panel(
            "Standard deviation of gaps, distribution",
            "How many streams had which deviation of gaps. Good: one band below 15 ms; a second one above it is "
            "one upstream of several, or one model.",
            "s",
            (Query(increase("semantic_health_stream_gap_stddev_seconds_bucket", "le"), "{{le}}"),),
            "heatmap",
            low=None,
        ),
        Panel(
            "Longest gap",
            "Per stream, median and 95th percentile. Above a second people think that it hangs.",
            "s",
            quantiles("semantic_health_stream_longest_gap_seconds", 0.5, 0.95),
        ),
        Panel(
            "Stalls per stream",
            "Gaps longer than the stall threshold (1 s by default) by streams. Good: 0.",
            "none",
            (
                Query(
                    ratio(
                        rate("semantic_health_stream_stalls_total", *WHO), rate("semantic_health_streams_total", *WHO)
                    ),
                    OF_WHOM,
                ),
            ),
        ),
        Panel(
            "Fluidity",
            "Share of content frames that came before their deadline, early ones lending time to later ones "
            "(as in Etalon). Good: 0.9 and more.",
            "percentunit",
            (
                Query(
                    ratio(
                        rate("semantic_health_stream_deadlines_total", *WHO, verdict="met"),
                        rate("semantic_health_stream_deadlines_total", *WHO),
                    ),
                    OF_WHOM,
                ),
            ),
            high=1.0,
        ),
        Panel(
            "Time per output token",
            "Time between first and last content frame by output tokens.",
            "s",
            quantiles("semantic_health_time_per_output_token_seconds", 0.5, 0.95),
        ),
    ),
)

ENDS = Row(
    "How does it end?",
    (
        Panel(
            "Broken answers",
            "Answers a second that ended before their end marker, in an error event, or because the service left. "
            "Good: none of the first two.",
            "reqps",
            (
                Query(
                    rate(
                        "semantic_health_exchanges_total",
                        "outcome",
                        outcome=("truncated", "error_event", "client_disconnect"),
                    ),
                    "{{outcome}}",
                ),
            ),
        ),
        Panel(
            "Answers cut by length",
            "Answers a second that ran into their limit of tokens. Good: none, unless short answers are wanted.",
            "reqps",
            (Query(rate("semantic_health_exchanges_total", *WHO, outcome="incomplete"), OF_WHOM),),
        ),
        Panel(
            "Corrections",
            "Streams per interval whose text the provider repeated in full, and changed. Good: none; the final "
            "text is the one to keep.",
            "short",
            (Query(events(FINDINGS, *WHO, rule="text_corrected"), OF_WHOM),),
        ),
        Panel(
            "Blocked by slow clients",
            "Seconds per second that streams waited because the service did not read. This is not counted as a gap.",
            "s",
            (Query(rate("semantic_health_client_blocked_seconds_total", "route"), "{{route}}"),),
        ),
    ),
)

STREAMS = Dashboard(
    "semhealth-streams",
    "semhealth streams",
    "How streams start, flow and end: first token, gaps, stalls, broken and corrected answers.",
    (START, FLOW, ENDS),
    annotations=(MODEL_CHANGES,),
)
