"""Steps 7 and 13 of the way of a reading: kinds of models, and what each can do.

A *family* makes, fits and loads models of one kind; a model answers. Job, gate, registry, shadow and replay know no
kind: they ask :func:`family_of` for the one that a job or a manifest names. Another kind is a module with a family, and
a line in :data:`FAMILIES`; ``tests/contracts/test_families.py`` says what it must keep.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

if TYPE_CHECKING:  # settings are checked with this module, where there may be no NumPy
    import numpy as np
    import numpy.typing as npt

    from models.features.windows import WindowSet
    from models.spec import ForecastSpec

    F32 = npt.NDArray[np.float32]
    I64 = npt.NDArray[np.int64]
    Arrays = Mapping[str, npt.NDArray[Any]]

__all__ = [
    "FAMILIES",
    "Kind",
    "Model",
    "ModelFamily",
    "TooLittleError",
    "UnknownFamilyError",
    "beginning_of",
    "family_of",
    "takes_of",
]


class Kind(NamedTuple):
    """What a kind of model takes, and where its family is."""

    takes: str
    """``windows`` (:class:`models.features.inputs.Inputs`): it answers in the Forecaster's replicas, as the mixture's
    network. ``examples`` (:class:`models.trees.example_set.Regressors`): it answers in the shards, as its trees.
    ``forecasts`` (:class:`models.network.tuned_network.CorrectionInputs`): it corrects in the shards what these
    forecast.
    """

    family: str
    """``module:Class``. The module is imported when a model is made or loaded: a shard that loads trees needs no torch,
    and a retrainer that only asks what a kind takes needs neither."""

    by_ray: bool = False
    """Whether the running system trains it by the loop of :mod:`models.network.training`, on Ray Train."""

    begins: str = ""
    """``module:function``, of a schema: the model that a first training goes on from. Empty: it begins with nothing."""


FAMILIES = {
    "network": Kind("windows", "models.network.family:NetworkFamily", by_ray=True),
    "pretrained": Kind(
        "windows",
        "models.network.pretrained_family:PretrainedFamily",
        by_ray=True,
        begins="models.pretraining.shipped:network_for",
    ),
    "trees": Kind("examples", "models.trees.family:TreesFamily"),
    "tuned": Kind("forecasts", "models.network.tuned_network:TunedFamily"),
}
"""By the name in a manifest."""


class UnknownFamilyError(ValueError):
    """No family has this kind."""


class TooLittleError(ValueError):
    """There is too little to learn from yet."""


class Model(Protocol):
    """A fitted model in memory. It may be asked from several threads, and changes nothing when it is."""

    @property
    def spec(self) -> ForecastSpec:
        """The schema that it was made for."""

    @property
    def options(self) -> dict[str, Any]:
        """What :meth:`ModelFamily.load` needs besides schema and arrays; JSON-able."""

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All that was learned; copies."""

    def answer(self, inputs: Any) -> F32:
        """``[N, H, M, Q]``, p10 <= p50 <= p90, each example's whatever stands beside it; NaN where the baseline is.

        ``inputs`` are what its kind takes. A family with only a median returns it three times.
        """


class ModelFamily(Protocol):
    """Makes, fits and loads models of one kind. It has no state of its own."""

    refits: bool
    """Whether the serving model is fitted on all rows. Then a twin, fitted without the held-back rows, is judged on
    these. Otherwise the model itself is judged on them."""

    def make(self, spec: ForecastSpec, options: Mapping[str, Any]) -> Model:
        """A model that has learned nothing."""

    def fit(
        self, cases: WindowSet, origins: I64, settings: Mapping[str, Any], *, cut_ms: int, start: Model | None = None
    ) -> Model:
        """Fit a model to ``origins`` of ``cases``, knowing nothing after ``cut_ms``; equal arguments, equal arrays.

        ``settings`` are those of ``learn``; a family takes those that it knows. ``start`` is where to begin, for a
        family that can. Raises :class:`TooLittleError`, or another ``ValueError`` where it cannot be fitted.
        """

    def load(self, spec: ForecastSpec, options: Mapping[str, Any], arrays: Arrays) -> Model:
        """The model whose :attr:`Model.options` and :meth:`Model.arrays` were kept.

        Raises ``ValueError``, ``KeyError``, ``TypeError`` or ``RuntimeError`` where they do not fit.
        """


def family_of(kind: str) -> ModelFamily:
    """The family of a kind; raises :class:`UnknownFamilyError`, with the kinds that there are."""
    takes_of(kind)
    return cast(ModelFamily, _named(FAMILIES[kind].family)())


def beginning_of(kind: str, spec: ForecastSpec) -> Model | None:
    """What a first training of a kind goes on from, ``None``: from nothing; raises as :func:`family_of`."""
    takes_of(kind)
    begins = FAMILIES[kind].begins
    return cast("Model", _named(begins)(spec)) if begins else None


def takes_of(kind: str) -> str:
    """What models of a kind take; raises as :func:`family_of`.

    >>> takes_of("trees")
    'examples'
    """
    if kind not in FAMILIES:
        raise UnknownFamilyError(f"no family of models is called {kind!r}; there are {', '.join(FAMILIES)}")
    return FAMILIES[kind].takes


def _named(where: str) -> Any:
    module, name = where.split(":")
    return getattr(importlib.import_module(module), name)
