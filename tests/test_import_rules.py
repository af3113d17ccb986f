"""Who may import whom: each rule holds, and each breaks where it is broken on purpose."""

from __future__ import annotations

import shutil
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import grimp
import pytest
from grimp import ImportGraph
from importlinter import Contract
from importlinter.application.use_cases import read_user_options
from importlinter.configuration import configure
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.layers import LayersContract

from tests.import_rules import MOST_MODULES, AllowList, circles, clock_reads, crowded, environment_reads

ROOT = Path(__file__).parent.parent
KINDS: dict[str, type[Contract]] = {"allow_list": AllowList, "layers": LayersContract, "forbidden": ForbiddenContract}
PACKAGES = ("edge", "models", "services")
READS_ENVIRONMENT = {
    "edge/config/settings.py": "the one place that reads settings: the gateway's, and services.config's through it",
    "services/runtime/ray_runtime.py": "sets the switches that Ray reads once, and puts back what was there",
    "services/learn/tracking/mlflow_import.py": "switches MLflow's telemetry off where the user did not say otherwise",
    "services/learn/training/tuning.py": "switches off files of Ray Tune that nobody reads",
}
"""Who touches the environment, and why."""


@pytest.fixture(scope="module")
def options() -> Any:
    """What ``pyproject.toml`` says."""
    configure()
    return read_user_options(str(ROOT / "pyproject.toml"))


@pytest.fixture(scope="module")
def graph(options: Any) -> ImportGraph:
    """All imports of today."""
    roots = options.session_options["root_packages"]
    return grimp.build_graph(*roots, include_external_packages=True, cache_dir=None)


def broken(options: Any, graph: ImportGraph) -> list[str]:
    """The rules that a graph breaks."""
    contracts = [KINDS[said["type"]](said["name"], options.session_options, said) for said in options.contracts_options]
    return [contract.name for contract in contracts if not contract.check(deepcopy(graph), verbose=False).kept]


def test_every_rule_holds_today(options: Any, graph: ImportGraph) -> None:
    """`make check` says the same; here it is what the other tests start from."""
    assert broken(options, graph) == []


CASES = [
    ("edge.mqtt.subscription", "models.trees.forest", "edge: "),
    ("edge.mqtt.subscription", "models.made_tomorrow", "edge: "),
    ("edge.simulator.simulated_site", "services.config", "edge: "),
    ("edge.gateway.loop", "ray", "edge: "),
    ("edge.recording_of_tomorrow", "pandas", "edge: "),
    ("edge.log", "tests.patience", "edge: "),
    ("edge.timing", "time", "edge.timing: "),
    ("models.psychrometrics", "torch", "models.psychrometrics: "),
    ("models", "models.spec", "models.psychrometrics: "),
    ("models.spec", "ray", "models: "),
    ("models.made_tomorrow", "ray", "models: "),
    ("models.evaluation.gate", "socket", "models: "),
    ("models.evaluation.gate", "time", "models: "),
    ("models.evaluation.gate", "os", "models: "),
    ("models.evaluation.gate", "edge.wire.reading", "models: "),
    ("models.evaluation.gate", "services.messages", "models: "),
    ("models.evaluation.gate", "benchmarks.drift", "models: "),
    ("models.evaluation.gate", "pandas", "models: "),
    ("models.evaluation.gate", "matplotlib", "models: "),
    ("models.frames.frame_rows", "torch", "models.frames: "),
    ("models.frames.frame_samples", "edge.wire.vocabulary", "models.frames: "),
    ("models.frames.frame_samples", "services.backtest.frames", "models.frames: "),
    ("models.frames.frame_rows", "time", "models.frames: "),
    ("services.ingest.shard", "edge.recordings.recording", "services: "),
    ("services.ingest.shard", "edge.log.sqlite", "services: "),
    ("services.serve.view", "edge.gateway.loop", "services: "),
    ("services.serve.view", "edge.config", "services: "),
    ("services.runtime.ray_runtime", "tests.patience", "services: "),
    ("services.made_tomorrow.part", "edge.mqtt.connection", "services: "),
    ("services.ingest.shard", "opentelemetry", "OpenTelemetry: "),
    ("edge.gateway.loop", "opentelemetry", "OpenTelemetry: "),
    ("services.backtest.recording_rows", "edge.simulator.publisher", "backtest: "),
    ("services.backtest.recording_rows", "tests.patience", "backtest: "),
    ("services.cli.setup.commands", "tests.patience", "app, cli and demo: "),
    ("services.demo.run", "benchmarks.drift", "app, cli and demo: "),
    ("services.ingest.shard", "services.serve.view", "the layers of services"),
    ("services.serve.view", "services.learn.loop.triggers", "the layers of services"),
    ("services.store.history", "services.ingest.shard", "the layers of services"),
    ("services.observe.metrics", "services.errors", "the layers of services"),
    ("services.made_tomorrow", "services.errors", "the layers of services"),
    ("services.learn.promotion.registry", "services.learn.loop.retrainer", "the layers inside learn"),
    ("services.learn.tracking.listing", "services.learn.promotion.registry", "the layers inside learn"),
    ("services.learn.training.dataset", "services.learn.promotion.shadow", "the layers inside learn"),
]


@pytest.mark.parametrize(("importer", "imported", "rule"), CASES, ids=lambda value: value.strip(": "))
def test_a_forbidden_import_breaks_its_rule(
    options: Any, graph: ImportGraph, importer: str, imported: str, rule: str
) -> None:
    """One import too many, also from or to a module that is made only tomorrow, is refused by the rule that says so."""
    names = broken(options, with_import(graph, importer, imported))
    assert [name for name in names if name.startswith(rule)], names


def test_each_rule_is_broken_on_purpose(options: Any) -> None:
    """A new rule needs its own case above."""
    names = [said["name"] for said in options.contracts_options]
    assert [name for name in names if not any(name.startswith(rule) for _, _, rule in CASES)] == []


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("models.made_tomorrow", "models.spec"),
        ("models.made_tomorrow.inner", "torch"),
        ("models.made_tomorrow", "itertools"),
        ("edge.made_tomorrow", "models.psychrometrics"),
        ("edge.made_tomorrow", "socket"),
        ("services.learn.training.made_tomorrow", "ray"),
        ("services.cli.made_tomorrow", "edge.gateway.uplink.forward"),
        ("tests.made_tomorrow", "ray"),
    ],
)
def test_what_is_allowed_needs_no_new_line(options: Any, graph: ImportGraph, importer: str, imported: str) -> None:
    """A new module may at once import what its neighbours may."""
    assert broken(options, with_import(graph, importer, imported)) == []


def with_import(graph: ImportGraph, importer: str, imported: str) -> ImportGraph:
    """The same graph and one import more; what is not there yet is made."""
    changed = deepcopy(graph)
    for name in (importer, imported):
        if name not in changed.modules:
            ours = name.partition(".")[0] in (*PACKAGES, "tests", "benchmarks")
            changed.add_module(name, is_squashed=not ours)
            if ours and name.rpartition(".")[0] not in changed.modules:
                changed.add_module(name.rpartition(".")[0])
    changed.add_import(importer=importer, imported=imported)
    return changed


def test_no_modules_import_each_other_in_a_circle(graph: ImportGraph) -> None:
    """Neither at once nor late, inside a function: who changes one of two modules need not know the other one."""
    assert circles(graph) == []


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("edge.simulator.publisher.loop", "edge.simulator.publisher.command"),
        ("services.learn.training.job", "services.learn.training.challenger"),
        ("models.families", "models.trees.family"),
        ("models.spec", "models.online.online_forecaster"),
    ],
)
def test_a_circle_is_seen(graph: ImportGraph, importer: str, imported: str) -> None:
    """One import back is enough, also where it goes through others."""
    assert {importer, imported} <= set(circles(with_import(graph, importer, imported)))


def test_no_folder_is_crowded() -> None:
    """Each holds what can be seen at a glance."""
    assert crowded(sources(*PACKAGES)) == {}


def test_a_crowded_folder_is_seen() -> None:
    """One module too many is named with its folder, and those below it do not count."""
    modules = [f"edge/wire/part_{number}.py" for number in range(MOST_MODULES)]
    assert crowded([*modules, "edge/wire/more/__init__.py"]) == {}
    assert crowded([*modules, "edge/wire/one_more.py"]) == {"edge/wire": MOST_MODULES + 1}


def test_a_list_does_not_rot(options: Any, graph: ImportGraph) -> None:
    """A library that nobody imports, an exception that is not needed, a module that is gone: each breaks the rule."""
    said = next(said for said in options.contracts_options if said["name"].startswith("models: "))
    more = {
        **said,
        "modules": [*said["modules"], "models_of_old"],
        "may_import": [*said["may_import"], "river"],
        "exceptions": [*said["exceptions"], "models.evaluation.gate -> os"],
    }
    wrong = AllowList(said["name"], options.session_options, more).check(graph, verbose=False).metadata["wrong"]
    assert wrong == [
        "river is allowed, but no longer imported: take it from the list",
        "models.evaluation.gate -> os is an exception, but no longer imported: take it from the list",
        "there is no module models_of_old",
    ]


def test_lint_imports_names_the_rule_and_the_line(tmp_path: Path) -> None:
    """The command that `make check` runs fails on files with such imports, and says which, where and by which rule."""
    for package in (*PACKAGES, "benchmarks", "tests"):
        shutil.copytree(
            ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("data", "page", "__pycache__")
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for path, line in (
        ("models/spec.py", "import ray"),
        ("edge/mqtt/subscription.py", "from models.trees.forest import Forest"),
    ):
        source = (tmp_path / path).read_text()
        (tmp_path / path).write_text(f"{source}\n\ndef late() -> None:\n    {line}\n")
    code = "import sys; from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run(
        [sys.executable, "-c", code, "--no-logo", "--no-cache"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    line = len((ROOT / "models/spec.py").read_text().splitlines()) + 4
    assert f"models.spec may not import ray (line {line})" in done.stdout
    assert "edge.mqtt.subscription may not import models.trees.forest" in done.stdout
    assert done.stdout.count("BROKEN") == 2


def sources(*packages: str) -> dict[str, str]:
    """Module -> its source."""
    found = [path for package in packages for path in (ROOT / package).rglob("*.py")]
    return {str(path.relative_to(ROOT)): path.read_text() for path in found}


def test_only_the_configuration_reads_the_environment() -> None:
    """Settings come from one place; who touches the environment for another reason stands in this file with it."""
    assert {name for name, source in sources(*PACKAGES).items() if environment_reads(source)} == set(READS_ENVIRONMENT)


def test_models_read_no_clock() -> None:
    """Time is an argument: what is computed of the same rows is the same tomorrow."""
    assert {name for name, source in sources("models").items() if clock_reads(source)} == set()


@pytest.mark.parametrize(
    "line",
    [
        "import os\nhome = os.environ['HOME']",
        "import os\n\ndef late():\n    return os.getenv('HOME')",
        "from os import path, environ",
        "from os import getenv as ask",
        "import pydantic_settings",
        "from pydantic_settings import BaseSettings",
        "url = typer.Option(envvar='HOTHOUSE_URL')",
    ],
)
def test_a_look_into_the_environment_is_seen(line: str) -> None:
    """Each way to it is found, wherever it stands in a module."""
    assert environment_reads(f'"""A module."""\n\n{line}\n') != []


@pytest.mark.parametrize(
    "line", ["import os\nos.replace(a, b)", "from os import path", "environ = {}", "x.environ = 1"]
)
def test_what_is_not_the_environment_is_let_be(line: str) -> None:
    """Files, and names that only look alike, are no matter of this rule."""
    assert environment_reads(line) == []


@pytest.mark.parametrize(
    ("line", "found"),
    [("datetime.now(UTC)", True), ("datetime.datetime.utcnow()", True), ("date.today()", True), ("row.now", False)],
)
def test_a_look_at_the_clock_is_seen(line: str, found: bool) -> None:
    """``datetime`` may be imported for its arithmetic, and not be asked for the present."""
    assert bool(clock_reads(f"from datetime import date, datetime\n\nx = {line}\n")) == found
