"""Addresses in settings, and what is said of one that can be none."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated

from pydantic import AfterValidator

from edge.config.forms import of_form

__all__ = ["Host", "HttpUrl", "ListenHost", "Server"]

_MOST_PORT = 65_535


def _host(value: str) -> str:
    if ":" in value:
        try:
            ipaddress.IPv6Address(value.partition("%")[0])
        except ValueError as error:
            raise ValueError("must be a name or an address alone, such as 10.0.7.1; a port has a setting") from error
    elif re.search(r"[\s/@,]", value):
        raise ValueError("must be a name or an address, such as broker.example.org or 10.0.7.1")
    return value


def _listen_host(value: str) -> str:
    if not value:
        raise ValueError("must be an address of this machine, such as 127.0.0.1; 0.0.0.0 is all of them")
    return _host(value)


def _server(value: str) -> str:
    host, _, port = value.rpartition(":")
    if re.search(r"[\s/@,]", value) or not host or not port.isdecimal() or not 0 < int(port) <= _MOST_PORT:
        raise ValueError("must be host:port, such as kafka-1:9092")
    return value


Host = Annotated[str, AfterValidator(_host)]
"""A name or an address of a machine, or empty."""

ListenHost = Annotated[str, AfterValidator(_listen_host)]
"""Where this machine listens. Empty would be each of its addresses, which nobody asks for by leaving a value out."""

Server = Annotated[str, AfterValidator(_server)]
"""``host:port``."""

HttpUrl = Annotated[str, of_form(r"(https?://[^\s/?#]+(/\S*)?)?", "an address such as http://10.0.7.1:8086, or empty")]
"""``http://`` or ``https://``, or empty."""
