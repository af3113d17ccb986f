"""Step 9 of the way of a reading: the alerts of many zones, and how their states change.

A rule of a zone has one alert at most that is not over. It is *pending* while its chance comes near to the one from
which the rule warns, *firing* from then on, *acknowledged* or *muted* when somebody says so, and *resolved* when its
chance was low for a while. Ids follow from site, zone, rule and the time at which the alert began, and ``revision``
counts its changes. So who reads the same findings and orders again makes the same changes, and whoever is told of one
twice knows it by id and revision.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from models.alerts.alert_rule import AlertRule
from models.durations import MINUTE_MS

__all__ = [
    "CUT", "LEFT", "RULE_GONE", "RULE_LOST", "STAYS", "UNREAD", "Alert", "AlertBook", "AlertState", "RuleFinding",
]  # fmt: skip

AlertState = Literal["pending", "firing", "acknowledged", "muted", "resolved"]

STAYS = 0.6
"""An alert stays, and one is pending, from this part of the chance on from which its rule warns."""

LEFT, RULE_GONE, RULE_LOST = "the zone has left", "its rule was changed", "its rule is lost"
UNREAD = "nothing was read for a day"
CUT = (LEFT, RULE_GONE, RULE_LOST, UNREAD)
"""What an alert says that is over because of that: nobody knows what would have come."""

CHANGED = -1
"""Instead of since when a chance is low: the rule was changed since it was looked at last."""

UNREAD_MS = 24 * 60 * MINUTE_MS


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """What is known of a rule in a zone at one time: the chance of an event, its span, what speaks for it, and the
    limit beyond which it is one, where there is one.
    """

    chance: float
    is_now: bool = False
    from_ms: int = 0
    to_ms: int = 0
    why: str = ""
    inputs: tuple[tuple[str, float], ...] = ()
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert. ``told_ms`` is when it fired first, None if it never did; ``came_ms`` when the event was seen, if so;
    ``quiet_ms`` since when its chance is low; a mute holds until ``muted_until_ms``, and ``acknowledged_before`` says
    whether it was acknowledged when it was muted. ``why`` is a sentence, ``inputs`` are the names and numbers in it,
    ``limit`` is that of the rule where it watches a number.
    """

    id: str
    revision: int
    site: str
    zone: str
    rule: str
    kind: str
    severity: str
    state: AlertState
    began_ms: int
    changed_ms: int
    seen_ms: int
    chance: float
    from_ms: int
    to_ms: int
    why: str
    inputs: tuple[tuple[str, float], ...] = ()
    told_ms: int | None = None
    came_ms: int | None = None
    quiet_ms: int | None = None
    muted_until_ms: int | None = None
    acknowledged_before: bool = False
    limit: float | None = None

    @property
    def was_acknowledged(self) -> bool:
        """It is, or it was when it was muted."""
        return self.acknowledged_before or self.state == "acknowledged"

    @property
    def is_over(self) -> bool:
        """Whether it is resolved."""
        return self.state == "resolved"

    @property
    def came_true(self) -> bool | None:
        """Whether the event came; None while that is open, where nobody was told, and where nobody looks any more."""
        if self.came_ms is not None:
            return True
        return False if self.is_over and self.told_ms is not None and self.why not in CUT else None


class AlertBook:
    """Alerts that are not over, by site, zone and rule. Times never go back: what is older than what was seen already
    changes nothing.

    >>> book = AlertBook([AlertRule(name="cold", kind="frost", chance=0.5, keep_min=30)])
    >>> [told] = book.see(0, "site", "north", "cold", RuleFinding(0.7, from_ms=3_600_000, to_ms=7_200_000))
    >>> told.state, told.revision
    ('firing', 1)
    >>> book.see(600_000, "site", "north", "cold", RuleFinding(0.4))  # between: it stays
    []
    >>> [said] = book.acknowledge(700_000, told.id)
    >>> said.state, said.revision, said.id == told.id
    ('acknowledged', 2, True)
    """

    def __init__(self, rules: Sequence[AlertRule]) -> None:
        self._rules = {rule.name: rule for rule in rules}
        self._alerts: dict[tuple[str, str, str], Alert] = {}
        self._seen_ms: dict[tuple[str, str, str], int] = {}
        self._mutes: dict[tuple[str, str, str], int] = {}

    def __iter__(self) -> Iterator[Alert]:
        return iter([self._alerts[key] for key in sorted(self._alerts)])

    def __len__(self) -> int:
        return len(self._alerts)

    def see(self, at_ms: int, site: str, zone: str, rule: str, finding: RuleFinding | None) -> list[Alert]:
        """Take what is known now; returns the alert if its state changed. ``None`` is unknown: everything stays, for a
        day.
        """
        key, said = (site, zone, rule), self._rules[rule]
        if at_ms <= self._seen_ms.get(key, at_ms - 1):
            return []
        self._seen_ms[key] = at_ms
        before = self._alerts.get(key)
        if finding is None:
            if before is None or at_ms - before.seen_ms < UNREAD_MS:
                return []
            return self._keep(key, replace(before, seen_ms=at_ms, why=UNREAD, inputs=(), limit=None), "resolved")
        fires = finding.is_now or finding.chance >= said.chance
        stays = fires or finding.chance >= STAYS * said.chance
        if before is None:
            if not stays:
                return []
            state = self._told_state(key, at_ms) if fires else "pending"
            alert = Alert(
                _id(key, at_ms), 0, site, zone, rule, said.kind, said.severity, state, at_ms, at_ms, at_ms,
                finding.chance, finding.from_ms, finding.to_ms, finding.why, finding.inputs,
                muted_until_ms=self._muted_until(key, at_ms),
            )  # fmt: skip
            return self._keep(key, self._with(alert, at_ms, finding, state), state)
        if not stays and before.quiet_ms == CHANGED:  # nothing is kept for a while of what the rule warns of no more
            return self._keep(key, replace(before, seen_ms=at_ms, why=RULE_GONE, inputs=(), limit=None), "resolved")
        state = before.state
        if fires and state == "pending":
            state = self._told_state(key, at_ms)
        elif state == "muted" and stays and self._muted_until(key, at_ms) is None:
            state = _unmuted_state(before)
        alert = self._with(before, at_ms, finding if stays else None, state)
        quiet_ms = None if stays else at_ms if before.quiet_ms is None else before.quiet_ms
        if quiet_ms is not None and at_ms - quiet_ms >= said.keep_min * MINUTE_MS:
            state = "resolved"
        return self._keep(key, replace(alert, quiet_ms=quiet_ms), state)

    def acknowledge(self, at_ms: int, id: str) -> list[Alert]:
        """Somebody has seen it; an id that is not there any more changes nothing."""
        for key, alert in self._alerts.items():
            if alert.id == id and alert.state in ("firing", "muted"):
                return self._keep(key, replace(alert, seen_ms=max(at_ms, alert.seen_ms)), "acknowledged")
        return []

    def mute(self, at_ms: int, site: str, zone: str, rule: str, until_ms: int) -> list[Alert]:
        """Say nothing of this rule in this zone until then; with ``until_ms`` of the past a mute ends. An alert that
        was acknowledged before is so again afterwards.
        """
        key = (site, zone, rule)
        self._mutes[key] = until_ms
        alert = self._alerts.get(key)
        if alert is None or alert.state not in ("firing", "acknowledged", "muted"):
            if until_ms <= at_ms:
                del self._mutes[key]
            return []
        if until_ms <= at_ms:
            del self._mutes[key]
            state = _unmuted_state(alert) if alert.state == "muted" else alert.state
            return self._keep(key, replace(alert, muted_until_ms=None, seen_ms=max(at_ms, alert.seen_ms)), state)
        alert = replace(
            alert, muted_until_ms=until_ms, seen_ms=max(at_ms, alert.seen_ms),
            acknowledged_before=alert.was_acknowledged,
        )  # fmt: skip
        return self._keep(key, alert, "muted")

    def end(self, at_ms: int, site: str, zone: str, why: str) -> list[Alert]:
        """The zone has left: its alerts are resolved, and its mutes gone."""
        return self._end([key for key in self._keys() if key[:2] == (site, zone)], at_ms, why)

    def hand_over(self, site: str, zones: Collection[str], other: AlertBook, at_ms: int, why: str) -> list[Alert]:
        """Give all of some zones of a site to a book with other rules. Gives the alerts that are resolved, as their
        rule is no more there, or is of another kind. One of a rule with other options is over if the rule's next look
        gives no reason for it.
        """
        mine = [key for key in self._keys() if key[0] == site and key[1] in zones]
        kinds = {name: rule.kind for name, rule in other._rules.items()}
        gone = [key for key in mine if kinds.get(key[2]) != self._rules[key[2]].kind]
        ended = self._end(gone, at_ms, why)
        for key in [key for key in mine if key not in gone]:
            if key in self._alerts:
                alert, rule = self._alerts.pop(key), other._rules[key[2]]
                warns_the_same = replace(self._rules[key[2]], severity=rule.severity, keep_min=rule.keep_min) == rule
                quiet_ms = alert.quiet_ms if warns_the_same else CHANGED
                other._alerts[key] = replace(alert, severity=rule.severity, quiet_ms=quiet_ms)
            for held, theirs in ((self._seen_ms, other._seen_ms), (self._mutes, other._mutes)):
                if key in held:
                    theirs[key] = held.pop(key)
        return ended

    def held(self) -> dict[tuple[str, str, str], Alert]:
        """A copy of what there is, by site, zone and rule."""
        return dict(self._alerts)

    def put(self, key: tuple[str, str, str], alert: Alert | None) -> None:
        """Let the alert of a rule in a zone be this one, whatever it was; none, or one that is over: there is none."""
        if alert is None or alert.is_over:
            self._alerts.pop(key, None)
        else:
            self._alerts[key] = alert

    def knows(self, alert: Alert) -> bool:
        """Whether its rule is there, and of its kind."""
        rule = self._rules.get(alert.rule)
        return rule is not None and rule.kind == alert.kind

    def of_zone(self, site: str, zone: str) -> list[Alert]:
        """The zone's alerts that are not over."""
        return [alert for name in self._rules if (alert := self._alerts.get((site, zone, name))) is not None]

    def zones(self, site: str) -> set[str]:
        """The zones of a site of which anything is known here."""
        return {key[1] for key in self._keys() if key[0] == site}

    def zones_with(self, site: str, kinds: Collection[str]) -> set[str]:
        """The zones of a site with an alert of a rule of these kinds that is not over."""
        return {key[1] for key, alert in self._alerts.items() if key[0] == site and alert.kind in kinds}

    def _keys(self) -> list[tuple[str, str, str]]:
        return sorted({*self._alerts, *self._seen_ms, *self._mutes})

    def _end(self, keys: Sequence[tuple[str, str, str]], at_ms: int, why: str) -> list[Alert]:
        ended = []
        for key in keys:
            alert = self._alerts.get(key)
            if alert is not None:
                at = max(at_ms, alert.seen_ms)
                ended += self._keep(key, replace(alert, seen_ms=at, why=why, inputs=(), limit=None), "resolved")
            for held in (self._seen_ms, self._mutes):
                held.pop(key, None)
        return ended

    def state_dict(self) -> dict[str, Any]:
        """Everything, as plain values."""
        alerts = [asdict(alert) for alert in self]
        # Apart from the alerts: the release before takes no field that it does not know, should it come back.
        acknowledged = [alert["id"] for alert in alerts if alert.pop("acknowledged_before")]
        limits = {alert["id"]: limit for alert in alerts if (limit := alert.pop("limit")) is not None}
        return {
            "alerts": alerts,
            "acknowledged": acknowledged,
            "limits": limits,
            "seen_ms": [[*key, at] for key, at in sorted(self._seen_ms.items())],
            "mutes": [[*key, until] for key, until in sorted(self._mutes.items())],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state_dict` gave. Alerts of rules that are no more are left out."""
        acknowledged, limits = set(state.get("acknowledged", ())), state.get("limits", {})  # a release before has none
        alerts = [
            Alert(**{
                **each, "inputs": tuple((n, v) for n, v in each["inputs"]),
                "acknowledged_before": each["id"] in acknowledged, "limit": limits.get(each["id"]),
            })
            for each in state["alerts"]
        ]  # fmt: skip
        self._alerts = {(a.site, a.zone, a.rule): a for a in alerts if a.rule in self._rules}
        self._seen_ms = {(site, zone, rule): at for site, zone, rule, at in state["seen_ms"] if rule in self._rules}
        self._mutes = {(site, zone, rule): until for site, zone, rule, until in state["mutes"] if rule in self._rules}

    def _with(self, alert: Alert, at_ms: int, finding: RuleFinding | None, state: AlertState) -> Alert:
        """The alert with what was found; without it only the time moves on, and what was said last stays said."""
        told_ms = at_ms if alert.told_ms is None and state != "pending" else alert.told_ms
        muted = self._muted_until((alert.site, alert.zone, alert.rule), at_ms)
        alert = replace(alert, seen_ms=at_ms, told_ms=told_ms, muted_until_ms=muted)
        if finding is None:
            return alert
        came_ms = at_ms if finding.is_now and alert.came_ms is None else alert.came_ms
        return replace(
            alert, chance=finding.chance, from_ms=finding.from_ms, to_ms=finding.to_ms, why=finding.why,
            inputs=finding.inputs, limit=finding.limit, came_ms=came_ms,
        )  # fmt: skip

    def _keep(self, key: tuple[str, str, str], alert: Alert, state: AlertState) -> list[Alert]:
        is_new = alert.revision == 0
        changed = is_new or state != self._alerts[key].state
        if changed:
            alert = replace(alert, state=state, revision=alert.revision + 1, changed_ms=alert.seen_ms)
        if state == "resolved":
            del self._alerts[key]
        else:
            self._alerts[key] = alert
        return [alert] if changed else []

    def _told_state(self, key: tuple[str, str, str], at_ms: int) -> AlertState:
        return "firing" if self._muted_until(key, at_ms) is None else "muted"

    def _muted_until(self, key: tuple[str, str, str], at_ms: int) -> int | None:
        until = self._mutes.get(key)
        if until is not None and until <= at_ms:
            del self._mutes[key]
            return None
        return until


def _unmuted_state(alert: Alert) -> AlertState:
    return "acknowledged" if alert.acknowledged_before else "firing"


def _id(key: tuple[str, str, str], at_ms: int) -> str:
    return hashlib.sha256(repr((*key, at_ms)).encode()).hexdigest()[:16]
