"""A pytest run says which of its failures may be races."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ci.record import BALANCE, FOLDER_VARIABLE, Record, balance
from tests.conftest import pytest_configure

ROOT = Path(__file__).parents[2]
HEAD = "import os, pytest\nfrom tests.ci.record import balance\n"


def run(folder: Path, source: str, *arguments: str) -> int:
    """The exit code of a pytest that has the guards' hook, and one file of tests."""
    (folder / "told").mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "conftest.py").write_text("from tests.conftest import pytest_configure\n")
    (folder / "test_it.py").write_text(HEAD + source)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), FOLDER_VARIABLE: str(folder / "told")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, check=False).returncode


def records(folder: Path, source: str, *arguments: str) -> list[Record]:
    """What it tells."""
    run(folder, source, *arguments)
    return Record.read_all(folder / "told")


MANY = """
@pytest.fixture
def no_start():
    raise OSError("it does not start")

@pytest.fixture
def no_end():
    yield
    raise OSError("it does not end")

@pytest.mark.ray
def test_engine(): assert False

@pytest.mark.broker
def test_set_up(no_start): pass

@pytest.mark.browser
def test_left_behind(no_end): pass

@pytest.mark.chaos
def test_loss():
    with balance():
        assert [] == [1]

def test_plain(): assert False

@pytest.mark.kafka
def test_server(): assert False

@pytest.mark.e2e
def test_good(): assert "HOTHOUSE_RERUN" not in os.environ

@pytest.mark.e2e
def test_nothing_to_ask(): pytest.skip("no server")
"""


def test_only_tests_that_start_processes_may_be_races(tmp_path: Path) -> None:
    """Failures of marked tests, of what starts them and of what ends them may be; plain tests' and a loss may not.

    The tests see nothing of the folder: a pytest that they start tells `.ci/run` nothing.
    """
    (found,) = records(tmp_path, MANY)
    races = ("test_it.py::test_engine", "test_it.py::test_set_up", "test_it.py::test_left_behind")
    assert found.races == races
    assert found.faults == ("test_it.py::test_loss", "test_it.py::test_plain", "test_it.py::test_server")
    assert found.skipped == ("test_it.py::test_nothing_to_ask",)
    assert found.again == (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *races)
    assert (found.exit_code, found.parts) == (1, 3)


def test_of_a_story_the_file_runs_again(tmp_path: Path) -> None:
    """Tests that need those before them run again with them, and count as one failure."""
    marks = "pytestmark = [pytest.mark.chaos, pytest.mark.story]\n"
    (found,) = records(tmp_path, marks + "".join(f"def test_{n}(): assert {n} == 1\n" for n in range(4)))
    assert found.races == ("test_it.py::test_0", "test_it.py::test_2", "test_it.py::test_3")
    assert (found.again[-1], found.parts) == ("test_it.py", 1)


def test_what_a_file_shares_fails_once(tmp_path: Path) -> None:
    """An engine that does not start is one failure, though every test of the file needs it; each of them runs again."""
    fixture = "@pytest.fixture(scope='module')\ndef engine(): raise OSError('it does not start')\n"
    tests = "".join(f"@pytest.mark.ray\ndef test_{n}(engine): pass\n" for n in range(7))
    (found,) = records(tmp_path, fixture + tests)
    assert found.races == found.again[-7:] == tuple(f"test_it.py::test_{n}" for n in range(7))
    assert found.parts == 1


def test_a_file_that_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    """An error while tests are collected is no race, whatever else failed."""
    (tmp_path / "test_broken.py").write_text("import no_such_module\n")
    source = "@pytest.mark.ray\ndef test_engine(): assert False\n"
    (found,) = records(tmp_path, source, "--continue-on-collection-errors")
    assert (found.races, found.faults) == (("test_it.py::test_engine",), ("test_broken.py",))


AT_EXIT = """
import atexit

@pytest.mark.ray
def test_engine():
    atexit.register(lambda: {})
    assert False
"""


@pytest.mark.parametrize(
    ("source", "exit_codes"),
    [
        ("@pytest.mark.ray\ndef test_engine(): os._exit(1)\n", []),
        (AT_EXIT.format("os.kill(os.getpid(), 11)"), []),
        (AT_EXIT.format("os._exit(1)"), []),
        ("def test_engine(): raise KeyboardInterrupt\n", [2]),
    ],
    ids=["crashed", "crashed at exit", "cut short at exit", "interrupted"],
)
def test_a_pytest_that_does_not_end_has_no_races(tmp_path: Path, source: str, exit_codes: list[int]) -> None:
    """One that crashes tells nothing, also after its last test; one that is interrupted says so."""
    assert [record.exit_code for record in records(tmp_path, source)] == exit_codes


IN_DESTRUCTORS = """
import ctypes

@pytest.mark.ray
def test_engine():
    libc = ctypes.CDLL(None)
    getattr(libc, "__cxa_atexit")(libc.abort, None, None)
    assert {passes}
"""


@pytest.mark.parametrize("passes", [True, False])
def test_a_crash_in_a_librarys_destructors_changes_nothing(tmp_path: Path, passes: bool) -> None:
    """Python has ended by then, and with it all that is tested."""
    assert run(tmp_path, IN_DESTRUCTORS.format(passes=passes)) == int(not passes)


def test_a_plugin_that_fails_after_the_tests_is_seen(tmp_path: Path) -> None:
    """Its error is the exit code, not that of the tests."""
    (tmp_path / "failing.py").write_text("def pytest_unconfigure(): raise OSError\n")
    assert run(tmp_path, "def test_it(): pass\n", "-p", "failing") == 1


@pytest.mark.thorough
def test_side_by_side_a_failure_is_a_fault(tmp_path: Path) -> None:
    """What runs in several processes starts none of its own."""
    source = "def test_engine(): assert False\ndef test_other(): pass\n"
    (record,) = records(tmp_path, source, "-n", "2")
    assert record.faults == ("test_it.py::test_engine",)
    assert record.races == ()
    assert record.refusal() == "no race: test_it.py::test_engine"


def test_without_the_variable_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make test` of a person has no recorder."""
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    manager = pytest.PytestPluginManager()

    class Config:
        pluginmanager = manager

    before = manager.get_plugins()
    pytest_configure(Config())  # type: ignore[arg-type]
    assert manager.get_plugins() == before


def test_a_balance_keeps_what_failed() -> None:
    """The assertion comes through as it was, with the word that it is no race."""
    with pytest.raises(AssertionError, match="one is lost") as caught, balance():
        raise AssertionError("one is lost")
    assert caught.value.__notes__ == [BALANCE]
