"""What the terminal shows, at 80 columns: nothing is cut, however long the values are."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console, RenderableType

from services.cli.running.part_words import part_words
from services.cli.running.tables import figures_table, forecast_view, model_view
from services.demo.outlook_line import NextDay
from services.demo.summary import checks, print_summary
from services.demo.terminal_view import DemoProgress, headless_line, live_view, outlook_lines
from services.demo.watch import Seen

HORIZONS_MIN = (5, 30, 60, 120, 180, 360, 720, 1440)
LEVELS = {"air_temp_c": 17.25, "rh_pct": 99.95, "co2_ppm": 1234.4, "vpd_kpa": 1.234}
ZONE = "south-compartment-12"
REASON = "air_temp_c at 60 min: 0.52 against 0.61 of climatology, over 12,345 held-back windows of 3 zones"


def forecast(zone: str = ZONE) -> dict[str, Any]:
    """An answer of /predict with wide numbers."""
    return {
        "site": "demo", "zone": zone, "model_version": "online", "degraded": ["co2_ppm is 3 h old"],
        "now": LEVELS,
        "forecasts": {
            target: [{"horizon_min": h, "p10": x * 0.9, "p50": x, "p90": x * 1.1} for h in HORIZONS_MIN]
            for target, x in LEVELS.items()
        },
    }  # fmt: skip


def model(version: str, stage: str) -> dict[str, Any]:
    """A row of /models."""
    errors = dict.fromkeys(("model", "persistence", "naive_24h"), 0.512)
    return {
        "version": version, "stage": stage, "created_ms": 1_646_092_800_000, "weights_sha256": "ab" * 32,
        "trained_on": {"from": "2022-02-01T00:00:00Z", "to": "2022-02-15T00:00:00Z"}, "forced": stage == "champion",
        "reason": REASON, "held_back_mae": {"air_temp_c": {"60": errors, "1440": errors}}, "served": True,
    }  # fmt: skip


def summary() -> dict[str, Any]:
    """A demo's summary with numbers as wide as they get."""
    names = ("model", "persistence", "naive_24h")
    cells = {str(h): {"n": 12_345, **dict.fromkeys(names, 0.00838)} for h in HORIZONS_MIN}
    return {
        "published": 1_234_567, "accepted": 1_234_567, "duplicates": 0, "late": 0, "rejected": {}, "rows": 123_456,
        "forecasts": 12_345, "first_forecast_s": 12.3, "peak_memory_mb": 2345, "retrains": 1, "swaps": 1, "errors": [],
        "probe": {"sent": 3600, "failed": 0, "failures": {}, "p50_ms": 2.1, "p99_ms": 12.3},
        "models": [model("v12", "champion")],
        "mae": dict.fromkeys(LEVELS, cells) | {"co2_ppm": {"60": {"n": 7, **dict.fromkeys(names, 1234.5)}}},
        "ran_s": 200.0, "retrain_every_s": 30.0, "promote": "always",
    }  # fmt: skip


def shown(*what: RenderableType) -> str:
    """The text on a terminal of 80 columns."""
    console = Console(file=io.StringIO(), width=80)
    for part in what:
        console.print(part)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in text, text
    assert max(len(line) for line in text.splitlines()) <= 80, text
    return str(text)


def test_forecasts_fit() -> None:
    """Every band is whole and on the line of its target; each zone is a section."""
    text = shown(forecast_view([forecast(), forecast("north")]))
    assert text.count("1234 (1111-1358)") == 6
    assert text.count("17.2 (15.5-19.0)") == 6
    assert f"demo/{ZONE}  model online  degraded: co2_ppm is 3 h old" in text


def test_models_fit() -> None:
    """A model's stage, training range, errors and the gate's whole reason."""
    text = shown(model_view([model("v12", "champion"), model("v11", "refused")]))
    assert "v12  champion  made 2022-03-01 00:00 UTC, trained on 2022-02-01 to 2022-02-15" in text
    assert "0.51 / 0.51 / 0.51" in text
    assert REASON in " ".join(text.split())


def test_a_model_whose_files_were_pruned_says_so() -> None:
    """Its figures and its reason are shown as before."""
    pruned = model("v1", "refused") | {"pruned": {"at_ms": 1_646_092_800_000, "done": True}}
    text = shown(model_view([pruned]))
    assert "Its files were pruned on 2022-03-01; it cannot serve again." in text
    assert REASON in " ".join(text.split())


def test_parts_fit() -> None:
    """Long figures go on in the next line."""
    text = shown(figures_table({"shard-0": {f"figure_{i}": 10**9 for i in range(20)}, "gateway": {"host": "x" * 90}}))
    assert "".join(text.split()).count("figure_") == 20


def test_the_demos_closing_tables_fit() -> None:
    """Names, errors, counts and verdicts are whole."""
    console = Console(file=io.StringIO(), width=80)
    found = checks(summary())
    print_summary(console, summary(), found)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in text
    tables = text[: text.index("samples published")].splitlines()
    assert max(len(line) for line in tables) <= 80
    for name in ("persistence", "24-h naive", "12,345", "0.00838", "1,234", "2022-02-15 00:00", "promotion forced"):
        assert name in text
    assert "✗ swapped at least twice, to different models (1 swaps, 1 different weights)" in text


def test_the_demos_live_view_fits() -> None:
    """Zones with their bands, the head and the events."""
    events = [{"kind": "refused", "version": "v12", "reason": REASON, "time_ms": 1_646_092_800_000}]
    shard = {"accepted": 1_234_567, "zone_rows": 123_456, "forecasts": 12_345, "origin_ms": 1_646_092_800_000}
    seen = Seen(components={"shard-0": shard}, events=events, forecasts={("demo", ZONE): forecast()})
    progress = DemoProgress()
    progress.probe = {"sent": 3600, "failed": 0, "p99_ms": 12.3}
    text = shown(live_view(seen, progress))
    assert text.count("1234 (1111-1358)") == 3
    assert "1,234,567 samples" in text
    assert "123,456 rows" in headless_line(seen, progress)


@pytest.mark.parametrize("width", [48, 60, 70, 74, 100])
def test_a_narrow_terminal_shows_fewer_horizons_and_no_half_number(width: int) -> None:
    """1234 that is cut to 12 would be another number."""
    console = Console(file=io.StringIO(), width=width)
    console.print(live_view(Seen(forecasts={("demo", ZONE): forecast()}), DemoProgress()))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    header = next(line for line in lines if "p50" in line)
    bands = next(line for line in lines if "1234" in line)
    assert 1 <= header.count(" in ") == bands.count("1234 (1111-1358)")
    assert bands.rstrip().endswith(")")


def test_the_demo_says_the_same_of_tonight_in_both_views() -> None:
    """A line a zone, whole in 80 columns: the minimum with its time and the chance of a cold night, the maximum."""
    night = {"event": "night", "p10": -11.6, "p50": -10.4, "p90": -9.3, "time": "2024-03-16T04:30:00Z"}
    below = {"event": "night_below", "limit": -11.2, "chance": 0.18, "nights": 14}
    day = {"event": "day", "p10": 21.6, "p50": 22.4, "p90": 23.3, "time": "2024-03-16T13:00:00Z"}
    said = NextDay(
        timezone="Europe/Amsterdam", origin="2024-03-15T20:00:00Z", events=[night, day, below], problem=""
    )  # fmt: skip
    seen = Seen(outlooks={("demo", ZONE): said, ("demo", "north"): {**said, "problem": "[the shard] is away"}})
    lines = outlook_lines(seen)
    assert lines[1] == (
        f"{ZONE} tonight -10.4 °C at 05:30 (-11.6 to -9.3), below -11.2: 18 %; tomorrow 22.4 °C at 14:00 (21.6 to 23.3)"
    )
    assert lines[0] == "north tonight and tomorrow are not known: [the shard] is away"
    text = " ".join(shown(live_view(seen, DemoProgress())).replace("│", " ").split())
    assert all(line in text for line in lines)


@pytest.mark.parametrize(
    ("changes", "judged"),
    [
        ({}, {"retrained at least twice", "swapped at least twice, to different models"}),
        ({"promote": "gate"}, {"retrained at least twice"}),
        ({"ran_s": 42.0}, set()),
        ({"retrain_every_s": 0.0}, set()),
    ],
)
def test_swaps_are_only_claimed_where_they_can_be_expected(changes: dict[str, Any], judged: set[str]) -> None:
    """A short or interrupted run, one without retraining and one with a strict gate are no failures."""
    assert {claim for claim, _, _ in checks({**summary(), **changes}) if "twice" in claim} == judged


def test_a_part_is_told_in_words() -> None:
    """What is 0 is left out; what is wrong stands there. A part of another release says what it counts."""
    gateway = {"connected": False, "messages": 1200, "samples": 1100, "refused": 3, "buffered_records": 7}
    gateway |= {"oldest_unsent_s": 90.0, "bytes_free": 3 << 30, "restarts": 1}
    assert part_words("gateway", gateway) == (
        "not connected; 1,200 messages with 1,100 samples, 3 refused; 7 records wait for the uplink, the oldest for "
        "1.5 min; 3.0 GiB left for the log; 1 restart"
    )
    shard = {"accepted": 5, "late": 1, "zone_rows": 2, "watermark_ms": {"a": 1_646_092_800_000, "b": 0}, "forecasts": 1}
    shard |= {
        "alerts": {"firing": 1, "pending": 4},
        "behind": True,
        "backlog": 12,
        "series": {"queued": 0, "dropped": 9},
    }
    assert part_words("shard-1", shard) == (
        "5 samples taken, 1 late; 2 rows of zones, to 2022-03-01 00:00 UTC; 1 forecast; 1 alert fires; it reads on, 12 "
        "records wait; 9 points lost"
    )
    run = {"version": "v2", "result": "refused", "ended_ms": 1_646_092_800_000}
    assert part_words(
        "retrainer", {"serving": "v1", "training": True, "last_run": run, "retrains": 1, "refused": 1}
    ) == ("serves v1; trains now; last training ended 2022-03-01 00:00 UTC: v2 refused; 1 training, 1 refused")
    assert part_words("retrainer-trees", {"serving": "online", "last_run": None}) == "serves online; no training yet"
    runtime = {"kind": "haproxy", "alerts_told": {"mqtt": 2, "webhook": 1}, "alerts_lost": {"webhook": 0}}
    assert part_words("runtime", runtime) == (
        "requests come through haproxy; 3 messages told of alerts (mqtt 2, webhook 1)"
    )
    assert part_words("adviser", {"asked": 2, "failed": 0, "by": {"page": 2}}) == "asked 2; by.page 2"
