"""Whether the local broker can listen where the settings say, and what to do where it cannot."""

from __future__ import annotations

import errno
import socket

__all__ = ["why_not"]

_TAKEN = (
    "Another broker has it, such as the one that the package mosquitto starts: "
    "`sudo systemctl disable --now mosquitto` ends that. Or set mqtt.port to another."
)


def why_not(listen: str, port: int) -> tuple[str, str]:
    """Why nothing can listen there, and what to do; both empty where something can."""
    with socket.socket(socket.AF_INET6 if ":" in listen else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((listen, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return f"port {port} on {listen} is taken", _TAKEN
            advice = "Set mqtt.listen to an address of this machine, or 0.0.0.0, and mqtt.port to a port above 1023."
            return f"nothing can listen at {listen}, port {port}: {error.strerror or error}", advice
    return "", ""
