"""What `make e2e` says of its failures to `.ci/run`."""

from __future__ import annotations

from tests.compose.report import Report


def test_what_a_held_up_machine_can_break_may_be_a_race() -> None:
    """A check that waits may be; one that compares is a fault; what held is neither."""
    report = Report()
    report.check("in time", False, may_race=True)
    report.check("in order", False)
    report.check("there", True, may_race=True)
    found = report.record(("make", "e2e"))
    assert (found.exit_code, found.races, found.faults) == (1, ("in time",), ("in order",))
    assert (found.again, found.parts) == (("make", "e2e"), 1)


def test_nothing_is_a_race_once_the_balance_is_drawn() -> None:
    """A wait that is too long while the ledger is balanced may be a loss: it is a fault."""
    report = Report()
    report.balancing = True
    report.check("the story was told to its end", False, may_race=True)
    assert report.record(()).faults == ("the story was told to its end",)


def test_a_green_run_has_no_failures() -> None:
    """A second run that is green says so."""
    report = Report()
    report.check("there", True)
    found = report.record(())
    assert (found.exit_code, found.races, found.faults, found.skipped) == (0, (), (), ())
