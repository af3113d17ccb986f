"""What is kept in half precision: three digits, which is more than sensors have, in half the room."""

from __future__ import annotations

__all__ = ["LARGEST"]

LARGEST = 60_000.0
"""Values are cut here before they are kept; from 65,520 on they would be infinite."""
