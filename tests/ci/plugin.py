"""Says of a pytest run which of its failures may be races: those of tests that start processes, and nothing else."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.ci.record import BALANCE, PROCESS_KINDS, Record

__all__ = ["FailureRecorder"]


class FailureRecorder:
    """Leaves a :class:`Record` in ``folder`` as its process ends; a pytest that crashes leaves none.

    A test marked ``story`` needs those before it in its file: what runs again is the file. What the tests of a file
    share and does not start is one failure, however many of them need it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._faults = dict[str, None]()
        self._races = dict[str, str]()  # the test, and what runs again for it
        self._parts = set[str]()  # what counts as one failure
        self._skipped = dict[str, None]()
        self._exit_code: int | None = None
        self._newest_error: BaseException | None = None
        # Before any library of the tests registers what it does at exit, so that this comes after all of it.
        atexit.register(self._leave, os.getpid())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[Any]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """A phase of a test ended: set-up, the test, or what follows it."""
        report = yield
        if report.failed:
            notes = getattr(call.excinfo.value, "__notes__", ()) if call.excinfo is not None else ()
            kinds = {mark.name for mark in item.iter_markers()}
            if BALANCE in notes or not kinds & PROCESS_KINDS:
                self._faults[item.nodeid] = None
            else:
                file = item.nodeid.partition("::")[0]
                self._races[item.nodeid] = file if "story" in kinds else item.nodeid
                self._parts.add(file if "story" in kinds or report.when == "setup" else item.nodeid)
        elif report.skipped:
            self._skipped[item.nodeid] = None
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test failed in one of several processes (pytest-xdist, `make unit`): these start nothing, it is no race."""
        if report.failed and hasattr(report, "node"):
            self._faults[report.nodeid] = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be read is no race."""
        if report.failed:
            self._faults[report.nodeid] = None

    def pytest_internalerror(self) -> None:
        """Nor is an error of pytest itself."""
        self._faults["an error within pytest"] = None

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """The tests are over; what they started may still make the process crash."""
        self._exit_code = int(exitstatus)
        self._newest_error = _newest_error()

    def _leave(self, pid: int) -> None:
        """Leave the record, and end; a process that a test forked leaves none."""
        if self._exit_code is None or os.getpid() != pid:
            return
        again = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *dict.fromkeys(self._races.values()))
        races, faults, skipped = map(tuple, (self._races, self._faults, self._skipped))
        Record(self._exit_code, races, faults, skipped, again, len(self._parts)).write(self._folder)
        if _newest_error() is self._newest_error:  # nothing of Python's has failed since
            # Destructors of libraries are left. In Ray's a thread that still writes its log crashed the process once.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self._exit_code)


def _newest_error() -> BaseException | None:
    """The last that nobody caught: pytest sets it for a test that fails, Python for one that ends the process."""
    return getattr(sys, "last_value", None)
