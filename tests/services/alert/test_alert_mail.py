"""Alerts by e-mail: bursts are one mail, and a real SMTP conversation."""

from __future__ import annotations

import itertools
from base64 import b64decode
from collections.abc import Iterator, Sequence
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path

import pytest

from models.alerts.alert_book import CUT, AlertBook, RuleFinding
from models.alerts.alert_rule import AlertRule
from services.alert import waiting_mails
from services.alert.alert_deliveries import AlertDeliveries
from services.alert.alert_mail import AlertMail, digest
from services.alert.delivery import Deliverer
from services.alert.mail_server import MailServer
from services.alert.waiting_mails import FIRST_PAUSE_S, GIVE_UP_S
from services.config import load_settings
from services.ingest.alerts.shown_alert import shown_alert
from tests.patience import until
from tests.services.alert.smtp_server import SmtpHandler, SmtpServer
from tests.services.alert.told import Clock, change, journal


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


@pytest.fixture
def box() -> Iterator[MailBox]:
    """A server that takes mails."""
    made = MailBox()
    yield made
    made.close()


A, B = "a@example.org", "b@example.org"


def mail_of(root: Path, box: MailBox, clock: Clock, to: Sequence[str] = (A, B)) -> AlertMail:
    """A burst gathers for a minute."""
    server = MailServer(host="127.0.0.1", port=box.port, security="none")
    return AlertMail(root, server, "hothouse@example.org", to, "warning", 60, clock, clock)


def test_a_burst_is_one_mail(tmp_path: Path, box: MailBox) -> None:
    """The first waits a minute for others; what is only info, pending or acknowledged is not mailed."""
    clock = Clock()
    deliverer = Deliverer(tmp_path, mail_of(tmp_path, box, clock), clock)
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
    assert to == [A, B]
    assert mail["Subject"] == "2 alerts in demo/z1, demo/z2"
    assert mail.get_content().splitlines() == [
        "demo/z1 (critical): cold 72 % between 04:00 and 06:30; air 1.8 °C",
        "demo/z2 (critical): cold 72 % between 04:00 and 06:30; air 1.8 °C",
    ]
    assert deliverer.waiting == 0


def test_a_mail_that_was_taken_is_not_sent_again_whatever_the_server_says_after_it(
    tmp_path: Path, box: MailBox
) -> None:
    """A server that is shutting down answers 421 to QUIT; it has the mail."""
    clock = Clock()
    deliverer = Deliverer(tmp_path, mail_of(tmp_path, box, clock), clock)
    box.parting = "421 closing"
    journal(tmp_path, change("a1", 1))
    for _ in range(2):
        send(deliverer, clock)
        clock.now_s += 1000
    assert (len(box.mails), deliverer.waiting, deliverer.error) == (1, 0, "")


def test_back_to_normal_is_told(tmp_path: Path, box: MailBox) -> None:
    """What fired and was over in one burst is said once, as it is in the end."""
    clock = Clock()
    deliverer = Deliverer(tmp_path, mail_of(tmp_path, box, clock), clock)
    journal(tmp_path, change("a1", 1), change("a1", 2, "resolved"))
    deliverer.look()
    clock.now_s += 60
    deliverer.look()
    [(_, mail)] = box.mails
    assert mail["Subject"] == "back to normal: demo/z1"
    assert mail.get_content().splitlines()[0] == "Back to normal:"


@pytest.mark.parametrize(
    ("states", "mails"),
    [
        (["muted", "resolved"], []),
        (["pending", "muted", "acknowledged", "resolved"], []),
        (["firing", "muted", "resolved"], ["demo/z1: cold 72 % between 04:00 and 06:30", "back to normal: demo/z1"]),
        (["muted", "firing", "resolved"], ["demo/z1: cold 72 % between 04:00 and 06:30", "back to normal: demo/z1"]),
    ],
)
def test_only_of_what_was_told_it_is_told_that_it_is_over(
    tmp_path: Path, box: MailBox, states: list[str], mails: list[str]
) -> None:
    """What began and ended within a mute has fired, and nobody heard of it; also where we are started again between."""
    clock = Clock()
    deliverer = Deliverer(tmp_path, mail_of(tmp_path, box, clock), clock)
    for n, state in enumerate(states, 1):
        journal(tmp_path, change("a1", n, state, fired_ms=None if state == "pending" else 0))
        send(deliverer, clock)
        assert deliverer.waiting == 0
        deliverer = Deliverer(tmp_path, mail_of(tmp_path, box, clock), clock)
    assert [mail["Subject"] for _, mail in box.mails] == mails


def test_the_end_of_an_alert_that_the_journal_forgot_is_told(tmp_path: Path, box: MailBox) -> None:
    """Nobody knows any more whether it was told that it fires."""
    clock = Clock()
    deliverer = Deliverer(tmp_path, mail_of(tmp_path, box, clock), clock)
    journal(tmp_path, change("a1", 3, "resolved"))
    send(deliverer, clock)
    assert [mail["Subject"] for _, mail in box.mails] == ["back to normal: demo/z1"]


def test_the_end_of_an_alert_of_less_severity_is_not_told(tmp_path: Path, box: MailBox) -> None:
    """Its rule became severe meanwhile: no mail said that it fires."""
    clock = Clock()
    deliverer = Deliverer(tmp_path, mail_of(tmp_path, box, clock), clock)
    journal(tmp_path, change("a1", 1, severity="info"), change("a1", 2, "resolved"))
    send(deliverer, clock)
    assert box.mails == []


@pytest.mark.parametrize(("why", "kind"), [*itertools.product(CUT, ["frost", "stale_zone"])])
def test_what_is_no_longer_watched_is_not_back_to_normal(why: str, kind: str) -> None:
    """The zone has left, or the rule is another: nobody knows whether all is well."""
    over = AlertBook([AlertRule(name="mine", kind=kind, chance=0.5)])
    over.see(0, "demo", "z2", "mine", RuleFinding(1.0, is_now=True, why="as it was"))
    [ended] = over.end(1, "demo", "z2", why)
    normal = change("a1", 2, "resolved")
    mail = digest([normal, shown_alert(ended)])
    assert mail["Subject"] == "back to normal: demo/z1; no longer watched: demo/z2"
    lines = mail.get_content().splitlines()
    assert lines[:3] == ["Back to normal:", f"demo/z1: {normal['text']}", ""]
    assert lines[3] == "No longer watched:"
    assert lines[4].startswith("demo/z2, mine: ")
    assert lines[4].endswith(why)
    assert digest([shown_alert(ended)])["Subject"] == "no longer watched: demo/z2"


def test_what_is_back_to_normal_is_not_likely_to_last() -> None:
    """It ended sooner than was foreseen."""
    book = AlertBook([AlertRule(name="heat", kind="heat", keep_min=0)])
    why = "heat (above 33 °C) since 13:10, likely until 18:00; air 33.4 °C"
    [fired] = book.see(0, "demo", "z1", "heat", RuleFinding(1.0, is_now=True, why=why))
    [over] = book.see(1, "demo", "z1", "heat", RuleFinding(0.0))
    assert shown_alert(fired)["text"] == why
    line = "demo/z1: heat (above 33 °C) since 13:10; air 33.4 °C"
    assert digest([shown_alert(over)]).get_content().splitlines() == ["Back to normal:", line]


def test_a_server_that_refuses_is_tried_again_with_the_same_mail(tmp_path: Path, box: MailBox) -> None:
    """It has the same ``Message-ID``, so that a mail that came twice is one."""
    clock = Clock()
    deliverer = Deliverer(tmp_path, mail_of(tmp_path, box, clock), clock)
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
    mail = mail_of(tmp_path, box, clock)
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


def test_a_mail_is_ascii_on_its_way() -> None:
    """A server that does not know 8BITMIME may be sent nothing else, and nobody asks it."""
    mail = digest([change("a1", 1) | {"text": "CO₂ too high since 04:10; CO₂ 1520 ppm, air 21.8 °C"}])  # type: ignore[typeddict-item]
    assert mail.as_bytes().isascii()
    assert "CO₂ 1520 ppm, air 21.8 °C" in mail.get_content()


@pytest.mark.parametrize("where", ["DATA", "RCPT"])
def test_a_server_that_wants_starttls_or_a_login_first_loses_no_mail(tmp_path: Path, box: MailBox, where: str) -> None:
    """It refuses the conversation and no mail: that is told, and the mail goes out once the settings are right."""
    clock, wants = Clock(), "530 5.7.0 Must issue a STARTTLS command first"
    mail = mail_of(tmp_path, box, clock)
    deliverer = Deliverer(tmp_path, mail, clock)
    journal(tmp_path, change("a1", 1))
    box.refuses, box.puts_off = (wants, {}) if where == "DATA" else ("", {A: wants, B: wants})
    send(deliverer, clock)
    assert "STARTTLS command first" in deliverer.error
    assert (mail.refused, deliverer.waiting) == (0, 1)
    box.refuses, box.puts_off = "", {}
    send(deliverer, clock)
    assert (deliverer.error, [to for to, _ in box.mails]) == ("", [[A, B]])


def test_a_password_that_no_login_can_carry_is_told(tmp_path: Path, box: MailBox) -> None:
    """The mail waits with growing pauses, as for a server that refuses it, and nothing of the password is told."""
    clock = Clock()
    (secret := tmp_path / "password").write_text("gewächs")
    server = MailServer(host="127.0.0.1", port=box.port, security="none", username="grower", password_file=secret)
    mail = AlertMail(tmp_path, server, "hothouse@example.org", (A,), "warning", 0, clock, clock)
    deliverer = Deliverer(tmp_path, mail, clock)
    journal(tmp_path, change("a1", 1))
    deliverer.look()
    assert "password have a character that is not of ASCII" in deliverer.error
    assert "ä" not in deliverer.error
    assert "e4" not in deliverer.error
    assert deliverer.waiting == 1


def test_a_password_that_is_no_text_is_told(tmp_path: Path, box: MailBox) -> None:
    """As one that no login can carry."""
    (secret := tmp_path / "password").write_bytes("gewächs".encode("latin-1"))
    server = MailServer(host="127.0.0.1", port=box.port, security="none", username="grower", password_file=secret)
    clock = Clock()
    mail = AlertMail(tmp_path, server, "hothouse@example.org", (A,), "warning", 0, clock, clock)
    deliverer = Deliverer(tmp_path, mail, clock)
    journal(tmp_path, change("a1", 1))
    deliverer.look()
    assert deliverer.error.endswith(f"{secret} is no text in UTF-8")
    assert deliverer.waiting == 1


def test_a_corrected_password_is_used_by_the_next_try(tmp_path: Path, box: MailBox) -> None:
    """Nothing is restarted; a file that is missing meanwhile is told."""
    clock, secret = Clock(), tmp_path / "password"
    server = MailServer(host="127.0.0.1", port=box.port, security="none", username="grower", password_file=secret)
    deliverer = Deliverer(
        tmp_path, AlertMail(tmp_path, server, "hothouse@example.org", (A,), "warning", 0, clock, clock), clock
    )
    journal(tmp_path, change("a1", 1))
    secret.write_text("wrong")
    deliverer.look()
    assert "535" in deliverer.error
    secret.unlink()
    clock.now_s += 60
    deliverer.look()
    assert "No such file" in deliverer.error
    secret.write_text("right\n")
    clock.now_s += 60
    deliverer.look()
    assert (deliverer.error, len(box.mails)) == ("", 1)
    assert box.logins == ["\0grower\0wrong", "\0grower\0right"]


def send(deliverer: Deliverer, clock: Clock, seconds: float = 60) -> None:
    """Look, and once more when so long has passed."""
    deliverer.look()
    clock.now_s += seconds
    deliverer.look()


def test_an_address_that_is_put_off_gets_the_mail_later(tmp_path: Path, box: MailBox) -> None:
    """Nobody else gets it again, other mails do not wait for it, and it waits over a restart."""
    clock = Clock()
    mail = mail_of(tmp_path, box, clock)
    deliverer = Deliverer(tmp_path, mail, clock)
    journal(tmp_path, change("a1", 1))
    box.puts_off = {B: "450 4.2.0 greylisted"}
    send(deliverer, clock)
    journal(tmp_path, change("a2", 1))
    send(deliverer, clock)
    send(deliverer, clock, FIRST_PAUSE_S)
    assert [to for to, _ in box.mails] == [[A], [A]]
    assert (mail.waiting, mail.missed, mail.refused, deliverer.error) == (2, 0, 0, "")
    assert mail.error == "alerts by e-mail: 127.0.0.1 does not take a mail yet for 1 of 2 addresses"
    again = mail_of(tmp_path, box, clock)
    assert again.waiting == 2
    box.puts_off = {}
    send(Deliverer(tmp_path, again, clock), clock)
    assert [to for to, _ in box.mails[2:]] == [[B], [B]]
    ids = [found["Message-ID"] for _, found in box.mails]
    assert (ids[2:], again.waiting, again.error) == (ids[:2], 0, "")
    assert mail_of(tmp_path, box, clock).waiting == 0


def test_an_address_that_is_refused_for_good_is_counted(tmp_path: Path, box: MailBox) -> None:
    """At once, or once it was put off; the others have the mail, and it is sent to nobody again."""
    clock = Clock()
    mail = mail_of(tmp_path, box, clock)
    deliverer = Deliverer(tmp_path, mail, clock)
    journal(tmp_path, change("a1", 1), change("a2", 1))
    box.puts_off = {B: "550 no such box"}
    send(deliverer, clock)
    assert (mail.missed, mail.refused, mail.waiting, mail.error) == (2, 0, 0, "")
    box.puts_off = {B: "452 full"}
    journal(tmp_path, change("a3", 1))
    send(deliverer, clock)
    box.puts_off = {B: "550 no such box"}
    send(deliverer, clock, FIRST_PAUSE_S)
    assert (mail.missed, mail.refused, mail.waiting) == (3, 0, 0)
    assert [to for to, _ in box.mails] == [[A], [A]]


def test_an_address_that_takes_nothing_for_a_day_is_given_up(
    tmp_path: Path, box: MailBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits is bounded, too; an address that the settings name no more gets nothing."""
    monkeypatch.setattr(waiting_mails, "MOST", 3)
    clock = Clock()
    mail = mail_of(tmp_path, box, clock)
    deliverer = Deliverer(tmp_path, mail, clock)
    box.puts_off = {B: "452 full"}
    for n in range(4):
        journal(tmp_path, change(f"a{n}", 1))
        send(deliverer, clock)
    assert (mail.waiting, mail.missed) == (3, 1)
    assert mail_of(tmp_path, box, clock, [A]).waiting == 0
    send(deliverer, clock, GIVE_UP_S)
    assert (mail.waiting, mail.missed, mail.error) == (0, 4, "")


def test_who_all_are_put_off_get_the_mail_from_the_journal(tmp_path: Path, box: MailBox) -> None:
    """Nothing has gone out: nothing is told, and what is new goes into the same mail."""
    clock = Clock()
    mail = mail_of(tmp_path, box, clock)
    deliverer = Deliverer(tmp_path, mail, clock)
    journal(tmp_path, change("a1", 1))
    box.puts_off = {A: "450 later", B: "550 no such box"}
    send(deliverer, clock)
    assert deliverer.error.endswith("did not take a mail: 450 later")
    assert (box.mails, deliverer.waiting, mail.waiting, mail.missed) == ([], 1, 0, 0)
    box.puts_off = {}
    send(deliverer, clock, 1000)
    assert [to for to, _ in box.mails] == [[A, B]]


def test_what_an_address_lacks_is_in_the_figures(tmp_path: Path, box: MailBox) -> None:
    """It waits, and ``/status`` says so; what an address refuses is lost. Both were told to others."""
    settings = load_settings(
        data_dir=tmp_path, alerts={
            "mqtt": False, "email_to": [A, B, "c@example.org"], "email_gather_s": 0, "smtp_host": "127.0.0.1",
            "smtp_port": box.port, "smtp_security": "none",
        },
    )  # fmt: skip
    box.puts_off = {B: "450 later", "c@example.org": "550 no such box"}
    deliveries = AlertDeliveries(settings, lambda messages: None)
    assert deliveries.error == ""
    with deliveries:
        journal(settings.storage_folder, change("x", 1, severity="info"), change("a1", 1))  # one is not for mail
        until(lambda: box.mails, "a mail is sent")
    assert deliveries.error.endswith("does not take a mail yet for 1 of 3 addresses")
    assert deliveries.figures() == {
        "alerts_told": {"e-mail": 1}, "alerts_waiting": {"e-mail": 1}, "alerts_lost": {"e-mail": 1}
    }  # fmt: skip


def test_a_flood_is_a_mail_of_bounded_length() -> None:
    """A hundred lines say enough."""
    lines = digest([change(f"a{n}") for n in range(500)]).get_content().splitlines()
    assert (len(lines), lines[-1]) == (101, "and 400 lines more")
