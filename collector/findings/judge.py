"""What is there to tell the people who run this service: the rules of the catalogue, held against one exchange."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from collector.catalogue import FINDING_RULE
from collector.findings import request, response
from collector.findings.policy import Policy
from collector.findings.trends import Trends
from collector.labels import model_label
from collector.model import Exchange, Finding, Reading, Record

# Rules that need nothing but the exchange; a function's name is its rule's id.
CLAIMS = (
    request.system_prompt_long,
    request.markup_comments,
    request.cr_lf,
    request.late_constraints,
    request.schema_feature_refused,
    request.invalid_header_value,
    request.include_usage_missing,
    request.max_tokens_low,
    response.model_downgrade,
    response.cut_by_length,
    response.diagnostic_mode,
    response.answer_repeats,
    response.answer_empty,
    response.stream_stalls,
    request.usage_missing,
    response.wrong_region,
    response.deprecation,
    response.text_corrected,
)
# Rules that need what came before (trends.py).
TREND_RULES = frozenset({
    "early_retry", "retry_storm", "client_timeout_short", "cold_start", "cache_hit_collapse", "overload_coming",
    "quota_running_out",
})  # fmt: skip


class _Rules:
    """A route's policy, and the claims that it leaves on."""

    __slots__ = ("claims", "policy")

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.claims = tuple((claim.__name__, claim) for claim in CLAIMS if claim.__name__ not in policy.off)


class Findings:
    """Holds the rules against exchanges, route by route, in the order in which they end."""

    def __init__(self, policies: Mapping[str, Policy] | None = None) -> None:
        self._trends = Trends()
        self._default = _Rules(Policy())
        self._routes = {route: _Rules(policy) for route, policy in (policies or {}).items()}

    def change(self, policies: Mapping[str, Policy]) -> None:
        """Other policies by route from now on; what came before stays known."""
        self._routes = {route: _Rules(policy) for route, policy in policies.items()}

    def judge(self, exchange: Exchange, came_early: bool = False) -> tuple[Finding, ...]:
        """Every rule that holds. `came_early`: the request did not wait as it had been told to (retries.py)."""
        rules = self._routes.get(exchange.record.route, self._default)
        policy = rules.policy
        found = []
        for name, claim in rules.claims:
            facts = claim(exchange, policy)
            if facts is not None:
                found.append(Finding(name, FINDING_RULE[name].severity, facts))
        for name, facts in self._trends.judge(exchange, policy, came_early):
            if name not in policy.off:
                found.append(Finding(name, FINDING_RULE[name].severity, facts))
        return tuple(found)

    def readings(self, record: Record, now: float) -> Iterable[Reading]:
        """A count for each finding, and every few seconds the time-out that its model needs; `now` is monotonic."""
        route, model = record.route, model_label(record)
        told = [
            Reading("semantic_health_findings_total", 1.0, (route, model, finding.rule, finding.severity))
            for finding in record.findings
        ]
        timeout = self._trends.recommended_timeout(route, model, now)
        if timeout is not None:
            told.append(Reading("semantic_health_recommended_timeout_seconds", timeout, (route, model)))
        return told
