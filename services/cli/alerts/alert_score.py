"""``alerts score``: what rules would have warned of along a recording, and how good that was."""

from __future__ import annotations

import math
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import DownloadColumn
from rich.table import Table as Shown

from services.cli.base import console, counting_bar, errors, need_cluster, need_out, print_json, print_notes, utc_minute
from services.errors import ConfigError, HothouseError

if TYPE_CHECKING:
    from models.alerts.alert_book import Alert
    from models.alerts.scoring.alert_scores import RuleScore
    from services.backtest.alert_replay import Scored, Scores

__all__ = ["EXAMPLE", "LimitsFrom", "score", "shown", "write"]

EXAMPLE = "Example: hothouse alerts score recordings/lettuce --crop lettuce --timezone Europe/Amsterdam"

WIDTH = 150
"""The table's numbers are not cut where a terminal is narrower, or there is none."""

WANTED = (
    "wanted: hit rate 0.80 or more, false 1.00 or less, skill above 0 with its whole interval, reliability and worst "
    "group 0.07 or less"
)


class LimitsFrom(StrEnum):
    """The hours in which a rule must have events in 2 to 10 %, as near to 5 % as can be."""

    WHOLE = "whole"
    FIRST = "first"


def score(
    recording: Annotated[Path, typer.Argument(help="A folder of CSV or Parquet, one file a zone.")],
    rules: Annotated[Path | None, typer.Option(help="Rules in TOML, instead of a crop's.")] = None,
    crop: Annotated[str, typer.Option(help="Crop whose rules are used, if no file names one.")] = "other",
    stage: Annotated[str, typer.Option(help="Stage of the crop: young, growing, fruiting.")] = "growing",
    first: Annotated[str, typer.Option(help="The first part, which is learned from and not scored.")] = "14d",
    limits_from: Annotated[
        LimitsFrom,
        typer.Option(help="Each rule has events in 2 to 10 % of hours: of the whole recording, or of the first part."),
    ] = LimitsFrom.WHOLE,
    own_limits: Annotated[bool, typer.Option("--own-limits", help="Keep the rules' limits instead.")] = False,
    latitude: Annotated[float | None, typer.Option(help="Degrees north, where known.", min=-90, max=90)] = None,
    longitude: Annotated[float | None, typer.Option(help="Degrees east, where known.", min=-180, max=180)] = None,
    timezone: Annotated[str | None, typer.Option(help="The recording's clock, as in Europe/Amsterdam.")] = None,
    ahead: Annotated[Path | None, typer.Option(help="Plans as they were issued, .parquet or .csv.")] = None,
    ahead_source: Annotated[list[str] | None, typer.Option(help="Use the plans of this source; repeatable.")] = None,
    fine_tune: Annotated[
        bool, typer.Option("--fine-tune", help="Fine-tune the package's network along it, as a running system does.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Write every alert that fired: .csv.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Replay a recording, let rules warn along it, and measure how good the alerts were.

    An event counts as announced if an alert fired at least an hour before it began and was still there. Every chance is
    made from what was known by then.
    """
    if ahead_source and not ahead:
        raise ConfigError("--ahead-source names plans of a file", "Add --ahead FILE.")
    if out:
        need_out(out, "alerts", ".csv")
    with need_cluster("alerts score"):
        from services.backtest.ahead import read_plans
        from services.backtest.alert_replay import limits_by_share, score_alerts
        from services.backtest.frames import options_of
        from services.backtest.table import read_table
    options = replace(
        options_of("30min", first, None, latitude, longitude, timezone, False, "first", "--"), fine_tune=fine_tune
    )
    wanted = _rules(rules, crop, stage)
    name = recording.resolve().name
    with counting_bar(f"reading {name}", DownloadColumn()) as told:
        table = read_table(recording, told)
    with errors.status("choosing limits ..."):
        plans, notes = read_plans(ahead, ahead_source or [], table) if ahead else ([], [])
        chosen = [] if own_limits else limits_by_share(table, options, wanted, limits_from is LimitsFrom.WHOLE)
    print_notes([*table.notes, *notes])
    left_out = [each for each in chosen if each.why_not]
    kept = [rule for rule in wanted if rule.is_course] if own_limits else [c.rule for c in chosen if not c.why_not]
    with counting_bar(name) as told:
        found = score_alerts(table, options, kept, plans, told)
    of_hours = {LimitsFrom.WHOLE: "chosen from all hours", LimitsFrom.FIRST: f"chosen from the first {first} alone"}
    limits = "the rules' own" if own_limits else of_hours[limits_from]
    if as_json:
        together = None if found.together is None else _figures(found.together)
        print_json({
            "limits": limits, "rules": [_numbers(each) for each in (*found.rules, *left_out)], "together": together,
        })  # fmt: skip
    else:
        title = (
            f"{name}: {len(table.names)} zones, {len(found.fired)} alerts; limits {limits}, scored after the first "
            f"{first}"
        )
        Console(width=max(console.width, WIDTH)).print(shown(title, found))
        for each in left_out:
            console.print(f"{each.rule.name}: {each.why_not}", highlight=False, soft_wrap=True)
        console.print(WANTED, highlight=False, soft_wrap=True)
    if out:  # after what is shown, which a disk that is full must not lose
        write(out, found.fired)


def _rules(path: Path | None, crop: str, stage: str) -> tuple[Any, ...]:
    from models.alerts.crop_rules import rules_for
    from services.alert.rules_file import load_document

    if path:
        document = load_document(path)
        if document.zones:
            named = ", ".join(document.zones)
            line = f"every zone is scored by the rules of the site: those of {named} alone are left out"
            console.print(f"[yellow]{escape(line)}[/]", highlight=False, soft_wrap=True)
        return document.rules
    try:
        return rules_for(crop, stage)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def shown(title: str, found: Scores) -> Shown:
    """A table with a line a rule, and one of all together."""
    table = Shown(title=title)
    table.add_column("rule", no_wrap=True)
    for heading in (
        "limit", "lead, chance", "hours, first / rest", "events", "hit rate", "false a week", "near", "set aside",
        "told before", "alert on", "Brier / climatology", "skill (95 %)", "reliability", "worst group (at least)",
    ):  # fmt: skip
        table.add_column(heading, justify="right")
    for each in found.rules:
        if each.score is not None:
            rule, shares = each.rule, f"{each.first_share:.3f} / {each.share:.3f}"
            lead = f"{rule.lead_h:g} h, {rule.chance:.2f}"
            table.add_row(rule.name, f"{rule.limit:g}", lead, shares, *_cells(each.score))
    if found.together is not None:
        table.add_section()
        table.add_row("all, a rule", "", "", "", *_cells(found.together))
    return table


def _cells(score: RuleScore) -> list[str]:
    from models.alerts.scoring.alert_scores import FEW

    skill = score.skill
    return [
        str(score.events) if score.events >= FEW else f"{score.events}, few", _text(score.hit_rate, 2),
        _text(score.false_a_week, 2), f"{score.near} of {score.false}", str(score.set_aside),
        _text(score.lead_h, 1, " h"), _text(score.alert_share, 2),
        f"{_text(score.brier, 3)} / {_text(score.usual_brier, 3)}",
        _text(skill.skill, 2) + (f" ({skill.low:.2f} to {skill.high:.2f})" if math.isfinite(skill.low) else ""),
        _text(score.reliability.off, 3),
        _text(score.worst, 2) + (f" ({score.worst_least:.2f})" if math.isfinite(score.worst_least) else ""),
    ]  # fmt: skip


def _text(value: float, decimals: int, unit: str = "") -> str:
    return f"{value:.{decimals}f}{unit}" if math.isfinite(value) else ""


def _numbers(each: Scored) -> dict[str, Any]:
    """A rule's score as JSON has it."""
    rule, score = each.rule, each.score
    found: dict[str, Any] = {
        "rule": rule.name, "kind": rule.kind, "limit": rule.limit, "lead_h": rule.lead_h, "chance": rule.chance,
        "first_share": _number(each.first_share), "share": _number(each.share),
    }  # fmt: skip
    if score is None:
        return found | {"why_not": each.why_not}
    return found | _figures(score)


def _figures(score: RuleScore) -> dict[str, Any]:
    groups = score.reliability
    return {
        "events": score.events, "told": score.told, "hit_rate": _number(score.hit_rate), "alerts": score.alerts,
        "false": score.false, "false_a_week": _number(score.false_a_week), "near": score.near,
        "set_aside": score.set_aside, "lead_h_median": _number(score.lead_h), "alert_share": _number(score.alert_share),
        "brier": _number(score.brier), "climatology_brier": _number(score.usual_brier),
        "skill": _number(score.skill.skill), "skill_low": _number(score.skill.low),
        "skill_high": _number(score.skill.high), "reliability_off": _number(groups.off),
        "reliability_worst": _number(score.worst), "reliability_worst_least": _number(score.worst_least),
        "groups": [
            {"cases": n, "days": days, "chance": _number(said), "came": _number(came), "low": _number(low),
             "high": _number(high)}
            for n, days, said, came, low, high in zip(
                groups.cases, groups.days, groups.chance, groups.came, groups.low, groups.high, strict=True
            )
        ],
    }  # fmt: skip


def _number(value: float) -> float | None:
    return round(value, 4) if math.isfinite(value) else None


def write(path: Path, fired: list[Alert]) -> None:
    """Every alert, in the order in which they were told; times as in the recording. Raises :class:`HothouseError`."""
    import csv

    from services.store.files import write_atomically

    def time(ms: int | None) -> str:
        return "" if ms is None else utc_minute(ms)

    def put(beside: Path) -> None:
        with beside.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["zone", "rule", "told", "event_seen", "over", "from", "to", "chance", "words"])
            for a in fired:
                over = time(a.changed_ms) if a.is_over else ""
                writer.writerow([a.zone, a.rule, time(a.told_ms), time(a.came_ms), over, time(a.from_ms),
                                 time(a.to_ms), f"{a.chance:.2f}", a.why])  # fmt: skip

    try:
        write_atomically(path, put)
    except OSError as error:
        raise HothouseError(f"{path} cannot be written: {error.strerror or error}") from error
