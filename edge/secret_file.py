"""Files with a secret: passwords, tokens."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["read_secret", "write_secret"]


def read_secret(path: Path) -> str:
    """What it holds, without blanks around it. Raises ``OSError`` where it cannot be read, or is no text."""
    try:
        return path.read_text(encoding="utf-8-sig").strip()  # editors of Windows begin a file with a mark
    except UnicodeDecodeError:
        raise OSError(f"{path} is no text in UTF-8") from None  # that error quotes a byte of the secret


def write_secret(path: Path, text: str) -> None:
    """Replace ``path`` by a file with mode 0600, which no other user can read at any moment.

    Where that fails, on a full disk for example, ``path`` holds what it held. One writer at a time.
    """
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)  # from a writer that was killed
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise
