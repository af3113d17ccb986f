"""What a change of rules comes to: the rules as they will be, and the order that goes through the log.

Pure, and slow where there are many zones: rules of a thousand take .3 s. So routes call it in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from edge.wire.alert_orders import ChangeRules
from models.alerts.rules_document import DocumentError, RulesDocument
from services.messages import SiteRulesShown
from services.serve.api.answers.alert_answers import RulesIn, RulesPatch
from services.serve.api.problems import ProblemError

__all__ = ["RuleChange", "check_version", "patched", "replaced", "version_seen"]

A_ZONE_HAS_NO_ZONES = "body.zones: a zone has no zones; leave query.zone out"


class RuleChange(NamedTuple):
    """A site's rules after a change, and the order that makes it."""

    document: RulesDocument
    order: ChangeRules


def replaced(given: RulesIn, shown: SiteRulesShown, zone: str | None, version: int) -> RuleChange:
    """The site's rules replaced by those that are given, or what ``zone`` has of its own.

    Without ``given.zones`` zones keep what they have when the order is taken, which may not be what was ``shown``.
    Raises a 422 problem where they are no rules. So does :func:`patched`.
    """
    before = RulesDocument.of(shown["document"])
    if zone is not None:
        if given.zones is not None:
            raise ProblemError(422, A_ZONE_HAS_NO_ZONES)
        own = given.model_dump(exclude_unset=True)
        return RuleChange(_checked(lambda: before.with_zone(zone, own), before), ChangeRules(own, version=version))
    said = given.model_dump(exclude={"zones"})
    if given.zones is None:
        kept = {**said, "zones": before.as_dict().get("zones", {})}
        order = ChangeRules(said, keep_zones=True, version=version)
        return RuleChange(_checked(lambda: RulesDocument.of(kept), before), order)
    _check_zones(given.zones, shown, before)
    zones = {name: own.model_dump(exclude_unset=True) for name, own in given.zones.items()}
    said |= {"zones": zones} if zones else {}
    return RuleChange(_checked(lambda: RulesDocument.of(said), before), ChangeRules(said, version=version))


def patched(given: RulesPatch, shown: SiteRulesShown, zone: str | None, version: int) -> RuleChange:
    """Some of the site's rules changed, or of what ``zone`` has of its own; null takes back."""
    before = RulesDocument.of(shown["document"])
    if zone is not None:
        if given.zones:
            raise ProblemError(422, A_ZONE_HAS_NO_ZONES)
        own = given.model_dump(exclude_unset=True, exclude={"zones"})
        document = _checked(lambda: before.with_zone(zone, own, merge=True), before)
        return RuleChange(document, ChangeRules(own, merge=True, version=version))
    _check_zones(given.zones, shown, before)
    members = given.model_dump(exclude={"zones"}).items()
    said = {name: value for name, value in members if value is not None or name == "changes"}
    if given.zones:
        said["zones"] = {
            name: None if own is None else own.model_dump(exclude_unset=True) for name, own in given.zones.items()
        }
    return RuleChange(_checked(lambda: before.merged(said), before), ChangeRules(said, merge=True, version=version))


def version_seen(if_match: str | None) -> int:
    """The version that a caller has seen, 0 for any; raises a 422 problem for what is none."""
    said = (if_match or "*").strip().removeprefix("W/").strip('"')
    if said == "*":
        return 0
    if not said.isascii() or not said.isdigit() or not 0 < int(said) < 2**53:
        raise ProblemError(422, 'header.If-Match: give a version as rules have it, such as "7"')
    return int(said)


def check_version(seen: int, shown: SiteRulesShown) -> None:
    """Raises a 412 problem where the rules have another version than a caller has seen."""
    if seen not in (0, shown["version"]):
        why = "were changed meanwhile" if seen < shown["version"] else "are not that far"
        raise ProblemError(
            412, f"the rules of {shown['site']} {why}: they have version {shown['version']}, and version {seen} was to "
            "be replaced; look at them again",
        )  # fmt: skip


def _check_zones(given: Iterable[str], shown: SiteRulesShown, before: RulesDocument) -> None:
    """Raises a 422 problem for a zone that is not there; one that has rules already may be away."""
    known = {*shown.get("zones", ()), *before.zones}
    for name in given:
        if name not in known:
            listed = ", ".join(sorted(known)[:20]) or "none yet"
            raise ProblemError(422, f"body.zones: there is no zone {name[:64]} in {shown['site']}; known are {listed}")


def _checked(make: Callable[[], RulesDocument], before: RulesDocument) -> RulesDocument:
    try:
        return make().checked(before)
    except DocumentError as error:
        errors = [
            {"where": (where if where.startswith("zones.") else f"changes.{where}")[:100], "message": sentence}
            for where, sentence in error.mistakes
        ]
        raise ProblemError(422, str(error)[:1000], errors=errors[:20]) from error
