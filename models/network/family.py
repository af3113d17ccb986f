"""Step 13 of the way of a reading: the family of quantile networks, which take windows of rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from models.families import Model
from models.network.quantile import QuantileNetwork
from models.network.residual_network import check_finite
from models.network.training import TrainingConfig, fit
from models.spec import ForecastSpec

if TYPE_CHECKING:
    from models.families import I64, Arrays
    from models.features.windows import WindowSet

__all__ = ["NetworkFamily"]

_OPTIONS = ("hidden", "mixes", "dropout", "silence")


class NetworkFamily:
    """See :class:`models.families.ModelFamily`. The running system fits it with Ray Train, by the same loop."""

    refits = False

    def make(self, spec: ForecastSpec, options: Mapping[str, Any]) -> QuantileNetwork:
        """A new network; ``options`` are its sizes, those that are left out have defaults."""
        network = QuantileNetwork(spec, **{name: options[name] for name in _OPTIONS if name in options})
        network.eval()
        return network

    def fit(
        self, cases: WindowSet, origins: I64, settings: Mapping[str, Any], *, cut_ms: int, start: Model | None = None
    ) -> Model:
        """Train for ``settings["epochs"]``, from the weights of ``start`` where it is given."""
        known = {field.name for field in fields(TrainingConfig)}
        config = TrainingConfig(**{name: value for name, value in settings.items() if name in known})
        state = None if start is None else start.arrays()
        fitted = fit(cases, origins, config, cut_ms=cut_ms, initial_state=state)
        return self.load(cases.spec, settings, fitted.state)

    def load(self, spec: ForecastSpec, options: Mapping[str, Any], arrays: Arrays) -> QuantileNetwork:
        """The network with these weights; raises ``ValueError`` where one is not finite."""
        check_finite(arrays)
        network = self.make(spec, options)
        network.load_arrays(arrays)
        return network
