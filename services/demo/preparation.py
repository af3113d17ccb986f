"""What a demo runs on: an empty folder, a greenhouse, and settings that keep it apart from a real system."""

from __future__ import annotations

import shutil
from pathlib import Path

from edge.recordings.recording import RecordingError
from edge.recordings.replay import RecordingSource
from edge.recordings.sample_source import SampleSource
from edge.simulator.simulator_source import SimulatorSource
from services.config import Settings, load_settings
from services.demo.options import DemoOptions
from services.errors import ConfigError
from services.runtime.folder import LOCK_FILE, FolderLock
from services.runtime.leftovers import end_left_over

__all__ = ["MARKER", "demo_settings", "empty_folder", "sample_source"]

SIMULATION_START_MS = 1_709_251_200_000  # 1 March 2024: lengthening days, heating and venting
MARKER = ".hothouse-demo"
STALE_AFTER_WALL_S = 20.0
LONGEST_STALE_S = 7_200  # a row of an hour, and as long a lateness
SHADOW_HOURS = 6.0
OWN_SECTIONS = ("mqtt", "log", "kafka", "uplink", "gateway", "influx", "storage", "alerts", "home_assistant", "traces")
"""Left at their defaults: a demo's greenhouse is nothing for the log, the buckets and the people of a real one."""


def empty_folder(data_dir: Path) -> None:
    """Make an empty folder of our own: what an earlier demo left is removed, anything else is left alone.

    Raises :class:`ConfigError` for a folder of something else, :class:`StartError` while another demo runs on it.
    """
    if data_dir.is_dir() and any(data_dir.iterdir()) and not (data_dir / MARKER).exists():
        raise ConfigError(
            f"data_dir is {str(data_dir)!r}: the folder is not empty and not of an earlier demo",
            "Choose another folder with --data-dir.",
        )
    with FolderLock(data_dir):
        end_left_over(data_dir)  # of a demo that was killed
        for entry in data_dir.iterdir():
            if entry.name == LOCK_FILE:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        (data_dir / MARKER).touch()


def sample_source(options: DemoOptions) -> SampleSource:
    """The recording that the options name, or a simulated greenhouse.

    Raises :class:`ConfigError` for a recording that cannot be read.
    """
    if options.recording is not None:
        try:
            return RecordingSource(
                options.recording, options.mapping, None, options.timezone, options.latitude, options.longitude,
                foreseen=options.plans,
            )  # fmt: skip
        except RecordingError as error:
            raise ConfigError(f"recording is {str(options.recording)!r}: {error}") from error
    from edge.simulator.simulated_site import SimulatedSite

    return SimulatorSource(SimulatedSite("demo", options.seed, SIMULATION_START_MS, zones=options.zones))


def demo_settings(options: DemoOptions, data_dir: Path, source: SampleSource) -> Settings:
    """Those of the file and the environment, but for what is the real system's alone and what a short run needs."""
    site = {
        "name": source.site, "timezone": source.timezone, "latitude": source.latitude, "longitude": source.longitude,
        "primary": dict(source.primary),
    }  # fmt: skip
    defaults = Settings.model_construct()
    settings = load_settings(
        options.config,
        data_dir=data_dir,
        **{name: getattr(defaults, name).model_dump() for name in OWN_SECTIONS},
        ray={"address": ""},
        # Where it listens may be said; keys, certificates and a balancer are those of the real system.
        api={**defaults.api.model_dump(exclude={"host"}), "port": options.port},
        forecast={"stale_after_s": LONGEST_STALE_S},
        learn={
            "retrain_every_s": options.retrain_every,
            "retrain_cron": "",
            "mlflow_uri": "",
            "force_promote": options.promote == "always",
            # A quarter of a day is 24 s here: a challenger in shadow, or a champion under watch, is seen to its end.
            "shadow_hours": SHADOW_HOURS,
            "watch_hours": SHADOW_HOURS,
            "max_windows": 5_000,  # a quarter of the default: two trainings and their swaps must fit into three minutes
        },
        sites=[site],
    )
    # Stream time runs `speed` times as fast here: half an hour of it would be over in two seconds of the wall.
    least_s = settings.stream.step_s + settings.stream.lateness_s
    stale_after_s = max(1800, least_s, round(options.speed * STALE_AFTER_WALL_S))
    forecast = settings.forecast.model_copy(update={"stale_after_s": stale_after_s})
    return settings.model_copy(update={"forecast": forecast})
