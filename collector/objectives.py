"""Which objectives a route has: those that it states, and those of its profile."""

from __future__ import annotations

from collector.config import Route, RouteObjective, Settings

# The values of the source documents (requirements.md, R2 to R5, R16, R17), which are those of one provider inside its
# own network. Validity has no value there: 0.97 is the least that burn-rate rules serve.
STRICT: tuple[RouteObjective, ...] = (
    RouteObjective(name="short_prompt", measure="duration", prompts="short_prompt", at_most=0.05, share=0.95),
    RouteObjective(name="long_context", measure="duration", prompts="long_context", at_most=0.18, share=0.95),
    RouteObjective(name="first_token", measure="first_token", at_most=0.08, share=0.95),
    RouteObjective(name="jitter", measure="jitter", at_most=0.015, share=0.95),
    RouteObjective(name="validity", measure="validity", share=0.97),
    RouteObjective(name="relevance", measure="context_relevance", at_least=0.75, share=0.5),
    RouteObjective(name="errors", measure="errors", share=0.995),
    RouteObjective(name="kv_cache", measure="kv_cache_hit", at_least=0.95, share=0.95),
)

# Below this share a 14.4-fold burn cannot happen; one rule on the share of bad exchanges serves such objectives.
LEAST_OF_BURN_RATES = 0.97


def objectives_of(settings: Settings, route: Route) -> tuple[RouteObjective, ...]:
    """The route's own objectives, then those of its profile whose names it has not used."""
    profile = settings.objective_profile if route.objective_profile is None else route.objective_profile
    names = {each.name for each in route.objectives}
    of_profile = STRICT if profile == "strict" else ()
    return (*route.objectives, *(each for each in of_profile if each.name not in names))


def alerts_of(objective: RouteObjective) -> tuple[str, ...]:
    """The alerts that the objective can raise, by name (alerts/semhealth.rules.yml)."""
    if objective.share >= LEAST_OF_BURN_RATES:
        shares: tuple[str, ...] = ("SemhealthObjectiveBurnsFast", "SemhealthObjectiveBurnsSlowly")
    else:
        shares = ("SemhealthObjectiveMissed",)
    return (*shares, "SemhealthStreamsUneven") if objective.measure == "jitter" else shares


def described(settings: Settings, routes: tuple[Route, ...]) -> str:
    """What `semhealth check` says: prompt classes, and each route with its objectives and the alerts they can raise."""
    boundary = settings.analysis.long_context_tokens
    lines = [f"prompts: short_prompt up to {boundary} input tokens, long_context above (reported, else bytes ÷ 4)"]
    for route in routes:
        promised = objectives_of(settings, route)
        lines.append(f"route {route.name}: {route.prefix} → {route.upstream}")
        if not promised and route.cost_per_hour is None:
            lines.append("  no objectives: of latency, jitter and cost no alert can be raised")
        lines += [f"  {_sentence(each)} → {', '.join(alerts_of(each))}" for each in promised]
        if route.cost_per_hour is not None:
            lines.append(f"  cost: at most {route.cost_per_hour:g} US dollars an hour → SemhealthCostAboveBudget")
    return "\n".join(lines)


def _sentence(objective: RouteObjective) -> str:
    bound = ""
    if objective.at_most is not None:
        bound = f" at most {objective.at_most:g} s"
    elif objective.at_least is not None:
        bound = f" at least {objective.at_least:g}"
    prompts = "" if objective.prompts is None else f" of {objective.prompts}"
    return f"{objective.name}: {objective.measure}{prompts}{bound} for {objective.share * 100:g} %"
