"""What a client of ours uses TLS with: the authority that it believes, and the certificate that it shows."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

__all__ = ["TlsFiles", "TlsSettings", "tls_files"]


class TlsSettings(Protocol):
    """A section of the settings that leads to a server."""

    @property
    def tls_ca_file(self) -> Path | None: ...
    @property
    def tls_cert_file(self) -> Path | None: ...
    @property
    def tls_key_file(self) -> Path | None: ...


@dataclass(frozen=True)
class TlsFiles:
    """Files in PEM, read at each connection, so that what is renewed counts without a restart.

    ``ca`` holds the authorities whose servers are believed. ``cert`` and ``key`` are shown to a server that asks who
    we are; both or none are there, and the key is not encrypted: nobody could be asked for its passphrase.
    """

    ca: Path
    cert: Path | None = None
    key: Path | None = None

    def check(self) -> None:
        """As :meth:`check_ca` and :meth:`check_certificate`."""
        self.check_ca()
        self.check_certificate()

    def check_ca(self) -> None:
        """Raise ``OSError``, which names the file, where ``ca`` cannot be read or holds nothing that can be used."""
        self.ca.read_bytes()
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(self.ca)
        except ssl.SSLError as error:
            raise OSError(f"{self.ca} holds no CA certificate in PEM: {error}") from error

    def check_certificate(self) -> None:
        """As :meth:`check_ca` for ``cert`` and ``key``; does nothing where they are not set."""
        if self.cert is None or self.key is None:
            return
        self.cert.read_bytes()
        self.key.read_bytes()
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(self.cert, self.key, password="")
        except ssl.SSLError as error:
            words = "hold no certificate in PEM with its own key, not encrypted"
            raise OSError(f"{self.cert} and {self.key} {words}: {error}") from error


def tls_files(of: TlsSettings) -> TlsFiles | None:
    """What a section names; ``None`` where it does without TLS. Raises ``ValueError`` where one of them lacks another.

    >>> from types import SimpleNamespace
    >>> tls_files(SimpleNamespace(tls_ca_file="ca.pem", tls_cert_file=None, tls_key_file=None))
    TlsFiles(ca='ca.pem', cert=None, key=None)
    >>> tls_files(SimpleNamespace(tls_ca_file="ca.pem", tls_cert_file="cert.pem", tls_key_file=None))
    Traceback (most recent call last):
    ValueError: tls_cert_file and tls_key_file belong together: set both or none
    """
    if (of.tls_cert_file is None) != (of.tls_key_file is None):
        raise ValueError("tls_cert_file and tls_key_file belong together: set both or none")
    if of.tls_ca_file is None:
        if of.tls_cert_file is not None:
            raise ValueError("tls_cert_file is for TLS: set tls_ca_file, too")
        return None
    return TlsFiles(of.tls_ca_file, of.tls_cert_file, of.tls_key_file)
