"""Prometheus text: what components show becomes the metrics that their structures declare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from services.observe.metrics import prometheus_text
from services.serve.components import ApiFigures, told_by

OWN = ApiFigures(zones=2, ready=True)


def samples(stats: Mapping[str, Any]) -> list[str]:
    """The samples of what components show, without those of the API itself."""
    lines = prometheus_text(told_by(stats, OWN)).decode().splitlines()
    return [line for line in lines if not line.startswith(("#", "hothouse_api_"))]


def test_figures_of_the_series_store_are_figures_of_their_own() -> None:
    """What was sent is a counter, what waits is a gauge; of an error's text it is one that there is one."""
    series = {"queued": 3, "sent": 70, "refused": 0, "dropped": 2, "retries": 1, "last_error": "away"}
    assert samples({"shard-0": {"series": series}}) == [
        'hothouse_series_points_queued{component="shard-0"} 3.0',
        'hothouse_series_points_sent_total{component="shard-0"} 70.0',
        'hothouse_series_points_refused_total{component="shard-0"} 0.0',
        'hothouse_series_points_dropped_total{component="shard-0"} 2.0',
        'hothouse_series_retries_total{component="shard-0"} 1.0',
        'hothouse_series_failing{component="shard-0"} 1.0',
    ]


def test_no_counter_of_a_shard_goes_back() -> None:
    """While it reads again what was counted before, its counts since the log's beginning are missing: all of one that
    falls would be an increase. What its process counts, and what it is now, is there.
    """
    found = samples({"shard-0": {
        "replays": True, "samples": 7, "rejected": {"malformed": 1}, "matured": {"rh_pct": {60: 2}},
        "watermark_ms": {"demo": 5000}, "forecast_failures": 3,
    }})  # fmt: skip
    assert found == [
        'hothouse_watermark_timestamp_seconds{component="shard-0",site="demo"} 5.0',
        'hothouse_forecast_failures_total{component="shard-0"} 3.0',
    ]
    assert samples({"shard-0": {"replays": False, "samples": 7}}) == ['hothouse_samples_total{component="shard-0"} 7.0']


def test_the_gateways_samples_are_not_the_shards() -> None:
    """Who sums a metric over its components counts each sample once."""
    assert samples({"shard-0": {"samples": 7}, "shard-1": {"samples": 5}, "gateway": {"samples": 12, "error": ""}}) == [
        'hothouse_gateway_samples_total{component="gateway"} 12.0',
        'hothouse_samples_total{component="shard-0"} 7.0',
        'hothouse_samples_total{component="shard-1"} 5.0',
    ]


def test_times_are_seconds_and_what_is_no_figure_is_left_out() -> None:
    """A training that runs, a process id and a component that nobody knows are no metrics; unknown is no number."""
    running = {"kind": "time", "reason": "", "started_ms": 5}
    stats = {
        "shard-0": {"watermark_ms": {"demo": 1_646_092_800_000}, "origin_ms": 7, "samples_per_s": 3.5},
        "retrainer": {"running": running, "last_run": None, "next_due_s": None, "serving": "v1", "rollbacks": 2},
        "gateway": {"pid": 17, "updated_ms": 7500},
        "somebody": {"samples": 3},
    }
    assert samples(stats) == [
        'hothouse_gateway_updated_timestamp_seconds{component="gateway"} 7.5',
        'hothouse_rollbacks_total{component="retrainer"} 2.0',
        'hothouse_watermark_timestamp_seconds{component="shard-0",site="demo"} 1.6460928e+09',
    ]


def test_error_and_coverage_are_counters_by_target_and_horizon() -> None:
    """Two labels tell their entries apart, beside that of the component."""
    stats = {"shard-0": {"matured": {"rh_pct": {5: 10, 60: 4}}, "absolute_error": {"rh_pct": {60: 2.5}}}}
    labels = 'component="shard-0",horizon_min="{}",target="rh_pct"'
    assert samples(stats) == [
        f"hothouse_scored_forecasts_total{{{labels.format(5)}}} 10.0",
        f"hothouse_scored_forecasts_total{{{labels.format(60)}}} 4.0",
        f"hothouse_forecast_absolute_error_total{{{labels.format(60)}}} 2.5",
    ]


def test_the_text_is_what_prometheus_reads() -> None:
    """Each family stands once, with its kind and help, whoever told it."""
    shown = prometheus_text(told_by({"shard-0": {"late": 1}, "shard-1": {"late": 2}}, OWN)).decode()
    families = {one.name: one for one in text_string_to_metric_families(shown)}
    assert shown.count("# TYPE hothouse_samples_late_total counter") == 1
    assert families["hothouse_samples_late"].documentation == "Samples whose row had closed before they came."
    assert [sample.value for sample in families["hothouse_samples_late"].samples] == [1, 2]
    assert families["hothouse_api_ready"].type == "gauge"
