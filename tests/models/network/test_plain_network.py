"""A pre-trained network asked with NumPy alone says what it says in torch."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from edge.wire.vocabulary import VOCABULARY
from models.features.inputs import Inputs
from models.network.plain_network import PlainNetwork
from models.network.pretrained import PretrainedNetwork
from models.network.training import WindowSet
from models.spec import ForecastSpec
from tests.models.worlds import PLACE, SPEC, START_MS, rows


def inputs_of(spec: ForecastSpec = SPEC) -> Inputs:
    """Some dozen, with gaps."""
    windows = WindowSet(["a", "b"], START_MS, rows(3, missing=0.1), [PLACE] * 2, spec)
    return windows.inputs(windows.origins(spec.steps_per_day)[::9])


def wild(spec: ForecastSpec) -> PretrainedNetwork:
    """A network with random weights everywhere."""
    torch.manual_seed(0)
    network = PretrainedNetwork(spec)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(std=0.3)
    network.eval()
    return network


@pytest.mark.parametrize(
    "spec", [SPEC, replace(SPEC, targets=("rh_pct",)), replace(SPEC, horizons_min=(15, 45, 600, 2880))]
)
def test_it_is_the_network_in_torch(spec: ForecastSpec) -> None:
    """The same shift of the median to the fifth digit, with gaps and without plans, wherever limits do not cut."""
    network, inputs = wild(spec), inputs_of(spec)
    network.low[:], network.high[:] = -1e9, 1e9
    shift = PlainNetwork(spec, network.arrays()).shift(*inputs.arrays())
    wanted = (network.answer(inputs) - inputs.baseline)[..., 1]
    assert np.abs(wanted[np.isfinite(wanted)]).max() > 0.1
    np.testing.assert_allclose(shift, np.nan_to_num(wanted), rtol=1e-3, atol=1e-3)


def test_a_target_that_no_house_of_the_fleet_has_is_not_moved() -> None:
    """Nor is anything where the baseline is not known."""
    spec = replace(SPEC, targets=("air_temp_c", "out_temp_c"))
    inputs = inputs_of(spec)
    inputs.baseline[::2] = np.nan
    shift = PlainNetwork(spec, wild(spec).arrays()).shift(*inputs.arrays())
    assert (shift[..., 1] == 0).all()
    assert (shift[::2] == 0).all()
    assert (shift[1::2, :, 0] != 0).any()


def test_other_arrays_are_refused() -> None:
    """In a sentence, whether they are of another network or of other features."""
    arrays = wild(SPEC).arrays()
    with pytest.raises(ValueError, match=r"no arrays of a pre-trained network: 'look.weight' is missing"):
        PlainNetwork(SPEC, {name: array for name, array in arrays.items() if name != "look.weight"})
    arrays["encode.weight"] = arrays["encode.weight"][:, 1:]
    with pytest.raises(ValueError, match="are of other features"):
        PlainNetwork(SPEC, arrays)


def test_who_asks_the_shipped_one_needs_no_torch() -> None:
    """A process that loads the package's network and asks it has not imported torch."""
    code = (
        "import sys; from models.network.plain_network import PlainNetwork; from models.spec import ForecastSpec; "
        "from models.pretraining.shipped_arrays import pretrained; "
        f"PlainNetwork(ForecastSpec({tuple(VOCABULARY)!r}), pretrained().arrays); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
