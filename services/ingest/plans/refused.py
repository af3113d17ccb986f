"""Step 5 of the way of a reading: plans that were refused, among a partition's counts, by reason.

They stand there under names of their own, as no sample is among them.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["count_of", "refused_by_reason", "refused_plans"]


def count_of(reason: str, whole: bool) -> str:
    """The name of the count: of whole plans, or of what plans that were taken say of one metric."""
    return f"{'plans_refused' if whole else 'plan_metrics_refused'}.{reason}"


def refused_plans(plans: Mapping[str, int], metrics: Mapping[str, int]) -> dict[str, int]:
    """Names of a partition's counts for plans that were refused, and for single metrics of others, by reason.

    >>> refused_plans({"malformed": 2}, {"not_rising": 1})
    {'plans_refused.malformed': 2, 'plan_metrics_refused.not_rising': 1}
    """
    whole = {count_of(reason, whole=True): n for reason, n in plans.items()}
    return whole | {count_of(reason, whole=False): n for reason, n in metrics.items()}


def refused_by_reason(counts: Mapping[str, int], whole: bool) -> dict[str, int]:
    """Out of a partition's counts, by reason: refused plans, or refused metrics of plans that were taken.

    >>> refused_by_reason({"plans": 7, "plans_refused.malformed": 2}, whole=True)
    {'malformed': 2}
    """
    prefix = count_of("", whole)
    return {name.removeprefix(prefix): n for name, n in counts.items() if name.startswith(prefix)}
