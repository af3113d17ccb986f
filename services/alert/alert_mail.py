"""Step 9 of the way of a reading: alerts by e-mail, those of a burst in one.

The first change waits a little for others; then all go out together. A mail's ``Message-ID`` follows from what is in
it: the same changes sent twice, after a crash, are the same mail.
"""

from __future__ import annotations

import hashlib
import logging
import smtplib
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import formatdate
from typing import Literal

from services.alert.delivery import DeliveryError, is_at_least, key_of
from services.alert.delivery_trace import DeliveryTrace
from services.messages import ShownAlert

__all__ = ["AlertMail", "MailServer", "digest"]

_log = logging.getLogger(__name__)

LIMIT_S = 30.0
MOST_LINES = 100
TOLD = ("firing", "resolved")
"""Who acknowledges or mutes an alert knows of it."""


@dataclass(frozen=True, kw_only=True)
class MailServer:
    """Where mail goes out, and how to log in; without a user name nobody logs in."""

    host: str
    port: int = 587
    security: Literal["starttls", "tls", "none"] = "starttls"
    username: str = ""
    password: str = ""

    def send(self, message: EmailMessage) -> None:
        """Raises ``OSError`` or ``smtplib.SMTPException``."""
        context = ssl.create_default_context()
        if self.security == "tls":
            client: smtplib.SMTP = smtplib.SMTP_SSL(self.host, self.port, timeout=LIMIT_S, context=context)
        else:
            client = smtplib.SMTP(self.host, self.port, timeout=LIMIT_S)
        with client:
            if self.security == "starttls":
                client.starttls(context=context)
            if self.username:
                client.login(self.username, self.password)
            client.send_message(message)


class AlertMail:
    """Mails alerts that fire, and that they are over; see :class:`services.alert.delivery.Channel`.

    ``gather_s`` is how long the first of a burst waits. ``clock_s`` is monotonic, ``wall_s`` is for the mail's date.
    """

    name = "e-mail"

    def __init__(
        self, server: MailServer, sender: str, to: Sequence[str], severity: str, gather_s: float,
        clock_s: Callable[[], float], wall_s: Callable[[], float], trace: DeliveryTrace | None = None,
    ) -> None:  # fmt: skip
        self._trace = trace or DeliveryTrace()
        self._server, self._sender, self._to, self._severity, self._gather_s = server, sender, to, severity, gather_s
        self._clock_s, self._wall_s = clock_s, wall_s
        self._since_s: float | None = None  # the first one waits
        self.refused = 0  # changes in mails that the server refused for good

    def begin(self) -> None:
        """Nothing to do."""

    def deliver(self, alerts: Sequence[ShownAlert]) -> int:
        """See :class:`services.alert.delivery.Channel`."""
        wanted = [alert for alert in alerts if alert["state"] in TOLD and is_at_least(alert, self._severity)]
        if not wanted:
            self._since_s = None
            return len(alerts)
        now_s = self._clock_s()
        if self._since_s is None:
            self._since_s = now_s
        if now_s - self._since_s < self._gather_s:
            return 0
        message = digest(wanted)
        message["From"], message["To"], message["Date"] = self._sender, ", ".join(self._to), formatdate(self._wall_s())
        since_ns = self._trace.now_ns()
        try:
            self._server.send(message)
        except (smtplib.SMTPRecipientsRefused, smtplib.SMTPDataError, smtplib.SMTPSenderRefused) as error:
            if _is_for_good(error):
                _log.error("%s refuses a mail for good: %s", self._server.host, error)
                self.refused += len(wanted)
                self._since_s = None
                return len(alerts)
            raise DeliveryError(f"{self._server.host}:{self._server.port} did not take a mail: {error}") from error
        except (OSError, smtplib.SMTPException) as error:
            raise DeliveryError(f"{self._server.host}:{self._server.port} did not take a mail: {error}") from error
        self._trace.told(self.name, wanted, since_ns)
        self._since_s = None
        return len(alerts)


def _is_for_good(error: smtplib.SMTPRecipientsRefused | smtplib.SMTPResponseException) -> bool:
    """Whether it is no use to try again: every answer is a 5xx."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return all(code >= 500 for code, _ in error.recipients.values())
    return error.smtp_code >= 500


def digest(alerts: Sequence[ShownAlert]) -> EmailMessage:
    """One mail about changes of alerts: what holds now of each, firing ones first.

    >>> alert = {"id": "a", "change": 2, "site": "demo", "zone": "z1", "state": "firing", "severity": "critical",
    ...     "text": "cold since 04:10; air 1.8 °C", "kind": "frost", "rule": "frost"}
    >>> mail = digest([alert])
    >>> mail["Subject"], mail.get_content().strip()
    ('demo/z1: cold since 04:10', 'demo/z1 (critical): cold since 04:10; air 1.8 °C')
    """
    newest = list({alert["id"]: alert for alert in alerts}.values())
    firing = [alert for alert in newest if alert["state"] == "firing"]
    over = [alert for alert in newest if alert["state"] != "firing"]
    lines = [f"{_where(alert)} ({alert['severity']}): {alert['text']}" for alert in firing]
    if over:
        lines += ["", "Back to normal:", *(f"{_where(alert)}: {alert['text']}" for alert in over)]
    if len(lines) > MOST_LINES:
        lines = [*lines[:MOST_LINES], f"and {len(lines) - MOST_LINES} lines more"]
    message = EmailMessage()
    message["Subject"] = _subject(firing, over)
    named = hashlib.sha256(" ".join(map(key_of, alerts)).encode()).hexdigest()[:32]
    message["Message-ID"] = f"<{named}@hothouse.invalid>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content("\n".join(lines).lstrip("\n") + "\n")
    return message


def _where(alert: ShownAlert) -> str:
    return f"{alert['site']}/{alert['zone']}"


def _subject(firing: Sequence[ShownAlert], over: Sequence[ShownAlert]) -> str:
    if len(firing) == 1:
        words = firing[0]["text"].partition(";")[0]
        return f"{_where(firing[0])}: {words}"[:200]
    if firing:
        return f"{len(firing)} alerts in {', '.join(sorted({_where(alert) for alert in firing}))}"[:200]
    return f"back to normal: {', '.join(sorted({_where(alert) for alert in over}))}"[:200]
