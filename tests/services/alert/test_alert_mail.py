"""Alerts by e-mail: bursts are one mail, and a real SMTP conversation."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path

import pytest

from services.alert.alert_mail import AlertMail, MailServer, digest
from services.alert.delivery import Deliverer
from tests.services.alert.told import Clock, change, journal


class MailBox:
    """An SMTP server on loopback that keeps mails; ``refuses`` them with an answer if it is told to."""

    def __init__(self) -> None:
        self.mails: list[tuple[list[str], EmailMessage]] = []
        self.refuses = ""
        box = self

        class Handler(socketserver.StreamRequestHandler):
            def say(self, words: str) -> None:
                self.wfile.write(f"{words}\r\n".encode())

            def handle(self) -> None:
                self.say("220 box")
                to: list[str] = []
                for line in self.rfile:
                    word = line.split()[0].upper()
                    if word == b"RCPT":
                        to.append(line.decode().partition("<")[2].partition(">")[0])
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
                    self.say("221 bye" if word == b"QUIT" else "250 ok")
                    if word == b"QUIT":
                        return

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def box() -> Iterator[MailBox]:
    """A server that takes mails."""
    made = MailBox()
    yield made
    made.close()


def mail_of(box: MailBox, clock: Clock) -> AlertMail:
    """A burst gathers for a minute."""
    server = MailServer(host="127.0.0.1", port=box.port, security="none")
    return AlertMail(server, "hothouse@example.org", ["a@example.org", "b@example.org"], "warning", 60, clock, clock)


def test_a_burst_is_one_mail(tmp_path: Path, box: MailBox) -> None:
    """The first waits a minute for others; what is only info, pending or acknowledged is not mailed."""
    clock = Clock()
    deliverer = Deliverer(tmp_path, mail_of(box, clock), clock)
    journal(tmp_path, change("a1", 1), change("x", 1, severity="info"), change("y", 1, "acknowledged"))
    deliverer.look()
    clock.now_s += 59
    journal(tmp_path, change("a2", 1, zone="z2"), change("z", 1, "pending", fired_ms=None))
    deliverer.look()
    assert (box.mails, deliverer.waiting) == ([], 5)
    clock.now_s += 1
    deliverer.look()
    deliverer.look()
    [(to, mail)] = box.mails
    assert to == ["a@example.org", "b@example.org"]
    assert mail["Subject"] == "2 alerts in demo/z1, demo/z2"
    assert mail.get_content().splitlines() == [
        "demo/z1 (critical): cold 72 % between 04:00 and 06:30; air 1.8 °C",
        "demo/z2 (critical): cold 72 % between 04:00 and 06:30; air 1.8 °C",
    ]
    assert deliverer.waiting == 0


def test_back_to_normal_is_told(tmp_path: Path, box: MailBox) -> None:
    """What fired and was over in one burst is said once, as it is in the end."""
    clock = Clock()
    deliverer = Deliverer(tmp_path, mail_of(box, clock), clock)
    journal(tmp_path, change("a1", 1), change("a1", 2, "resolved"))
    deliverer.look()
    clock.now_s += 60
    deliverer.look()
    [(_, mail)] = box.mails
    assert mail["Subject"] == "back to normal: demo/z1"
    assert mail.get_content().splitlines()[0] == "Back to normal:"


def test_a_server_that_refuses_is_tried_again_with_the_same_mail(tmp_path: Path, box: MailBox) -> None:
    """It has the same ``Message-ID``, so that a mail that came twice is one."""
    clock = Clock()
    deliverer = Deliverer(tmp_path, mail_of(box, clock), clock)
    journal(tmp_path, change("a1", 1))
    box.refuses = "451 later"
    deliverer.look()
    clock.now_s += 60
    deliverer.look()
    assert "did not take a mail" in deliverer.error
    box.refuses = ""
    clock.now_s += 1000
    deliverer.look()
    [(_, mail)] = box.mails
    assert mail["Message-ID"] == digest([change("a1", 1)])["Message-ID"]


def test_a_mail_that_is_refused_for_good_holds_up_no_other(tmp_path: Path, box: MailBox) -> None:
    """A mailbox that does not exist: it is counted, and the next mail goes out."""
    clock = Clock()
    mail = mail_of(box, clock)
    deliverer = Deliverer(tmp_path, mail, clock)
    journal(tmp_path, change("a1", 1))
    box.refuses = "554 no such box"
    deliverer.look()
    clock.now_s += 60
    deliverer.look()
    assert (mail.refused, deliverer.error) == (1, "")
    box.refuses = ""
    journal(tmp_path, change("a2", 1))
    deliverer.look()
    clock.now_s += 60
    deliverer.look()
    assert len(box.mails) == 1


def test_a_flood_is_a_mail_of_bounded_length() -> None:
    """A hundred lines say enough."""
    lines = digest([change(f"a{n}") for n in range(500)]).get_content().splitlines()
    assert (len(lines), lines[-1]) == (101, "and 400 lines more")
