"""Events that change rows are checked where they come in."""

from __future__ import annotations

import pytest

from edge.wire.decoder import HothouseDecoder
from edge.wire.events import Alias, Calibration, Change, SettingsChange, decode_change, encode_change
from edge.wire.topic import Topic

NOW_MS = 1_646_092_800_000


@pytest.mark.parametrize(
    "change",
    [SettingsChange(2, step_s=60), Calibration(3, "air_temp_c.2", -0.4, 1.1, NOW_MS), Alias(4, "climate"),
     Alias(5, "leaf_temp_c", metric="air_temp_c")],
)  # fmt: skip
def test_a_change_comes_back_as_it_was(change: Change) -> None:
    """What is encoded decodes to the same."""
    assert decode_change(Topic("s", "_site", "d", "event"), encode_change(change)) == change


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b'{"type":"settings","version":2,"step_s":7}', "step_s must be"),
        (b'{"type":"settings","version":2,"lateness_s":-1}', "lateness_s must be"),
        (b'{"type":"settings","version":1,"step_s":60}', "version"),
        (b'{"type":"settings","version":2,"steps":60}', "steps"),
        (b'{"type":"calibration","version":2,"metric":"irrigation_l_m2","offset":1}', "counts up"),
        (b'{"type":"calibration","version":2,"metric":"wind_dir_deg","scale":2}', "angle"),
        (b'{"type":"calibration","version":2,"metric":"rh_pct","scale":0}', "scale not 0"),
        (b'{"type":"calibration","version":2,"metric":"unheard_of"}', "vocabulary"),
        (b'{"type":"calibration","version":2,"metric":"rh_pct","from_ms":18446744073709551616}', "from_ms"),
        (b'{"type":"retire","version":2,"until_ms":18446744073709551616}', "until_ms"),
        (b'{"type":"alias","version":2,"to":"../x"}', "device's name"),
        (b'{"type":"alias","version":2,"metric":"rh_pct","to":"wind_dir_deg"}', "different kinds"),
    ],
)
def test_a_change_that_cannot_be_made_is_refused_with_a_sentence(payload: bytes, said: str) -> None:
    """It is counted as malformed, and no record of it reaches the log."""
    taken = HothouseDecoder().take("hothouse/v1/s/_site/d/event", payload, NOW_MS)
    assert taken.record is None
    assert [refusal.reason for refusal in taken.refusals] == ["malformed"]
    assert said in taken.refusals[0].detail


def test_settings_belong_to_the_whole_site() -> None:
    """Published in another zone they are refused; an event of another type passes there."""
    settings = encode_change(SettingsChange(2, step_s=60))
    assert HothouseDecoder().take("hothouse/v1/s/z1/d/event", settings, NOW_MS).record is None
    assert HothouseDecoder().take("hothouse/v1/s/z1/d/event", b'{"type":"crop"}', NOW_MS).record is not None
