"""Step 9 of the way of a reading: why a request cannot be answered, wherever that is found out; no HTTP library."""

from __future__ import annotations

from typing import Any

__all__ = ["ProblemError"]


class ProblemError(Exception):
    """Answer with a problem of this HTTP status; ``more`` adds members to it (``zones``, ``errors``, ...)."""

    def __init__(self, status: int, detail: str, headers: dict[str, str] | None = None, **more: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers
        self.more = more
