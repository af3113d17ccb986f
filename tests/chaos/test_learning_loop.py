"""What can go wrong in the learning loop does: the champion serves throughout, and each reason can be read.

Trainings whose worker, process or node is killed are in ``tests/ray/test_training_killed.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from models import artefact
from models.network.quantile import QuantileNetwork
from services.learn.promotion.registry import open_registry
from services.messages import ONLINE_VERSION
from tests.chaos.learning import Loop, MlflowServer, save_network
from tests.services.learn.synthetic import START_MS, small_settings

pytestmark = [pytest.mark.chaos, pytest.mark.long, pytest.mark.story, pytest.mark.timeout(1800)]

DAY_MS = 86_400_000
SERVE_IN_BETWEEN = {
    "test_a_bad_promotion_is_rolled_back_by_itself": ("v4",),
    "test_a_replica_that_dies_in_a_swap_comes_back_on_the_right_version": (ONLINE_VERSION,),
}
"""What is champion within a test, and neither before it nor after it."""


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loop]:
    """One system for all tests, which run in their order: each leaves a champion that serves."""
    folder = tmp_path_factory.mktemp("loop")
    mlflow = MlflowServer(folder / "mlflow")
    settings = small_settings(
        folder / "data", mlflow_uri=mlflow.uri, shadow_hours=12, watch_hours=24, gate_margin=0.0, timeout_s=900, rest=0,
        shadows=1,
    )  # fmt: skip
    # One forecast is published, and no stream moves it: however long the tests take, it is answered.
    lasting = settings.forecast.model_copy(update={"stale_after_s": 86_400})
    with Loop(settings.model_copy(update={"forecast": lasting}), mlflow) as loop:
        yield loop


@pytest.fixture(autouse=True)
def champion_serves(loop: Loop, request: pytest.FixtureRequest) -> Iterator[None]:
    """No test costs a request, but where the only Forecaster is killed: what needs it fails until it is back. The
    network answers all the time, and in no version but those that were champion.

    An answer that takes longer than a second says how busy the machine is, and is left out.
    """
    before, asked = loop.champion(), loop.answers()
    yield
    may_fail = {"POST"} if "replica_that_dies" in request.node.name else set()
    after = loop.champion()
    known = loop.answers()["POST"].versions[after]
    loop.until(lambda: loop.answers()["POST"].versions[after] > known, f"{after} answers rows")
    for name, now in loop.answers().items():
        failed = {kind for kind in now.failures - asked[name].failures if "Timeout" not in kind}
        assert name in may_fail or not failed, (name, failed)
    named = set(loop.answers()["POST"].versions - asked["POST"].versions)
    assert named <= {before, after, *SERVE_IN_BETWEEN.get(request.node.name, ())}, named


def other(loop: Loop, name: str, to_ms: int = START_MS + 8 * DAY_MS) -> Path:
    """The champion's network, spoiled: every correction points the other way, and is larger."""
    network = champion_network(loop)
    with_weights = dict(network.arrays())
    for part in ("head.weight", "head.bias"):
        with_weights[part] = -3 * with_weights[part]
    network.load_arrays(with_weights)
    return save_network(loop.settings.data_dir / name, network, loop.spec, to_ms)


def watched(loop: Loop, version: str) -> bool:
    """Whether a champion's watch has begun: rows from then on count."""
    watch = loop.model(version).get("watch")
    return bool(watch) and watch["from_ms"] >= 0


def champion_network(loop: Loop) -> QuantileNetwork:
    """A copy of what serves."""
    model = artefact.load(open_registry(loop.settings).folder(loop.champion())).model
    assert isinstance(model, QuantileNetwork)
    return model


def test_the_first_champion(loop: Loop) -> None:
    """A week of history gives a network, which serves; what follows needs it."""
    run = loop.retrain()
    assert run["result"] in ("promoted", "refused"), run
    if run["result"] == "refused":
        assert loop.cli("models", "promote", "v1").exit_code == 0
    loop.until(lambda: loop.champion() == "v1", "v1 serves")


def test_a_model_of_nan_is_refused(loop: Loop) -> None:
    """Weights that are not numbers never serve; the list names them."""
    network = champion_network(loop)
    weights = dict(network.arrays())
    weights["head.weight"] = np.full_like(weights["head.weight"], np.nan)
    network.load_arrays(weights)
    folder = save_network(loop.settings.data_dir / "nan", network, loop.spec, START_MS)
    assert loop.cli("models", "submit", str(folder)).exit_code == 1
    loop.await_stage("v2", "refused")
    loop.await_text("weights are not finite (head.weight)")


def test_a_model_of_another_schema_is_refused(loop: Loop) -> None:
    """A model that was made for other targets says so."""
    spec = replace(loop.spec, targets=("air_temp_c",))
    folder = save_network(loop.settings.data_dir / "schema", QuantileNetwork(spec), spec, START_MS)
    assert loop.cli("models", "submit", str(folder)).exit_code == 1
    loop.await_stage("v3", "refused")
    loop.await_text(f"was made for schema {spec.hash}, rows now have {loop.spec.hash}")


def test_a_model_that_is_secretly_worse_loses_in_shadow(loop: Loop) -> None:
    """Its manifest praises it; live rows do not. The process that compares is killed, too."""
    result = loop.cli("models", "submit", str(other(loop, "worse")))
    assert "v4 is compared with v1" in result.stdout, result.output
    loop.await_stage("v4", "shadow")
    loop.kill("ray::ComparisonActor")
    loop.rows(8.6)
    loop.await_stage("v4", "refused")
    loop.await_text("In shadow: The challenger does not beat")
    assert loop.model("v4")["judged_against"] == "v1"


def test_a_challenger_whose_files_are_damaged_is_refused(loop: Loop) -> None:
    """A file that was cut short while its model was in shadow is the reason that people read."""
    result = loop.cli("models", "submit", str(other(loop, "torn")))
    assert "v5 is compared with v1" in result.stdout, result.output
    loop.await_stage("v5", "shadow")
    weights = Path(loop.model("v5")["folder"], "weights.safetensors")
    weights.write_bytes(weights.read_bytes()[:-100])
    loop.rows(9.2)
    loop.await_stage("v5", "refused")
    loop.await_text("v5 cannot serve: the weights in")


def test_a_bad_promotion_is_rolled_back_by_itself(loop: Loop) -> None:
    """An operator promotes the worse model: rows of some hours send it away, without a human."""
    assert loop.cli("models", "promote", "v4").exit_code == 0
    loop.until(lambda: loop.champion() == "v4" and watched(loop, "v4"), "v4 serves, and is watched")
    loop.rows(9.5)
    loop.until(lambda: loop.champion() == "v1", "v1 serves again", 60)
    loop.await_stage("v4", "withdrawn")
    loop.await_text("Worse than v1 on live rows. Its live error is")
    loop.await_text("rollback v4 to v1", "timeline")


def test_a_replica_that_dies_in_a_swap_comes_back_on_the_right_version(loop: Loop) -> None:
    """SIGKILL for the Forecaster while the alias moves: the new one serves what the alias says."""
    loop.cli("models", "promote", ONLINE_VERSION)
    loop.until(lambda: loop.champion() == ONLINE_VERSION, "online serves")
    old = set(loop.replicas())
    assert loop.cli("models", "promote", "v1").exit_code == 0
    loop.kill("ray::ServeReplica:hothouse:Forecaster")
    loop.until(
        lambda: any(r["version"] == "v1" and not r["error"] for name, r in loop.replicas().items() if name not in old),
        "a new replica serves v1",
    )


def test_an_mlflow_that_is_away_stops_nothing(loop: Loop) -> None:
    """SIGKILL for the tracking server: v1 serves, the list says what is wrong, and a training runs once it is back."""
    loop.mlflow.kill()
    try:
        loop.until(lambda: loop.status()["registry_error"], "the retrainer knows")
        loop.await_text("MLflow does not answer")
        assert loop.champion() == "v1"
    finally:
        loop.mlflow.start()
    loop.until(lambda: not loop.status()["registry_error"], "MLflow answers again")
    run = loop.retrain()
    assert run["result"] in ("in shadow", "refused"), run


def test_a_retrainer_that_dies_goes_on_with_its_shadow(loop: Loop) -> None:
    """SIGKILL for the retrainer while a challenger is in shadow: the next one judges it."""
    result = loop.cli("models", "submit", str(other(loop, "last")))
    version = f"v{int(result.stdout.split(' ', 1)[0][1:])}"
    loop.kill("ray::RetrainerActor")
    loop.until(lambda: loop.status()["serving"] == "v1", "the retrainer is back")
    loop.rows(10.1)
    loop.await_stage(version, "refused")
    assert loop.champion() == "v1"


def test_a_drift_starts_a_training_that_live_rows_judge(loop: Loop) -> None:
    """The pipe says the opposite of what it said: a training on all rows starts by itself, and is judged in shadow.

    Who wins is not asked: most of what the challenger has learned from is older than the drift.
    """
    known = {row["version"] for row in loop.cli_json("models", "list", "--json")["models"]}
    loop.rows(12.5, changed_days=10.5)
    before = loop.champion()
    loop.drift("air_temp_c errors are 2.4 times as large")

    def challenger() -> str:
        rows = loop.cli_json("models", "list", "--json")["models"]
        return next((row["version"] for row in rows if row["version"] not in known), "")

    version = loop.until(challenger, "a challenger is there because of the drift", 600)
    loop.await_stage(version, "shadow")
    loop.rows(13.2, changed_days=10.5)
    loop.await_stage(version, "champion", "refused")
    for part in (
        "drift error drift at demo: air_temp_c errors are 2.4 times as large",
        "because of: error drift",
        f"Compared with {before} on live rows",
        "In shadow: The challenger",
    ):
        loop.await_text(part, "timeline")
