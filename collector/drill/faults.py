"""Which fault each alert is for, on the wire or on a process."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

Asks = Literal["mixed", "structured", "other_category", "malformed", "resident", "retrying"]
Act = Literal[
    "stop_api",  # the API goes away
    "stop_traffic",
    "more_traffic",
    "kill_sidecar",
    "kill_analyst",  # again and again
    "kill_validator",
    "kill_embedder",  # again and again
    "stop_collector",  # of OTLP
    "lose_contract",  # the file breaks, and the analyst must read it again
    "break_config",  # the file breaks, and the sidecar is told to reload it
    "start_ghost",  # an exporter of a retired layer
    "lose_targets",  # discovery finds no sidecar any more
    "none",  # it fires by itself
]


class Fault(Struct, frozen=True):
    """What goes wrong. `api` are faults of the simulated API; `asks` is what the service sends from then on.

    `alone` is a sidecar of its own; `rate` is in requests a second, `warm` seconds of good traffic before.
    `route` are further settings of the route.
    """

    api: tuple[dict[str, Any], ...] = ()
    act: Act | None = None
    asks: Asks | None = None
    good: Asks = "mixed"
    alone: bool = False
    rate: float = 8.0
    warm: float = 10.0
    route: dict[str, Any] = {}


def _api(fault: str, share: float = 1.0, **more: Any) -> tuple[dict[str, Any], ...]:
    return ({"fault": fault, "share": share, **more},)


def _objective(**stated: Any) -> dict[str, Any]:
    return {"objectives": [stated]}


_ERRORS = _objective(name="errors", measure="errors", share=0.99)
RULE = {"rules": [{"name": "known-category",
                   "values": {"at": "category", "list": ["question", "complaint", "request"]}}]}  # fmt: skip

FAULTS: dict[str, Fault] = {
    "SemhealthValidityLow": Fault(_api("invalid_json")),
    "SemhealthContractRuleBroken": Fault(asks="other_category", good="structured", route={"contract": RULE}),
    "SemhealthContextRelevanceLow": Fault(_api("context_lost")),
    "SemhealthContextRelevanceFallen": Fault(_api("context_lost"), warm=25.0),
    "SemhealthGroundednessFallen": Fault(_api("context_lost"), warm=25.0),
    "SemhealthRelevanceDrift": Fault(_api("context_lost"), warm=60.0),
    "SemhealthStreamsStutter": Fault(_api("stall", seconds=1.5)),
    "SemhealthStreamsUneven": Fault(
        _api("stutter"), route=_objective(name="jitter", measure="jitter", at_most=0.015, share=0.5)
    ),
    "SemhealthAnswersTruncated": Fault(_api("truncation", 0.3, mode="cut")),
    "SemhealthAnswersCutByLength": Fault(_api("truncation", 0.5, mode="length")),
    "SemhealthUpstreamErrors": Fault(act="stop_api"),
    "SemhealthThrottled": Fault(_api("overload", 0.5, mode="gateway")),
    "SemhealthRateLimitNearlyUsed": Fault(_api("drain", 0.15)),
    "SemhealthQuotaRunningOut": Fault(_api("drain", 0.1)),
    "SemhealthQuotaEmptyAtLowUse": Fault(_api("drain")),
    "SemhealthModelDowngraded": Fault(_api("downgrade")),
    "SemhealthColdStarts": Fault(_api("cold_start", 0.3, seconds=1.5)),
    "SemhealthDiagnosticMode": Fault(_api("diagnostic")),
    "SemhealthResidencyBroken": Fault(_api("wrong_region"), good="resident"),
    "SemhealthRetryStorm": Fault(_api("overload", mode="gateway"), asks="retrying"),
    "SemhealthModelLoadHigh": Fault(_api("load", mode="high")),
    "SemhealthModelOverloaded": Fault(_api("overload", 0.12, mode="model")),
    "SemhealthModelSpare": Fault(_api("load", mode="spare"), warm=1.0),
    "SemhealthKvCacheHitLow": Fault(_api("cache_loss", 0.2)),
    "SemhealthKvCacheHitCollapsed": Fault(_api("cache_loss")),
    "SemhealthRequestsRefused": Fault(asks="malformed"),
    "SemhealthCostAboveBudget": Fault(act="more_traffic", rate=2.0, route={"cost_per_hour": 0.1}),
    "SemhealthNoTraffic": Fault(act="stop_traffic", rate=20.0),
    "SemhealthObjectiveBurnsFast": Fault(_api("truncation", 0.5, mode="cut"), route=_ERRORS),
    "SemhealthObjectiveBurnsSlowly": Fault(_api("truncation", 0.055, mode="cut"), route=_ERRORS, warm=1.0),
    "SemhealthObjectiveMissed": Fault(
        _api("cold_start", seconds=0.9),
        route=_objective(name="p95", measure="first_token", at_most=0.5, share=0.95),
    ),
    "SemhealthLegacyLayerReports": Fault(act="start_ghost"),
    "SemhealthContractNotLoaded": Fault(act="lose_contract", alone=True, route={"contract": RULE}),
    "SemhealthUnobservedExchanges": Fault(act="kill_analyst", alone=True, rate=30.0),
    "SemhealthEmbedderNotReady": Fault(act="kill_embedder", alone=True),
    "SemhealthExportsFailing": Fault(act="stop_collector", alone=True),
    "SemhealthProcessRestarted": Fault(act="kill_validator", alone=True),
    "SemhealthReloadFailed": Fault(act="break_config", alone=True),
    "SemhealthSidecarDown": Fault(act="kill_sidecar", alone=True),
    "SemhealthWatchdog": Fault(act="none"),
    "SemhealthSidecarAbsent": Fault(act="lose_targets"),
}
LAST = ("SemhealthSidecarAbsent",)  # nothing can be tried beside or after it
