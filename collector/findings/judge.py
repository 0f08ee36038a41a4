"""What is there to tell the people who run this service: the rules of the catalogue, held against one exchange."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from collector.catalogue import FINDING_RULE
from collector.findings import request, response
from collector.findings.policy import Policy
from collector.findings.repetition import SHORTEST
from collector.findings.trends import Trends
from collector.labels import model_label
from collector.model import NO_WORDS, Exchange, Finding, Reading, Record

Claim = Callable[[Exchange, Policy], dict[str, float | str | bool] | None]


# What an exchange has without which some rules cannot hold, in the order of `_traits`.
TRAITS = (
    "prompt",  # words of the prompt that a rule looks for
    "schema",  # of the output or of a tool
    "no_usage",
    "cut",  # it may have ended at a limit
    "text",  # long enough to go round in circles
    "no_text",
    "stalls",
    "region",  # asked for
    "notice",  # a deprecation, or a text that was corrected
)
_Traits = tuple[bool, ...]

# Rules that need nothing but the exchange, each with the trait that it needs; a function's name is its rule's id.
CLAIMS: tuple[tuple[Claim, str | None], ...] = (
    (request.system_prompt_long, "prompt"),
    (request.markup_comments, "prompt"),
    (request.cr_lf, "prompt"),
    (request.late_constraints, "prompt"),
    (request.schema_feature_refused, "schema"),
    (request.invalid_header_value, None),
    (request.include_usage_missing, "no_usage"),
    (request.max_tokens_low, "prompt"),
    (response.model_downgrade, None),
    (response.cut_by_length, "cut"),
    (response.diagnostic_mode, None),
    (response.answer_repeats, "text"),
    (response.answer_empty, "no_text"),
    (response.stream_stalls, "stalls"),
    (request.usage_missing, "no_usage"),
    (response.wrong_region, "region"),
    (response.deprecation, "notice"),
    (response.text_corrected, "notice"),
)
# Rules that need what came before (trends.py).
TREND_RULES = frozenset({
    "early_retry", "retry_storm", "client_timeout_short", "cold_start", "cache_hit_collapse", "overload_coming",
    "quota_running_out",
})  # fmt: skip


def _traits(exchange: Exchange) -> _Traits:
    record, asked = exchange.record, exchange.request
    chars = record.text.chars
    return (
        asked.prompt is not None and asked.prompt is not NO_WORDS and asked.prompt != NO_WORDS,
        asked.expectation is not None or bool(asked.tool_schemas),
        record.usage is None,
        record.outcome != "completed",
        chars >= SHORTEST,
        chars == 0,
        bool(record.timing.stalls),
        record.upstream.residency_requested is not None,
        exchange.is_deprecated or record.correction_ratio is not None,
    )


class _Rules:
    """A route's policy, and the claims that it leaves on, by the traits of an exchange."""

    __slots__ = ("_by_traits", "policy")

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._by_traits: dict[_Traits, tuple[tuple[str, Claim], ...]] = {}  # at most as many as there are combinations

    def claims(self, traits: _Traits) -> tuple[tuple[str, Claim], ...]:
        """Rule ids and claims that can hold of an exchange with these traits, in order."""
        found = self._by_traits.get(traits)
        if found is None:
            found = self._by_traits[traits] = tuple(
                (claim.__name__, claim)
                for claim, needed in CLAIMS
                if claim.__name__ not in self.policy.off and (needed is None or traits[TRAITS.index(needed)])
            )
        return found


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
        for name, claim in rules.claims(_traits(exchange)):
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
        told = []
        for finding in record.findings:
            labels = (route, model, finding.rule, finding.severity)
            told.append(Reading("semantic_health_findings_total", 1.0, labels))
        timeout = self._trends.recommended_timeout(route, model, now)
        if timeout is not None:
            told.append(Reading("semantic_health_recommended_timeout_seconds", timeout, (route, model)))
        return told
