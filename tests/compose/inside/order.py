"""Runs where `hothouse up` runs: an operator's order by the API, which goes out through the broker; prints what came.

A plan for a zone is put, and asked for until the zone has it; then it is looked at whether alerts wait for the broker.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

SOURCE = "e2e"
WAIT_S = 60.0


def main() -> None:
    """``ADDRESS ZONE``: whether the zone has the plan, and whether no way of telling alerts fails."""
    address, zone = sys.argv[1:]
    key = Path("/var/lib/hothouse/operator.key").read_text().strip()
    now_ms = json.loads(ask(f"{address}/predict?zone={zone}", key))["origin_ms"]
    body = {"source": SOURCE, "values": {"sp_heat_c": [[now_ms + 3_600_000 * hour, 18.0] for hour in range(1, 24)]}}
    ask(f"{address}/zones/{zone}/plan", key, body)
    until_s, there = time.monotonic() + WAIT_S, False
    while not there and time.monotonic() < until_s:
        there = SOURCE in ask(f"{address}/zones/{zone}/plan", key)
        time.sleep(0.5)
    print(json.dumps({"plan": there, "alerts": "alerts by" not in ask(f"{address}/status", key)}))


def ask(url: str, key: str, body: Any = None) -> str:
    """The text of the answer; raises ``OSError``, also for a problem answer."""
    said = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, said, headers, method="GET" if body is None else "PUT")
    with urllib.request.urlopen(request, timeout=10) as answer:
        return str(answer.read().decode())


if __name__ == "__main__":
    main()
