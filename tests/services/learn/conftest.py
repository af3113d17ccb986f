"""A registry without models, quickly made."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.learn.registry import Registry
from tests.services.learn.synthetic import SCHEMA


@pytest.fixture(scope="session")
def empty_mlflow(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """An empty MLflow file: making one takes seconds, copying it does not."""
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.sqlite"
    Registry(f"sqlite:///{path}", path.parent, SCHEMA).champion()
    return path.read_bytes()


@pytest.fixture
def registry(empty_mlflow: bytes, tmp_path: Path) -> Registry:
    """A registry of its own for each test."""
    (tmp_path / "mlflow.sqlite").write_bytes(empty_mlflow)
    return Registry(f"sqlite:///{tmp_path / 'mlflow.sqlite'}", tmp_path / "storage", SCHEMA)
