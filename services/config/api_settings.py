"""How the API is reached: where it listens, and whom commands ask."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator

from edge.config import HttpUrl, ListenHost, Section
from services.config.texts import ApiRoute, ProxyAddress, ServerUrl, WebOrigin

__all__ = ["ApiSettings", "ClientSettings"]


class ApiSettings(Section):
    """HTTP."""

    host: ListenHost = Field("127.0.0.1", description="Address to listen on; loopback unless you say otherwise.")
    port: int = Field(8000, ge=0, le=65535, description="Port; 0: a free one.")
    route: ApiRoute = Field(
        "/",
        description="Path of the API; installations on one Ray cluster need one each. The page needs "
        "`/`.",
    )  # fmt: skip
    url: ServerUrl = Field(
        "",
        description="Where the API is reached, such as http://front:8000, where a balancer stands before a cluster; "
        "empty: where it listens, on a cluster on the head node.",
    )  # fmt: skip
    replicas: int = Field(1, ge=1, le=32, description="API replicas.")
    read_key_file: Path | None = Field(
        None, description="File with a key that readers must send; none: reading is open."
    )
    read_needs_key: bool = Field(False, description="Reading needs a key, of the file before or of `hothouse keys`.")
    tls_cert_file: Path | None = Field(
        None,
        description="Certificate with its chain, in PEM: host and port speak HTTPS then. A renewed one is used within "
        "ten seconds.",
    )
    tls_key_file: Path | None = Field(None, description="The certificate's key, in PEM, without a passphrase.")
    cors_origins: tuple[WebOrigin, ...] = Field(
        (),
        description="Origins, such as https://office.example.org, whose pages may ask the API; none: only its own "
        "page.",
    )  # fmt: skip
    rate_per_s: float = Field(
        100, ge=0, le=1e6,
        description="Requests a second that a replica takes of one client: of a key, or of an address where no key is "
        "sent; 0: any number.",
    )  # fmt: skip
    rate_burst: int = Field(500, ge=1, le=1_000_000, description="So many requests may come at once.")
    streams_per_client: int = Field(
        200,
        ge=0,
        le=3000,
        description="Streams of `/events` that one client may have open at a replica; 0: any number.",
    )
    proxies: tuple[ProxyAddress, ...] = Field(
        (), max_length=64,
        description="Addresses, or networks such as 10.0.7.0/24, of proxies before Hothouse that add to "
        "`X-Forwarded-For`: of a request that came through them the address is the one that the first of them saw.",
    )  # fmt: skip

    @model_validator(mode="after")
    def _certificate_with_key(self) -> ApiSettings:
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ValueError("tls_cert_file and tls_key_file belong together: set both, or none")
        if self.tls_cert_file is not None and self.port == 0:
            raise ValueError("port must be named where tls_cert_file is set")
        return self


class ClientSettings(Section):
    """Which running system commands ask (`hothouse status`, `predict` ...), instead of the one on the data folder."""

    url: HttpUrl = Field("", description="Its address, http://HOST:PORT; empty: the system on the data folder.")
    key_file: Path | None = Field(
        None,
        description="File with the key that is sent to it; none: the operator's, to the system on the data folder.",
    )
