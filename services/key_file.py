"""A key in a file: server and clients read it by the same rules."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from services.errors import ConfigError

__all__ = ["read_key", "write_secret"]


def read_key(path: Path) -> str:
    """The key that a file holds, without the blanks around it; raises :class:`ConfigError` in one sentence.

    It is sent in a header, which takes printable ASCII only.
    """
    try:
        key = path.read_text(encoding="utf-8-sig").strip()  # editors of Windows begin a file with a mark
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(
            f"the key file {path} cannot be read: {reason}", "Check its path and who may read it."
        ) from error
    if not key:
        raise ConfigError(f"the key file {path} is empty", "Put one line with the key into it.")
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(
            f"the key file {path} must hold one line of printable ASCII", "An HTTP header carries nothing else."
        )
    return key


def write_secret(path: Path) -> str:
    """The secret in ``path``, made with mode 0600 when it is missing or empty."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and (found := path.read_text().strip()):
        return found
    secret = secrets.token_hex(32)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(secret)
    return secret
