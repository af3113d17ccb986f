"""Step 13 of the way of a reading: the family of trees, which correct the climatology in the shards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from models.families import Model, TooLittleError
from models.spec import ForecastSpec
from models.trees.example_set import ExampleSet, Regressors, thrice
from models.trees.forest import Forest

if TYPE_CHECKING:
    from models.families import F32, I64, Arrays
    from models.features.windows import WindowSet

__all__ = ["Trees", "TreesFamily"]


@dataclass(frozen=True, slots=True)
class Trees:
    """A forest that is asked for a forecast, as :class:`~models.online.online_forecaster.OnlineForecaster` asks it."""

    spec: ForecastSpec
    forest: Forest
    regressors: int  # 0: it has learned nothing, and takes any

    @property
    def options(self) -> dict[str, Any]:
        """How many regressors it takes."""
        return {"regressors": self.regressors}

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The trees."""
        return self.forest.state_dict()

    def answer(self, inputs: Regressors) -> F32:
        """The climatology's median and what the trees add to it, as each quantile; the climatology's without trees."""
        added = np.nan_to_num(self.forest.predict(inputs.common, inputs.ahead))
        return thrice(np.asarray(inputs.base + added * inputs.unit, np.float32))


class TreesFamily:
    """See :class:`models.families.ModelFamily`. Equal examples give equal trees; they always begin anew."""

    refits = True

    def make(self, spec: ForecastSpec, options: Mapping[str, Any]) -> Trees:
        """A forest without a tree."""
        return Trees(spec, Forest(len(spec.horizons_min), len(spec.targets)), int(options.get("regressors", 0)))

    def fit(
        self, cases: WindowSet, origins: I64, settings: Mapping[str, Any], *, cut_ms: int, start: Model | None = None
    ) -> Trees:
        """Grow trees on the four weeks of examples up to ``cut_ms``: all of them, whatever ``origins`` says."""
        from models.trees.tree_grower import TreeGrower

        if not isinstance(cases, ExampleSet):
            raise TypeError("trees are grown on examples")
        grower = TreeGrower(cases.spec)
        for example in cases.examples:
            if example.step * cases.spec.step_ms <= cut_ms:
                grower.add(example)
        forest = grower.grow(cases.unit(cut_ms))
        if forest is None:
            raise TooLittleError("the history is too short to grow trees on")
        width = next(one.common.shape[1] + one.ahead.shape[2] for one in cases.examples if len(one.common))
        return Trees(cases.spec, forest, width)

    def load(self, spec: ForecastSpec, options: Mapping[str, Any], arrays: Arrays) -> Trees:
        """The trees in these arrays; raises ``ValueError`` where they do not fit."""
        regressors = int(options["regressors"])
        forest = Forest(len(spec.horizons_min), len(spec.targets), arrays)
        if arrays and not 0 <= arrays["column"].min() <= arrays["column"].max() < 2 * regressors:
            raise ValueError(f"its trees ask for more than {regressors} regressors")
        if not all(np.isfinite(arrays[name]).all() for name in ("value", "start") if arrays):
            raise ValueError("its leaves are not finite")
        return Trees(spec, forest, regressors)
