"""What docs/asyncapi.yaml says, and whether a payload keeps to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator

DOCUMENT: dict[str, Any] = yaml.safe_load((Path(__file__).parents[3] / "docs" / "asyncapi.yaml").read_text())
PUBLISHED = ("alert", "presence", "homeAssistantDevice", "siteState", "zoneState", "zoneAlerts")
"""Channels that Hothouse alone publishes on; test_asyncapi_published has what it says there."""


def resolved(node: Any) -> Any:
    """The document with what it refers to in its place."""
    if isinstance(node, dict):
        if "$ref" in node:
            found: Any = DOCUMENT
            for part in node["$ref"].removeprefix("#/").split("/"):
                found = found[part]
            return resolved(found)
        return {key: resolved(value) for key, value in node.items()}
    return [resolved(value) for value in node] if isinstance(node, list) else node


KINDS = {
    channel: [resolved(message)["payload"] for message in held["messages"].values()]
    for channel, held in DOCUMENT["channels"].items()
}


def keeps_to(channel: str, payload: bytes) -> bool:
    """Whether a payload is one of the channel's messages."""
    document = json.loads(payload.decode("utf-8", "replace"))  # of members that nobody reads, bytes are not looked at
    return any(Draft202012Validator(schema).is_valid(document) for schema in KINDS[channel])
