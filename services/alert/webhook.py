"""Step 9 of the way of a reading: changes of alerts as CloudEvents, posted to an address.

The body is a CloudEvent (CNCF CloudEvents 1.0, structured JSON). It is signed as Standard Webhooks 1.0 says: HMAC with
SHA-256 over id, time and body, in ``webhook-signature``. ``webhook-id`` and ``Idempotency-Key`` name the change: who
gets one twice has had it already.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from services.alert.delivery import DeliveryError, is_at_least, key_of
from services.alert.delivery_trace import DeliveryTrace
from services.errors import HothouseError
from services.messages import ShownAlert
from services.observe.duration import utc_text
from services.runtime.threads.bounded_request import ask_within
from services.store.storage import Storage

if TYPE_CHECKING:
    import httpx  # `hothouse --help` must not pay for it

__all__ = ["Webhook", "cloud_event", "signature"]

LIMIT_S = 10.0
GIVE_UP_S = 24 * 3600.0
"""A change that could not be told for so long is left out, so that those behind it are told."""

FAILING = "alert-delivery/webhook-failing.json"

A_CALL_S = 5.0
"""A call begins no other change after so long: what was told is noted, and a stop waits for no more."""

AGAIN = {
    HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS,
}  # fmt: skip
"""Of the answers that blame the request, these may be others the next time."""

PREFIX = "whsec_"


class _Failing(msgspec.Struct, frozen=True):
    key: str
    since_s: float  # Unix time


class Webhook:
    """Posts changes of alerts that are as severe as ``severity`` or more; see :class:`services.alert.delivery.Channel`.

    ``secret`` says for each change what signs it, so that who corrects its file need not restart anything; empty:
    nothing is signed. It raises :class:`HothouseError` where it cannot be read. ``clock_s`` is monotonic, ``wall_s`` is
    for the signature's time. ``refused`` counts changes that the receiver does not want, or that were given up.
    ``storage`` keeps since when one fails, over a restart.
    """

    name = "webhook"

    def __init__(
        self, url: str, secret: Callable[[], str], severity: str, clock_s: Callable[[], float],
        wall_s: Callable[[], float], limit_s: float = LIMIT_S, trace: DeliveryTrace | None = None,
        storage: Storage | None = None,
    ) -> None:  # fmt: skip
        self._trace = trace or DeliveryTrace()
        self._url, self._secret, self._severity, self._limit_s = url, secret, severity, limit_s
        self._clock_s, self._wall_s = clock_s, wall_s
        self._storage = storage
        self._failing: tuple[str, float] = self._kept()  # key, since when
        self.refused = 0

    def begin(self) -> None:
        """Nothing to do."""

    def deliver(self, alerts: Sequence[ShownAlert]) -> int:
        """See :class:`services.alert.delivery.Channel`."""
        until_s = self._clock_s() + A_CALL_S
        for done, alert in enumerate(alerts):
            if not is_at_least(alert, self._severity):
                continue
            if self._clock_s() >= until_s:
                return done
            try:
                self._post(alert)
            except DeliveryError as error:
                key, now_s = key_of(alert), self._clock_s()
                if self._failing[0] != key:
                    self._failing = key, now_s
                    self._keep(key)
                if now_s - self._failing[1] < GIVE_UP_S:
                    raise DeliveryError(str(error), done) from error
                self.refused += 1
        return len(alerts)

    def _keep(self, key: str) -> None:
        if self._storage is not None:
            with suppress(OSError):  # a restart gives the change another day then
                self._storage.put(FAILING, msgspec.json.encode(_Failing(key, self._wall_s())))

    def _kept(self) -> tuple[str, float]:
        try:
            if self._storage is None:
                return "", 0.0
            kept = msgspec.json.decode(self._storage.read(FAILING).content, type=_Failing)
        except (OSError, msgspec.DecodeError):
            return "", 0.0
        return kept.key, self._clock_s() - max(self._wall_s() - kept.since_s, 0.0)

    def _post(self, alert: ShownAlert) -> None:
        key, body = key_of(alert), msgspec.json.encode(cloud_event(alert))
        headers = {
            "Content-Type": "application/cloudevents+json; charset=utf-8", "Idempotency-Key": key, "webhook-id": key,
            "User-Agent": "hothouse",
        }  # fmt: skip
        try:
            secret = _key(self._secret())
        except HothouseError as error:
            raise DeliveryError(error.message) from error
        if secret:
            second = int(self._wall_s())
            headers |= {
                "webhook-timestamp": str(second), "webhook-signature": signature(secret, key, second, body),
            }  # fmt: skip
        since_ns = self._trace.now_ns()
        status = _answer(self._url, headers, body, self._limit_s)
        if 200 <= status < 300:
            self._trace.told(self.name, [alert], since_ns)
            return
        if 400 <= status < 500 and status not in AGAIN:
            self.refused += 1
            return
        raise DeliveryError(f"{_host(self._url)} answered {status}")


def cloud_event(alert: ShownAlert) -> dict[str, Any]:
    """The event of a change.

    >>> event = cloud_event({"id": "6f0c", "change": 2, "site": "demo", "zone": "z1", "rule": "frost",
    ...     "state": "firing", "changed_ms": 0})
    >>> event["id"], event["type"], event["source"], event["subject"], event["time"]
    ('6f0c-2', 'hothouse.alert.firing', '/hothouse/demo', 'z1/frost', '1970-01-01T00:00:00Z')
    """
    return {
        "specversion": "1.0", "id": key_of(alert), "source": f"/hothouse/{alert['site']}",
        "type": f"hothouse.alert.{alert['state']}", "subject": f"{alert['zone']}/{alert['rule']}",
        "time": utc_text(alert["changed_ms"]), "datacontenttype": "application/json", "data": alert,
    }  # fmt: skip


def signature(secret: bytes, id: str, second: int, body: bytes) -> str:
    """The header ``webhook-signature``.

    >>> signature(b"secret", "a-1", 1674087231, b"{}")[:10]
    'v1,6kwqXnM'
    """
    signed = f"{id}.{second}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()


def _key(secret: str) -> bytes:
    """The bytes of a secret; one that begins with ``whsec_`` is Base64, as Standard Webhooks has them.

    Raises :class:`DeliveryError` where that is none, or nothing: the receiver could not check the signature.
    """
    if not secret.startswith(PREFIX):
        return secret.encode()
    with suppress(ValueError):
        if key := base64.b64decode(secret.removeprefix(PREFIX), validate=True):
            return key
    raise DeliveryError(f"what follows {PREFIX} in alerts.webhook_secret_file is no Base64")


def _answer(url: str, headers: Mapping[str, str], body: bytes, limit_s: float) -> int:
    """The status of the answer to a POST. Raises :class:`DeliveryError` where there is none."""

    def post(client: httpx.Client) -> int:
        with client.stream("POST", url, headers=dict(headers), content=body) as answer:
            return answer.status_code

    try:
        return ask_within(limit_s, post)
    except TimeoutError:
        raise DeliveryError(f"{_host(url)} did not answer within {limit_s:g} s") from None
    except Exception as error:  # its words may hold the address
        raise DeliveryError(f"{_host(url)} cannot be reached: {type(error).__name__}") from None


def _host(url: str) -> str:
    """What of an address may be told to everybody: often its path or its user is the secret.

    >>> _host("https://me:secret@hooks.example.org/services/T0/B0/key")
    'https://hooks.example.org'
    """
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")
