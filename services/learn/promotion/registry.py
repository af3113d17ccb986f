"""Step 15 of the way of a reading: the model registry. Every candidate is recorded; an alias says which one serves.

MLflow keeps the record (an SQLite file by default, a server in production), so that its own UI shows and moves the
same aliases: ``champion`` serves, ``previous`` served before it, ``challenger`` is the newest candidate. No
``champion`` means that no network serves: the online learners answer alone. Only the retrainer's process imports this
module.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from models.artefact import ArtefactError, check_size
from models.families import UnknownFamilyError, takes_of
from services.config import Settings
from services.errors import ModelFilesError, PromotionRefusedError
from services.forecast_spec import forecast_spec
from services.learn.experts import NETWORK, Expert
from services.learn.records import Candidate, said_by, tags_of
from services.messages import ONLINE_VERSION, ModelRow, Pruned, Shadow
from services.store.storage import (
    FolderStorage,
    Storage,
    StorageAddress,
    address_of,
    fetch_folder,
    forget_folder,
    open_storage,
)

# MLflow reads these when it is imported: nothing on the terminal, nothing sent anywhere, and a server that is away is
# given up at once, because whoever asked asks again soon; one that is only slow, after half a minute.
for _name, _value in {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",
}.items():
    os.environ.setdefault(_name, _value)

from mlflow import MlflowClient  # noqa: E402
from mlflow.entities import Metric, Param, Run  # noqa: E402
from mlflow.exceptions import MlflowException  # noqa: E402
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository  # noqa: E402

from services.learn.promotion.listing import Listing  # noqa: E402
from services.learn.promotion.mlflow_errors import translated  # noqa: E402

for _name in ("mlflow", "alembic"):
    logging.getLogger(_name).setLevel(logging.WARNING)

__all__ = ["MOST_RECORD_BYTES", "REGISTRY_FILE", "Registry", "check_files", "open_registry"]

_log = logging.getLogger(__name__)

CANDIDATE = "candidate.json"
EVIDENCE = "gate.json"
REGISTRY_FILE = "mlflow.sqlite"
MANIFEST = "manifest.json"
WEIGHTS = "weights.safetensors"
MOST_RECORD_BYTES = 64 * 1024**2
"""MLflow's copy of a candidate's record may be this long; ours are some kilobytes."""


class Registry:
    """Models and their aliases in one MLflow tracking server.

    One registry is that of one ``expert``, whose names for versions it uses: ``v1, v2, ...``, or ``trees-v1, ...``.
    Methods may be called from any thread; every one raises
    :class:`RegistryError` when MLflow cannot be reached: what it was doing may be half done then, and may be done
    again. Where MLflow refuses, that is a :class:`RegistryRefusedError`, and would be one again. ``storage`` is where
    the artefacts lie on this machine, and ``where`` the object store that keeps them, if there is one; :meth:`promote`
    takes models that were made for ``schema_hash``, no others.
    """

    def __init__(
        self, uri: str, storage: Path, schema_hash: str, expert: Expert = NETWORK, where: StorageAddress | None = None
    ) -> None:  # fmt: skip
        self.expert, self._model = expert, expert.registered
        self._storage, self._where = storage, where
        self._schema_hash = schema_hash
        self._uri = uri
        self._client: MlflowClient | None = None
        self._experiment = ""
        self._listing = Listing(expert)
        self._connecting = threading.Lock()  # two threads that make the same SQLite file disturb each other

    def register(self, candidate: Candidate, created_ms: int, shadow: Shadow | None = None, against: str = "") -> str:
        """Record a candidate, promoted or not, with its lineage and evidence; returns its version.

        ``shadow``: it is being judged on live rows, and :meth:`settle` says how that ended; else ``against`` is the
        champion that it was judged against, and is to replace (:meth:`due`) where it passed or is forced. What an
        MLflow that went away cut short is completed by the same call: a candidate with an artefact is one run and one
        version, also where the answer was lost and not the call.
        """
        with self._writing() as client:
            run = self._begun(client, candidate, created_ms) or client.create_run(
                self._experiment, start_time=created_ms, run_name=Path(candidate["folder"]).name
            )
            run_id = run.info.run_id
            client.log_batch(
                run_id,
                metrics=list(_metrics(candidate, created_ms)),
                params=[Param(name, str(value)[:500]) for name, value in candidate["params"].items()],
            )
            client.log_dict(run_id, dict(candidate), CANDIDATE)
            client.log_dict(run_id, candidate["evidence"], EVIDENCE)
            if candidate["folder"]:
                client.log_artifacts(run_id, candidate["folder"], "model")
            judged_against = "" if shadow else against
            due = judged_against if candidate["passed"] or candidate["forced"] else ""
            tags = tags_of({**candidate, "shadow": shadow, "judged_against": judged_against, "due": due})
            made = client.search_model_versions(f"name='{self._model}' and run_id='{run_id}'")
            model = made[0] if made else client.create_model_version(
                self._model, f"{run.info.artifact_uri}/model", run_id, tags=tags, description=candidate["reason"]
            )  # fmt: skip
            client.set_registered_model_alias(self._model, "challenger", model.version)
            client.set_terminated(run_id)
        return self._name(model.version)

    def due(self) -> tuple[str, str] | None:
        """The newest version that is to be promoted, and the champion that it is to replace; ``None`` without one.

        Reads all versions: not to be asked all the time.
        """
        with self._mlflow() as client:
            for number, version in sorted(self._listing.versions(client).items(), key=lambda one: -int(one[0])):
                if replaced := said_by(version.tags).get("due"):
                    return self._name(number), replaced
        return None

    def no_longer_due(self, version: str) -> None:
        """Record that a version was promoted, or will not be."""
        self._tag(version, due="")

    def record_verdict(self, version: str, passed: bool, reason: str, against: str) -> None:
        """Record the verdict on a model in shadow, where it stays until :meth:`settle`."""
        with self._writing() as client:
            client.update_model_version(self._model, self.expert.number(version), description=reason)
            self._tag(version, passed=passed, reason=reason, judged_against=against)

    def settle(self, version: str, passed: bool, reason: str, against: str) -> None:
        """Record how a model did in shadow; ``against``: the champion it was judged against, empty if it was not."""
        self.record_verdict(version, passed, reason, against)
        self._tag(version, shadow=None)

    def keep_evidence(self, version: str, name: str, evidence: dict[str, Any]) -> None:
        """Keep a comparison's numbers as ``{name}.json`` with the model's run; none where there are none."""
        if evidence:
            with self._mlflow() as client:
                client.log_dict(
                    client.get_model_version(self._model, self.expert.number(version)).run_id, evidence, f"{name}.json"
                )

    def watch(self, version: str, watch: Shadow | None) -> None:
        """Record that a champion is being compared with the one before it, or no longer is."""
        begun = watch is not None and watch["from_ms"] >= 0
        self._tag(version, watch=watch, **({"shadow": None} if begun else {}))

    def withdraw(self, version: str, reason: str) -> None:
        """Record why a model was taken out of service, or is about to be."""
        self._tag(version, withdrawn=reason)

    def pruned(self, version: str) -> str:
        """Why the files of a version are not kept any more, in a sentence; empty if they are."""
        with self._mlflow() as client:
            return _pruned_words(client.get_model_version(self._model, self.expert.number(version)).tags)

    def mark_pruned(self, version: str, pruned: Pruned | None) -> None:
        """Record that a version cannot serve any more because its files are being removed, or that they stay."""
        self._tag(version, pruned=pruned)

    def remove_files(self, version: str) -> None:
        """Remove a version's artefact and MLflow's copy of it; may be called again. Its record and recipe stay.

        The caller has marked it, and seen that nobody uses it. Raises ``OSError`` if files cannot be removed.
        """
        with self._mlflow() as client:
            found = client.get_model_version(self._model, self.expert.number(version))
            self._remove_folder(Path(said_by(found.tags).get("folder", "")))
            uri = client.get_run(found.run_id).info.artifact_uri
            try:
                get_artifact_repository(uri, tracking_uri=self._uri).delete_artifacts("model")
            except NotImplementedError:
                _log.info("MLflow's artifact store at %s cannot remove files", uri)

    @property
    def storage(self) -> Storage:
        """Where artefacts are kept."""
        return FolderStorage(self._storage) if self._where is None else open_storage(self._where)

    def discard(self, folder: str) -> None:
        """Remove the artefact of a candidate that MLflow does not have, unless a version names it all the same.

        Raises ``OSError`` if files cannot be removed.
        """
        if folder not in {row["folder"] for row in self.list()}:
            self._remove_folder(Path(folder))

    def _remove_folder(self, folder: Path) -> None:
        if self._is_ours(folder):
            forget_folder(self._where, folder)
            with suppress(FileNotFoundError):
                shutil.rmtree(folder)

    def champion(self) -> str:
        """The version that should serve; ``online`` while none was promoted."""
        with self._mlflow() as client:
            try:  # in a registry of thousands of versions this is the cheapest question that there is
                version = str(client.get_model_version_by_alias(self._model, "champion").version)
            except MlflowException as error:
                if error.error_code not in ("INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST"):
                    raise
                version = self._aliases(client).get("champion", "")  # no such alias, or nothing behind it
        return self._name(version) if version else ONLINE_VERSION

    def folder(self, version: str) -> Path:
        """The artefact of a version, its files checked; :class:`ModelFilesError` when it is torn, pruned or gone, or is
        no model of this storage.
        """
        with self._mlflow() as client:
            tags = client.get_model_version(self._model, self.expert.number(version)).tags
        _check_kept(tags)
        said = said_by(tags)
        if not said.get("folder"):
            raise ModelFilesError("MLflow does not say where its files are")
        folder = Path(said["folder"])
        if not self._is_ours(folder):
            raise ModelFilesError(f"its files are said to be in {folder}, which is no model of {self._storage}")
        try:
            fetch_folder(self._where, folder)
        except OSError as error:
            raise ModelFilesError(f"the artefact {folder.name} cannot be had: {error}") from error
        check_files(folder, said.get("weights_sha256", ""))
        return folder

    def servable(self, version: str) -> Path:
        """:meth:`folder` of a version that was made for the rows of now; raises :class:`ModelFilesError` for others."""
        folder = self.folder(version)
        manifest = json.loads((folder / MANIFEST).read_bytes())
        made_for, kind = manifest.get("schema_hash"), manifest.get("kind", NETWORK.name)
        if made_for != self._schema_hash:
            raise ModelFilesError(
                f"it was made for schema {made_for}, rows now have {self._schema_hash}",
                "Train a model for these settings, or set step, targets, horizons and look-back as they were.",
            )
        try:
            takes = takes_of(kind)
        except UnknownFamilyError as error:
            raise ModelFilesError(
                str(error), "Another version of Hothouse made it; train one with this version."
            ) from error
        if takes != self.expert.takes:
            raise ModelFilesError(
                f"a model of kind {kind} takes {takes}, the {self.expert.name} takes {self.expert.takes}"
            )
        return folder

    def candidate(self, version: str) -> Candidate:
        """The record of a version; raises :class:`ModelFilesError` when MLflow has lost its copy."""
        with self._mlflow() as client:
            run_id = client.get_model_version(self._model, self.expert.number(version)).run_id
            sizes = {one.path: one.file_size or 0 for one in client.list_artifacts(run_id)}
            if (size := sizes.get(CANDIDATE, 0)) > MOST_RECORD_BYTES:
                raise ModelFilesError(f"the record of {version} cannot be read: it has {size:,} bytes")
            with tempfile.TemporaryDirectory() as folder:
                try:
                    kept = Path(client.download_artifacts(run_id, CANDIDATE, folder))
                    return cast(Candidate, json.loads(kept.read_bytes()))
                except (OSError, ValueError) as error:
                    raise ModelFilesError(f"the record of {version} cannot be read: {error}") from error

    def promote(self, version: str) -> None:
        """Make ``version`` champion and the one before it ``previous``; ``online`` takes the champion away.

        Raises :class:`PromotionRefusedError` for a version that does not exist, that serves already, whose files are
        not what was registered, or that was made for another schema.
        """
        before = self.champion()
        if version == before:
            raise PromotionRefusedError(f"{version} serves already")
        with self._writing() as client:
            if version == ONLINE_VERSION:
                client.delete_registered_model_alias(self._model, "champion")
            else:
                self._check(version)
                client.set_registered_model_alias(self._model, "champion", self.expert.number(version))
        # The champion moves first: that is the move that counts, should MLflow go away in between.
        self.keep_previous(before)
        if version != ONLINE_VERSION:
            self._tag(version, shadow=None, withdrawn="", due="")  # whoever made it champion has decided

    def keep_previous(self, version: str) -> None:
        """Make what served before a move of ``champion`` ``previous``; ``online`` leaves what was."""
        if version == ONLINE_VERSION:
            return
        with self._writing() as client:
            if self._aliases(client).get("previous") != self.expert.number(version):
                client.set_registered_model_alias(self._model, "previous", self.expert.number(version))

    def is_previous(self, version: str) -> bool:
        """Whether a version is ``previous``; ``online`` never is."""
        with self._mlflow() as client:
            return self._name(self._aliases(client).get("previous", "")) == version

    def rollback(self) -> str:
        """Make ``previous`` champion again, and the other way round; returns it.

        Raises :class:`PromotionRefusedError` when there is none.
        """
        with self._mlflow() as client:
            previous = self._aliases(client).get("previous")
            tags = {} if previous is None else client.get_model_version(self._model, previous).tags
        withdrawn, version = said_by(tags).get("withdrawn", ""), self._name(previous or "")
        if withdrawn:
            raise PromotionRefusedError(
                f"{version} served before, and was taken back. {withdrawn}",
                f"`hothouse models promote {version}` serves it all the same.",
            )
        if previous is None:
            raise PromotionRefusedError(
                "there is no previous model to go back to",
                f"`hothouse models promote {ONLINE_VERSION} --expert {self.expert.name}` serves without one.",
            )
        self.promote(version)
        return version

    def list(self) -> list[ModelRow]:
        """All models, newest first, the refused ones too; cheap while nothing changes."""
        with self._mlflow() as client:
            return self._listing.rows(client)

    def _name(self, number: str | int) -> str:
        return f"{self.expert.prefix}{number}"

    def _begun(self, client: MlflowClient, candidate: Candidate, created_ms: int) -> Run | None:
        """The run of a registration that was cut short."""
        if not candidate["folder"]:
            return None
        name = Path(candidate["folder"]).name
        known = f"attributes.run_name = '{name}' and attributes.start_time = {created_ms}"
        return next(iter(client.search_runs([self._experiment], known)), None)

    def _aliases(self, client: MlflowClient) -> dict[str, str]:
        """Alias -> number of its version."""
        return self._listing.now(client).aliases

    def _is_ours(self, folder: Path) -> bool:
        """Whether it is a model of the storage; a tag may say anything, and a link may lead anywhere."""
        return folder.resolve().parent == (self._storage / "models").resolve()

    def _tag(self, version: str, **values: Any) -> None:
        with self._writing() as client:
            for name, text in tags_of(values).items():
                client.set_model_version_tag(self._model, self.expert.number(version), name, text)

    def _check(self, version: str) -> None:
        try:
            self.servable(version)
        except ModelFilesError as error:
            raise PromotionRefusedError(f"{version} cannot serve: {error.message}", error.hint) from error

    @contextmanager
    def _mlflow(self) -> Iterator[MlflowClient]:
        """The client, connected at its first use; MLflow's errors become ours."""
        with translated(self._uri):
            with self._connecting:
                if self._client is None:
                    self._client = self._connect()
            yield self._client

    @contextmanager
    def _writing(self) -> Iterator[MlflowClient]:
        """The same, for what changes something: the list is read again afterwards."""
        try:
            with self._mlflow() as client:
                yield client
        finally:
            self._listing.forget()

    def _connect(self) -> MlflowClient:
        client = MlflowClient(self._uri)
        found = client.get_experiment_by_name(self._model)
        self._experiment = (
            found.experiment_id if found else client.create_experiment(self._model, self._artefact_root())
        )
        if not client.search_registered_models(f"name='{self._model}'"):
            client.create_registered_model(self._model, description="Greenhouse climate forecasts by Hothouse.")
        return client

    def _artefact_root(self) -> str | None:
        # A tracking server has an artefact store of its own.
        return (self._storage / "mlflow").resolve().as_uri() if self._uri.startswith("sqlite:") else None


def open_registry(settings: Settings, expert: Expert = NETWORK) -> Registry:
    """The registry of a system's settings; it connects at its first use."""
    uri = settings.learn.mlflow_uri or f"sqlite:///{(settings.data_dir / REGISTRY_FILE).resolve()}"
    spec_hash, where = forecast_spec(settings).hash, address_of(settings).remote
    return Registry(uri, settings.storage_folder, spec_hash, expert, where)


def check_files(folder: Path, weights_sha256: str) -> None:
    """Whether an artefact is whole, without loading it; raises :class:`ModelFilesError`.

    This finds what a disk or a copy does to files. Whether the model reproduces its golden output is checked when it
    is saved and again by every replica before it swaps.
    """
    try:
        for name in (MANIFEST, WEIGHTS):
            check_size(folder / name)
        manifest = json.loads((folder / MANIFEST).read_bytes())
        with (folder / WEIGHTS).open("rb") as weights:
            found = hashlib.file_digest(weights, "sha256").hexdigest()
    except (OSError, ValueError, RecursionError, ArtefactError) as error:
        raise ModelFilesError(f"the artefact in {folder} cannot be read: {error}") from error
    if not isinstance(manifest, dict):
        raise ModelFilesError(f"the artefact in {folder} cannot be read: {MANIFEST} is not an object")
    if found != weights_sha256:
        raise ModelFilesError(f"the weights in {folder} are not those that were registered (SHA-256 {found[:12]}...)")


def _pruned_words(tags: Mapping[str, str]) -> str:
    pruned: Pruned | None = said_by(tags).get("pruned")
    if pruned is None:
        return ""
    day = f"{datetime.fromtimestamp(pruned['at_ms'] / 1000, UTC):%Y-%m-%d}"
    return f"its files were pruned on {day}: only models in use and the newest (learn.keep_models) keep theirs"


def _check_kept(tags: Mapping[str, str]) -> None:
    if words := _pruned_words(tags):
        raise ModelFilesError(
            words, "`hothouse retrain` trains another one; its recipe and figures are still recorded."
        )


def _metrics(candidate: Candidate, at_ms: int) -> Iterator[Metric]:
    for name, values in candidate["curves"].items():
        for epoch, value in enumerate(values):
            yield Metric(name, value, at_ms, epoch)
    for target, horizons in candidate["held_back_mae"].items():
        for horizon, errors in horizons.items():
            for who, value in errors.items():
                yield Metric(f"mae/{target}/{int(horizon):04d}min/{who}", value, at_ms, 0)
