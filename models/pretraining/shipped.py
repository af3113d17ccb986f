"""Step 7 of the way of a reading: the pre-trained network that comes with the package.

It was made by ``hothouse pretrain train``; its manifest says of what. It fits every schema.
"""

from __future__ import annotations

from pathlib import Path

from models import artefact
from models.families import family_of
from models.network.residual_network import ResidualNetwork
from models.spec import ForecastSpec

__all__ = ["SHIPPED", "network_for", "shipped"]

SHIPPED = Path(__file__).with_name("artefact")


def shipped(folder: Path = SHIPPED) -> artefact.Artefact:
    """The artefact as it was made. Raises an :class:`~models.artefact.ArtefactError` where it is torn."""
    return artefact.load(folder)


def network_for(spec: ForecastSpec, made: artefact.Artefact | None = None) -> ResidualNetwork:
    """The network of a pre-trained artefact, by default the shipped one, for the rows of ``spec``.

    >>> network_for(ForecastSpec(("air_temp_c", "rh_pct"), ("rh_pct",), (20, 90))).spec.horizons_min
    (20, 90)
    """
    made = made or shipped()
    model = family_of(made.kind).load(spec, made.model.options, made.model.arrays())
    if not isinstance(model, ResidualNetwork):
        raise TypeError(f"{made.kind} is no kind of network")
    return model
