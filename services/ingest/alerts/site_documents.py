"""Step 9 of the way of a reading: the rules of each site as people wrote them, as orders of the log change them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from edge.wire.alert_orders import ChangeRules
from edge.wire.topic import SITE_ZONE
from models.alerts.rules_document import RulesDocument
from services.messages import SiteRulesShown

__all__ = ["SiteDocument", "SiteDocuments"]


@dataclass(frozen=True, slots=True)
class SiteDocument:
    """A site's rules, who changed them last, and the state of the file that was taken last."""

    document: RulesDocument = field(default_factory=RulesDocument)
    version: int = 1
    changed_ms: int | None = None
    changed_by: Literal["defaults", "file", "api"] = "defaults"
    file: str = ""


class SiteDocuments:
    """By site; the newest change wins, from whichever side it comes."""

    def __init__(self) -> None:
        self._sites: dict[str, SiteDocument] = {}

    def of(self, site: str) -> SiteDocument:
        """The document of a site, that of any crop where nobody wrote one."""
        return self._sites.get(site, SiteDocument())

    def take(self, site: str, zone: str, order: ChangeRules, at_ms: int) -> RulesDocument | None:
        """The document that an order makes, of a site (in its zone ``_site``) or of what a zone has of its own; None
        where it changes nothing: the same file, the same rules again, or rules that have changed since they were seen.

        Raises :class:`~models.alerts.rules_document.DocumentError`.
        """
        before = self.of(site)
        if order.file and order.file == before.file:
            return None
        if order.version and order.version != before.version:
            return None
        if zone != SITE_ZONE:
            document = before.document.with_zone(zone, order.rules, merge=order.merge)
        else:
            kept_zones = {"zones": before.document.as_dict().get("zones", {})} if order.keep_zones else {}
            said = {**kept_zones, **order.rules}
            document = before.document.merged(said) if order.merge else RulesDocument.of(said)
        kept = replace(before, file=order.file or before.file)
        if document.as_dict() == before.document.as_dict():
            self._sites[site] = kept
            return None
        by: Literal["file", "api"] = "file" if order.file else "api"
        self._sites[site] = replace(
            kept, document=document, version=before.version + 1, changed_ms=at_ms, changed_by=by
        )
        return document

    def shown(self, site: str) -> SiteRulesShown:
        """For whoever asks."""
        of = self.of(site)
        return SiteRulesShown(
            site=site, version=of.version, changed_ms=of.changed_ms, changed_by=of.changed_by,
            document=of.document.as_dict(), file=of.file,
        )  # fmt: skip

    def state(self) -> dict[str, Any]:
        """For a snapshot."""
        return {site: dict(self.shown(site)) for site in self._sites}

    def load(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state`; raises ``KeyError`` or ``ValueError`` where it does not fit."""
        self._sites = {
            site: SiteDocument(
                RulesDocument.of(said["document"]), said["version"], said["changed_ms"], said["changed_by"],
                said["file"],
            )
            for site, said in state.items()
        }  # fmt: skip
