"""Step 2 of the way of a reading: the gateway's figures for Prometheus, on the bare install."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from edge.gateway.status import GatewayStatus

__all__ = ["METRICS", "MetricsServer", "exposition"]

METRICS = {
    "connected": ("gauge", "1 while the broker's subscription is alive."),
    "connects": ("counter", "Connections to the broker."),
    "messages": ("counter", "Messages taken."),
    "samples": ("counter", "Samples that passed."),
    "refused": ("counter", "Samples and messages refused."),
    "relayed": ("counter", "Records taken from other gateways."),
    "other_topics": ("counter", "Messages on topics that nothing reads, each refused."),
    "answered": ("counter", "Answers of decoders that went out to devices."),
    "unanswered": ("counter", "Answers of decoders that did not go out: another just had, or the broker was away."),
    "records": ("counter", "Records appended durably."),
    "queued": ("gauge", "Messages that wait for the log."),
    "dropped_qos0": ("counter", "Messages of quality 0 dropped because too many waited."),
    "bytes_free": ("gauge", "Bytes that the log takes before nothing is acknowledged any more."),
    "buffered_records": ("gauge", "Records that wait for the uplink."),
    "buffered_bytes": ("gauge", "Bytes of the buffer's file that hold records."),
    "oldest_unsent_s": ("gauge", "Age of the oldest record that waits, in seconds."),
    "uplinked": ("counter", "Records that the central side has durably."),
    "uplink_errors": ("counter", "Failures of the uplink, each tried again."),
    "updated_ms": ("gauge", "Unix time of these figures in milliseconds."),
}
"""Field of ``GatewayStatus`` -> kind and meaning; a counter's name ends in ``_total``."""


def exposition(status: GatewayStatus) -> str:
    """The text that Prometheus reads."""
    values = asdict(status)
    lines = []
    for field, (kind, meaning) in METRICS.items():
        name = f"hothouse_gateway_{field}" + ("_total" if kind == "counter" else "")
        lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}", f"{name} {int(values[field])}"]
    failing = int(bool(values["last_error"]))
    name = "hothouse_gateway_failing"
    return "\n".join(
        [*lines, f"# HELP {name} 1 while something fails.", f"# TYPE {name} gauge", f"{name} {failing}", ""]
    )


class MetricsServer:
    """Answers GET /metrics from a thread; ``port`` 0 takes a free one. Raises ``OSError`` when it is taken."""

    def __init__(self, host: str, port: int, status: Callable[[], GatewayStatus]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = self.path.split("?")[0] == "/metrics"
                body = exposition(status()).encode() if found else b"only /metrics is here\n"
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Nothing: a line a scrape helps nobody."""

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
