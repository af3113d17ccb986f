"""Step 7 of the way of a reading, on Ray: a shard's way to the Forecaster."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

from ray import serve

from services.messages import FORECASTER_DEPLOYMENT, ForecastReply, ForecastRequest

__all__ = ["ForecasterLink"]

FORECAST_TIMEOUT_S = 5.0
SERVE_START_S = 120.0
"""A first request waits this long for Serve: the application starts while shards read what the log has."""
FIND_EVERY_S = 0.25


class ForecasterLink:
    """The Serve handle of the Forecaster; found anew after an error, where Serve's controller answers.

    With Serve's throughput settings a handle's router lives in the event loop of its caller, so this link has one.
    """

    def __init__(self, application: str) -> None:
        self._application = application
        self._handle: Any = None
        self._doubted = False  # whether the last request failed, so that the handle may be of a replica that is gone
        self._first_until_s = time.monotonic() + SERVE_START_S
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="forecaster-link", daemon=True).start()

    def forecast(self, request: ForecastRequest) -> ForecastReply:
        """Ask and wait; raises what Serve raises, or ``TimeoutError``."""
        return asyncio.run_coroutine_threadsafe(self._ask(request), self._loop).result()

    async def _ask(self, request: ForecastRequest) -> ForecastReply:
        if self._handle is None or self._doubted:
            await self._find()
        try:
            async with asyncio.timeout(FORECAST_TIMEOUT_S):
                reply: ForecastReply = await self._handle.forecast.remote(request)
        except BaseException:
            self._doubted = True
            raise
        self._first_until_s, self._doubted = 0.0, False
        return reply

    async def _find(self) -> None:
        """Find the handle. Until the first answer it waits for a running replica, ``SERVE_START_S`` at most.

        While the head of a cluster is away there is no controller to ask: a handle that was found before goes on.
        """
        while time.monotonic() < self._first_until_s and not await asyncio.to_thread(self._runs):
            await asyncio.sleep(FIND_EVERY_S)
        try:
            async with asyncio.timeout(FORECAST_TIMEOUT_S):
                self._handle = await asyncio.to_thread(
                    serve.get_deployment_handle, FORECASTER_DEPLOYMENT, self._application
                )
        except TimeoutError:
            if self._handle is None:
                raise

    def _runs(self) -> bool:
        application = serve.status().applications.get(self._application)
        forecaster = None if application is None else application.deployments.get(FORECASTER_DEPLOYMENT)
        return forecaster is not None and forecaster.replica_states.get("RUNNING", 0) > 0
