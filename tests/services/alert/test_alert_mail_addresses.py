"""Alerts by e-mail to several addresses, of which some are put off or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.alert import waiting_mails
from services.alert.alert_deliveries import AlertDeliveries
from services.alert.delivery import Deliverer
from services.alert.waiting_mails import FIRST_PAUSE_S, GIVE_UP_S
from services.config import load_settings
from tests.patience import until
from tests.services.alert.mail_box import A, B, MailBox, mail_of, send
from tests.services.alert.told import Clock, change, journal


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
