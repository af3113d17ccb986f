"""Each alert on what tells people is caused: a receiver fails, what the system reports is watched by a real Prometheus.

Ray is not there. Rules are those of ``deploy/prometheus`` but quicker (see ``rule_file.quickened``).
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from services.alert.alert_deliveries import AlertDeliveries
from services.app import System
from services.config import Settings, load_settings
from services.runtime.certificate import Certificate
from tests.certificates import make_certificate
from tests.prometheus.told_figures import ends, fires, watched
from tests.services.alert.receiver import Receiver
from tests.services.alert.told import change, journal

pytestmark = [pytest.mark.chaos, pytest.mark.slow]


def system_that_tells(settings: Settings, told: dict[str, Any]) -> System:
    """One that is not started, and reports into ``told``."""
    system = System(settings)
    system._ingress = SimpleNamespace(kind="proxy", reason="", binary="")
    system._serving = SimpleNamespace(live_states=[SimpleNamespace(put_stats=SimpleNamespace(remote=told.__setitem__))])
    return system


def test_a_receiver_that_fails_and_then_refuses_is_told(tmp_path: Path) -> None:
    """While it answers 500, HothouseRuntimeFailing and HothouseAlertsNotDelivered; once it answers 410 for good, what
    waited is lost: HothouseAlertsLost. A receiver that takes alerts ends it.
    """
    receiver, told = Receiver(), dict[str, Any]()
    receiver.answers = [500]
    settings = load_settings(data_dir=tmp_path / "data", alerts={"webhook_url": receiver.url, "mqtt": False})
    deliveries = AlertDeliveries(settings, lambda messages: None)
    system = system_that_tells(settings, told)
    system._deliveries = deliveries

    def reported() -> Any:
        system._report()
        return told["runtime"]

    with deliveries, watched(tmp_path, "runtime", reported) as prometheus:
        assert not prometheus.firing()
        journal(settings.storage_folder, *(change(number=number) for number in range(1, 4)))
        fires(prometheus, "HothouseRuntimeFailing", "HothouseAlertsNotDelivered")
        receiver.answers = [410]
        fires(prometheus, "HothouseAlertsLost")
        receiver.answers = [204]
        ends(prometheus, "HothouseRuntimeFailing", "HothouseAlertsNotDelivered", "HothouseAlertsLost")
    receiver.kill()


def test_a_certificate_of_the_api_that_ends_is_told(tmp_path: Path) -> None:
    """HothouseCertificateEnds fires in its last three days, and ends once a renewed one is used."""
    told, asked = dict[str, Any](), list[bytes]()
    certificate = Certificate(*make_certificate(tmp_path, 2), tmp_path / "tls.pem", lambda: "")
    certificate._asked = lambda order: asked.append(order) or "Success!"  # type: ignore[method-assign, func-returns-value]
    system = system_that_tells(load_settings(data_dir=tmp_path / "data"), told)
    system._runtime = SimpleNamespace(certificate=certificate)

    def reported() -> Any:
        system._report()
        return told["runtime"]

    with watched(tmp_path, "runtime", reported) as prometheus:
        fires(prometheus, "HothouseCertificateEnds", "HothouseCertificateEndsSoon")
        make_certificate(tmp_path, 90)
        certificate.renew()
        assert len(asked) == 2
        ends(prometheus, "HothouseCertificateEnds", "HothouseCertificateEndsSoon")
