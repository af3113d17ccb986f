"""How models are trained, judged and kept."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator, model_validator

from edge.config import Section
from models.families import FAMILIES
from services.config.texts import CronExpression, TimeZone

__all__ = ["LearnSettings"]


class LearnSettings(Section):
    """Periodic retraining."""

    retrain_every_s: float = Field(
        6 * 3600, ge=0, description="Wall seconds between retrainings; 0: no schedule, and no first model by itself, "
        "unless `learn.retrain_cron` is set.",
    )  # fmt: skip
    retrain_cron: CronExpression = Field(
        "", description="Cron expression of five fields, such as `0 3 * * *`, instead of `learn.retrain_every_s`. A "
        "time is left out if no training can begin then or within the next hour.",
    )  # fmt: skip
    retrain_timezone: TimeZone = Field("UTC", description="IANA time zone of `learn.retrain_cron`.")
    retrain_on_drift: Literal["never", "site", "zone"] = Field(
        "site", description="Retrain when a site as a whole drifts, or also when a single zone does."
    )
    retrain_rows: int = Field(0, ge=0, description="Retrain after this many new zone rows; 0: off.")
    retrain_days: float = Field(
        0.0, ge=0, description="Retrain after this many days of new rows, in the stream's time; 0: off."
    )
    trees_every_days: float = Field(
        5.0, ge=0, description="Train the mixture's trees after this many days of new rows, in the stream's time; "
        "0: only when asked.",
    )  # fmt: skip
    tuned_every_days: float = Field(
        3.0, ge=0, description="Fine-tune the package's network to the sites after this many days of new rows, in the "
        "stream's time; 0: not at all.",
    )  # fmt: skip
    trees_tolerance: float = Field(
        0.01, ge=0, lt=0.5, description="Newer trees may be worse than the serving ones by up to this share."
    )
    kind: str = Field(
        "network", description="The kind of model that replicas run and trainings train; others may be submitted."
    )
    cool_down_s: float = Field(10.0, ge=0, description="No training starts by itself this soon after another ended.")
    rest: float = Field(
        10.0, ge=0, description="After a training, drift and new rows start none for this many times its duration."
    )
    timeout_s: float = Field(1800, gt=0, description="A training that takes longer is ended; the champion stays.")
    min_days: float = Field(2.0, gt=0, description="History needed before the first training, in days.")
    # A share of it is held back, and a zone's first day teaches nothing: little more than a day is never enough.
    window_days: float = Field(60.0, ge=2, description="History used for a training, in days.")
    held_back: float = Field(0.15, gt=0, lt=0.9, description="Newest share of the history, held back for the gate.")
    workers: int = Field(
        -1, ge=-1, le=256,
        description="Ray Train workers; 0: inside the trainer's own process; -1: one a GPU or node, 0 for only one.",
    )  # fmt: skip
    min_workers: int = Field(
        0, ge=0, le=256, description="Train with as few workers as this if there is no room for all; 0: wait for room."
    )
    sharded: bool = Field(
        False, description="Each of several workers holds a piece of the network (FSDP2) instead of all of it (DDP)."
    )
    use_gpu: Literal["auto", "yes", "no"] = Field("auto", description="Train on GPUs.")
    epochs: int = Field(6, ge=1, le=1000, description="Passes over the training windows.")
    max_windows: int = Field(20_000, ge=100, description="Windows drawn for one epoch, all zones together.")
    seed: int = Field(7, ge=0, description="Seed of initial weights and shuffling.")
    shadow_hours: float = Field(
        24.0, ge=0, le=24 * 60, description="Hours of live rows on which a challenger is compared with the champion; "
        "0: held-back rows decide alone.",
    )  # fmt: skip
    shadows: int = Field(
        2, ge=1, le=16, description="Challengers that may be in shadow at once. The next training begins when the "
        "newest has had that part of its time, by default half; with 1, after its verdict.",
    )  # fmt: skip
    watch_hours: float = Field(
        48.0, ge=0, le=24 * 60, description="Hours of live rows on which a new champion is compared with the previous "
        "one; it is withdrawn if it is worse. 0: no watch.",
    )  # fmt: skip
    gate_budget: float = Field(
        0.2, gt=0, lt=1, description="Chance that any of a champion's challengers replaces it without being better."
    )
    gate_margin: float = Field(
        0.002, ge=0, lt=0.5, description="A challenger's error must be smaller by more than this share."
    )
    learning_rate: float = Field(4e-3, gt=0, le=1, description="Highest rate of the cycle; see `hothouse tune`.")
    fine_tuning_rate: float = Field(
        5e-4, gt=0, le=1, description="The same where a training goes on from the weights of the package "
        '(`learn.kind = "pretrained"`).',
    )  # fmt: skip
    weight_decay: float = Field(0.05, ge=0, le=1, description="How strongly weights are drawn to zero.")
    hidden: int = Field(64, ge=4, le=4096, description="Width of the network.")
    mixes: int = Field(6, ge=1, le=256, description="Mixtures of a channel's course over the look-back.")
    dropout: float = Field(0.2, ge=0, lt=1, description="Share of hidden values left out in training.")
    silence: float = Field(0.3, ge=0, lt=1, description="Share of channels taken away in training.")
    force_promote: bool = Field(False, description="Promote whatever the gate says (demonstrations only).")
    keep_models: int = Field(
        20, ge=0,
        description="How many of the newest models keep their files, besides those in use; all records stay. 0: all.",
    )  # fmt: skip
    mlflow_uri: str = Field(
        "", description="MLflow tracking server, of this system alone; empty: an SQLite file in the data folder."
    )

    @field_validator("mlflow_uri")
    @classmethod
    def _an_address(cls, value: str) -> str:
        if value and not re.fullmatch(r"[a-z0-9+]+:/\S+", value):
            raise ValueError(
                "must be an address such as http://mlflow:5000, or empty"
            )  # MLflow makes a folder of others
        return value

    @model_validator(mode="after")
    def _fewer_workers(self) -> LearnSettings:
        if 0 <= self.workers < self.min_workers:
            raise ValueError(f"min_workers is {self.min_workers}: it must not exceed workers, {self.workers}")
        return self

    @field_validator("kind")
    @classmethod
    def _takes_windows(cls, value: str) -> str:
        fitting = [kind for kind, known in FAMILIES.items() if known.takes == "windows"]
        if value not in fitting:
            raise ValueError(f"must be a kind of model that takes windows of rows: {', '.join(fitting)}")
        return value
