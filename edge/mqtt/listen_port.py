"""Whether the local broker can listen where the settings say, and what to do where it cannot."""

from __future__ import annotations

from edge.listening import why_not_free

__all__ = ["why_not"]

_TAKEN = (
    "Another broker has it, such as the one that the package mosquitto starts: "
    "`sudo systemctl disable --now mosquitto` ends that. Or set mqtt.port to another."
)


def why_not(listen: str, port: int) -> tuple[str, str]:
    """Why nothing can listen there, and what to do; both empty where something can."""
    why, is_taken = why_not_free(listen, port)
    if not why:
        return "", ""
    elsewhere = "Set mqtt.listen to an address of this machine, or 0.0.0.0, and mqtt.port to a port above 1023."
    return why, _TAKEN if is_taken else elsewhere
