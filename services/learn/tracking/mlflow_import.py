"""Step 15 of the way of a reading: the one place that imports MLflow, once its switches are set.

MLflow reads its switches from the environment when it is imported. So whoever imports MLflow from elsewhere may be too
early. It is large, and only the retrainer's process and the commands for models pay for it.
"""

from __future__ import annotations

import logging
import os

# Nothing on the terminal, nothing sent anywhere. A server that is away is given up at once, because whoever asked asks
# again soon; one that is only slow, after half a minute.
for _name, _value in {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",
}.items():
    os.environ.setdefault(_name, _value)

from mlflow import MlflowClient  # noqa: E402
from mlflow.entities import Metric, Param, Run  # noqa: E402
from mlflow.exceptions import MlflowException  # noqa: E402
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository  # noqa: E402

for _name in ("mlflow", "alembic"):
    logging.getLogger(_name).setLevel(logging.WARNING)

__all__ = ["Metric", "MlflowClient", "MlflowException", "Param", "Run", "get_artifact_repository"]
