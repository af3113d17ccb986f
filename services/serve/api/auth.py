"""Keys: one that operators must send for orders, and, where it is configured, one that readers must send."""

from __future__ import annotations

import hmac
from pathlib import Path

from services.key_file import read_key
from services.serve.api.problems import ProblemError

__all__ = ["Keys"]

OPERATOR_KEY_FILE = "operator.key"


class Keys:
    """Checks ``Authorization: Bearer KEY`` headers; comparisons take constant time."""

    def __init__(self, operator: str, reader: str | None = None) -> None:
        self._operator = operator
        self._reader = reader

    @classmethod
    def load(cls, data_dir: Path, read_key_file: Path | None) -> Keys:
        """The operator's key from the data folder, the readers' from its file; raises as :func:`read_key`."""
        return cls(read_key(data_dir / OPERATOR_KEY_FILE), None if read_key_file is None else read_key(read_key_file))

    def require_reader(self, authorization: str | None) -> None:
        """Raises a 401 or 403 problem unless reading is open or the header holds either key."""
        if self._reader is not None:
            self._require(authorization, (self._reader, self._operator), "reading")

    def require_operator(self, authorization: str | None) -> None:
        """Raises a 401 problem without a key and a 403 problem for a wrong one."""
        self._require(authorization, (self._operator,), "this order")

    def _require(self, authorization: str | None, allowed: tuple[str, ...], what: str) -> None:
        if not authorization:
            raise ProblemError(
                401, f"{what} needs a key: send the header 'Authorization: Bearer KEY'", {"WWW-Authenticate": "Bearer"}
            )
        scheme, _, given = authorization.partition(" ")
        sent = given.strip().encode()
        matches = [hmac.compare_digest(sent, key.encode()) for key in allowed]
        if scheme.lower() != "bearer" or not any(matches):
            raise ProblemError(403, f"the key that was sent does not allow {what}")
