"""A key in a file: who serves and who asks read it by the same rules."""

from __future__ import annotations

from pathlib import Path

from services.errors import ConfigError

__all__ = ["read_key"]


def read_key(path: Path) -> str:
    """The key that a file holds, without the blanks around it; raises :class:`ConfigError` in one sentence.

    It is sent in a header, which takes printable ASCII only.
    """
    try:
        key = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(
            f"the key file {path} cannot be read: {reason}", "Check its path and who may read it."
        ) from error
    if not key:
        raise ConfigError(f"the key file {path} is empty", "Put one line with the key into it.")
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(
            f"the key file {path} holds other characters than one line of printable ASCII", "No header can carry them."
        )
    return key
