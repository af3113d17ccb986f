"""Step 9 of the way of a reading: what a sentence of the system is for programs: a stable code, and the values in it.

Sentences are what is kept: in the journal of alerts, in snapshots, in tags of models, and in what goes out by MQTT. So
the API reads them as they leave, also those that an earlier release wrote. Tests hold every form against the code that
writes it. A client has messages of its own by code, and shows the sentence where it does not know the code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from string import Formatter
from types import MappingProxyType
from typing import Annotated, TypedDict, cast

from msgspec import Meta

from services.messages.alert_messages import ShownAlert
from services.messages.forecast_messages import STILL_READ

__all__ = ["CODES", "CodedSentence", "Codes", "codes_of", "with_codes"]


class CodedSentence(TypedDict):
    """A sentence for programs."""

    code: Annotated[str, Meta(description="Which sentence it is; the same in all releases, whatever its words.")]
    values: Annotated[dict[str, str | float], Meta(description="What stands in it; `_s` in a name means seconds.")]


Codes = Annotated[
    dict[str, CodedSentence], Meta(description="Code and values of sentences in this answer, by sentence.")
]

CODES: Mapping[str, str] = MappingProxyType({
    # of a zone's readings and forecasts
    "old_reading": "{metric}: last reading {age_s} before the origin",
    "sensor_stuck": "{metric}: stuck at {value}{unit} since {since}",
    "sensor_spikes": "{metric}: spikes, last {by}{unit} {side} its level since {since}",
    "sensor_off": "{metric}: {by}{unit} {side} its usual range since {since}",
    "sensor_silent": "{metric}: silent since {since}",
    "unit_share": "{sensor} {metric} looks like a share ({low} to {high}): send percent",
    "unit_fahrenheit": "{sensor} {metric} looks like °F ({low} to {high}): send °C",
    "old_weather_forecast": "weather forecast of {source}: issued {age_s} before the origin",
    "still_read": STILL_READ,
    "newest_reading": "the newest reading is {age_s} old",
    "site_silent": "nothing has come from this site for {age_s}",
    # of alerts
    "no_sample": "no sample since {since}",
    "input_drift": "{metric}{of_zone} is {by}{unit} {side} the two weeks before since {since}",
    "error_drift": "{metric} errors{of_zone} are {times} times as large since {since}",
    "not_as_planned": "{metric} is {value}{unit}, planned {planned}{unit}",
    "zone_left": "the zone has left",
    "rule_changed": "its rule was changed",
    "rule_lost": "its rule is lost",
    "nothing_read": "nothing was read for a day",
    # of nights and days
    "no_night_ends": "no night ends within the path",
    "no_day_ends": "no day ends within the path",
    "few_nights": "too few nights were seen as a whole: {count} of {need}",
    "few_days": "too few days were seen as a whole: {count} of {need}",
    # of what a first forecast waits for
    "live_state_away": "the live state does not answer; the last known forecasts are served",
    "no_forecast": "no zone has a forecast yet: {why}",
    "no_fresh_forecast": "no zone has a forecast that is fresh enough: {why}",
    "shards_silent": "the shards have not reported yet",
    "log_read": "the log is read, {count} records wait",
    "no_sample_yet": "no sample has come yet",
    "none_taken": "{count} samples came, none could be taken: `hothouse deadletters` says why",
    "first_row_in": "{count} samples came; the first row, of {site}, closes in {wait_s} of the stream, at {time}",
    "first_row_soon": "{count} samples came; the first row, of {site}, closes with the next sample, or soon "
    "without one",
    "weather_alone": "{count} samples came, of weather stations alone: a zone must send some",
    "all_left": "every zone has left, and comes back with its next sample",
    "forecast_awaited": "{count} rows are closed; a forecast from the newest is awaited",
    # of a question what would be
    "untried": "no house was tried with {metric}; ask for one of {known}",
    "too_short": "within the day ahead {metric} changes for less than {count} minutes",
    "day_unknown": "{metric} is known of {count} of the last 24 hours, {need} are needed",
    "not_forecast": "there is no forecast of {metric}",
    "strange_beside": "{metric} beside {other} lies outside of what simulated houses were tried in",
    "strange": "{metric} lies outside of what simulated houses were tried in",
    "unplanned": "nobody says what {metric} is without the change: send it, or a plan of it",
    "moves_too_far": "{metric} would move by {by}, houses were tried with {by_low} to {by_high}",
    "too_uncertain": "{metric} may change by {by_low} to {by_high}{unit}, too uncertain to be of use; ask for a "
    "smaller or a shorter change",
    "change_over": "{where}: the change is over before the forecast begins, at {time}",
    # of trainings
    "under_way": "one is under way",
    "no_schedule": "by no schedule",
    "training_every": "every {every_s}",
    "training_now": "now: {why}",
    "training_in": "in {wait_s}: {why}",
    "history_awaited": "once there are {count} days of history",
    "recorded_awaited": "once there are {count} days of recorded forecasts",
    "rows_awaited": "with {count} days of new rows",
    "days_of_rows": "{count} days of new rows",
    "new_rows": "{count} new rows",
    "first_of_history": "{count} days of history, no model yet",
    "first_of_recorded": "{count} days of recorded forecasts, no model yet",
    "last_failed": "the last one failed: none begins by itself within {wait_s}",
    "many_failed": "the last {count} failed: none begins by itself within {wait_s}",
    "too_little": "too few rows to learn from so far: it is tried again in {wait_s}",
    "not_before": "and none begins before: {why}",
    "verdict_awaited": "after the verdict on {version}, which comes with the rows of {time}: {versions} (?:is|are) in "
    "shadow, and learn.shadows is {count}",
    "shadow_half": "with the rows of {time}, when {version} has been in shadow for half of its time",
    "shadow_part": "with the rows of {time}, when {version} has been in shadow for 1/{count} of its time",
    "drift_at_once": "a drift need not wait",
    "drift_at": "(?:input|error) drift at {site}: {why}",
    # of models: why they serve, or do not
    "better": "The challenger's error is {shares}, over {count} rows in {blocks} blocks of {length}.",
    "not_better": "The challenger does not beat {rivals}: its error is {shares}, over {count} rows in {blocks} blocks "
    "of {length}.",
    "not_sure": "It is not sure enough (level {level}) that the challenger beats {rivals}: its error is {shares}, over "
    "{count} rows in {blocks} blocks of {length}.",
    "live_error": "Its live error is {shares}, over {count} rows in {blocks} blocks of {length}.",
    "few_rows": "Only {count} rows could be compared, {need} are needed.",
    "few_blocks": "Only {count} blocks of {length} could be compared, {need} are needed.",
    "no_number": "(?:It|The challenger) gave no number in {count} cases.",
    "of_twin": "{why} Judged by a twin that was (?:fitted|fine-tuned) without the held-back rows.",
    "all_rows": "It was trained on all rows, also those since the drift; live rows judge it.",
    "submitted": "Submitted; live rows judge it.",
    "in_shadow": "In shadow: {why}",
    "forced": "forced, although: {why}",
    "worse_live": "Worse than {version} on live rows. {why}",
    "went_back": "back from {version}. {why}",
    "sent_back": "rolled back from {version} by an operator",
    "champion_changed": "the champion changed meanwhile, from {before} to {version}",
    "overtaken": "{version} took its place before it was judged",
    "not_comparable": "It could not be compared with {what}: {error}",
    "cannot_serve": "{version} cannot serve: {error}",
    # of refusals
    "no_zone": "there is no zone {key}; known are {known}",
    "forecast_old": "the forecast of {key} is too old to be used: {why}",
    "forecast_not_made": "the shard of {site} has no forecast of {zone} yet; try again in a few seconds",
    "zone_not_known": "the shard of {site} does not know {zone} yet; try again in a few seconds",
    "zone_without_forecast": "the zone {key} has no forecast yet; try again in a few seconds",
    "past_not_known": "the past of {key} is not known yet",
    "site_not_known": "its shard does not know {site} yet; try again in a few seconds",
    "not_answering": "{part} does not (?:answer|run) now; try again in a few seconds",
    "order_unanswered": "the retrainer did not say in time whether it was done; look at /models first",
    "not_published": "it was not published: {error}",
    "history_unreadable": "(?:the history|what was kept) cannot be read: {error}",
    "history_slow": "what was kept could not be read within {limit_s}",
    "no_alert": "there is no alert {alert}",
    "alert_state": "the alert is {state}; it must be {states}",
    "key_limited": "this is about all sites, and the key {name} is limited to {sites}",
    "too_many_requests": "too many requests of {name}: {limits}; ask again in {wait_s}",
    "training_runs": "a retraining is already running",
    "training_asked": "a retraining has already been requested",
    "serves_already": "{version} serves already",
    "other_champion": "{before} is the champion, not {version}. {hint}",
    "no_previous": "there is no previous model to go back to. {hint}",
    "taken_back": "{version} served before, and was taken back. {why} `{hint}",
    "defect": "Hothouse failed to answer; the reason is in its log",
})  # fmt: skip
"""Code -> the form of its sentence: a regular expression with names of values in braces. The first that fits counts.
"""

LONGEST = 2_000
"""Characters of a sentence that is read: one that quotes a client may be as long as a request."""

_NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"
_NAME = r"\S+?"
_VALUES = {
    "metric": r"[a-z]\w*(?:\.\d+)?", "other": r"[a-z]\w*(?:\.\d+)?", "side": "above|below",
    "since": r"[\d:. -]+?", "state": r"\w+",
    **dict.fromkeys(("age_s", "wait_s", "every_s", "limit_s"), r"\d+(?:\.\d+)? (?:s|min|h)"),
    **dict.fromkeys(("zone", "site", "version", "versions", "before", "source", "where", "key", "alert"), _NAME),
    **dict.fromkeys(
        ("value", "planned", "by", "by_low", "by_high", "low", "high", "times", "count", "need", "blocks", "level"),
        _NUMBER,
    ),
}  # fmt: skip
_VALUES["versions"] = r"\S+(?: and \S+)*"
_OPTIONAL = {"unit": r"(?: (?P<unit>[^\s,;]+))?", "of_zone": r"(?: of (?P<zone>\S+))?"}
_NUMBERS = {name for name, pattern in _VALUES.items() if pattern == _NUMBER}
_SECONDS = {"s": 1, "min": 60, "h": 3600}


def _pattern(form: str) -> re.Pattern[str]:
    parts, seen = [], set()
    for text, name, _, _ in Formatter().parse(form):
        parts.append(text if "(?:" in text else re.escape(text))
        if name is None:
            continue
        known = _OPTIONAL.get(name, f"(?P<{name}>{_VALUES.get(name, '.+?')})")
        parts.append(known if name not in seen else re.sub(r"\?P<\w+>", "?:", known))
        seen.add(name)
    return re.compile("".join(parts), re.DOTALL)


_PATTERNS = {code: _pattern(form) for code, form in CODES.items()}


def _read(sentence: str) -> CodedSentence | None:
    """Its code and values; ``None`` for a sentence that has no code.

    >>> _read("air_temp_c: 4.2 °C below its usual range since 02:10")["values"]
    {'metric': 'air_temp_c', 'by': 4.2, 'unit': '°C', 'side': 'below', 'since': '02:10'}
    >>> _read("nothing has come from this site for 1.5 h")
    {'code': 'site_silent', 'values': {'age_s': 5400.0}}
    """
    return _fitting(sentence) if len(sentence) <= LONGEST else None


@lru_cache(4096)
def _fitting(sentence: str) -> CodedSentence | None:
    """It is kept: so no sentence gets here that is as long as a client likes."""
    for code, pattern in _PATTERNS.items():
        if (found := pattern.fullmatch(sentence)) is not None:
            said = {name: value for name, value in found.groupdict().items() if value is not None}
            return CodedSentence(code=code, values={name: _value(name, text) for name, text in said.items()})
    return None


def _value(name: str, text: str) -> str | float:
    if name.endswith("_s"):
        number, unit = text.split()
        return float(number) * _SECONDS[unit]
    return float(text.replace(",", "")) if name in _NUMBERS else text


def codes_of(sentences: Iterable[str], *, with_parts: bool = True) -> dict[str, CodedSentence]:
    """Sentence -> its code and values, of those that have a code: of the sentence ``why`` within another, and of the
    parts of one that has none, too; not so ``with_parts=False``, for sentences that quote a client.

    >>> sorted(codes_of(["now: by no schedule; a drift need not wait", "what nobody knows"]))
    ['a drift need not wait', 'by no schedule', 'now: by no schedule; a drift need not wait']
    """
    return dict(_found(sentences, with_parts))


def _found(sentences: Iterable[str], with_parts: bool) -> Iterator[tuple[str, CodedSentence]]:
    for sentence in sentences:
        known = _read(sentence)
        if known is not None:
            yield sentence, known
            yield from _found([cast(str, known["values"]["why"])] if "why" in known["values"] else (), with_parts=True)
        elif with_parts and "; " in sentence:
            yield from _found(sentence.split("; "), with_parts)


def with_codes(alert: ShownAlert) -> ShownAlert:
    """The alert with the codes of its facts."""
    why = [one | (_read(one["label"]) or {}) if one["name"] == "fact" else one for one in alert["why"]]
    return cast(ShownAlert, {**alert, "why": why})
