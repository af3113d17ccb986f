"""Step 9 of the way of a reading: alerts by e-mail, those of a burst in one.

The first change waits a little for others; then all go out together. A mail's ``Message-ID`` follows from what is in
it: the same changes sent twice, after a crash, are the same mail. Where a server takes a mail for some addresses only,
the others get it later (``services.alert.waiting_mails``).
"""

from __future__ import annotations

import hashlib
import logging
import smtplib
from collections.abc import Callable, Mapping, Sequence
from email.message import EmailMessage
from email.utils import formatdate, getaddresses
from functools import partial
from pathlib import Path

from edge.wire.topic import SITE_ZONE
from models.alerts.alert_book import RULE_GONE
from services.alert.delivery import DeliveryError, is_at_least, key_of
from services.alert.delivery_trace import DeliveryTrace
from services.alert.mail_server import MailServer
from services.alert.waiting_mails import WaitingMails
from services.config import NO_LABELS, SiteNames
from services.ingest.alerts.alert_journal import changes_of
from services.ingest.alerts.shown_alert import why_cut
from services.messages import ShownAlert
from services.store.storage import Storage, stored_in

__all__ = ["AlertMail", "digest"]

_log = logging.getLogger(__name__)

MOST_LINES = 100
NOT_YET = 530
"""Encryption or a login is wanted first (RFC 3207, RFC 4954): the settings are wrong, and no mail is refused."""

TOLD = ("firing", "resolved")
"""Who acknowledges or mutes an alert knows of it."""

_Where = Callable[[ShownAlert], str]


class AlertMail:
    """Mails alerts that fire, and that they are over; see :class:`services.alert.delivery.Channel`.

    ``gather_s`` is how long the first of a burst waits. ``clock_s`` is monotonic, ``wall_s`` is for the mail's date.
    ``refused`` counts changes in mails that nobody got. ``root`` has the journals, and keeps mails that some addresses
    lack. ``names`` is what people call sites and zones.
    """

    name = "e-mail"

    def __init__(
        self, root: Storage | Path, server: MailServer, sender: str, to: Sequence[str], severity: str, gather_s: float,
        clock_s: Callable[[], float], wall_s: Callable[[], float], trace: DeliveryTrace | None = None,
        names: SiteNames = NO_LABELS,
    ) -> None:  # fmt: skip
        self._trace, self._names = trace or DeliveryTrace(), names
        self._server, self._sender, self._to, self._severity, self._gather_s = server, sender, to, severity, gather_s
        self._clock_s, self._wall_s = clock_s, wall_s
        self._storage = stored_in(root)
        self._addresses = list(dict.fromkeys(address for _, address in getaddresses(to)))
        self._waiting = WaitingMails(self._storage, self._addresses, clock_s, wall_s)
        self._since_s: float | None = None  # the first one waits
        self._missed = 0
        self.refused = 0

    def begin(self) -> None:
        """Nothing to do."""

    def deliver(self, alerts: Sequence[ShownAlert]) -> int:
        """See :class:`services.alert.delivery.Channel`; raises ``OSError``, too."""
        self._waiting.send_again(self._send_again)
        wanted = [alert for alert in alerts if alert["state"] in TOLD and is_at_least(alert, self._severity)]
        if not wanted:
            self._since_s = None
            return len(alerts)
        now_s = self._clock_s()
        if self._since_s is None:
            self._since_s = now_s
        if now_s - self._since_s < self._gather_s:
            return 0
        wanted = self._heard(wanted)
        if not wanted:
            self._since_s = None
            return len(alerts)
        since_ns = self._trace.now_ns()
        later, gone = self._send(wanted, self._addresses)
        if later and len(later) + len(gone) == len(self._addresses):  # for nobody: the journal keeps it
            raise self._failed(next(iter(later.values())))
        self._say(later, gone)
        if len(gone) == len(self._addresses):
            self.refused += len(wanted)
        else:
            if later:
                self._waiting.add(wanted, list(later))
            self._missed += len(gone) * len(wanted)
            self._trace.told(self.name, wanted, since_ns)
        self._since_s = None
        return len(alerts)

    def _heard(self, alerts: Sequence[ShownAlert]) -> list[ShownAlert]:
        """These alerts, without those that are over and were never mailed as firing: a mail about them would break a
        mute. ``fired_ms`` cannot say so, as a muted alert has fired, too. Raises ``OSError``.
        """
        over = {alert["id"] for alert in alerts if alert["state"] == "resolved"}
        kept = changes_of(self._storage, *over) if over else []
        fired = {one["id"] for one in kept if one["state"] == "firing" and is_at_least(one, self._severity)}
        whole = {one["id"] for one in kept if one["change"] == 1}  # the journal forgets in the end: it is told then
        unheard = (over & whole) - fired
        return [alert for alert in alerts if alert["id"] not in unheard]

    @property
    def missed(self) -> int:
        """How many changes an address did not get that others got, counted for each such address."""
        return self._missed + self._waiting.lost

    @property
    def waiting(self) -> int:
        """How many changes wait for an address that others have had."""
        return self._waiting.changes

    @property
    def error(self) -> str:
        """How many addresses lack a mail; which, the log says: this sentence everybody may read."""
        late = len(self._waiting.addresses)
        said = f"alerts by {self.name}: {self._server.host} does not take a mail yet for {late} of "
        return f"{said}{len(self._addresses)} addresses" if late else ""

    def _send_again(self, alerts: Sequence[ShownAlert], to: Sequence[str]) -> list[str]:
        later, gone = self._send(alerts, to)
        self._say({}, gone)
        self._missed += len(gone) * len(alerts)
        return list(later)

    def _say(self, later: Mapping[str, str], gone: Mapping[str, str]) -> None:
        for one, words in later.items():
            _log.warning("%s does not take a mail for %s yet: %s", self._server.host, one, words)
        for one, words in gone.items():
            _log.error("%s refuses a mail to %s for good: %s", self._server.host, one, words)

    def _send(self, alerts: Sequence[ShownAlert], to: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
        """Mail to some addresses; those that are put off, and those that are refused for good, with the answers. Raises
        :class:`DeliveryError` where the server takes nothing now.
        """
        message = digest(alerts, self._names)
        message["From"], message["To"], message["Date"] = self._sender, ", ".join(self._to), formatdate(self._wall_s())
        try:
            answers = self._server.send(message, to)
        except smtplib.SMTPRecipientsRefused as error:  # it may have ended before it had heard of all
            answers = {one: error.recipients.get(one, (450, b"not asked")) for one in to}
        except (smtplib.SMTPDataError, smtplib.SMTPSenderRefused) as error:
            answer = error.smtp_error if isinstance(error.smtp_error, bytes) else error.smtp_error.encode()
            answers = dict.fromkeys(to, (error.smtp_code, answer))
        except UnicodeError as error:  # its words may hold a part of the password
            words = "user name or password have a character that is not of ASCII, and no login by SMTP can carry it"
            raise self._failed(words) from error
        except (OSError, smtplib.SMTPException) as error:
            raise self._failed(error) from error
        said = {one: f"{code} {answer.decode(errors='replace')}" for one, (code, answer) in answers.items()}
        if len(answers) == len(to) and all(code == NOT_YET for code, _ in answers.values()):
            raise self._failed(next(iter(said.values())))
        gone = {one: said[one] for one, (code, _) in answers.items() if code >= 500}
        return {one: words for one, words in said.items() if one not in gone}, gone

    def _failed(self, why: object) -> DeliveryError:
        return DeliveryError(f"{self._server.host}:{self._server.port} did not take a mail: {why}")


def digest(alerts: Sequence[ShownAlert], names: SiteNames = NO_LABELS) -> EmailMessage:
    """One mail about changes of alerts: what holds now of each, firing ones first, of places as people call them.

    >>> alert = {"id": "a", "change": 2, "site": "demo", "zone": "z1", "state": "firing", "severity": "critical",
    ...     "text": "cold since 04:10; air 1.8 °C", "kind": "frost", "rule": "frost"}
    >>> mail = digest([alert])
    >>> mail["Subject"], mail.get_content().strip()
    ('demo/z1: cold since 04:10', 'demo/z1 (critical): cold since 04:10; air 1.8 °C')
    >>> digest([alert], SiteNames({"demo": "De Linde"}, {("demo", "z1"): "Roses"}))["Subject"]
    'De Linde/Roses: cold since 04:10'
    >>> digest([alert | {"zone": "_site", "text": "drift: out_temp_c is 6 °C below"}])["Subject"]
    'demo: drift: out_temp_c is 6 °C below'
    """
    newest = list({alert["id"]: alert for alert in alerts}.values())
    firing = [alert for alert in newest if alert["state"] == "firing"]
    ended = _ended([alert for alert in newest if alert["state"] != "firing"])
    where = partial(_where, names)
    lines = [f"{where(alert)} ({alert['severity']}): {alert['text']}" for alert in firing]
    for how, those in ended.items():
        lines += ["", f"{how}:", *(_end_line(alert, where) for alert in those)]
    if len(lines) > MOST_LINES:
        lines = [*lines[:MOST_LINES], f"and {len(lines) - MOST_LINES} lines more"]
    message = EmailMessage()
    message["Subject"] = _subject(firing, ended, where)
    named = hashlib.sha256(" ".join(map(key_of, alerts)).encode()).hexdigest()[:32]
    message["Message-ID"] = f"<{named}@hothouse.invalid>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content("\n".join(lines).lstrip("\n") + "\n", cte="quoted-printable")
    return message


def _where(names: SiteNames, alert: ShownAlert) -> str:
    site, zone = alert["site"], alert["zone"]
    return names.site(site) if zone == SITE_ZONE else f"{names.site(site)}/{names.zone(site, zone)}"


def _ended(alerts: Sequence[ShownAlert]) -> dict[str, list[ShownAlert]]:
    """Alerts that are over, by what that means; a rule that was changed may watch the zone still."""
    found: dict[str, list[ShownAlert]] = {"Back to normal": [], "Rule changed": [], "No longer watched": []}
    for alert in alerts:
        why = why_cut(alert)
        how = "Rule changed" if why == RULE_GONE else "No longer watched" if why else "Back to normal"
        found[how].append(alert)
    return {how: those for how, those in found.items() if those}


def _end_line(alert: ShownAlert, where: _Where) -> str:
    rule = f", {alert['rule']}" if why_cut(alert) else ""
    return f"{where(alert)}{rule}: {alert['text']}"


def _subject(firing: Sequence[ShownAlert], ended: Mapping[str, Sequence[ShownAlert]], where: _Where) -> str:
    if len(firing) == 1:
        words = firing[0]["text"].partition(";")[0]
        return f"{where(firing[0])}: {words}"[:200]
    if firing:
        return f"{len(firing)} alerts in {_wheres(firing, where)}"[:200]
    return "; ".join(f"{how.lower()}: {_wheres(alerts, where)}" for how, alerts in ended.items())[:200]


def _wheres(alerts: Sequence[ShownAlert], where: _Where) -> str:
    return ", ".join(sorted({where(alert) for alert in alerts}))
