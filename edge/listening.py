"""Whether a program can listen at an address of this machine."""

from __future__ import annotations

import errno
import socket

__all__ = ["why_not_free"]


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
