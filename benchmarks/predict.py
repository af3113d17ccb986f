"""``GET /predict`` of one API replica on Ray Serve against a bare uvicorn + FastAPI that answers the same bytes.

Both run at the same time and are asked in turn, in short interleaved blocks, over one kept-alive connection each, so
that the machine's mood strikes both. Prints p50 and p99 of each and their ratio; the budget is a p50 of at most twice
the bare server's.

    python -m benchmarks.predict [--requests 2000]
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np

from models.durations import MINUTE_MS
from models.paths.steps import path_steps
from models.spec import ForecastSpec
from services.config import load_settings
from services.messages import ForecastPath, ForecastPoint, ZoneForecast
from services.runtime.ports import free_port
from services.runtime.ray_runtime import RayRuntime

BUDGET = 2.0
BLOCK = 50
ORIGIN_MS = 1_646_092_800_000


def full_forecast() -> ZoneForecast:
    """A forecast of the default size: 10 horizons, 4 targets, 40 channels, and the path."""
    spec = ForecastSpec(channels=tuple(f"channel_{i}" for i in range(38)))
    points = [
        ForecastPoint(
            horizon_min=m, time_ms=ORIGIN_MS + m * MINUTE_MS, time="2022-03-01T00:05:00Z",
            p10=18.1234, p50=18.5678, p90=19.0123,
        )
        for m in spec.horizons_min
    ]  # fmt: skip
    minutes = (path_steps(spec) * spec.step_ms // MINUTE_MS).tolist()
    band = {name: [20.1234] * len(minutes) for name in ("p10", "p50", "p90")}
    return ZoneForecast(
        site="demo", zone="north-1", origin_ms=ORIGIN_MS, origin="2022-03-01T00:00:00Z", step_s=300,
        model_version="v1", degraded=[], now=dict.fromkeys(spec.channels, 20.1234),
        now_age_s={}, reports_every_s=0,
        freshness_s=dict.fromkeys(spec.channels, 60.0), forecasts=dict.fromkeys(spec.targets, points),
        path=ForecastPath(horizon_min=minutes, targets=dict.fromkeys(spec.targets, band)),
    )  # fmt: skip


def bare_server(body: bytes, port: int) -> None:
    """The reference: the shortest FastAPI application that answers these bytes."""
    import uvicorn
    from fastapi import FastAPI, Response

    app = FastAPI()

    @app.get("/predict")
    async def predict(zone: str) -> Response:
        return Response(body, media_type="application/json")

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", access_log=False)


def ask(client: httpx.Client, times: int) -> list[float]:
    """Milliseconds of each of so many requests."""
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        answer = client.get("/predict", params={"zone": "north-1"})
        taken.append((time.perf_counter() - started) * 1000)
        answer.raise_for_status()
    return taken


def wait_for(client: httpx.Client) -> bytes:
    """The answer, once there is one."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            answer = client.get("/predict", params={"zone": "north-1"})
            if answer.status_code == httpx.codes.OK:
                return answer.content
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise SystemExit(f"{client.base_url} did not answer within 30 s")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--requests", type=int, default=2000, help="of each server")
    requests = parser.parse_args().requests
    with tempfile.TemporaryDirectory(prefix="hh-bench-") as folder:
        settings = load_settings(data_dir=Path(folder), api={"port": 0}, ray={"object_store_mb": 100})
        with RayRuntime(settings) as runtime:
            import ray

            from services.serve.deployment import start_actors, start_serving

            actors = start_actors(settings)
            url = start_serving(settings)
            ray.get(actors.live_states[0].publish.remote([full_forecast()]))
            port = free_port()
            with httpx.Client(base_url=url, trust_env=False) as ours:
                body = wait_for(ours)
                bare = multiprocessing.get_context("spawn").Process(target=bare_server, args=(body, port), daemon=True)
                bare.start()
                with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as reference:
                    if wait_for(reference) != body:
                        raise SystemExit("the reference answers other bytes")
                    measured: dict[str, list[float]] = {"hothouse": [], "bare": []}
                    for client in (ours, reference):
                        ask(client, 200)
                    while len(measured["bare"]) < requests:
                        measured["hothouse"] += ask(ours, BLOCK)
                        measured["bare"] += ask(reference, BLOCK)
                bare.kill()
                bare.join()
    figures = {name: np.percentile(taken, [50, 99]) for name, taken in measured.items()}
    for name, (p50, p99) in figures.items():
        print(f"{name:9} p50 {p50:6.2f} ms   p99 {p99:6.2f} ms   {len(body)} bytes, {requests} requests")
    ratio = figures["hothouse"][0] / figures["bare"][0]
    verdict = "within" if ratio <= BUDGET else "over"
    print(f"ratio     p50 {ratio:6.2f}      {verdict} the budget of {BUDGET:g}; ingress {runtime.ingress.kind}")


if __name__ == "__main__":
    main()
