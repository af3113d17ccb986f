"""Why something of a device is kept out, by what it is: every reason that we give, so that each is counted from 0 on.

A decoder of another package may have reasons of its own.
"""

from __future__ import annotations

__all__ = ["PLAN_METRIC_REASONS", "PLAN_REASONS", "SAMPLE_REASONS", "VALUE_REASONS"]

VALUE_REASONS = ("malformed", "out_of_range", "unknown_metric")
"""Of a value, whose sample was taken."""

SAMPLE_REASONS = (
    "oversized", "unknown_topic", "future_ts", "ancient_ts", "no_values", *VALUE_REASONS,
    "decoder_failed", "foreign_record",
)  # fmt: skip
"""Of whole samples and messages."""

PLAN_METRIC_REASONS = (*VALUE_REASONS, "wrong_kind", "not_rising", "too_far_ahead", "past")
"""Of what a plan that was taken says of one metric."""

PLAN_REASONS = (
    "oversized", "unknown_topic", "too_many_points", "future_ts", "ancient_ts", "no_values", *PLAN_METRIC_REASONS,
)  # fmt: skip
"""Of whole plans: that of its first metric where nothing of it is left."""
