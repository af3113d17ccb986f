"""A conversation with a mail server ends in its time, however the server spins it out."""

from __future__ import annotations

import smtplib
import ssl
import threading
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path
from typing import Literal

import pytest

from services.alert.mail_server import MailServer
from tests.certificates import make_certificate
from tests.services.alert.smtp_server import SmtpHandler, SmtpServer

BYTES = 400


class SlowServer(SmtpServer):
    """An SMTP server on loopback that says the answer to the command ``slow`` (or its greeting) a byte at a time, fifty
    a second; ``said`` counts these bytes, ``taken`` mails.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.slow = b""
        self.is_tls_from_the_first_byte_on = False
        self.said = self.taken = 0
        self.hung_up = threading.Event()
        server = self

        class Handler(SmtpHandler):
            def encrypt(self) -> None:
                assert tls is not None
                self.request = tls.wrap_socket(self.request, server_side=True)
                self.setup()

            def spin_out(self) -> None:
                pause = threading.Event()
                try:
                    for _ in range(BYTES):
                        self.wfile.write(b"2")
                        server.said += 1
                        pause.wait(0.02)
                except OSError:
                    server.hung_up.set()

            def handle(self) -> None:
                if server.is_tls_from_the_first_byte_on:
                    self.encrypt()
                if server.slow == b"220":
                    return self.spin_out()
                self.say("220 slow")
                while line := self.rfile.readline():
                    word = line.split()[0].upper()
                    if word == b"STARTTLS":
                        self.say("220 go on")
                        self.encrypt()
                        continue
                    if word == server.slow:
                        return self.spin_out()
                    if word == b"DATA":
                        self.say("354 go on")
                        while self.rfile.readline() != b".\r\n":
                            pass
                        server.taken += 1
                    self.say("250-ok\r\n250 STARTTLS" if word == b"EHLO" else "250 ok")
                return None

        super().__init__(Handler)


@pytest.fixture
def server() -> Iterator[SlowServer]:
    """A server that takes its time."""
    made = SlowServer()
    yield made
    made.close()


def send(server: SlowServer, security: Literal["starttls", "tls", "none"] = "none", whole_s: float = 0.3) -> object:
    """A mail to one address."""
    mail = EmailMessage()
    mail["From"] = "hothouse@example.org"
    mail.set_content("cold")
    there = MailServer(host="127.0.0.1", port=server.port, security=security, whole_s=whole_s)
    return there.send(mail, ["a@example.org"])


@pytest.mark.parametrize("slow", [b"220", b"EHLO", b"RCPT", b"DATA"])
def test_a_server_that_answers_a_byte_at_a_time_is_left(server: SlowServer, slow: bytes) -> None:
    """Each byte comes in time; the whole does not, and the next mail can go out."""
    server.slow = slow
    with pytest.raises(smtplib.SMTPServerDisconnected, match=r"not done within 0\.3 s|timed out"):
        send(server)
    assert server.hung_up.wait(60)
    assert (server.said < BYTES, server.taken) == (True, 0)


def test_a_mail_that_was_taken_is_sent_however_slow_the_parting_is(server: SlowServer) -> None:
    """The time is over in the answer to QUIT: the mail is not sent again for it."""
    server.slow = b"QUIT"
    assert send(server) == {}
    assert server.hung_up.wait(60)
    assert (server.said < BYTES, server.taken) == (True, 1)


@pytest.mark.parametrize("security", ["tls", "starttls"])
def test_an_encrypted_conversation_has_its_time_as_well(
    security: Literal["tls", "starttls"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mail goes out, and a server that spins out its answer is left."""
    cert, key = make_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(cert, key)
    server = SlowServer(tls)
    server.is_tls_from_the_first_byte_on = security == "tls"
    try:
        assert (send(server, security, whole_s=60), server.taken) == ({}, 1)
        server.slow = b"MAIL"
        with pytest.raises(smtplib.SMTPServerDisconnected):
            send(server, security, whole_s=1)
        assert server.hung_up.wait(60)
        assert (server.said < BYTES, server.taken) == (True, 1)
    finally:
        server.close()
