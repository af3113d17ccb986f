"""Step 9 of the way of a reading: the server that takes mails, and one conversation with it.

Each step of a conversation has its time, and so has the whole: a server that sends a byte now and then keeps every
single read short of a time-out, and would hold up all mails behind this one.
"""

from __future__ import annotations

import io
import smtplib
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path
from typing import Any, Literal

from edge.secret_file import read_secret

__all__ = ["MailServer"]

STEP_S = 30.0
WHOLE_S = 120.0
"""A server that does not trust a sender yet may let some steps take half a minute."""


@dataclass(frozen=True, kw_only=True)
class MailServer:
    """Where mail goes out, and how to log in; without a user name nobody logs in. The password is read in each
    conversation: who corrects it need not restart anything. A conversation ends after ``whole_s``.
    """

    host: str
    port: int = 587
    security: Literal["starttls", "tls", "none"] = "starttls"
    username: str = ""
    password_file: Path | None = None
    whole_s: float = WHOLE_S

    def send(self, message: EmailMessage, to: Sequence[str]) -> Mapping[str, tuple[int, bytes]]:
        """The answers of those addresses that were refused, while others were not. Raises ``OSError`` or
        ``smtplib.SMTPException`` where nobody gets the mail.
        """
        context = ssl.create_default_context()
        client: _Client
        if self.security == "tls":
            client = _TlsClient(self.whole_s, self.host, self.port, context=context)
        else:
            client = _Client(self.whole_s, self.host, self.port)
        try:
            if self.security == "starttls":
                client.starttls(context=context)
            if self.username:
                client.login(self.username, read_secret(self.password_file) if self.password_file else "")
            return client.send_message(message, to_addrs=list(to))
        finally:
            # By hand: leaving the client's context raises where QUIT has another answer, and the mail goes out again.
            with suppress(OSError, smtplib.SMTPException):
                client.quit()
            client.close()


class _Client(smtplib.SMTP):
    """Takes no answer after ``whole_s``; each step has :data:`STEP_S` at most."""

    def __init__(self, whole_s: float, host: str, port: int, **how: Any) -> None:
        self._whole_s, self._until_s = whole_s, time.monotonic() + whole_s
        super().__init__(host, port, timeout=min(STEP_S, whole_s), **how)

    def getreply(self) -> tuple[int, bytes]:
        """Every answer is read here; ``smtplib`` makes no ``file`` where there is one."""
        if self.file is None and self.sock is not None:
            self.file = io.BufferedReader(_Answers(self.sock, self._until_s, self._whole_s))
        return super().getreply()


class _TlsClient(_Client, smtplib.SMTP_SSL):
    """The same, encrypted from the first byte on."""


class _Answers(io.RawIOBase):
    """What a server says, until ``until_s``."""

    def __init__(self, sock: socket.socket, until_s: float, whole_s: float) -> None:
        self._sock, self._until_s, self._whole_s = sock, until_s, whole_s

    def readable(self) -> bool:
        """It is only read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """As ``io`` says; raises ``OSError``."""
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError(f"it was not done within {self._whole_s:g} s")
        self._sock.settimeout(min(STEP_S, left_s))
        return self._sock.recv_into(buffer)
