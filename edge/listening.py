"""Whether a program can listen at an address of this machine."""

from __future__ import annotations

import errno
import socket

__all__ = ["EVERYWHERE", "why_no_broker", "why_not_free"]

EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - compared
_TAKEN = (
    "Another broker has it, such as the one that the package mosquitto starts: "
    "`sudo systemctl disable --now mosquitto` ends that. Or set mqtt.port to another."
)


def why_not_free(host: str, port: int) -> tuple[str, bool]:
    """Why nothing can listen there at this moment, empty where something can; and whether another program does."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return f"port {port} on {host} is taken", True
            return f"nothing can listen at {host}, port {port}: {error.strerror or error}", False
    return "", False


def why_no_broker(listen: str, port: int) -> tuple[str, str]:
    """Why the local broker cannot listen there, and what to do; both empty where it can."""
    why, is_taken = why_not_free(listen, port)
    if not why:
        return "", ""
    elsewhere = "Set mqtt.listen to an address of this machine, or 0.0.0.0, and mqtt.port to a port above 1023."
    return why, _TAKEN if is_taken else elsewhere
