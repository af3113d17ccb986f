"""Steps 7 and 16 of the way of a reading: rows and a baseline become quantiles, by whichever model is champion.

A replica serves ``(version, model)`` as one tuple. A task follows the model pointer; a new champion is loaded, checked
and warmed in a thread beside the one that serves, then the tuple is replaced: no request waits, none fails, each is
answered by exactly one version. A champion that cannot be loaded leaves the old one in place, is reported, and is tried
again with growing pauses: its storage may have been away for a moment.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from edge.timing import Backoff
from models.spec import QUANTILES, ForecastSpec, Place
from services.errors import HothouseError, ModelFilesError
from services.messages import ASK_AGAIN, F32, I64, ONLINE_VERSION, ForecastReply, ForecastRequest, ServedModel
from services.serve.follow import follow, until_told

__all__ = ["Forecaster", "Load", "LoadedModel", "ModelPointerLink", "warm_up"]

_log = logging.getLogger(__name__)
WARM_EXAMPLES = (1, 16)
FIRST_RETRY_S = 5.0
LONGEST_RETRY_S = 300.0


class LoadedModel(Protocol):
    """A model in memory, as ``models.artefact.load`` gives it."""

    def predict(self, values: F32, origin_ms: I64, places: Sequence[Place], baseline: F32) -> F32:
        """``[N, H, M, Q]``, p10 <= p50 <= p90."""


Load = Callable[[str, str], LoadedModel]
"""(folder, schema hash) -> model."""


class ModelPointerLink(Protocol):
    """The model pointer and those who must hear of a swap, as one replica sees them."""

    async def wait(self, seen_generation: int) -> ServedModel:
        """See ``ModelPointer.wait``."""

    async def report(self, generation: int, version: str, error: str) -> bool:
        """See ``ModelPointer.report``."""

    async def show(self) -> None:
        """Show ``ModelPointer.figures`` on the live state."""

    async def announce(self, champion: ServedModel, error: str, first: bool) -> None:
        """Tell the live state, and after a swap have the shards compute the last step again."""


class Forecaster:
    """One replica: answers forecasts, follows the model pointer.

    ``load`` turns an artefact folder into a model that is checked and fits a schema hash, and raises
    :class:`ModelFilesError` where it cannot; it runs in a thread. Call :meth:`start` inside the event loop before
    anything else. ``prepare`` is called once, in a thread, before the first load, and earlier when a network may have
    to be loaded soon: the first load should not have to wait for imports. ``clock_s`` is monotonic: the pauses between
    two tries to load a champion are measured with it, and end when the model pointer next answers.
    """

    def __init__(
        self, spec: ForecastSpec, place_of: Callable[[str], Place], load: Load, pointer: ModelPointerLink,
        clock_s: Callable[[], float] = time.monotonic, prepare: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._spec = spec
        self._place_of = lru_cache(maxsize=10_000)(place_of)
        self._load = load
        self._pointer = pointer
        self._generation = 0
        self._serving: tuple[str, LoadedModel | None] = (ONLINE_VERSION, None)
        self._error = ""
        self._clock_s = clock_s
        self._prepare_imports: Callable[[], None] | None = prepare
        self._backoff = Backoff(FIRST_RETRY_S, LONGEST_RETRY_S)
        self._inference = ThreadPoolExecutor(1, thread_name_prefix="inference")
        self._follower: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Serve the champion of now, then begin to follow the model pointer.

        Waits for a pointer that is not there yet: after a power cut the cluster starts its replicas before the service.
        """
        await self._take(await until_told(lambda: self._pointer.wait(0), "slot"))
        self._follower = asyncio.create_task(
            follow(lambda: self._pointer.wait(self._generation), self._take, "slot"), name="follow the model pointer"
        )

    async def stop(self) -> None:
        """Stop following; for tests and orderly shutdown."""
        if self._follower is not None:
            self._follower.cancel()
        self._inference.shutdown(wait=False)

    def check_health(self) -> None:
        """Raises when the follower has died: this replica would go on serving an old model."""
        if self._follower is not None and self._follower.done():
            raise RuntimeError(f"the replica no longer follows the model pointer: {self._follower!r}")

    @property
    def version(self) -> str:
        """What answers now."""
        return self._serving[0]

    async def ping(self) -> str:
        """The version that answers now; for callers that check the connection."""
        return self.version

    async def forecast(self, request: ForecastRequest) -> ForecastReply:
        """Forecast a batch. Raises ``ValueError`` if the request was made for another schema."""
        if request["schema_hash"] != self._spec.hash:
            raise ValueError(f"the request has schema {request['schema_hash']}, this replica serves {self._spec.hash}")
        version, model = self._serving  # one read: a swap in between cannot mix versions
        if model is None:
            return ForecastReply(version=version, quantiles=request["baseline"])
        if not request["values"].shape[1]:
            return ForecastReply(version=ASK_AGAIN, quantiles=request["baseline"])
        places = [self._place_of(site) for site in request["sites"]]
        quantiles = await asyncio.get_running_loop().run_in_executor(
            self._inference, model.predict, request["values"], request["origin_ms"], places, request["baseline"]
        )
        return ForecastReply(version=version, quantiles=quantiles)

    async def _take(self, champion: ServedModel) -> None:
        """Swap to a champion; also called when nothing changed, to report that this replica lives."""
        is_new = champion["generation"] != self._generation
        before = "" if is_new else self._error
        if is_new:
            self._backoff.reset()
        if is_new or (before and self._backoff.is_over(self._clock_s())):
            self._error = await self._swap(champion)
            self._generation = champion["generation"]
        await self._tell(champion, announce=is_new or self._error != before)
        if champion["network_soon"]:
            await self._import()

    async def _import(self) -> None:
        """Import what a network needs, once."""
        if self._prepare_imports is None:
            return
        prepare, self._prepare_imports = self._prepare_imports, None
        try:
            await asyncio.to_thread(prepare)
        except Exception:  # the first load will say what is wrong
            _log.warning("what a network needs could not be imported", exc_info=True)

    async def _swap(self, champion: ServedModel) -> str:
        """Load the champion and serve it, or say why it cannot be served and when to try again."""
        try:
            model: LoadedModel | None = None
            if champion["version"] != ONLINE_VERSION:
                await self._import()
                model = await asyncio.to_thread(self._load_and_warm, champion["folder"])
        except Exception as error:  # a bad artefact of any kind must not end the replica
            _log.warning("champion %s cannot be served", champion["version"], exc_info=True)
            self._backoff.failed(self._clock_s())
            return error.message if isinstance(error, HothouseError) else f"{type(error).__name__}: {error}"
        self._serving = (champion["version"], model)
        return ""

    async def _tell(self, champion: ServedModel, announce: bool) -> None:
        try:
            first = await self._pointer.report(self._generation, self.version, self._error)
            if announce:
                await self._pointer.announce(champion, self._error, first)
            await self._pointer.show()
        except Exception as error:  # the model pointer or the live state restarts: the next turn reports again
            _log.info("the swap to %s could not be reported: %s", champion["version"], error)

    def _load_and_warm(self, folder: str) -> LoadedModel:
        model = self._load(folder, self._spec.hash)
        warm_up(model, self._spec)
        return model


def warm_up(model: LoadedModel, spec: ForecastSpec) -> None:
    """Run the model once a batch size, so that the first real request is not the slow one.

    Raises :class:`ModelFilesError` if the output does not have the shape of ``spec`` or is not finite.
    """
    shape = (len(spec.horizons_min), len(spec.targets), len(QUANTILES))
    for examples in WARM_EXAMPLES:
        values: npt.NDArray[np.float32] = np.ones((examples, spec.lookback_steps, len(spec.channels)), np.float32)
        origin_ms = np.full(examples, 1_646_092_800_000, np.int64)
        quantiles = model.predict(values, origin_ms, [Place()] * examples, np.ones((examples, *shape), np.float32))
        if quantiles.shape != (examples, *shape) or not np.isfinite(quantiles).all():
            raise ModelFilesError(
                f"the model answers {quantiles.shape} or values that are not finite, {shape} was expected"
            )
