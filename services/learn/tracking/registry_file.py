"""Step 15 of the way of a reading: the registry's SQLite file, and the paths of files in it.

MLflow writes absolute addresses of artefacts into its database, and has no call that changes them. Where the data
folder has moved, or was brought back elsewhere, they name files that are not there, and the next run would be written
there.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

__all__ = ["REGISTRY_FILE", "artefact_root", "move_artefacts"]

REGISTRY_FILE = "mlflow.sqlite"
"""In the data folder."""
_ADDRESSES = (
    ("experiments", "artifact_location"), ("runs", "artifact_uri"), ("model_versions", "source"),
    ("model_versions", "storage_location"),
)  # fmt: skip


def artefact_root(storage: Path) -> str:
    """The address of MLflow's own copies of artefacts, which lie in ``storage``."""
    return (storage / "mlflow").resolve().as_uri()


def move_artefacts(file: Path, root: str, experiments: frozenset[str]) -> bool:
    """Have a registry that nobody uses now look for the artefacts of ``experiments`` under ``root``; whether it looked
    elsewhere before.

    Raises ``sqlite3.Error`` for a file that is none of MLflow's.
    """
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=rw", uri=True, timeout=60)) as db, db:
        found = db.execute("SELECT name, artifact_location FROM experiments").fetchall()
        before = {where for name, where in found if name in experiments and where != root}
        for where in before:
            for table, column in _ADDRESSES:
                db.execute(
                    f"UPDATE {table} SET {column} = ? || substr({column}, ?) "  # noqa: S608 - both are ours
                    f"WHERE {column} = ? OR substr({column}, 1, ?) = ?",
                    (root, len(where) + 1, where, len(where) + 1, f"{where}/"),
                )
    return bool(before)
