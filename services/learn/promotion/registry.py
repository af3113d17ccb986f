"""Step 15 of the way of a reading: the model registry. Every candidate is recorded; an alias says which one serves.

MLflow keeps the record (an SQLite file by default, a server in production), so that its own UI shows and moves the
same aliases: ``champion`` serves, ``previous`` served before it, ``challenger`` is the newest candidate. No
``champion`` means that no network serves: the online learners answer alone. How MLflow is asked is in
:mod:`services.learn.tracking`. The retrainer's process imports this module, and so do commands for models: MLflow is
large.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from services.config import Settings
from services.errors import ModelFilesError, PromotionRefusedError
from services.forecast_spec import forecast_spec
from services.learn.experts import NETWORK, Expert
from services.learn.promotion.artefact_files import ArtefactFiles, check_fits
from services.learn.records import Candidate, said_by, tags_of
from services.learn.tracking.candidate_run import MODEL_FILES, read_candidate, record_run
from services.learn.tracking.listing import Listing
from services.learn.tracking.mlflow_connection import MlflowConnection
from services.learn.tracking.mlflow_import import MlflowClient, MlflowException, get_artifact_repository
from services.learn.tracking.registry_file import REGISTRY_FILE, artefact_root
from services.learn.tracking.registry_owner import registry_owner
from services.messages import ONLINE_VERSION, ModelRow, Pruned, Shadow
from services.store.storage import Storage, StorageAddress, address_of, storage_of

__all__ = ["Registry", "open_registry"]

_log = logging.getLogger(__name__)


class Registry:
    """Models and their aliases in one MLflow tracking server.

    A registry belongs to one ``expert``, and names versions as that does: ``v1, v2, ...``, or ``trees-v1, ...``.
    ``storage`` is where the artefacts lie on this machine, and ``where`` the object store that keeps them, if there is
    one. :meth:`promote` takes models that were made for ``schema_hash``, no others. ``owner``: see
    :class:`MlflowConnection`.

    Methods may be called from any thread. Each raises :class:`RegistryError` when MLflow cannot be reached: the work
    may be half done then, and the same call may be made again. It raises :class:`RegistryRefusedError` when MLflow
    refuses: the same call would be refused again.
    """

    def __init__(
        self, uri: str, storage: Path, schema_hash: str, expert: Expert = NETWORK, where: StorageAddress | None = None,
        owner: Callable[[], str] | None = None,
    ) -> None:  # fmt: skip
        self.expert, self._model = expert, expert.registered
        self._files, self._schema_hash = ArtefactFiles(storage, where), schema_hash
        self._uri = uri
        # A tracking server has an artefact store of its own.
        root = artefact_root(storage) if uri.startswith("sqlite:") else None
        self._connection = MlflowConnection(uri, expert.registered, root, owner)
        self._listing = Listing(expert)

    def register(self, candidate: Candidate, created_ms: int, shadow: Shadow | None = None, against: str = "") -> str:
        """Record a candidate, promoted or not, with its lineage and evidence; returns its version.

        ``shadow``: it is being judged on live rows, and :meth:`settle` says how that ended; else ``against`` is the
        champion that it was judged against, and is to replace (:meth:`due`) where it passed or is forced. What an
        MLflow that went away cut short is completed by the same call: a candidate with an artefact is one run and one
        version, also where the answer was lost and not the call.
        """
        with self._writing() as client:
            run = record_run(client, self._connection.experiment, candidate, created_ms).info
            judged_against = "" if shadow else against
            due = judged_against if candidate["passed"] or candidate["forced"] else ""
            tags = tags_of({**candidate, "shadow": shadow, "judged_against": judged_against, "due": due})
            made = client.search_model_versions(f"name='{self._model}' and run_id='{run.run_id}'")
            model = made[0] if made else client.create_model_version(
                self._model, f"{run.artifact_uri}/{MODEL_FILES}", run.run_id, tags=tags,
                description=candidate["reason"],
            )  # fmt: skip
            client.set_registered_model_alias(self._model, "challenger", model.version)
            client.set_terminated(run.run_id)
        return self._name(model.version)

    def due(self) -> tuple[str, str] | None:
        """The newest version that is to be promoted, and the champion that it is to replace; ``None`` without one.

        Reads all versions: not to be asked all the time.
        """
        with self._connection.client() as client:
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

    def stay_in_shadow(self, version: str, shadow: Shadow) -> None:
        """Record until when a model in shadow is compared now."""
        self._tag(version, shadow=shadow)

    def settle(self, version: str, passed: bool, reason: str, against: str) -> None:
        """Record how a model did in shadow; ``against``: the champion it was judged against, empty if it was not."""
        self.record_verdict(version, passed, reason, against)
        self._tag(version, shadow=None)

    def keep_evidence(self, version: str, name: str, evidence: dict[str, Any]) -> None:
        """Keep a comparison's numbers as ``{name}.json`` with the model's run; none where there are none."""
        if evidence:
            with self._connection.client() as client:
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
        with self._connection.client() as client:
            return _pruned_words(client.get_model_version(self._model, self.expert.number(version)).tags)

    def mark_pruned(self, version: str, pruned: Pruned | None) -> None:
        """Record that a version cannot serve any more because its files are being removed, or that they stay."""
        self._tag(version, pruned=pruned)

    def remove_files(self, version: str) -> None:
        """Remove a version's artefact and MLflow's copy of it; may be called again. Its record and recipe stay.

        The caller has marked it, and seen that nobody uses it. Raises ``OSError`` if files cannot be removed.
        """
        with self._connection.client() as client:
            found = client.get_model_version(self._model, self.expert.number(version))
            self._files.remove(said_by(found.tags).get("folder", ""))
            uri = client.get_run(found.run_id).info.artifact_uri
            try:
                get_artifact_repository(uri, tracking_uri=self._uri).delete_artifacts(MODEL_FILES)
            except NotImplementedError:
                _log.info("MLflow's artifact store at %s cannot remove files", uri)

    @property
    def storage(self) -> Storage:
        """Where artefacts are kept."""
        return self._files.storage

    def discard(self, folder: str) -> None:
        """Remove the artefact of a candidate that MLflow does not have, unless a version names it all the same.

        Raises ``OSError`` if files cannot be removed.
        """
        if folder not in {row["folder"] for row in self.list()}:
            self._files.remove(folder)

    def champion(self) -> str:
        """The version that should serve; ``online`` while none was promoted."""
        with self._connection.client() as client:
            try:  # in a registry of thousands of versions this is the cheapest question that there is
                version = str(client.get_model_version_by_alias(self._model, "champion").version)
            except MlflowException as error:
                if error.error_code not in ("INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST"):
                    raise
                version = self._aliases(client).get("champion", "")  # no such alias, or nothing behind it
        return self._name(version) if version else ONLINE_VERSION

    def folder(self, version: str) -> Path:
        """The artefact of a version, its files checked; :class:`ModelFilesError` when it is torn, pruned or gone, or is
        no model of this storage; :class:`StorageAwayError` where nobody knows.
        """
        with self._connection.client() as client:
            tags = client.get_model_version(self._model, self.expert.number(version)).tags
        _check_kept(tags)
        said = said_by(tags)
        if not said.get("folder"):
            raise ModelFilesError("MLflow does not say where its files are")
        return self._files.fetch(said["folder"], said.get("weights_sha256", ""))

    def servable(self, version: str) -> Path:
        """:meth:`folder` of a version that was made for the rows of now; raises :class:`ModelFilesError` for others."""
        folder = self.folder(version)
        check_fits(folder, self._schema_hash, self.expert)
        return folder

    def candidate(self, version: str) -> Candidate:
        """The record of a version; raises :class:`ModelFilesError` when MLflow has lost its copy."""
        with self._connection.client() as client:
            run_id = client.get_model_version(self._model, self.expert.number(version)).run_id
            return read_candidate(client, run_id, version)

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
        with self._connection.client() as client:
            return self._name(self._aliases(client).get("previous", "")) == version

    def rollback(self) -> str:
        """Make ``previous`` champion again, and the other way round; returns it.

        Raises :class:`PromotionRefusedError` when there is none.
        """
        with self._connection.client() as client:
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
        with self._connection.client() as client:
            return self._listing.rows(client)

    def _name(self, number: str | int) -> str:
        return f"{self.expert.prefix}{number}"

    def _aliases(self, client: MlflowClient) -> dict[str, str]:
        """Alias -> number of its version."""
        return self._listing.now(client).aliases

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
    def _writing(self) -> Iterator[MlflowClient]:
        """The client, for what changes something: the list is read again afterwards."""
        try:
            with self._connection.client() as client:
                yield client
        finally:
            self._listing.forget()


def open_registry(settings: Settings, expert: Expert = NETWORK) -> Registry:
    """The registry of a system's settings; it connects at its first use."""
    uri = settings.learn.mlflow_uri or f"sqlite:///{(settings.data_dir / REGISTRY_FILE).resolve()}"
    spec_hash, where = forecast_spec(settings).hash, address_of(settings).remote
    owner = partial(registry_owner, storage_of(settings)) if settings.learn.mlflow_uri else None
    return Registry(uri, settings.storage_folder, spec_hash, expert, where, owner)


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
