"""Home Assistant itself, as far as MQTT needs it: a program for the Python that has its package.

It reads a line of JSON with ``host``, ``port``, ``username``, ``password`` and ``folder``, connects as Home Assistant's
MQTT integration does, and then answers each line that comes: ``{"wait_for": {entity id or unique id: state}}`` waits
until entities have these states (``None``: they are gone) and answers with all entities, devices and complaints.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any

PATIENCE_S = 60.0


class _Complaints(logging.Handler):
    """What the MQTT integration warns of: a document, a state or a template that it does not take."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == "homeassistant.helpers.frame":
            return  # about this program, which sets the integration up by itself
        if record.name.startswith(("homeassistant.components", "homeassistant.helpers")):
            self.lines.append(f"{record.name}: {record.getMessage()}")


async def _home_assistant(given: dict[str, Any]) -> Any:
    from homeassistant import bootstrap, config_entries, core, loader
    from homeassistant.auth import auth_manager_from_config

    folder = Path(given["folder"])
    (folder / "configuration.yaml").write_text("")
    hass = core.HomeAssistant(str(folder))
    loader.async_setup(hass)
    hass.config_entries = config_entries.ConfigEntries(hass, {})
    hass.config.skip_pip = True
    await bootstrap.async_load_base_functionality(hass)
    hass.auth = await auth_manager_from_config(hass, [], [])
    hass.config.components.update({"http", "file_upload", "homeassistant"})  # MQTT's dependencies, for its forms
    hass.set_state(core.CoreState.running)
    data = {"broker": given["host"], "port": given["port"], "username": given["username"],
            "password": given["password"]}  # fmt: skip
    entry = config_entries.ConfigEntry(
        version=1, minor_version=2, domain="mqtt", title="broker", data=data, options={}, source="user",
        unique_id=None, discovery_keys={}, subentries_data=(),
    )  # fmt: skip
    await hass.config_entries.async_add(entry)
    await hass.async_block_till_done()
    return hass


def _found(hass: Any) -> dict[str, Any]:
    from homeassistant.helpers import device_registry, entity_registry

    entities, devices = entity_registry.async_get(hass), device_registry.async_get(hass)
    return {
        "entities": {
            entry.unique_id: {
                "id": entry.entity_id, "name": entry.original_name,
                "state": None if (state := hass.states.get(entry.entity_id)) is None else state.state,
                "attributes": {} if state is None else json.loads(json.dumps(dict(state.attributes), default=str)),
            }
            for entry in entities.entities.values()
        },
        "devices": {
            next(iter(one.identifiers))[1]: {
                "name": one.name, "via": (via := devices.async_get(one.via_device_id or "")) and via.name,
            }
            for one in devices.devices.values()
        },
    }  # fmt: skip


async def _answer(hass: Any, wanted: dict[str, str | None]) -> dict[str, Any]:
    async def seen() -> dict[str, Any]:
        while True:
            await hass.async_block_till_done()
            found = _found(hass)
            states = {unique_id: one["state"] for unique_id, one in found["entities"].items()}
            if all(states.get(unique_id) == state for unique_id, state in wanted.items()):
                return found
            await asyncio.sleep(0.05)

    try:
        return await asyncio.wait_for(seen(), PATIENCE_S)
    except TimeoutError:
        return {**_found(hass), "missed": wanted}


async def _main() -> None:
    complaints = _Complaints()
    logging.getLogger().addHandler(complaints)
    lines = asyncio.StreamReader(limit=2**24)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    hass = await _home_assistant(json.loads(await lines.readline()))
    while line := await lines.readline():
        found = await _answer(hass, json.loads(line)["wait_for"])
        sys.stdout.write(json.dumps({**found, "complaints": complaints.lines}) + "\n")
        sys.stdout.flush()
    await hass.async_stop(force=True)


if __name__ == "__main__":
    asyncio.run(_main())
