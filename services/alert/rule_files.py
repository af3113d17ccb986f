"""Step 9 of the way of a reading: a file of rules that was changed goes into the log, as an operator's order does.

Each state of a file counts once for a site: what somebody changes afterwards over the API stays until the file changes
again.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from edge.wire.alert_orders import ChangeRules, encode_order, order_topic
from edge.wire.topic import SITE_ZONE
from models.alerts.rules_document import RulesDocument
from services.alert.rules_file import load_document
from services.errors import ConfigError, HothouseError
from services.messages import SiteRulesShown

__all__ = ["RuleFiles", "file_stamp"]

_log = logging.getLogger(__name__)

AGAIN_S = 60.0
"""An order that has not taken effect by then was lost on the way, and is published again."""


class RuleFiles:
    """``file_of`` names a site's file, None for none; ``shown`` asks the shards for all sites' rules; ``publish`` sends
    a topic and a payload, and may raise :class:`HothouseError`. ``clock_s`` is monotonic. ``error`` says what fails.
    """

    def __init__(
        self, file_of: Callable[[str], Path | None], shown: Callable[[], Sequence[SiteRulesShown]],
        publish: Callable[[str, bytes], None], clock_s: Callable[[], float],
    ) -> None:  # fmt: skip
        self._file_of, self._shown, self._publish, self._clock_s = file_of, shown, publish, clock_s
        self._published: dict[tuple[str, str], float] = {}
        self.error = ""

    def look(self) -> None:
        """Read the files once, and publish what sites do not have yet."""
        now_s = self._clock_s()
        wrong: dict[str, None] = {}
        named: dict[Path, set[str]] = {}
        there: dict[Path, set[str]] = {}
        self._published = {key: at_s for key, at_s in self._published.items() if now_s - at_s < AGAIN_S}
        for site in self._shown():
            path = self._file_of(site["site"])
            if path is None:
                continue
            try:
                document = load_document(path)
                named[path] = set(document.zones)
                there.setdefault(path, set()).update(site.get("zones", ()))
                stamp = file_stamp(document)
                if site.get("file") == stamp or (site["site"], stamp) in self._published:
                    continue
                order = ChangeRules(document.as_dict(), file=stamp)
                self._publish(order_topic(site["site"], SITE_ZONE, "hothouse"), _encoded(order, path))
                self._published[site["site"], stamp] = now_s
                _log.info("the rules of %s are those of %s", site["site"], path)
            except (ConfigError, HothouseError) as error:
                wrong[error.message] = None
        for path, zones in named.items():  # a file of several sites names the zones of all of them
            if there[path] and (unknown := sorted(zones - there[path])):
                known = ", ".join(sorted(there[path])[:20])
                wrong[f"{path} has rules for {', '.join(unknown)}, which is no zone; known are {known}"] = None
        self.error = "; ".join(wrong)


def _encoded(order: ChangeRules, path: Path) -> bytes:
    try:
        return encode_order(order)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error


def file_stamp(document: RulesDocument) -> str:
    """Names what a file says, however it is written."""
    return hashlib.sha256(msgspec.json.encode(document.as_dict(), order="deterministic")).hexdigest()[:16]
