"""Why a connection to a broker cannot be made or has ended, in a sentence that says what to look at."""

from __future__ import annotations

import ssl

from paho.mqtt.reasoncodes import ReasonCode

from edge.mqtt.connection import MqttAddress

__all__ = ["cannot_be_asked", "lost", "no_answer", "not_reached", "refused", "refused_topics", "unanswered"]

_OF_CERTIFICATES = (
    "HANDSHAKE_FAILURE", "BAD_CERTIFICATE", "UNKNOWN_CA", "CERTIFICATE_REQUIRED", "CERTIFICATE_UNKNOWN",
    "CERTIFICATE_EXPIRED", "CERTIFICATE_REVOKED", "UNSUPPORTED_CERTIFICATE", "ACCESS_DENIED",
)  # fmt: skip
"""How a broker that is not content with our certificate, or lacks one, ends a handshake."""
_NO_LOGIN = (0x86, 0x87)
_TAKEN_OVER = 0x8E


def cannot_be_asked(address: MqttAddress, error: OSError) -> str:
    """Something of ours is not as it should be, such as a file."""
    return f"the broker at {_at(address)} cannot be asked: {error}"


def not_reached(address: MqttAddress, error: Exception) -> str:
    """There is no connection; over TLS, with what may be wrong about it."""
    meant = ""
    if address.tls is not None:
        if isinstance(error, ssl.SSLError) and (error.reason or "").partition("_ALERT_")[2] in _OF_CERTIFICATES:
            meant = f"; does it want {_certificate(address)}?"
        elif not isinstance(error, ConnectionResetError | ssl.SSLEOFError):
            meant = "; does it speak TLS at this port (mqtt.tls_ca_file)?"
    return f"no broker at {_at(address)}: {error}{meant}"


def no_answer(address: MqttAddress) -> str:
    """It was connected to, and says nothing."""
    return f"the broker at {_at(address)} does not answer"


def unanswered(address: MqttAddress) -> str:
    """It ended the connection before it said anything."""
    wants = _certificate(address) if address.tls is not None else "TLS (mqtt.tls_ca_file)"
    return f"the broker at {_at(address)} ended the connection before it answered; does it want {wants}?"


def refused(address: MqttAddress, reason: ReasonCode) -> str:
    """It does not let us in."""
    read = "; mqtt.password_file is read at each try, mqtt.username at the start" if reason.value in _NO_LOGIN else ""
    return f"the broker at {_at(address)} refuses us: {reason}{read}"


def refused_topics(topics: list[str], reason: ReasonCode) -> str:
    """It lets us in, and lets us read none of what we want."""
    return f"the broker refuses the subscription to {', '.join(topics)}: {reason}"


def lost(address: MqttAddress, reason: ReasonCode, client_id: str, *, again_and_again: bool) -> str:
    """A connection that was made has ended; ``again_and_again`` where the last few did, soon after they began."""
    said = f"the connection to {_at(address)} was lost: {reason}"
    if not again_and_again and reason.value != _TAKEN_OVER:
        return said
    return f"{said}; is there another gateway with the client id {client_id} (mqtt.client_id)?"


def _at(address: MqttAddress) -> str:
    return f"{address.host}:{address.port}"


def _certificate(address: MqttAddress) -> str:
    shown = address.tls is not None and address.tls.cert is not None
    return f"{'another' if shown else 'a'} client certificate (mqtt.tls_cert_file)"
