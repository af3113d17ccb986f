"""The stages of `.ci/run`: their order, their time, and what runs once more."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.ci.record import Record
from tests.ci.run import Run, Stage, read_stages

ROOT = Path(__file__).parents[2]
RACE = Record(1, races=("tests/t.py::test_it",), again=("true",), parts=1)


class Ci:
    """A run of CI in an empty folder; its clock shows what stands in a file there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "now").write_text("0")
        self.run = Run(lambda: float((folder / "now").read_text()))

    def stages(self, *commands: str) -> int:
        """Run stages that are called after the letters; the exit code."""
        return self.run.all([Stage(name, command) for name, command in zip("abcdef", commands, strict=False)])

    def telling(self, *told: Record, code: int = 1) -> str:
        """A command that leaves records."""
        lines = [f"exit {code}"]
        for number, record in enumerate(told):
            text = json.dumps(asdict(record))
            (self.folder / f"{number}-{hash(text)}").write_text(text)
            lines.insert(0, f'cp {number}-{hash(text)} "$HOTHOUSE_RERUN/{number}.json"')
        return "\n".join(lines)

    def again(self, record: Record, command: str) -> Record:
        """The record, with a shell command that runs its failures again."""
        return replace(record, again=("bash", "-c", command))


@pytest.fixture
def ci(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ci:
    """Minute 0 of a run."""
    monkeypatch.chdir(tmp_path)
    return Ci(tmp_path)


def test_stages_run_in_order_and_print_their_time(ci: Ci, capfd: pytest.CaptureFixture[str]) -> None:
    """Each stage prints how long it took; in the end stands that nothing ran again and nothing was left out."""
    assert ci.stages("echo 75 > now", "echo 600 > now") == 0
    printed = capfd.readouterr().out.splitlines()
    assert [line for line in printed if line.startswith(("[ci] a:", "[ci] b:"))] == [
        "[ci] a: 1 min 15 s", "[ci] b: 8 min 45 s",
    ]  # fmt: skip
    assert printed[-3:] == [
        "RERUN (failed, and passed alone)", "  nothing",
        "[ci] all that ran is green; 10 min 0 s; left out for want of time: nothing",
    ]  # fmt: skip


def test_stages_behind_a_red_one_run_too(ci: Ci, capfd: pytest.CaptureFixture[str]) -> None:
    """A command that fails is red, also in the middle of a line; one run tells all that is wrong."""
    assert ci.stages("true", "false; true", "touch reached", "exit 3") == 1
    assert Path("reached").exists()
    assert "[ci] b failed: exit code 1; d failed: exit code 3; 0 min 0 s" in capfd.readouterr().out


FLAKY = """
import pathlib, pytest

@pytest.mark.parametrize("name", ["[a b]"])
@pytest.mark.ray
def test_flaky(name):
    seen = pathlib.Path("seen")
    if not seen.exists():
        seen.touch()
        pytest.fail("held up")

def test_plain(): pass
"""


def test_a_race_runs_once_more_and_is_listed(
    ci: Ci, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real test that fails, then passes alone: the first failure stays in the output, and the next stage follows."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    Path("pytest.ini").write_text("[pytest]\nmarkers = ray: starts an engine\n")
    Path("conftest.py").write_text("from tests.conftest import pytest_configure\n")
    Path("test_it.py").write_text(FLAKY)
    assert ci.stages(f"{sys.executable} -m pytest -p no:cacheprovider", "touch reached") == 0
    printed = capfd.readouterr().out
    assert Path("reached").exists()
    assert "Failed: held up" in printed
    assert "= 1 failed, 1 passed in" in printed
    assert "= 1 passed in" in printed
    assert printed.splitlines()[-3:-1] == [
        "RERUN (failed, and passed alone)", "  a: test_it.py::test_flaky[[a b]]",
    ]  # fmt: skip


def test_what_fails_twice_is_red(ci: Ci) -> None:
    """It runs once more, not twice more."""
    told = ci.again(RACE, "echo once >> runs; exit 1")
    assert ci.stages(ci.telling(told)) == 1
    assert Path("runs").read_text() == "once\n"
    assert ci.run.rerun == []


@pytest.mark.parametrize("then", [(), (Record(0, skipped=("tests/t.py::test_it",)),)], ids=["silent", "skipped"])
def test_what_did_not_run_again_has_not_passed(ci: Ci, then: tuple[Record, ...]) -> None:
    """A second run that skips the test, or says nothing of it, is none."""
    told = ci.again(RACE, ci.telling(*then, code=0))
    assert ci.stages(ci.telling(told)) == 1
    assert "did not run all" in ci.run.failed[0]


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ([replace(RACE, faults=("tests/u.py::test_plain",))], "no race: tests/u.py::test_plain"),
        ([replace(RACE, exit_code=2)], "exit code 2"),
        ([replace(RACE, exit_code=3)], "exit code 3"),
        ([Record(0)], "exit code 0, and 0 failed tests"),
        ([Record(1)], "exit code 1, and 0 failed tests"),
        ([replace(RACE, parts=6)], "6 failures are more than the 5"),
        ([RACE, RACE], "exit code 1"),
        ([RACE, Record(0)], "exit code 1"),
    ],
)
def test_other_failures_run_once(ci: Ci, told: list[Record], says: str) -> None:
    """A plain test's failure, a run that was cut short, too many failures, two runs at once: no second run."""
    told = [ci.again(record, "touch again") for record in told]
    assert ci.stages(ci.telling(*told)) == 1
    assert not Path("again").exists()
    assert says in ci.run.failed[0]


def test_five_races_may_be_races(ci: Ci) -> None:
    """As many as five run once more, and each is listed."""
    five = replace(RACE, races=tuple(f"t.py::test_{n}" for n in range(5)), parts=5)
    assert ci.stages(ci.telling(ci.again(five, ci.telling(Record(0), code=0)))) == 0
    assert ci.run.rerun == [f"a: t.py::test_{n}" for n in range(5)]


def test_no_stage_begins_after_minute_60(ci: Ci, capfd: pytest.CaptureFixture[str]) -> None:
    """What began before ends; what would begin later is left out, named in the last line, and no failure."""
    assert ci.stages("echo 3599 > now", "echo 3601 > now", "touch reached", "false") == 0
    assert not Path("reached").exists()
    last = capfd.readouterr().out.splitlines()[-1]
    assert last == "[ci] all that ran is green; 60 min 1 s; left out for want of time: c, d"


def test_a_stage_that_would_not_end_is_left_out(ci: Ci) -> None:
    """At minute 50 there is time for half an hour, and none for forty minutes."""
    (ci.folder / "now").write_text("3000")
    stages = [Stage("hour", "touch hour", 40.0), Stage("half", "touch half", 30.0)]
    assert ci.run.all(stages) == 0
    assert (Path("hour").exists(), Path("half").exists()) == (False, True)
    assert ci.run.left_out == ["hour"]


@pytest.mark.parametrize(("second", "code"), [(4499, 0), (4501, 1)])
def test_nothing_runs_again_after_minute_75(ci: Ci, second: int, code: int) -> None:
    """A race of a stage that ends later makes CI red, so that it ends before minute 90."""
    told = ci.again(RACE, ci.telling(Record(0), code=0))
    assert ci.stages(f"echo {second} > now\n{ci.telling(told)}") == code
    assert ["no time is left" in one for one in ci.run.failed] == [True] * code


def test_a_stage_is_a_line() -> None:
    """A name, minutes and a command; comments and empty lines are none; a line without is an error that names it."""
    found = read_stages(["# first\n", "\n", "check   3 make check\n", "e2e 15 make e2e # last\n"])
    assert found == [Stage("check", "make check", 3.0), Stage("e2e", "make e2e # last", 15.0)]
    for line in ("e2e\n", "e2e make e2e\n", "e2e 15\n"):
        with pytest.raises(ValueError, match="'e2e' lacks something"):
            read_stages([line])


def test_the_stages_of_the_script_can_run() -> None:
    """`.ci/run` is a script that bash can read, and each target that it makes is there."""
    script = ROOT / ".ci" / "run"
    subprocess.run(["bash", "-n", script], check=True)
    stages = read_stages(script.read_text().split("<<'STAGES'\n")[1].split("STAGES\n")[0].splitlines())
    assert [stage.name for stage in stages][:4] == ["check", "unit", "processes", "images"]
    targets = {line.split(":")[0] for line in (ROOT / "Makefile").read_text().splitlines() if ": " in line}
    made = [word for stage in stages if stage.command.startswith("make ") for word in stage.command.split()[1:]]
    assert {word for word in made if word.islower() and word.isalnum()} <= targets


def test_the_script_runs_its_stages_and_ends_as_they_do(tmp_path: Path) -> None:
    """`.ci/run` beside programs that only note how they were called: where one fails the others are called, too."""
    checkout, programs = tmp_path / "checkout", tmp_path / "programs"
    (checkout / "tests").mkdir(parents=True)
    for path in (".ci", "tests/ci"):
        shutil.copytree(ROOT / path, checkout / path)
    shutil.copy(ROOT / "tests" / "__init__.py", checkout / "tests")
    for program in (programs / "make", programs / "mosquitto", checkout / ".venv" / "bin" / "python"):
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f'#!/bin/sh\necho "$(basename "$0") $*" >> {tmp_path}/calls; test "$*" != "$STOP_AT"\n')
        program.chmod(0o755)
    called = {}
    for stop_at in ("", "processes"):
        environment = {**os.environ, "PYTHON": sys.executable, "PATH": f"{programs}:{os.environ['PATH']}"}
        (tmp_path / "calls").write_text("")
        done = subprocess.run(
            [checkout / ".ci" / "run"], env={**environment, "STOP_AT": stop_at}, capture_output=True, check=False
        )
        assert done.returncode == bool(stop_at), done.stderr
        called[stop_at] = (tmp_path / "calls").read_text().splitlines()
    assert called["processes"] == called[""]
    both = "make -j2 -O unit seeds SEEDS=0:60 ARGS=--ignore=tests/chaos/test_simulation.py tests"
    assert called[""][:3] == ["make -j2 -O check", both, "make processes"]
    assert called[""][3:] == [
        "python -m pytest -q -m compose tests/compose", "make e2e",
        "make long ARGS=tests/chaos/test_killed_anywhere.py", "make home-assistant",
        "make long ARGS=--ignore=tests/chaos/test_killed_anywhere.py",
    ]  # fmt: skip


def test_every_test_is_in_one_stage() -> None:
    """`make unit`, `make processes`, `make long`, the compose stage and `make home-assistant` have each combination of
    markers once.
    """
    makefile = (ROOT / "Makefile").read_text()
    starts = next(line.split(":= ")[1] for line in makefile.splitlines() if line.startswith("starts :="))
    wanted = [line.split('-m "')[1].rstrip('"').replace("$(starts)", starts)
              for line in makefile.splitlines() if "$(starts)" in line]  # fmt: skip
    assert len(wanted) == 2
    kinds = {*starts.split(" or "), "long", "compose", "home_assistant"}
    for number in range(2 ** len(kinds)):
        has = {kind: bool(number >> bit & 1) for bit, kind in enumerate(sorted(kinds))}
        of_these = [eval(expression, {}, has) for expression in wanted]
        assert sum([*of_these, has["long"] or has["compose"] or has["home_assistant"]]) == 1
