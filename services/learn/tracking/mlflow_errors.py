"""Step 15 of the way of a reading: MLflow's errors become ours here and nowhere else.

An MLflow that is away (no connection, an error of the server, too many requests), or whose files find no room on this
machine, is asked again. One that refuses what it is asked (a wrong parameter, wrong credentials, an address that is no
MLflow) would refuse it again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import requests

from services.errors import NO_ROOM, PromotionRefusedError, RegistryError, RegistryRefusedError
from services.learn.tracking.mlflow_import import MlflowException

__all__ = ["translated"]

_STATUS = re.compile(r"failed with error code (\d{3})")
"""MLflow calls a status that its table does not have an internal error, and says the number."""
_ASK_AGAIN = (408, 409, 429, 499)
"""Refusals of the moment: too slow, in conflict with another request, too many requests, given up."""
_HINTS = {
    401: "Set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN, where Hothouse runs.",
    403: "Let the user that Hothouse logs in as write to the experiment and the registered model `hothouse`.",
    404: "learn.mlflow_uri must be the address of an MLflow tracking server.",
}
_HINT = "MLflow's own log says more; once that is mended, `hothouse retrain` trains again."


@contextmanager
def translated(uri: str) -> Iterator[None]:
    """MLflow's errors at ``uri`` become :class:`RegistryError`, which may pass, or :class:`RegistryRefusedError`, which
    will not; :class:`PromotionRefusedError` where it knows no such model.
    """
    try:
        yield
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            raise PromotionRefusedError(f"no such model: {_first_line(error)}") from error
        raise _ours(uri, _status(error), error) from error
    except requests.RequestException as error:  # artifacts of a tracking server come and go without MLflow's errors
        raise _ours(uri, 503 if error.response is None else error.response.status_code, error) from error
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise RegistryError(f"the files of MLflow at {uri} cannot be written: {error}") from error


def _ours(uri: str, status: int, error: Exception) -> RegistryError:
    if 400 <= status < 500 and status not in _ASK_AGAIN:
        message = f"MLflow at {uri} refuses the request: {_first_line(error)}"
        return RegistryRefusedError(message, _HINTS.get(status, _HINT))
    return RegistryError(f"MLflow does not answer at {uri}: {_first_line(error)}")


def _status(error: MlflowException) -> int:
    said = _STATUS.search(str(error))
    return int(said.group(1)) if said else int(error.get_http_status_code())


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
