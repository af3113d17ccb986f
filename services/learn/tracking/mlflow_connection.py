"""Step 15 of the way of a reading: the connection to MLflow, made at its first use and kept."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from services.errors import PromotionRefusedError, RegistryError, RegistryRefusedError
from services.learn.tracking.mlflow_errors import translated
from services.learn.tracking.mlflow_import import MlflowClient, MlflowException
from services.learn.tracking.registry_owner import OWNER_TAG

__all__ = ["MlflowConnection"]


class MlflowConnection:
    """A client of the MLflow at ``uri``, with an experiment and a registered model that are both called ``name``.

    Methods may be called from any thread. Experiment and registered model are made where they are not there yet;
    ``artefact_root`` is where a new experiment keeps its files, ``None`` where the server decides. ``owner`` gives the
    id of the system whose models the registered model keeps, ``None`` where no other can reach it; another system's is
    refused.
    """

    def __init__(
        self, uri: str, name: str, artefact_root: str | None, owner: Callable[[], str] | None = None
    ) -> None:  # fmt: skip
        self._uri, self._name, self._artefact_root, self._owner = uri, name, artefact_root, owner
        self._client: MlflowClient | None = None
        self._connecting = threading.Lock()  # two threads that make the same SQLite file disturb each other
        self.experiment = ""
        """The experiment's id; empty until :meth:`client` was entered once."""

    @contextmanager
    def client(self) -> Iterator[MlflowClient]:
        """The client, for one piece of work; MLflow's errors in it become ours (:func:`.mlflow_errors.translated`)."""
        with translated(self._uri):
            with self._connecting:
                client = self._client = self._client or self._connect()
            try:
                yield client
            except (MlflowException, PromotionRefusedError):
                self._client = None  # what was made may be gone: an MLflow may come back empty
                raise

    def _connect(self) -> MlflowClient:
        client = MlflowClient(self._uri)
        models = client.search_registered_models(f"name='{self._name}'")
        if models:
            self._be_owner(client, models[0].tags.get(OWNER_TAG, ""))
        found = client.get_experiment_by_name(self._name)
        self.experiment = found.experiment_id if found else client.create_experiment(self._name, self._artefact_root)
        if not models:
            client.create_registered_model(self._name, description="Greenhouse climate forecasts by Hothouse.")
            self._be_owner(client, "")
        return client

    def _be_owner(self, client: MlflowClient, before: str) -> None:
        """Say whose models these are where nobody has; raises :class:`RegistryRefusedError` for another's."""
        if self._owner is None:
            return
        try:
            ours = self._owner()
        except OSError as error:
            raise RegistryError(f"whose models MLflow at {self._uri} keeps is not known: {error}") from error
        if not before:
            client.set_registered_model_tag(self._name, OWNER_TAG, ours)
        elif before != ours:
            raise RegistryRefusedError(
                f"MLflow at {self._uri} keeps the models of another system: {self._name} has the tag {OWNER_TAG} "
                f"{before}, this system is {ours}",
                "Name an MLflow of this system alone in learn.mlflow_uri. If the other one is gone, or was this one "
                "before its storage was made anew, remove that tag in MLflow.",
            )
