"""Step 15 of the way of a reading: whose models a registered model of MLflow keeps.

Two systems on one MLflow would move one alias, each to a model whose files the other does not have, and prune each
other's models. So each has an id, ``registry-owner`` in its storage, and the registered model a tag with the id of the
first that came. The id is in a backup: a system that was brought back elsewhere goes on with its models.
"""

from __future__ import annotations

import secrets
from contextlib import suppress

from services.errors import AlreadyStoredError, NotStoredError
from services.store.storage import Storage

__all__ = ["OWNER_TAG", "registry_owner"]

OWNER_TAG = "hothouse.owner"
_KEY = "registry-owner"


def registry_owner(storage: Storage) -> str:
    """The id of the system whose state lies in a storage; made where there is none. Raises ``OSError``."""
    try:
        content = storage.read(_KEY).content
    except NotStoredError:
        with suppress(AlreadyStoredError):  # another process was first: its id holds
            storage.put_new(_KEY, secrets.token_hex(8).encode())
        content = storage.read(_KEY).content
    return content.decode(errors="replace").strip()
