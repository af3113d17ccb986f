"""A running Hothouse, as far as the command line can tell."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ORIGIN_MS = 1_646_092_800_000


FORECAST = {
    "site": "demo", "zone": "north-1", "origin_ms": ORIGIN_MS, "origin": "2022-03-01T00:00:00Z", "step_s": 300,
    "model_version": "v3", "degraded": ["co2_ppm: 40 min old"], "now": {"air_temp_c": 21.4, "vpd_kpa": None},
    "freshness_s": {},
    "forecasts": {
        target: [{"horizon_min": minutes, "p10": 1.0, "p50": 2.0, "p90": 3.0} for minutes in (30, 120, 1440)]
        for target in ("air_temp_c", "vpd_kpa")
    },
}  # fmt: skip


MODEL = {
    "version": "v3", "stage": "champion", "aliases": ["champion"], "created_ms": ORIGIN_MS, "weights_sha256": "ab",
    "trained_on": {"from": "2022-02-01T00:00:00Z", "to": "2022-03-01T00:00:00Z"}, "passed": True, "forced": False,
    "held_back_mae": {"air_temp_c": {"60": {"model": 0.51, "persistence": 0.9, "naive_24h": 1.1}}},
    "reason": "beats all", "folder": "",
}  # fmt: skip


WEIGHTS = {"climatology": {"30": 0.25, "120": 0.5, "1440": 1.0}, "trees": {"30": 0.746, "120": 0.496, "1440": 0.0},
           "network": {"30": 0.004, "120": 0.004, "1440": 0.0}}  # fmt: skip


class FakeHothouse:
    """Answers as the API does; keeps what it was asked, and with which key."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str | None]] = []
        self.redirects: dict[str, str] = {}
        self.answers: dict[tuple[str, str], tuple[int, Any]] = {
            ("GET", "/zones"): (200, {"zones": [{"site": "demo", "zone": "north-1"}]}),
            ("GET", "/predict?zone=north-1"): (200, FORECAST),
            ("GET", "/predict?zones=demo%2Fnorth-1"): (200, {"zones": [FORECAST], "problems": []}),
            ("GET", "/predict?zone=west"): (404, {"status": 404, "detail": "no zone west; known is demo/north-1"}),
            ("GET", "/models"): (200, {"models": [MODEL], "serving": ["v3"], "errors": ["MLflow is away"]}),
            ("GET", "/models/zones"): (200, {"zones": [
                {"site": "demo", "zone": zone, "origin_ms": ORIGIN_MS,
                 "serving": {"network": "v3", "trees": "trees-v1"}, "weights": weights}
                for zone, weights in (("a", WEIGHTS), ("b", WEIGHTS), ("c", {"first days": {"30": 1.0}}))
            ]}),
            ("GET", "/status"): (200, {
                "health": {"ready": True, "reasons": [], "zones": 1, "zones_usable": 1},
                "slot": {"champion": {"version": "v3"}},
                "components": {
                    "shard-0": {"accepted": 7, "rejected": {"malformed": 2}},
                    "retrainer": {"next_training": "in 3 h: after the verdict on v2"},
                    "retrainer-trees": {"next_training": "with 5 days of new rows"},
                },
                "errors": ["retrainer: no history"], "models": [MODEL], "events": [],
            }),
            ("POST", "/models/v2/promote"): (200, {"version": "v2", "before": "v3"}),
            ("POST", "/models/rollback"): (409, {"status": 409, "detail": "there is no previous champion"}),
            ("POST", "/models/retrain"): (202, {"accepted": True, "reason": ""}),
        }  # fmt: skip
        self.answers_now = threading.Event()
        self.answers_now.set()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                fake.asked.append((self.command, self.path, self.headers.get("Authorization")))
                fake.answers_now.wait()
                status, content = fake.answers.get(
                    (self.command, self.path), (404, {"detail": "there is nothing here"})
                )
                body = json.dumps(content).encode()
                elsewhere = fake.redirects.get(self.path)
                self.send_response(302 if elsewhere else status)
                if elsewhere:
                    self.send_header("Location", elsewhere)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = _answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
