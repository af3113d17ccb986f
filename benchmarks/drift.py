"""A drift in the simulated greenhouse, and what the learning loop makes of it by itself.

    python -m benchmarks.drift [--seed 1] [--speed 1800] [--regime screens_removed]

Starts the whole system on three weeks of history of three simulated zones. A first network is trained on them and
promoted, as an operator would. Then the greenhouse's screens are removed, and it runs on, `--speed` times as fast as
the clock. What follows nobody asks for: a drift is called, a challenger is trained on all rows, compared with the
champion on live ones for three days, promoted if it wins, watched for two, and kept. One that does not win is refused,
and the next drift makes another. At the end a network that is deliberately bad is promoted, and the loop takes it back.

Prints what `hothouse timeline` prints. Exit code 0 where the loop did all of it within three weeks of the greenhouse's
time; how many challengers it takes depends on the weather of the seed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from edge.log import Log
from edge.recordings.importing import import_samples
from edge.simulator.publisher import Publisher
from edge.simulator.publisher.ledger import Ledger
from edge.simulator.publisher.pace import Pace
from edge.simulator.regimes import REGIMES
from edge.simulator.simulated_site import SimulatedSite
from edge.simulator.simulator_source import SimulatorSource
from models import artefact
from models.durations import DAY_MS, HOUR_MS
from models.network.quantile import QuantileNetwork
from services.app import System
from services.config import Settings, load_settings
from services.forecast_spec import forecast_spec
from services.learn.promotion.registry import open_registry

START_MS = 1_709_251_200_000  # 1 March 2024
CHANGE_DAY = 22.5
CHANGE_MS = START_MS + round(CHANGE_DAY * DAY_MS)
LAST_MS = CHANGE_MS + 21 * DAY_MS
ZONES = 3
PATIENCE_S = 900.0
CLI = [sys.executable, "-c", "from services.cli import main; main()"]


def main() -> int:
    """Run it; 0 where the loop closed."""
    asked = _arguments()
    site = SimulatedSite("demo", asked.seed, START_MS, zones=ZONES)
    source = SimulatorSource(site)
    source.report_every(300_000)

    def warm_up(log: Log) -> None:
        import_samples(source, log, CHANGE_MS)

    with tempfile.TemporaryDirectory(prefix="hh-drift-") as folder:
        settings = _settings(Path(folder) / "data", source)
        with System(settings, receive_clock="replayed", warm_up=warm_up, say=lambda text: print(text, "...")) as system:
            run = _Run(system, source)
            try:
                run.first_champion()
                site.change(asked.regime)
                print(f"{asked.regime} on day {CHANGE_DAY:g}")
                run.live(asked.speed)
                closed = run.drift_to_champion() and run.bad_promotion()
            except (TimeoutError, httpx.HTTPError) as error:
                print(error)
                closed = False
            finally:
                run.quiet()
            print(run.timeline())
    print("the loop closed" if closed else "the loop did not close")
    return 0 if closed else 1


class _Run:
    """Questions and orders to the running system, by its API."""

    def __init__(self, system: System, source: SimulatorSource) -> None:
        self._system, self._source = system, source
        self._publisher: Publisher | None = None
        key = (system.settings.data_dir / "operator.key").read_text().strip()
        self._http = httpx.Client(
            base_url=system.url, timeout=60, trust_env=False, headers={"Authorization": f"Bearer {key}"}
        )

    def first_champion(self) -> None:
        """Have a network trained on the history, and promote it whatever the gate said."""
        self._until(self._caught_up, "the system has read its history")
        self._http.post("/models/retrain").raise_for_status()
        events = self._until(
            lambda: self._told("refused", "swap", of="v1") or self._told("error"), "the first network is trained"
        )
        if events[-1]["kind"] != "swap":
            self._http.post("/models/v1/promote").raise_for_status()
        self._until(lambda: self._stage("v1") == "champion", "v1 serves")

    def live(self, speed: float) -> None:
        """Publish what the greenhouse does from now on, beside everything else."""
        address = self._system.broker.address()
        self._publisher = Publisher(self._source, address, Ledger(), Pace(speed), with_clock=True, until_ms=LAST_MS)
        threading.Thread(target=self._publisher.run, daemon=True).start()

    def quiet(self) -> None:
        """Publish no more."""
        if self._publisher is not None:
            self._publisher.stop()

    def drift_to_champion(self) -> bool:
        """Whether a drift's challenger becomes champion and stays, with nobody's help."""
        judged: set[str] = set()
        while True:
            version = self._until(lambda: self._next(judged), "a challenger because of a drift")
            if self._verdict(version) == "champion":
                break
            judged.add(version)
        self._until(
            lambda: self._told("watched", of=version) or self._stage(version) != "champion",
            f"the watch of {version} ends",
        )
        return self._stage(version) == "champion"

    def bad_promotion(self) -> bool:
        """Whether a champion whose corrections are turned round is sent back by itself."""
        settings = self._system.settings
        champion = next(model["version"] for model in self._models() if model["stage"] == "champion")
        folder = _spoiled(settings, champion)
        version = self._http.post("/models/submit", json={"folder": str(folder)}).raise_for_status().json()["version"]
        self._http.post(f"/models/{version}/promote").raise_for_status()
        self._until(lambda: self._told("rollback"), f"{version} is sent back")
        return self._stage(champion) == "champion" and self._stage(version) == "withdrawn"

    def timeline(self) -> str:
        """What a person sees."""
        command = [*CLI, "--data-dir", str(self._system.settings.data_dir), "timeline"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def _caught_up(self) -> bool:
        """Whether the newest forecasts are those of the history's last rows: drifts before are no news."""
        answer = self._http.get("/zones")
        if answer.status_code != httpx.codes.OK:
            return False
        origins = [zone["origin_ms"] for zone in answer.json()["zones"]]
        return len(origins) == ZONES and min(origins) > CHANGE_MS - HOUR_MS

    def _models(self) -> list[dict[str, Any]]:
        return list(self._http.get("/models").json()["models"])

    def _next(self, judged: set[str]) -> str:
        """The oldest challenger that came into shadow and is not judged yet."""
        return next((event["version"] for event in self._told("shadow") if event["version"] not in judged), "")

    def _verdict(self, version: str) -> str:
        """What becomes of a challenger."""
        self._until(lambda: self._stage(version) in ("champion", "refused"), f"the verdict over {version}")
        return self._stage(version)

    def _stage(self, version: str) -> str:
        return next((str(model["stage"]) for model in self._models() if model["version"] == version), "")

    def _told(self, *kinds: str, of: str = "") -> list[dict[str, Any]]:
        """Events of these kinds, oldest first: of a version, or of all but the first."""
        events = [event for event in self._http.get("/status").json()["events"] if event["kind"] in kinds]
        return [event for event in events if (event.get("version") == of if of else event.get("version") != "v1")]

    def _until(self, claim: Callable[[], Any], what: str) -> Any:
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            found = claim()
            if found:
                return found
            time.sleep(0.5)
        raise TimeoutError(f"not within {PATIENCE_S:g} s: {what}")


def _spoiled(settings: Settings, champion: str) -> Path:
    """The champion with its corrections turned round and five times as large, as an artefact like any other."""
    folder = open_registry(settings).folder(champion)
    model = artefact.load(folder, forecast_spec(settings).hash)
    network = model.model
    assert isinstance(network, QuantileNetwork)
    arrays = network.arrays()
    arrays |= {name: -5 * arrays[name] for name in ("head.weight", "head.bias")}
    network.load_arrays(arrays)
    trained_on = json.loads((folder / "manifest.json").read_bytes())["trained_on"]
    spoiled = settings.data_dir / "spoiled"
    artefact.save(spoiled, network, model.golden[0], trained_on=trained_on, seed=0, metrics={})
    return spoiled


def _settings(data_dir: Path, source: SimulatorSource) -> Settings:
    return load_settings(
        data_dir=data_dir, api={"port": 0},
        # Up to three hours: further ahead a few weeks teach a network nothing that the climatology does not know.
        forecast={"horizons_min": (10, 30, 60, 180), "targets": ("air_temp_c", "rh_pct", "co2_ppm"),
                  "stale_after_s": 10**9},
        learn={"retrain_every_s": 0, "retrain_on_drift": "site", "rest": 1, "shadow_hours": 72, "watch_hours": 48,
               "max_windows": 6000},
        sites=[{"name": source.site, "timezone": source.timezone, "latitude": source.latitude,
                "longitude": source.longitude, "primary": dict(source.primary)}],
    )  # fmt: skip


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="of weather and greenhouse")
    parser.add_argument("--speed", type=float, default=1800.0, help="stream seconds a wall second")
    parser.add_argument("--regime", choices=REGIMES, default="screens_removed")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
