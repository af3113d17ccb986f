"""What travels between actors and to clients: small structures that every layer of ``services`` may import.

They are ``TypedDict``: what is sent is a plain dictionary, which costs no more to pickle than one, reads as JSON, and
needs no module of ours where it is unpacked.
"""

from __future__ import annotations

from services.messages.forecast_messages import (
    ASK_AGAIN,
    DRIFTS,
    F32,
    FORECASTER_DEPLOYMENT,
    I64,
    LIVE_STATE_ACTOR,
    MODEL_POINTER_ACTOR,
    ONLINE_VERSION,
    RETRAINER_ACTOR,
    Extreme,
    FirstRow,
    ForecastPath,
    ForecastPoint,
    ForecastReply,
    ForecastRequest,
    LeftZone,
    ServedModel,
    ZoneForecast,
    ZoneMixture,
    ZoneOutlook,
    shard_actor,
)
from services.messages.learning_messages import (
    EventDetails,
    LearningCounts,
    LearningFigures,
    LiveEvent,
    ModelRow,
    ModelSubmitted,
    Moved,
    Pruned,
    Shadow,
    TrainedOn,
    TrainingAccepted,
    TrainingRun,
)
from services.messages.runtime_messages import GatewayFigures, RuntimeFigures

__all__ = [
    "ASK_AGAIN",
    "DRIFTS",
    "F32",
    "FORECASTER_DEPLOYMENT",
    "I64",
    "LIVE_STATE_ACTOR",
    "MODEL_POINTER_ACTOR",
    "ONLINE_VERSION",
    "RETRAINER_ACTOR",
    "EventDetails",
    "Extreme",
    "FirstRow",
    "ForecastPath",
    "ForecastPoint",
    "ForecastReply",
    "ForecastRequest",
    "GatewayFigures",
    "LearningCounts",
    "LearningFigures",
    "LeftZone",
    "LiveEvent",
    "ModelRow",
    "ModelSubmitted",
    "Moved",
    "Pruned",
    "RuntimeFigures",
    "ServedModel",
    "Shadow",
    "TrainedOn",
    "TrainingAccepted",
    "TrainingRun",
    "ZoneForecast",
    "ZoneMixture",
    "ZoneOutlook",
    "shard_actor",
]
