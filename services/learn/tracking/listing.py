"""Step 15 of the way of a reading: all models of a registry, read again only when something may have changed."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

from services.errors import PromotionRefusedError
from services.learn.experts import Expert, number_of
from services.learn.records import row_of
from services.learn.tracking.mlflow_import import MlflowClient
from services.messages import ModelRow

__all__ = ["Listing", "RegistryState"]

PAGE = 500
AGAIN_S = 600.0
"""What others write into a version cannot be seen cheaply, so everything is read again this often."""


@dataclass(frozen=True, slots=True)
class RegistryState:
    """What one small request says of a registered model; versions that come or go change it, and so do aliases."""

    aliases: dict[str, str]  # alias -> number of its version
    updated_ms: int


class Listing:
    """The models of one registered model. Methods may be called from any thread, and raise what the client raises.

    ``rows`` costs one small request while nothing changes. Who writes calls :meth:`forget` afterwards.
    """

    def __init__(self, expert: Expert) -> None:
        self._expert, self._model = expert, expert.registered
        self._lock = threading.Lock()
        self._written = 0  # how often somebody called forget
        self._known: tuple[int, RegistryState, float, list[ModelRow]] | None = None  # written, state, when, rows

    def forget(self) -> None:
        """Something was written: the next listing is read anew."""
        with self._lock:
            self._written += 1

    def now(self, client: MlflowClient) -> RegistryState:
        """The registered model's present state."""
        found = client.search_registered_models(f"name='{self._model}'")
        if not found:
            raise PromotionRefusedError(f"the registered model {self._model} is not in MLflow any more")
        aliases = {name: str(version) for name, version in found[0].aliases.items()}
        return RegistryState(aliases, int(found[0].last_updated_timestamp or 0))

    def rows(self, client: MlflowClient) -> list[ModelRow]:
        """All models, newest first."""
        with self._lock:
            written, known = self._written, self._known  # before the request: what is written meanwhile is read again
        state, now_s = self.now(client), time.monotonic()
        if known is not None and known[:2] == (written, state) and now_s < known[2] + AGAIN_S:
            return list(known[3])
        names: dict[str, list[str]] = {}
        for name, version in state.aliases.items():
            names.setdefault(version, []).append(name)
        rows = [
            row_of(version, names.get(number, []), self._expert) for number, version in self.versions(client).items()
        ]
        rows.sort(key=lambda row: -number_of(row["version"]))
        with self._lock:
            self._known = (written, state, now_s, rows)
        return list(rows)

    def versions(self, client: MlflowClient) -> dict[str, Any]:
        """All versions by number; in an order that nothing which happens between two pages changes."""
        found: dict[str, Any] = {}
        token: str | None = None
        while True:
            page = client.search_model_versions(
                f"name='{self._model}'", max_results=PAGE, order_by=["version_number ASC"], page_token=token
            )
            found |= {str(version.version): version for version in page}
            token = page.token
            if not token:
                return found
