"""``hothouse change settings``: an event that would have every forecast refused is not published."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from services import message_broker
from services.cli import app
from services.config import Settings


@pytest.mark.parametrize(
    ("stale_after_s", "asked", "least_s"),
    [
        (1800, ["--lateness-s", "1800"], 2100),  # beside the configured step of 300
        (1800, ["--step-s", "1800"], 1810),  # beside the configured lateness of 10
        (1800, ["--step-s", "900", "--lateness-s", "901"], 1801),
        (1800, ["--step-s", "900", "--lateness-s", "900"], 0),
        (3600, ["--lateness-s", "1800"], 0),
        (1800, ["--idle-s", "3600"], 0),
    ],
)
def test_forecasts_do_not_grow_too_old_by_a_change(
    stale_after_s: int, asked: list[str], least_s: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that waits longer than ``forecast.stale_after_s`` has /predict refuse while all is well."""
    published = []

    def publish(settings: Settings, name: str, topic: str, payload: bytes) -> None:
        published.append(topic)

    monkeypatch.setattr(message_broker, "publish", publish)
    environment = {
        "HOTHOUSE_DATA_DIR": str(tmp_path), "HOTHOUSE_FORECAST__STALE_AFTER_S": str(stale_after_s),
        "HOTHOUSE_STREAM__STEP_S": "300", "HOTHOUSE_STREAM__LATENESS_S": "10",
    }  # fmt: skip
    result = CliRunner().invoke(app, ["change", "settings", "demo", *asked, "--change-version", "2"], env=environment)
    assert published == ([] if least_s else ["hothouse/v1/demo/_site/operator/event"])
    assert (result.exit_code == 0) == (not least_s)
    if least_s:
        said = " ".join((result.output + str(result.exception)).split())
        assert f"forecast.stale_after_s is {stale_after_s}" in said
        assert f"{least_s} s" in said
