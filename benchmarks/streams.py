"""``GET /predict`` of one API replica beside two thousand open pages, each a stream of server-sent events.

One zone has a new row every two seconds, and every stream is told of it. Requests go out at a steady rate, whatever the
answers take. Blocks with and without the streams take turns, so that the machine's mood strikes both; the streams'
clients are a process of their own, but share the machine's cores. Prints p50 and p99 of both, and how many messages a
stream got; the budget is a p99 of 25 ms.

    python -m benchmarks.streams [--streams 2000] [--requests 500]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from ctypes import c_int64
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np

from benchmarks._child import Child
from benchmarks.predict import full_forecast, wait_for
from services.config import load_settings
from services.messages import ZoneForecast
from services.runtime.ray_runtime import RayRuntime

BUDGET_MS = 25.0
STEP_MS = 300_000
BLOCK_S = 25.0


async def _listen(host: str, port: int, opened: Any, told: Any) -> None:
    """One page: counts the rows it is told of, and asks again when the server ends its stream."""
    request = f"GET /events HTTP/1.1\r\nHost: {host}:{port}\r\nAccept: text/event-stream\r\n\r\n".encode()
    while True:
        try:
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(request)
            first = await reader.readuntil(b"\r\n")
            if b" 200 " not in first:
                raise SystemExit(f"a stream was refused: {first.decode().strip()}")
            with opened.get_lock():
                opened.value += 1
            try:
                while part := await reader.read(65_536):
                    if found := part.count(b"event: forecasts\n"):
                        with told.get_lock():
                            told.value += found
            finally:
                with opened.get_lock():
                    opened.value -= 1
                writer.close()
        except (OSError, asyncio.IncompleteReadError):
            await asyncio.sleep(0.5)


def pages(host: str, port: int, streams: int, opened: Any, told: Any) -> None:
    """The process with every page."""

    async def all_pages() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(streams):
                group.create_task(_listen(host, port, opened, told))
                if number % 50 == 49:
                    await asyncio.sleep(0.05)

    asyncio.run(all_pages())


@contextmanager
def rows_arrive(publish: Any, every_s: float) -> Iterator[None]:
    """A new row of the zone every so many seconds."""
    ended = threading.Event()

    def work() -> None:
        forecast: ZoneForecast = full_forecast()
        while not ended.wait(every_s):
            forecast["origin_ms"] += STEP_MS
            publish([forecast])

    thread = threading.Thread(target=work, name="rows")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def ask_steadily(url: str, a_second: float, lasts_s: float) -> list[float]:
    """Milliseconds from when each request was due to its answer."""
    taken: list[float] = []
    with httpx.Client(base_url=url, trust_env=False) as client:
        begins = time.perf_counter()
        for number in range(round(a_second * lasts_s)):
            due = begins + number / a_second
            time.sleep(max(0.0, due - time.perf_counter()))
            client.get("/predict", params={"zone": "north-1"}).raise_for_status()
            taken.append((time.perf_counter() - due) * 1000)
    return taken


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--a-second", type=float, default=20.0, help="requests")
    parser.add_argument("--every-s", type=float, default=2.0, help="seconds from row to row")
    parser.add_argument("--blocks", type=int, default=2, help="with the streams, and as many without")
    options = parser.parse_args()
    measured: dict[str, list[float]] = {"beside": [], "alone": []}
    a_stream = []
    with ExitStack() as held:
        folder = held.enter_context(tempfile.TemporaryDirectory(prefix="hh-bench-"))
        settings = load_settings(data_dir=Path(folder), api={"port": 0}, ray={"object_store_mb": 100})
        runtime = held.enter_context(RayRuntime(settings))
        import ray

        from services.serve.deployment import start_actors, start_serving

        actors = start_actors(settings)
        url = start_serving(settings)
        at = urlsplit(url)

        def publish(forecasts: list[ZoneForecast]) -> None:
            ray.get(actors.live_states[0].publish.remote(forecasts))

        publish([full_forecast()])
        with httpx.Client(base_url=url, trust_env=False) as client:
            wait_for(client)
        held.enter_context(rows_arrive(publish, options.every_s))
        ask_steadily(url, options.a_second, 5.0)
        for _ in range(options.blocks):
            child = Child()
            opened, told = child.spawn.Value(c_int64, 0), child.spawn.Value(c_int64, 0)
            child.runs(pages, at.hostname, at.port, options.streams, opened, told)
            with child:
                deadline = time.monotonic() + 60
                while opened.value < options.streams:
                    if time.monotonic() > deadline:
                        raise SystemExit(f"only {opened.value} of {options.streams} streams opened within 60 s")
                    time.sleep(0.1)
                time.sleep(2)
                before = told.value
                measured["beside"] += ask_steadily(url, options.a_second, BLOCK_S)
                a_stream.append((told.value - before) / options.streams)
            time.sleep(5)
            measured["alone"] += ask_steadily(url, options.a_second, BLOCK_S)
    for name, taken in measured.items():
        p50, p99 = np.percentile(taken, [50, 99])
        print(f"{name:7} p50 {p50:6.2f} ms   p99 {p99:6.2f} ms   longest {max(taken):6.1f} ms, {len(taken)} requests")
    p99 = float(np.percentile(measured["beside"], 99))
    print(
        f"{options.streams} streams, each told of {np.mean(a_stream):.1f} rows in {BLOCK_S:g} s; p99 "
        f"{'within' if p99 <= BUDGET_MS else 'over'} the budget of {BUDGET_MS:g} ms; load {os.getloadavg()[0]:.1f}, "
        f"ingress {runtime.ingress.kind}"
    )


if __name__ == "__main__":
    main()
