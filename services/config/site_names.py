"""What people call sites and zones, wherever people are told of them: on the page, in mails, in Home Assistant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from services.config.forecast_settings import SiteSettings

__all__ = ["NO_LABELS", "SiteNames"]


@dataclass(frozen=True, slots=True)
class SiteNames:
    """Labels, where sites and zones are called otherwise than in topics.

    >>> names = SiteNames.of([SiteSettings(name="demo", label="De Linde", zone_labels={"z1": "Tomatoes"})])
    >>> names.site("demo"), names.zone("demo", "z1"), names.zone("demo", "z2")
    ('De Linde', 'Tomatoes', 'z2')
    """

    sites: Mapping[str, str] = field(default_factory=dict)
    zones: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @classmethod
    def of(cls, sites: Iterable[SiteSettings]) -> SiteNames:
        """As the settings of sites have them, on one line each. Zones of a site that are called the same are told apart
        by their own names.

        >>> SiteNames.of([SiteSettings(name="demo", zone_labels={"z1": "Roses", "z2": "Roses"})]).zone("demo", "z2")
        'Roses (z2)'
        """
        listed = list(sites)
        zones = dict[tuple[str, str], str]()
        for site in listed:
            labels = {zone: " ".join(label.split()) for zone, label in site.zone_labels.items()}
            uses = Counter(labels.values())
            for zone, label in labels.items():
                if label:
                    zones[site.name, zone] = label if uses[label] == 1 else f"{label} ({zone})"
        return cls({site.name: label for site in listed if (label := " ".join(site.label.split()))}, zones)

    def site(self, site: str) -> str:
        """What a site is called."""
        return self.sites.get(site, site)

    def zone(self, site: str, zone: str) -> str:
        """What a zone is called."""
        return self.zones.get((site, zone), zone)


NO_LABELS = SiteNames()
"""Sites and zones are called as in topics."""
