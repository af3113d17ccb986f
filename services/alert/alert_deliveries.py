"""Step 9 of the way of a reading: the ways by which people are told of alerts, as the settings name them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from edge.secret_file import read_secret
from services.alert.alert_mail import AlertMail
from services.alert.delivery import Channel, Deliverer, places_key
from services.alert.delivery_trace import DeliveryTrace
from services.alert.mail_server import MailServer
from services.alert.retained_alerts import AlertMessage, RetainedAlerts
from services.alert.webhook import Webhook
from services.config import Settings, SiteNames
from services.errors import ConfigError
from services.runtime.threads.repeating import Repeating
from services.store.storage import Storage, storage_of

if TYPE_CHECKING:
    from services.observe.spans import Spans

__all__ = ["AlertDeliveries", "DeliveryFigures"]

LOOK_S = 0.5
END_S = 5.0
"""A call that takes longer is left behind by a stop: its changes are told again, by the same names."""


class DeliveryFigures(TypedDict):
    """By channel."""

    alerts_told: dict[str, int]
    alerts_waiting: dict[str, int]
    alerts_lost: dict[str, int]


class AlertDeliveries(AbstractContextManager["AlertDeliveries"]):
    """Each way has a thread of its own, so that none waits for another. ``publish`` sends retained messages.

    Raises :class:`ConfigError` where a secret cannot be read, :class:`StartError` where what was kept is damaged.
    """

    def __init__(
        self, settings: Settings, publish: Callable[[Sequence[AlertMessage]], None], spans: Spans | None = None
    ) -> None:
        storage = storage_of(settings)
        self._look_s = max(LOOK_S, storage.poll_s if settings.storage.url else 0.0)
        self._trace = DeliveryTrace(spans)
        self._channels = list(_channels(settings, storage, publish, self._trace))
        self._mails = [channel for channel in self._channels if isinstance(channel, AlertMail)]
        self._deliverers = {channel.name: Deliverer(storage, channel, time.monotonic) for channel in self._channels}
        for off in {Webhook.name, AlertMail.name} - self._deliverers.keys():
            storage.delete(places_key(off))  # who switches it on again months later is not told of these months
        self._threads = ExitStack()

    def __enter__(self) -> AlertDeliveries:
        for name, deliverer in self._deliverers.items():
            thread = Repeating(deliverer.look, self._look_s, f"alerts by {name}", at_once=True, end_s=END_S)
            self._threads.enter_context(thread)
        return self

    def __exit__(self, *_: object) -> None:
        for deliverer in self._deliverers.values():
            deliverer.stop()
        self._threads.close()

    @property
    def error(self) -> str:
        """What fails now."""
        errors = [one.error for one in self._deliverers.values()] + [one.error for one in self._mails]
        return "; ".join(error for error in errors if error)

    def figures(self) -> DeliveryFigures:
        """How many changes were told, wait, and were lost or refused. What some addresses lack was told, and waits or
        is lost, too.
        """
        refused = {one.name: one.refused for one in self._channels if isinstance(one, Webhook | AlertMail)}
        late = {one.name: one.waiting for one in self._mails}
        missed = {one.name: one.missed for one in self._mails}
        each = self._deliverers.items()
        return DeliveryFigures(
            alerts_told={name: self._trace.changes[name] for name in self._deliverers},
            alerts_waiting={name: one.waiting + late.get(name, 0) for name, one in each},
            alerts_lost={name: one.lost + refused.get(name, 0) + missed.get(name, 0) for name, one in each},
        )  # fmt: skip


def _channels(
    settings: Settings, storage: Storage, publish: Callable[[Sequence[AlertMessage]], None], trace: DeliveryTrace
) -> Iterator[Channel]:
    said = settings.alerts
    retained = RetainedAlerts(storage, publish, 60 * said.mqtt_clear_min, time.time, trace, on=said.mqtt)
    if said.mqtt or len(retained):
        yield retained
    if said.webhook_url:
        secret = partial(_secret, said.webhook_secret_file, "alerts.webhook_secret_file")
        secret()  # one that is not there stops the start
        yield Webhook(
            said.webhook_url, secret, said.webhook_severity, time.monotonic, time.time, trace=trace, storage=storage
        )  # fmt: skip
    if said.email_to:
        _secret(said.smtp_password_file, "alerts.smtp_password_file")  # one that is not there stops the start
        server = MailServer(
            host=said.smtp_host, port=said.smtp_port, security=said.smtp_security, username=said.smtp_username,
            password_file=said.smtp_password_file,
        )  # fmt: skip
        yield AlertMail(
            storage, server, said.email_from, said.email_to, said.email_severity, said.email_gather_s, time.monotonic,
            time.time, trace, SiteNames.of(settings.sites),
        )  # fmt: skip


def _secret(path: Path | None, setting: str) -> str:
    if path is None:
        return ""
    hint = "Set it to a file that holds the secret."
    try:
        secret = read_secret(path)
    except OSError as error:
        raise ConfigError(f"{setting}: {path} cannot be read: {error}", hint) from error
    if not secret:  # as for a moment while it is written: nothing goes out unsigned then
        raise ConfigError(f"{setting}: {path} is empty", hint)
    return secret
