"""The demo's folder: its own leftovers are cleared, everything else is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.config import ApiSettings, Settings
from services.demo.options import DemoOptions
from services.demo.preparation import MARKER, demo_settings, empty_folder, sample_source
from services.demo.summary import checks, ledger
from services.errors import ConfigError, StartError
from services.observe.timeline import event_line
from services.runtime.folder import FolderLock


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    """A folder with files and no marker is refused, and keeps them."""
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ConfigError, match="not of an earlier demo"):
        empty_folder(tmp_path)
    assert (tmp_path / "thesis.txt").exists()


def test_an_earlier_demo_is_cleared(tmp_path: Path) -> None:
    """What is behind the marker goes; the marker stays."""
    (tmp_path / MARKER).touch()
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage" / "old").touch()
    empty_folder(tmp_path)
    assert {entry.name for entry in tmp_path.iterdir()} == {MARKER, "lock"}


def test_a_running_demo_is_left_alone(tmp_path: Path) -> None:
    """While one holds the folder, a second is refused and deletes nothing."""
    (tmp_path / MARKER).touch()
    (tmp_path / "log.sqlite").touch()
    with FolderLock(tmp_path), pytest.raises(StartError, match="already runs"):
        empty_folder(tmp_path)
    assert (tmp_path / "log.sqlite").exists()


def test_a_folder_that_is_a_file_is_a_configuration_error(tmp_path: Path) -> None:
    """The sentence names data_dir and the path."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"data_dir is .*file"):
        empty_folder(tmp_path / "file")


def test_text_from_outside_is_no_markup() -> None:
    """A message with brackets is shown as it is."""
    line = event_line({"kind": "error", "message": "cannot read [/tmp/x]", "time_ms": 0})
    assert r"\[/tmp/x]" in line


def test_a_demo_touches_no_real_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of a real system beside it name logs, buckets and people: simulated samples must reach none of them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hothouse.toml").write_text(
        '[mqtt]\nhost = "broker"\n[log]\nkind = "kafka"\n[kafka]\nservers = ["kafka:9092"]\n'
        '[storage]\nurl = "s3://greenhouse"\n[influx]\nurl = "http://influx"\n[ray]\naddress = "head:6379"\n'
        '[alerts]\nwebhook_url = "http://duty"\nemail_to = ["grower@example.org"]\n[learn]\nmlflow_uri = "http://m"\n'
        '[home_assistant]\nprefix = "homeassistant"\n[forecast]\nhorizons_min = [5, 60]\n'
        '[api]\nurl = "http://front:8000"\ntls_cert_file = "c.pem"\ntls_key_file = "k.pem"\nread_needs_key = true\n'
        'port = 9\nroute = "/north"\nreplicas = 3\n'
    )
    monkeypatch.setenv("HOTHOUSE_DATA_DIR", str(tmp_path / "real"))
    monkeypatch.setenv("HOTHOUSE_MQTT__USERNAME", "somebody")
    monkeypatch.setenv("HOTHOUSE_API__HOST", "0.0.0.0")
    options = DemoOptions(data_dir=tmp_path / "demo")
    settings = demo_settings(options, tmp_path / "demo", sample_source(options))
    assert settings.data_dir == tmp_path / "demo"
    for name in ("mqtt", "log", "kafka", "influx", "storage", "alerts", "home_assistant"):
        assert getattr(settings, name) == Settings.model_fields[name].default, name
    assert (settings.ray.address, settings.learn.mlflow_uri) == ("", "")
    assert settings.forecast.horizons_min == (5, 60)
    assert settings.api == ApiSettings(host="0.0.0.0", port=0)


def test_a_demo_reads_the_file_that_is_named(tmp_path: Path) -> None:
    """`hothouse --config FILE demo` is no demo of another file."""
    file = tmp_path / "other.toml"
    file.write_text("[forecast]\nhorizons_min = [5, 60]\n")
    options = DemoOptions(config=file)
    assert demo_settings(options, tmp_path / "demo", sample_source(options)).forecast.horizons_min == (5, 60)


def test_a_demo_sets_a_limit_of_age_that_goes_with_its_rows(tmp_path: Path) -> None:
    """Its user cannot set that limit: it follows the speed, and is never less than a row's length and lateness."""
    for stream, speed, least_s in (
        ("", 60.0, 1800),
        ("", 600.0, 12_000),
        ("step_s = 3600\nlateness_s = 600", 60.0, 4200),
    ):
        file = tmp_path / "rows.toml"
        file.write_text(f"[forecast]\nhorizons_min = [60]\nstale_after_s = 90\n[stream]\n{stream}\n")
        options = DemoOptions(config=file, speed=speed)
        assert demo_settings(options, tmp_path / "demo", sample_source(options)).forecast.stale_after_s == least_s


def test_a_missing_sample_fails_the_run() -> None:
    """One published sample that is not counted anywhere is seen by the checks."""
    counted = ledger(6, [{"accepted": 3, "duplicates": 1, "late": 1, "rejected": {}, "zone_rows": 1}])
    probe = {"sent": 1, "failed": 0, "failures": {}}
    summary = {**counted, "probe": probe, "errors": [], "forecasts": 1, "retrain_every_s": 0}
    outcome = {claim: holds for claim, holds, _ in checks(summary)}
    assert outcome.pop("every published sample is accounted for") is False
