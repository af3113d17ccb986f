"""Each alert has a test that causes it for real, and waits until it has fired."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.prometheus.rule_file import alerts

FOLDER = Path(__file__).parent
CAUSED = {
    "test_gateway_alerts.py": {
        "HothouseBrokerAway": "test_a_gateway_that_is_well_fires_nothing",
        "HothouseGatewayDown": "test_a_gateway_that_is_well_fires_nothing",
        "HothouseGatewayFailing": "test_a_full_disk_is_told",
        "HothouseMessagesDropped": "test_a_full_disk_is_told",
        "HothouseGatewayDiskLow": "test_a_log_that_may_not_grow_is_told",
        "HothouseUplinkBehind": "test_an_uplink_that_is_away_is_told",
        "HothouseCertificateEndsSoon": "test_a_brokers_certificate_that_ends_is_told",
    },
    "test_shard_alerts.py": {
        "HothouseBacklog": "test_a_shard_that_reads_too_slowly_is_told",
        "HothouseForecastsOld": "test_a_forecaster_that_is_away_is_told",
        "HothouseNotReady": "test_a_forecaster_that_is_away_is_told",
        "HothouseZonesUnusable": "test_a_zone_that_is_silent_is_told",
        "HothouseWatermarkDelay": "test_clocks_that_are_late_are_told",
        "HothousePlanOld": "test_a_weather_service_that_stops_is_told",
        "HothouseSensorFaults": "test_a_sensor_that_sticks_is_told",
        "HothouseDrift": "test_a_house_that_is_run_otherwise_is_told",
        "HothouseForecastsWorse": "test_a_network_that_breaks_is_told",
        "HothouseCoverageOff": "test_a_network_that_breaks_is_told",
    },
    "test_store_alerts.py": {
        "HothouseLogFailing": "test_a_log_that_cannot_be_read_is_told",
        "HothouseSeriesPointsLost": "test_points_that_are_refused_for_good_are_told",
    },
    "test_learning_alerts.py": {
        "HothouseTrainingLong": "test_a_training_that_hangs_and_is_lost_is_told",
        "HothouseTrainingFailed": "test_a_training_that_hangs_and_is_lost_is_told",
        "HothouseLearningFailing": "test_a_training_that_hangs_and_is_lost_is_told",
        "HothouseRegistryAway": "test_a_registry_that_is_damaged_is_told",
        "HothouseModelNotLoaded": "test_a_champion_that_cannot_be_loaded_is_told",
        "HothouseRollback": "test_a_champion_whose_files_are_damaged_is_told",
    },
    "test_runtime_alerts.py": {
        "HothouseAlertsLost": "test_a_receiver_that_fails_and_then_refuses_is_told",
        "HothouseRuntimeFailing": "test_a_receiver_that_fails_and_then_refuses_is_told",
        "HothouseCertificateEnds": "test_a_certificate_of_the_api_that_ends_is_told",
    },
    "test_system_alerts.py": {
        "HothouseInfluxAway": "test_what_cannot_be_reached_is_told",
        "HothouseAlertsNotDelivered": "test_what_cannot_be_reached_is_told",
        "HothouseDeadLetters": "test_what_devices_do_wrong_is_told",
        "HothouseLateSamples": "test_what_devices_do_wrong_is_told",
        "HothouseGatewayRestarts": "test_a_gateway_that_is_killed_again_and_again_is_told",
        "HothouseStorageFailing": "test_a_full_disk_of_a_shard_is_told",
        "HothouseComponentSilent": "test_a_shard_that_hangs_is_told",
        "HothouseSamplesStopped": "test_a_shard_that_hangs_is_told",
        "HothouseLiveStateAway": "test_a_live_state_that_hangs_is_told",
        "HothouseForecasterFailing": "test_a_forecaster_that_hangs_is_told",
        "HothouseDown": "test_an_api_that_does_not_answer_is_told",
    },
}
"""File -> alert -> the test in it that causes it."""


def test_each_alert_is_caused_in_a_test() -> None:
    """The table has every alert of the rules once, and none that is gone."""
    named = [name for tests in CAUSED.values() for name in tests]
    assert sorted(named) == sorted(alerts())


def test_each_test_of_the_table_names_its_alert() -> None:
    """It is there, and waits for the alert outside of what it says of itself."""
    for file, tests in CAUSED.items():
        functions = {one.name: one for one in ast.parse((FOLDER / file).read_text()).body if hasattr(one, "name")}
        for alert, test in tests.items():
            said = [node.value for node in ast.walk(functions[test]) if isinstance(node, ast.Constant)]
            assert alert in said, f"{file}::{test} does not wait for {alert}"
