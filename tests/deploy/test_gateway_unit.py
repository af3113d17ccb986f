"""deploy/hothouse-gateway.service: the unit of a gateway that runs alone at a site."""

from __future__ import annotations

from pathlib import Path

UNIT = Path(__file__).parents[2] / "deploy" / "hothouse-gateway.service"


def test_systemd_starts_a_gateway_again_however_often_it_ended() -> None:
    """By default systemd gives up for good after five starts in ten seconds: a gateway whose disk was full at its start
    would stay away once there is room.
    """
    unit, _, service = UNIT.read_text().partition("\n[Service]\n")
    assert "\nStartLimitIntervalSec=0\n" in unit
    assert "Restart=always\n" in service
