"""The API's certificate: checked at the start, handed to HAProxy, and exchanged when it is renewed.

``python -m services.runtime.certificate FOLDER PEM SOCKET`` does the same for the HAProxy before a cluster, with
``cert.pem`` and ``key.pem`` of a folder: with ``--once`` it writes the copy, without it follows the files.
"""

from __future__ import annotations

import logging
import os
import socket
import ssl
import sys
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from services.errors import StartError

__all__ = ["LOOK_EVERY_S", "Certificate", "checked", "end_ms"]

_log = logging.getLogger(__name__)
LOOK_EVERY_S = 10.0
ANSWER_S = 10.0
HINT = "Give a certificate with its chain, and its key without a passphrase, in PEM (api.tls_cert_file, _key_file)."


def checked(cert_file: Path, key_file: Path) -> bytes:
    """Certificate, chain and key as one PEM text, without empty lines, which end what HAProxy's socket is sent.

    Raises :class:`StartError` where they cannot be read, are none, or do not belong together.
    """
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert_file, key_file, password=_no_passphrase)
        text = cert_file.read_bytes() + b"\n" + key_file.read_bytes()
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        raise StartError(f"the certificate {cert_file} and its key {key_file} cannot be used: {error}", HINT) from error
    return b"\n".join(line for line in text.splitlines() if line.strip()) + b"\n"


class Certificate:
    """A certificate and its key in two files, and ``pem``, the copy that HAProxy reads; its owner alone reads that.

    ``admin_socket`` gives the path of HAProxy's socket, once there is one. With ``goes_on`` HAProxy has the copy
    already. One thread calls :meth:`renew`.
    """

    def __init__(
        self, cert_file: Path, key_file: Path, pem: Path, admin_socket: Callable[[], str], *, goes_on: bool = False
    ) -> None:
        self._files, self._pem, self._admin_socket = (cert_file, key_file), pem, admin_socket
        self._told = ""
        if goes_on:
            self._used = pem.read_bytes()
            return
        self._used = checked(*self._files)
        self._write()

    @property
    def ends_ms(self) -> int | None:
        """Until when the one is good that is used; ``None`` for one that OpenSSL takes, and whose form is none."""
        return end_ms(self._used)

    def renew(self) -> None:
        """Look whether the files hold another certificate, and use that: connections that are open stay. A renewed
        one that cannot be used is told in the log, once, and the one before stays.
        """
        try:
            found = checked(*self._files)
        except StartError as error:  # half a renewal may be on the disk for a moment
            self._tell(f"{error.message}; the one before is used")
            return
        if found == self._used:
            self._told = ""
            return
        before, self._used = self._used, found
        self._write()  # an HAProxy that starts from now on reads it
        try:
            self._exchange()
        except OSError as error:
            self._used = before  # tried again
            self._tell(f"HAProxy did not take the renewed certificate, and is asked again: {error}")
            return
        self._told = ""
        _log.info("the certificate %s was renewed", self._files[0])

    def _tell(self, problem: str) -> None:
        if problem != self._told:
            _log.warning("%s", problem)
            self._told = problem

    def _write(self) -> None:
        new = self._pem.with_suffix(".new")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(self._used)
        new.replace(self._pem)

    def _exchange(self) -> None:
        for order in (b"set ssl cert %s <<\n%s\n" % (os.fsencode(self._pem), self._used),
                      b"commit ssl cert %s\n" % os.fsencode(self._pem)):  # fmt: skip
            answer = self._asked(order)
            if not any(word in answer for word in ("Transaction created", "Transaction updated", "Success")):
                raise OSError(answer.strip() or "no answer")

    def _asked(self, order: bytes) -> str:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_S)
            connection.connect(self._admin_socket())
            connection.sendall(order)
            answer = b""
            while piece := connection.recv(65_536):
                answer += piece
        return answer.decode(errors="replace")


@lru_cache(1)  # it is asked for each second
def end_ms(pem: bytes) -> int | None:
    """Until when the first certificate in a text is good; ``None`` as for :attr:`Certificate.ends_ms`."""
    from cryptography.x509 import load_pem_x509_certificate

    try:
        return round(1000 * load_pem_x509_certificate(pem).not_valid_after_utc.timestamp())
    except ValueError:
        return None


def _no_passphrase() -> str:
    """Asked for a key that has one: nobody is there to type it."""
    raise ValueError("the key has a passphrase")


def main(folder: str, pem: str, admin_socket: str, *, once: bool = False) -> None:
    """Write the copy once, or follow the files until the process ends."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        files = [Path(folder, name) for name in ("cert.pem", "key.pem")]
        certificate = Certificate(files[0], files[1], Path(pem), lambda: admin_socket, goes_on=not once)
    except StartError as error:
        sys.exit(error.words)
    while not once:
        time.sleep(LOOK_EVERY_S)
        certificate.renew()


if __name__ == "__main__":
    main(*(word for word in sys.argv[1:] if word != "--once"), once="--once" in sys.argv)
