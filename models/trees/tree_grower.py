"""Step 13 of the way of a reading: grow the trees that are an expert of the mixture.

:class:`TreeGrower` keeps a bounded history of regressors and truths. It fits one histogram gradient boosting a horizon
and target (LightGBM, Ke and others 2017) to the climatology's residual, with absolute error as the loss, all zones
together. Equal examples give equal trees.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from models.durations import HOUR_MS
from models.online.basis import Example
from models.spec import ForecastSpec
from models.trees.forest import LEAVES, Forest

if TYPE_CHECKING:
    from lightgbm import Booster

__all__ = ["GrowerError", "TreeGrower", "least_days", "load_library"]

F32 = npt.NDArray[np.float32]

HISTORY_DAYS = 28
MIN_EXAMPLES = 500
LONGEST_MS = 3 * HOUR_MS
"""Beyond this horizon trees add nothing to the ridges."""

LEAST_DAYS = 3
"""Before this the climatology is still learning, and its residual is not what it will be."""

OPTIONS: dict[str, Any] = {
    "objective": "regression_l1", "num_iterations": 60, "learning_rate": 0.13, "num_leaves": LEAVES,
    "min_data_in_leaf": 60, "min_data_in_bin": 1, "lambda_l2": 1.0, "feature_fraction_bynode": 0.3, "seed": 7,
    # Sums in one order, whatever the machine. Several threads that wait for a core in a spin cost more than they gain
    # on a shared one.
    "deterministic": True, "force_row_wise": True, "num_threads": 1, "verbosity": -1,
}  # fmt: skip
"""Parameters of LightGBM, by their documented names."""


def least_days(spec: ForecastSpec, zones: int) -> float:
    """So many days of rows without gaps a tree needs, where there are that many zones.

    >>> spec = ForecastSpec(channels=())
    >>> [round(least_days(spec, zones), 1) for zones in (1, 2, 3, 100)]
    [8.2, 5.6, 4.7, 3.1]
    """
    examples_a_day = max(zones, 1) * spec.steps_per_day / spec.example_steps
    return LEAST_DAYS + MIN_EXAMPLES / examples_a_day + spec.horizon_steps[0] / spec.steps_per_day


class GrowerError(Exception):
    """Trees cannot be grown on this system; the message says why, ``hint`` what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class TreeGrower:
    """Examples of the last four weeks, and the forest that fits them."""

    def __init__(self, spec: ForecastSpec) -> None:
        self._spec = spec
        self._every = spec.example_steps
        self._first: int | None = None
        self._examples: deque[Example] = deque()
        self._truths: deque[tuple[int, npt.NDArray[np.int64], F32]] = deque()

    def add(self, example: Example) -> None:
        """Take the newest rows' example; most are passed over."""
        if self._first is None:
            self._first = example.step
        oldest = example.step - HISTORY_DAYS * self._spec.steps_per_day
        self._truths.append((example.step, example.zones, example.y))
        while self._truths[0][0] < oldest:
            self._truths.popleft()
        if example.step % self._every == 0:
            self._examples.append(example)
        while self._examples and self._examples[0].step < oldest:
            self._examples.popleft()

    def state_dict(self) -> dict[str, npt.NDArray[Any]]:
        """Everything that later trees depend on, as arrays."""
        state = {"first": np.array([-1 if self._first is None else self._first], np.int64)}
        examples = [(e.step, e.zones, e.common, e.ahead, e.base, e.y) for e in self._examples]
        for name, held in (("example", examples), ("truth", list(self._truths))):
            if held:
                step, *columns = zip(*held, strict=True)
                state[f"{name}_step"] = np.array(step, np.int64)
                state[f"{name}_count"] = np.array([len(zones) for zones in columns[0]], np.int64)
                state |= {f"{name}_{k}": np.concatenate(column) for k, column in enumerate(columns)}
        return state

    def load_state_dict(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Take over what :meth:`state_dict` gave."""
        first = int(state["first"][0])
        self._first = None if first < 0 else first
        examples, truths = _held(state, "example", 5), _held(state, "truth", 2)
        self._examples = deque(Example(step, *columns) for step, *columns in examples)
        self._truths = deque((step, zones, y) for step, zones, y in truths)

    def grow(self, unit: npt.NDArray[np.float64]) -> Forest | None:
        """Fit to all examples whose truth is known; ``None`` if there are too few. ``unit [H, M]``."""
        horizons, targets = len(self._spec.horizons_min), len(self._spec.targets)
        if self._first is None:
            return None
        start = self._first + LEAST_DAYS * self._spec.steps_per_day
        truths = {step: (zones, y) for step, zones, y in self._truths}
        cells: list[list[Any]] = []
        for h, ahead in enumerate(self._spec.horizon_steps):
            x, residual = [], []
            for origin in self._examples:
                after = truths.get(origin.step + ahead)
                if origin.step < start or after is None:
                    continue
                zones, y = after
                both, mine, theirs = np.intersect1d(origin.zones, zones, return_indices=True)
                if len(both):
                    x.append(np.concatenate([origin.common[mine], origin.ahead[mine, h]], axis=1))
                    residual.append((y[theirs] - origin.base[mine, h]) / unit[h])
            if not x or ahead * self._spec.step_ms > LONGEST_MS:
                cells.append([None] * targets)
                continue
            regressors, wanted = np.concatenate(x), np.concatenate(residual)
            cells.append([_fit(regressors, wanted[:, m]) for m in range(targets)])
        return _forest(horizons, targets, cells) if any(cell is not None for row in cells for cell in row) else None


def _held(state: Mapping[str, npt.NDArray[Any]], name: str, columns: int) -> Iterator[tuple[Any, ...]]:
    """Each step with its columns, as :meth:`TreeGrower.state_dict` put them together."""
    if f"{name}_step" in state:
        cuts = np.cumsum(state[f"{name}_count"])[:-1]
        parts = [np.split(state[f"{name}_{k}"], cuts) for k in range(columns)]
        yield from zip(state[f"{name}_step"].tolist(), *parts, strict=True)


def _fit(x: F32, residual: F32) -> Booster | None:
    known = np.isfinite(residual)
    if known.sum() < MIN_EXAMPLES:
        return None
    lightgbm = load_library()
    booster: Booster = lightgbm.train(OPTIONS, lightgbm.Dataset(x[known], residual[known]))
    return booster


def load_library() -> ModuleType:
    """LightGBM. It loads the system's OpenMP library; raises :class:`GrowerError` if either is missing."""
    try:
        import lightgbm
    except ModuleNotFoundError as error:
        raise GrowerError(
            "trees cannot be grown without LightGBM", "pip install '.[library]' in Hothouse's folder"
        ) from error
    except OSError:
        with suppress(ModuleNotFoundError):
            import torch  # noqa: F401  # brings an OpenMP library of its own, which is found once it is loaded

        try:
            import lightgbm
        except OSError as error:
            hint = "Install OpenMP: `apt-get install libgomp1` on Debian and Ubuntu, `brew install libomp` on macOS."
            raise GrowerError(f"trees cannot be grown, because LightGBM cannot be loaded: {error}", hint) from error
    return lightgbm


def _forest(horizons: int, targets: int, cells: list[list[Any]]) -> Forest:
    """The fitted trees as plain arrays; a cell without a fit answers 0, as the climatology does."""
    fits = {(h, m): fitted for h, row in enumerate(cells) for m, fitted in enumerate(row) if fitted is not None}
    shape = (len(fits), int(OPTIONS["num_iterations"]))  # LightGBM ends early where nothing is left; the rest say 0
    arrays: dict[str, npt.NDArray[Any]] = {
        "shape": np.array([horizons, targets], dtype=np.int64),
        "cell": np.array(list(fits), dtype=np.int64),
        "column": np.zeros((*shape, LEAVES - 1), dtype=np.int32),
        "threshold": np.full((*shape, LEAVES - 1), np.inf, dtype=np.float32),
        "taken": np.full((*shape, LEAVES - 1), _ALL, dtype=np.uint16),
        "value": np.zeros((*shape, LEAVES), dtype=np.float32),
        "start": np.zeros(len(fits), dtype=np.float32),  # LightGBM adds it to the first tree
    }
    for c, booster in enumerate(fits.values()):
        for t, tree in enumerate(booster.dump_model()["tree_info"]):
            of_tree = {name: arrays[name][c, t] for name in _OF_A_TREE}
            _flatten(tree["tree_structure"], booster.num_feature(), of_tree)
    return Forest(horizons, targets, arrays)


_ALL = (1 << LEAVES) - 1
_OF_A_TREE = ("column", "threshold", "taken", "value")


def _flatten(root: dict[str, Any], width: int, tree: dict[str, npt.NDArray[Any]]) -> None:
    """Fill in a tree's tests and leaves, from left to right, as :class:`Forest` wants them."""
    tests, leaves = 0, 0

    def visit(node: dict[str, Any]) -> int:
        """Number the leaves below a node; returns them as bits."""
        nonlocal tests, leaves
        if "leaf_value" in node:
            tree["value"][leaves] = node["leaf_value"]
            leaves += 1
            return 1 << (leaves - 1)
        mine, tests = tests, tests + 1
        tree["column"][mine] = node["split_feature"] + (0 if _missing_goes_left(node) else width)
        # Regressors are single precision: the largest such number that is no larger than the threshold cuts equally.
        # One that is infinite, or nearly, parts what is missing from all else.
        highest = min(float(node["threshold"]), float(np.finfo(np.float32).max))
        cut = np.float32(highest)
        tree["threshold"][mine] = cut if float(cut) <= highest else np.nextafter(cut, np.float32(-np.inf))
        left = visit(node["left_child"])
        tree["taken"][mine] = _ALL & ~left
        return left | visit(node["right_child"])

    visit(root)


def _missing_goes_left(node: dict[str, Any]) -> bool:
    """Where a test sends a missing value.

    LightGBM learns that where it saw some. Where it saw none it would take a missing value for 0, which is no
    temperature to guess: it goes with most examples instead.
    """
    if node["missing_type"] == "NaN":
        return bool(node["default_left"])
    left, right = (
        child.get("leaf_count", child.get("internal_count")) for child in (node["left_child"], node["right_child"])
    )
    return bool(left > right)
