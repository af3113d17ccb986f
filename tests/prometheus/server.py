"""The real Prometheus on a free port of loopback, which scrapes every second."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import yaml

from services.runtime.ports import free_port
from tests.conftest import require_program
from tests.patience import patience_s, until
from tests.prometheus.rule_file import quickened

__all__ = ["Prometheus"]


class Prometheus:
    """Scrapes ``targets`` (job -> host:port, or a URL of a server that answers ``/metrics``); a context manager.

    Its rules are those of ``deploy/prometheus``, quickened, and evaluated every second.
    """

    def __init__(self, folder: Path, targets: Mapping[str, str], rules: Mapping[str, Any] | None = None) -> None:
        self._program = require_program("prometheus")
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "rules.yml").write_text(yaml.safe_dump(dict(rules or quickened())))
        self._configuration = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yml"],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": [target.removeprefix("http://")]}]}
                for job, target in targets.items()
            ],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(self._configuration))
        self.url = f"http://127.0.0.1:{free_port()}"

    def __enter__(self) -> Self:
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    self._program, f"--config.file={self._folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self._folder / 'data'}", f"--web.listen-address={self.url[7:]}",
                ],
                stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self._client = httpx.Client(base_url=self.url)
        until(self._is_ready, "Prometheus is ready")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()
        self._process.kill()
        self._process.wait(patience_s(30))

    def query(self, expression: str, *, lookback_s: float = 0.0) -> list[dict[str, Any]]:
        """What an expression gives now; with ``lookback_s``, what it gave at each second since then."""
        asked = {"query": expression}
        if lookback_s:
            now_s = time.time()
            asked |= {"start": f"{now_s - lookback_s}", "end": f"{now_s}", "step": "1"}
        path = f"/api/v1/query{'_range' if lookback_s else ''}"
        answer = self._client.get(path, params=asked, timeout=patience_s(10))
        assert answer.status_code == 200, f"{expression}: {answer.text}"
        found: list[dict[str, Any]] = answer.json()["data"]["result"]
        return found

    def firing(self) -> set[str]:
        """The names of alerts that fire now."""
        return {one["metric"]["alertname"] for one in self.query('ALERTS{alertstate="firing"}')}

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, (self._folder / "log").read_text()
        try:
            return self._client.get("/-/ready", timeout=patience_s(1)).status_code == 200
        except httpx.HTTPError:
            return False
