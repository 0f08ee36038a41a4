"""The sidecar itself: drops, added latency, queue, embedder, exporters, and ghosts of a retired layer."""

from __future__ import annotations

from tools.dashboards.model import Dashboard, Panel, Query, Row, Steps
from tools.expressions import ghosts, increase, latest, quantile, rate, ratio, select

OBSERVED = (
    f"1 - {rate('semantic_health_unobserved_total', 'instance')}"
    f" / ({rate('semantic_health_forwarded_total', 'instance')} > 0)"
)

TRAFFIC = Row(
    "Does it see everything?",
    (
        Panel(
            "Observed share",
            "Forwarded exchanges that have a record. Good: 100 %.",
            "percentunit",
            (Query(OBSERVED, "{{instance}}"),),
            high=1.0,
            steps=Steps(0.999, 0.99, low_is_bad=True),
        ),
        Panel(
            "Not observed, by reason",
            "Exchanges that were forwarded but have no record. Good: none. Traffic is not hurt "
            "by it; what the panels above say is then drawn from less.",
            "reqps",
            (Query(rate("semantic_health_unobserved_total", "reason"), "{{reason}}"),),
        ),
        Panel(
            "Forwarded",
            "Exchanges forwarded a second, as the proxy counts them.",
            "reqps",
            (Query(rate("semantic_health_forwarded_total", "instance"), "{{instance}}"),),
        ),
        Panel(
            "Refused by the sidecar",
            "Requests that the sidecar itself answered with an error, and connections that it could not accept for "
            "want of descriptors or memory. Good: none.",
            "reqps",
            (
                Query(rate("semantic_health_refused_total", "reason"), "{{reason}}"),
                Query(rate("semantic_health_accept_failures_total", "instance"), "not accepted {{instance}}"),
            ),
        ),
        Panel(
            "In flight",
            "Exchanges being forwarded now, by proxy worker.",
            "short",
            (
                Query(
                    latest("sum", "semantic_health_in_flight", "instance", "worker"), "{{instance}} worker {{worker}}"
                ),
            ),
        ),
        Panel(
            "Waiting for the analyst",
            "Bytes told to the analyst and not yet taken in. At `proxy.queue` (16 MiB by default) "
            "exchanges go unobserved.",
            "bytes",
            (
                Query(
                    latest("sum", "semantic_health_queue_bytes", "instance", "worker"), "{{instance}} worker {{worker}}"
                ),
            ),
        ),
    ),
)

COST = Row(
    "What does it cost the service?",
    (
        Panel(
            "Added latency",
            "The sidecar's own share of the time of an exchange, median and 99th percentile. Good: below "
            "a millisecond.",
            "s",
            tuple(
                Query(quantile(share, "semantic_health_proxy_added_seconds"), f"p{share * 100:g}")
                for share in (0.5, 0.99)
            ),
        ),
        Panel(
            "Event loop lag",
            "How late timers ran in the proxy, median and 99th percentile.",
            "s",
            tuple(
                Query(quantile(share, "semantic_health_event_loop_lag_seconds"), f"p{share * 100:g}")
                for share in (0.5, 0.99)
            ),
        ),
        Panel(
            "Time to a record",
            "From the end of an exchange to its record, median and 95th percentile.",
            "s",
            tuple(
                Query(quantile(share, "semantic_health_analysis_seconds"), f"p{share * 100:g}") for share in (0.5, 0.95)
            ),
        ),
    ),
)

PARTS = Row(
    "Are its parts well?",
    (
        Panel(
            "Processes that came back",
            "Processes of the sidecar that died and were started again, per interval. Good: none.",
            "short",
            (Query(increase("semantic_health_process_restarts_total", "process"), "{{process}}"),),
        ),
        Panel(
            "Embedding model loaded",
            "1 when relevance can be scored.",
            "none",
            (Query(latest("min", "semantic_health_relevance_ready", "instance"), "{{instance}}"),),
            high=1.0,
        ),
        Panel(
            "CPU of scoring",
            "Cores that the embedder and the analyst's arithmetic take, per instance. Good: at `embedder.cpu_share` "
            "(0.25 by default) or below.",
            "none",
            (Query(rate("semantic_health_relevance_cpu_seconds_total", "instance"), "{{instance}}"),),
        ),
        Panel(
            "Texts remembered",
            "Share of the texts whose vectors the embedder still knew. Passages that come again make scoring cheap; a "
            "larger `embedder.cache` helps where it could be higher.",
            "percentunit",
            (
                Query(
                    ratio(
                        rate("semantic_health_embedder_texts_total", "instance", result="hit"),
                        rate("semantic_health_embedder_texts_total", "instance"),
                    ),
                    "{{instance}}",
                ),
            ),
            high=1.0,
        ),
        Panel(
            "Embedder failures",
            "Exchanges that went unscored since the embedder had no vectors, by reason; docs/embedders.md says what to "
            "do. Good: none.",
            "reqps",
            (Query(rate("semantic_health_embedder_failures_total", "reason"), "{{reason}}"),),
        ),
        Panel(
            "Lost on the way out",
            "Readings that no series could take, label values beyond their bound, failed OTLP "
            "exports, spans and log records that no receiver took, and records that the exchange log could not take, "
            "per interval. Good: none.",
            "short",
            (
                Query(increase("semantic_health_readings_dropped_total", "metric"), "dropped {{metric}}"),
                Query(increase("semantic_health_label_overflow_total", "metric"), "overflow {{metric}}"),
                Query(increase("semantic_health_export_failures_total"), "failed OTLP exports"),
                Query(increase("semantic_health_telemetry_dropped_total", "signal", "reason"), "{{signal}} {{reason}}"),
                Query(increase("semantic_health_exchange_log_lost_total"), "lost log records"),
            ),
        ),
        Panel(
            "Versions",
            "Instances by version.",
            "short",
            (Query(f"count by (version) ({select('semantic_health_build_info')})", "{{version}}"),),
        ),
        Panel(
            "Configuration in force",
            "1 where the configuration that was last read is in force, 0 where it was refused and the one before goes "
            "on. Good: 1; the log says what is wrong.",
            "none",
            (Query(latest("min", "semantic_health_config_last_reload_successful", "instance"), "{{instance}}"),),
            high=1.0,
        ),
        Panel(
            "Age of the configuration",
            "How long ago the configuration that is in force was read.",
            "s",
            (
                Query(
                    "time() - "
                    + latest("max", "semantic_health_config_last_reload_success_timestamp_seconds", "instance"),
                    "{{instance}}",
                ),
            ),
        ),
        Panel(
            "Ghosts of a retired layer",
            "Series that the exporters of a retired layer still report, renamed `legacy_layer_…` when they are "
            "scraped; what they say of themselves is not health. Good: none; switch those exporters off.",
            "short",
            (Query(ghosts(), ""),),
            "table",
            width=16,
        ),
    ),
)

SIDECAR = Dashboard(
    "semhealth-sidecar",
    "semhealth sidecar",
    "Whether the sidecar itself is well: what it misses, what it costs the service, and its parts.",
    (TRAFFIC, COST, PARTS),
    variables=("job", "instance"),
)
