"""A training that was stopped goes on as if it had not been."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from models.network.progress import PROGRESS_FILE, ProgressError, TrainingProgress
from models.network.training import FitResult, TrainingConfig, WindowSet, fit, split
from tests.models.worlds import window_set

CONFIG = TrainingConfig(epochs=4, batch_size=64, hidden=16, max_windows=10_000)


class _KilledError(Exception):
    """Stands for a process that ends."""


@pytest.fixture(scope="module")
def windows() -> WindowSet:
    """Three days of two zones."""
    return window_set(3)


def killed_after(windows: WindowSet, config: TrainingConfig, epoch: int, folder: Path) -> None:
    """Train until the end of an epoch, keeping the progress of each."""

    def keep(progress: TrainingProgress) -> None:
        progress.save(folder)
        if progress.history[-1].number == epoch:
            raise _KilledError

    with pytest.raises(_KilledError):
        fit(windows, split(windows, 0.2).train, config, on_epoch=keep)


def same(one: FitResult, two: FitResult) -> bool:
    """Whether two trainings gave the same weights and losses, bit for bit."""
    weights = all(one.state[name].tobytes() == two.state[name].tobytes() for name in one.state)
    return weights and one.history == two.history


@pytest.mark.parametrize("max_windows", [10_000, 100], ids=["all windows an epoch", "other windows each epoch"])
@pytest.mark.parametrize("epoch", [1, 3, 4])
def test_a_training_that_was_stopped_ends_in_the_same_weights(
    windows: WindowSet, tmp_path: Path, epoch: int, max_windows: int
) -> None:
    """Stopped after any epoch, the last too, and gone on from the file: the weights and losses of one that was not."""
    config = replace(CONFIG, max_windows=max_windows)
    origins = split(windows, 0.2).train
    whole = fit(windows, origins, config)
    killed_after(windows, config, epoch, tmp_path)
    seen: list[int] = []
    rest = fit(
        windows, origins, config, progress=TrainingProgress.load(tmp_path),
        on_epoch=lambda progress: seen.append(progress.history[-1].number),
    )  # fmt: skip
    assert same(whole, rest)
    assert seen == list(range(epoch + 1, config.epochs + 1))
    assert rest.resumed
    assert not whole.resumed


def test_what_is_kept_decides(windows: WindowSet, tmp_path: Path) -> None:
    """Without its moments, or with another state of the random numbers, a training ends in other weights."""
    origins = split(windows, 0.2).train
    whole = fit(windows, origins, CONFIG)
    killed_after(windows, CONFIG, 2, tmp_path)
    progress = TrainingProgress.load(tmp_path)
    zero = {name: np.zeros_like(array) for name, array in progress.moments.items() if not name.endswith("/step")}
    fresh = np.random.default_rng(1).bit_generator.state
    for changed in (replace(progress, moments={**progress.moments, **zero}), replace(progress, numpy_random=fresh)):
        assert not same(whole, fit(windows, origins, CONFIG, progress=changed))


def test_a_torn_file_is_named(windows: WindowSet, tmp_path: Path) -> None:
    """A file that is missing, cut or of another kind is an error of its own that names it."""
    with pytest.raises(ProgressError, match=PROGRESS_FILE):
        TrainingProgress.load(tmp_path)
    killed_after(windows, CONFIG, 1, tmp_path)
    path = tmp_path / PROGRESS_FILE
    content = path.read_bytes()
    for torn in (content[:-7], content[:5], b""):
        path.write_bytes(torn)
        with pytest.raises(ProgressError, match=PROGRESS_FILE):
            TrainingProgress.load(tmp_path)


def test_a_crash_while_it_is_kept_leaves_the_one_before(
    windows: WindowSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the rename the file is the one before; what was half written is in nobody's way."""
    killed_after(windows, CONFIG, 1, tmp_path)
    before = TrainingProgress.load(tmp_path)

    def crash(self: Path, target: Path) -> Path:
        raise _KilledError

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", crash)
        with pytest.raises(_KilledError):
            replace(before, history=()).save(tmp_path)
    assert TrainingProgress.load(tmp_path).history == before.history
    before.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [PROGRESS_FILE]


def test_what_cannot_be_written_is_an_error_of_the_disk(tmp_path: Path) -> None:
    """As any other file's: whoever keeps it need not know what writes it."""
    nothing = TrainingProgress({}, (), {}, {}, np.zeros(4, np.uint8))
    with pytest.raises(OSError, match="No such file"):
        nothing.save(tmp_path / "away")
