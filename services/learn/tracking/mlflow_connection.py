"""Step 15 of the way of a reading: the connection to MLflow, made at its first use and kept."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from services.learn.tracking.mlflow_errors import translated
from services.learn.tracking.mlflow_import import MlflowClient

__all__ = ["MlflowConnection"]


class MlflowConnection:
    """A client of the MLflow at ``uri``, with an experiment and a registered model that are both called ``name``.

    Methods may be called from any thread. Experiment and registered model are made where they are not there yet;
    ``artefact_root`` is where a new experiment keeps its files, ``None`` where the server decides.
    """

    def __init__(self, uri: str, name: str, artefact_root: str | None) -> None:
        self._uri, self._name, self._artefact_root = uri, name, artefact_root
        self._client: MlflowClient | None = None
        self._connecting = threading.Lock()  # two threads that make the same SQLite file disturb each other
        self.experiment = ""
        """The experiment's id; empty until :meth:`client` was entered once."""

    @contextmanager
    def client(self) -> Iterator[MlflowClient]:
        """The client, for one piece of work; MLflow's errors in it become ours (:func:`.mlflow_errors.translated`)."""
        with translated(self._uri):
            with self._connecting:
                if self._client is None:
                    self._client = self._connect()
            yield self._client

    def _connect(self) -> MlflowClient:
        client = MlflowClient(self._uri)
        found = client.get_experiment_by_name(self._name)
        self.experiment = found.experiment_id if found else client.create_experiment(self._name, self._artefact_root)
        if not client.search_registered_models(f"name='{self._name}'"):
            client.create_registered_model(self._name, description="Greenhouse climate forecasts by Hothouse.")
        return client
