"""The terminal of ``hothouse up`` says what the gateway fails at, as a broker that refuses the password."""

from __future__ import annotations

import pytest

from services.cli.running.gateway_lines import PATIENCE_S, GatewayLines, gateway_lines

REFUSED = "not connected to the broker: the broker at 10.0.0.1:1883 refuses us: Not authorized"


def test_a_line_comes_when_the_gateway_fails_and_when_it_works_again() -> None:
    """Once for a problem, whatever seconds and bytes it counts; a gateway that connects at its start is no news."""
    now_s, problem = 0.0, "not connected to the broker: connecting"
    lines = GatewayLines(lambda: problem, lambda: now_s)
    assert lines.line() == ""
    problem, now_s = "", 1.0
    assert lines.line() == ""
    problem = REFUSED
    assert lines.line() == ""
    now_s += PATIENCE_S
    assert lines.line().startswith(f"the gateway fails: {REFUSED}. What to do: `hothouse doctor`")
    assert lines.line() == ""
    said = []
    for seconds in (11, 12):
        problem = f"no sign of life for {seconds} s"
        said.append(lines.line())
    for mib in (38, 37):
        problem = f"no room is left for log.sqlite: the disk has {mib} MiB, 64 stay free"
        said.append(lines.line())
    assert [bool(one) for one in said] == [True, False, True, False]
    problem = ""
    assert lines.line() == "the gateway works again"
    assert lines.line() == ""


def test_the_line_is_printed_as_it_is(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Square brackets of an error are no markup, and the line is not broken."""
    monkeypatch.setattr("services.cli.running.gateway_lines.PATIENCE_S", 0.0)
    gateway_lines(lambda: "[Errno 111] Connection refused " + 12 * "x " + "[/]")()
    out = capsys.readouterr().out
    assert "[Errno 111] Connection refused" in out
    assert out.count("\n") == 1
