"""Alerts by e-mail: bursts are one mail, and a real SMTP conversation."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from models.alerts.alert_book import CUT, RULE_GONE, AlertBook, RuleFinding
from models.alerts.alert_rule import AlertRule
from services.alert.alert_mail import AlertMail, digest
from services.alert.delivery import Deliverer
from services.alert.mail_server import MailServer
from services.config import SiteNames, SiteSettings
from services.ingest.alerts.shown_alert import shown_alert
from tests.services.alert.mail_box import A, B, MailBox, mail_of, send
from tests.services.alert.told import Clock, change, journal


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


def test_places_are_called_as_people_call_them(tmp_path: Path, box: MailBox) -> None:
    """As on the page: in the subject, and of what is over, too."""
    names = SiteNames.of([SiteSettings(name="demo", label="De Linde", zone_labels={"z1": "Tomatoes, north"})])
    server, clock = MailServer(host="127.0.0.1", port=box.port, security="none"), Clock()
    mail = AlertMail(tmp_path, server, "hothouse@example.org", (A,), "warning", 60, clock, clock, names=names)
    deliverer = Deliverer(tmp_path, mail, clock)
    journal(tmp_path, change("a1", 1))
    send(deliverer, clock)
    journal(tmp_path, change("a1", 2, "resolved"), change("a2", 1, zone="z2"))
    send(deliverer, clock)
    (_, first), (_, second) = box.mails
    assert first["Subject"].startswith("De Linde/Tomatoes, north: cold 72 %")
    assert [line.partition(": ")[0] for line in second.get_content().splitlines()] == [
        "De Linde/z2 (critical)", "", "Back to normal:", "De Linde/Tomatoes, north",
    ]  # fmt: skip


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
    """The zone has left, or the rule is another, which may watch it still: nobody knows whether all is well."""
    how = "Rule changed" if why == RULE_GONE else "No longer watched"
    over = AlertBook([AlertRule(name="mine", kind=kind, chance=0.5)])
    over.see(0, "demo", "z2", "mine", RuleFinding(1.0, is_now=True, why="as it was"))
    [ended] = over.end(1, "demo", "z2", why)
    normal = change("a1", 2, "resolved")
    mail = digest([normal, shown_alert(ended)])
    assert mail["Subject"] == f"back to normal: demo/z1; {how.lower()}: demo/z2"
    lines = mail.get_content().splitlines()
    assert lines[:3] == ["Back to normal:", f"demo/z1: {normal['text']}", ""]
    assert lines[3] == f"{how}:"
    assert lines[4].startswith("demo/z2, mine: ")
    assert lines[4].endswith(why)
    assert digest([shown_alert(ended)])["Subject"] == f"{how.lower()}: demo/z2"


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


def test_a_flood_is_a_mail_of_bounded_length() -> None:
    """A hundred lines say enough."""
    lines = digest([change(f"a{n}") for n in range(500)]).get_content().splitlines()
    assert (len(lines), lines[-1]) == (101, "and 400 lines more")
