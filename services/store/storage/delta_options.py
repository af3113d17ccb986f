"""Step 6 of the way of a reading: how the library of Delta Lake reaches a storage, which it does by itself."""

from __future__ import annotations

from services.store.storage.cloud_server import CONNECT_S, REQUEST_S, options_of
from services.store.storage.storage_address import StorageAddress

__all__ = ["delta_options"]


def delta_options(address: StorageAddress) -> dict[str, str]:
    """Its ``storage_options`` for a bucket; credentials are read anew. Raises what their file makes."""
    _, options = options_of(address)
    client = options.pop("client_options")
    told = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
    told.pop("disable_bulk_delete", None)
    return told | {
        "allow_http": str(client["allow_http"]).lower(), "conditional_put": "etag",
        "connect_timeout": f"{CONNECT_S}s", "timeout": f"{3 * REQUEST_S:g}s",
        "max_retries": "10", "retry_timeout": f"{address.retry_s:g}s",
    }  # fmt: skip
