"""An SMTP server that keeps mails, and alerts by e-mail that are sent to it."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path

from services.alert.alert_mail import AlertMail
from services.alert.delivery import Deliverer
from services.alert.mail_server import MailServer
from tests.services.alert.smtp_server import SmtpHandler, SmtpServer
from tests.services.alert.told import Clock

__all__ = ["A", "B", "MailBox", "mail_of", "send"]


class MailBox(SmtpServer):
    """An SMTP server on loopback that keeps mails. It answers to them with ``refuses``, if it is told to, to an
    address as ``puts_off`` says, and to QUIT with ``parting``.
    """

    def __init__(self) -> None:
        self.mails: list[tuple[list[str], EmailMessage]] = []
        self.refuses = ""
        self.puts_off: dict[str, str] = {}
        self.parting = "221 bye"
        self.logins: list[str] = []
        box = self

        class Handler(SmtpHandler):
            def handle(self) -> None:
                self.say("220 box")
                to: list[str] = []
                for line in self.rfile:
                    word = line.split()[0].upper()
                    if word == b"EHLO":
                        self.say("250-box\r\n250 AUTH PLAIN")
                        continue
                    if word == b"AUTH":
                        box.logins.append(b64decode(line.split()[2]).decode())
                        right = box.logins[-1] == "\0grower\0right"
                        self.say("235 ok" if right else "535 wrong")
                        continue
                    if word == b"RCPT":
                        address = line.decode().partition("<")[2].partition(">")[0]
                        if address in box.puts_off:
                            self.say(box.puts_off[address])
                            continue
                        to.append(address)
                    if word == b"DATA":
                        self.say(box.refuses or "354 go on")
                        if box.refuses:
                            continue
                        body = b""
                        while (part := self.rfile.readline()) != b".\r\n":
                            body += part
                        mail = message_from_bytes(body, policy=policy.default)
                        assert isinstance(mail, EmailMessage)
                        box.mails.append((to, mail))
                    self.say(box.parting if word == b"QUIT" else "250 ok")
                    if word == b"QUIT":
                        return

        super().__init__(Handler)


A, B = "a@example.org", "b@example.org"


def mail_of(root: Path, box: MailBox, clock: Clock, to: Sequence[str] = (A, B)) -> AlertMail:
    """A burst gathers for a minute."""
    server = MailServer(host="127.0.0.1", port=box.port, security="none")
    return AlertMail(root, server, "hothouse@example.org", to, "warning", 60, clock, clock)


def send(deliverer: Deliverer, clock: Clock, seconds: float = 60) -> None:
    """Look, and once more when so long has passed."""
    deliverer.look()
    clock.now_s += seconds
    deliverer.look()
