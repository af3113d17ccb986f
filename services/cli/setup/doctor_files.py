"""Whether files that settings name are there, rules can be read, and secrets cannot be read by everybody."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from services.cli.setup.check import Check, CheckState
from services.config import Settings, named_files
from services.errors import ConfigError

__all__ = ["check_files"]

NO_SECRET = {"rules_file", "tls_ca_file", "tls_cert_file"}
MAY_BE_EMPTY = "mqtt.session_secret_file"
"""Of an installation of before: docs/gateways.md."""
MADE = ("operator.key", "ray.token")
"""Secrets that the first start makes in the data folder."""


def check_files(settings: Settings) -> Check | None:
    """The first of what is wrong: a file that is not there, or cannot be read, or is empty; rules that are none; a
    secret that others can read.
    """
    name, named = "files", list(named_files(settings))
    missing = [f"{setting} = {path}" for setting, path in named if not path.is_file()]
    if missing:
        found = f"{', '.join(missing)}: no such file"
        return Check(name, CheckState.FAIL, found, "Make the file, or unset the setting.")
    if closed := [f"{setting} = {path}" for setting, path in named if not os.access(path, os.R_OK)]:
        return Check(
            name, CheckState.FAIL, f"{', '.join(closed)}: cannot be read", "Let the user that runs Hothouse read it."
        )
    for setting, path in named:
        if setting.endswith("rules_file") and (wrong := _wrong_rules(path)):
            return Check(name, CheckState.FAIL, f"{setting}: {wrong.message}", wrong.hint)
    held = {setting: path for setting, path in named if setting.rpartition(".")[2] not in NO_SECRET}
    if empty := [f"{one} = {path}" for one, path in held.items() if not path.stat().st_size and one != MAY_BE_EMPTY]:
        return Check(name, CheckState.WARN, f"{', '.join(empty)}: an empty file", "Write the secret into it.")
    secrets = list(held.values())
    secrets += [path for made in MADE if (path := settings.data_dir / made).is_file()]
    if others := [str(path) for path in secrets if path.stat().st_mode & stat.S_IRWXO]:
        return Check(
            name, CheckState.WARN, f"every user of this machine can read {', '.join(others)}",
            f"chmod o= {' '.join(others)}",
        )  # fmt: skip
    return Check(name, CheckState.OK, f"{len(named)} that settings name are there") if named else None


def _wrong_rules(path: Path) -> ConfigError | None:
    from services.alert.rules_file import load_document

    try:
        load_document(path)
    except ConfigError as error:
        return error
    return None
