"""The composition root: puts the parts together, in the order of the data, and takes them apart in reverse.

Only this module and the command line know every part. ``System`` is what ``hothouse up`` and ``hothouse demo`` run.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from edge.gateway.decoders import DecoderError, load_decoders
from edge.log import Log, LogError
from edge.mqtt.broker import BrokerError, LocalBroker
from edge.mqtt.connection import MqttAddress
from edge.mqtt.publish import PublishError, publish_all, publish_once
from edge.wire.gateway_status import GatewayStatus
from services.alert.alert_deliveries import AlertDeliveries, DeliveryFigures
from services.alert.rule_files import RuleFiles
from services.alert.rules_file import load_document
from services.config import Settings, child_environment
from services.earlier_release import bring_over
from services.errors import ConfigError, HothouseError, StartError
from services.ingest.plans.repeater import RepeatedPlans
from services.ingest.retirement import Retirements
from services.ingest.snapshots.later_release import refuse_state_of_a_later_release
from services.log import open_settings_log
from services.messages import GatewayFigures, RuntimeFigures
from services.observe.logs import log_to_file
from services.runtime.certificate import LOOK_EVERY_S
from services.runtime.folder import FolderLock
from services.runtime.interrupts import deferred_interrupts
from services.runtime.ray_logs import PRUNE_EVERY_S
from services.runtime.repeating import Repeating
from services.runtime.state_lock import OwnersPlace, StateLock, this_machine
from services.runtime.supervise import ChildProcess
from services.store.backup import RESTORING
from services.store.storage import storage_of
from services.store.storage.owners import OwnersInStorage
from services.tracing import open_spans

if TYPE_CHECKING:
    from edge.wire.plan import PlanMessage
    from services.home_assistant.home_assistant_link import HomeAssistantLink
    from services.ingest.questions import SilentZone
    from services.messages import SiteRulesShown
    from services.observe.spans import Spans
    from services.runtime.ray_runtime import RayRuntime

__all__ = ["System", "owners_of"]

Say = Callable[[str], None]

REPORT_S = 1.0
RETIRE_S = 10.0
"""How often shards are asked for zones that are silent for too long."""
RULES_S = 2.0
"""How often files of rules are read."""
ASK_SHARDS_S = 5.0
GATEWAY_QUIET_S = 10.0
SHARD_START_S = 60.0
SHARD_STOP_S = 4.0
SHARD_ABANDON_S = 1.0
"""The same while shards start: they have nothing yet that must be saved, and the log has all of it."""
RETRAINER_STOP_S = 2.0


class System:
    """The whole of Hothouse on one machine (or joined to a Ray cluster), as a context manager.

    ``receive_clock`` wins over ``gateway.clock``: ``replayed`` takes receive times from the clock messages of a replay.
    ``warm_up`` is called with the log, in a thread beside the start of Ray and before the gateway runs: it may
    append history. ``say`` is told each stage, one short sentence.

    Leaving the context stops everything in order; a part that does not stop within its time-out is ended.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        receive_clock: Literal["wall", "replayed"] | None = None,
        warm_up: Callable[[Log], None] | None = None,
        say: Say = lambda _: None,
    ) -> None:
        # Absolute, because the parts are processes that need not share our working directory.
        self.settings = settings.model_copy(update={"data_dir": settings.data_dir.absolute()})
        self.url = ""
        self.mqtt_host = settings.mqtt.host
        self.mqtt_port = settings.mqtt.port
        self.mqtt_username = settings.mqtt.username
        self.mqtt_password_file = settings.mqtt.password_file
        # The embedded broker speaks 3.1.1 only; asking it for 5 first costs seconds.
        self.mqtt_v5 = settings.mqtt.version == "5"
        self.gateway: ChildProcess | None = None
        self._receive_clock = receive_clock or settings.gateway.clock
        self._warm_up = warm_up
        self._say = say
        self._parts = ExitStack()
        self._serving: Any = None
        self._runtime: RayRuntime | None = None
        self._shard_stop_s = SHARD_ABANDON_S
        self._handles: list[Any] = []  # actors live as long as their handles
        self._shards: list[Any] = []
        self._retirements: Retirements | None = None
        self._repeated: RepeatedPlans | None = None
        self._rule_files: RuleFiles | None = None
        self._deliveries: AlertDeliveries | None = None
        self._spans: Spans | None = None
        self._home_assistant: HomeAssistantLink | None = None

    def __enter__(self) -> System:
        try:
            self._start()
        except BaseException as error:
            self._parts.close()
            if isinstance(error, BrokerError | LogError):
                raise StartError(str(error)) from error
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._parts.close()

    @property
    def shown_url(self) -> str:
        """The API's address for people: that with TLS, where there is one."""
        api = self.settings.api
        if api.tls_cert_file is None:
            return self.url
        host = "localhost" if api.host in ("0.0.0.0", "::", "") else api.host  # noqa: S104 - compared, not bound
        return f"https://{f'[{host}]' if ':' in host else host}:{api.port}{api.route.rstrip('/')}"

    @property
    def gateway_status(self) -> GatewayStatus | None:
        """The gateway's newest status; ``None`` until this one, or one before it of the same version, wrote it."""
        try:
            return msgspec.json.decode(self._gateway_status_file.read_bytes(), type=GatewayStatus)
        except (OSError, msgspec.DecodeError):
            return None

    @property
    def _gateway_status_file(self) -> Path:
        return self.settings.gateway.status_file or self.settings.data_dir / "gateway-status.json"

    def _bring_history_over(self) -> None:
        """Before anything reads or writes rows; of no avail but for the first start of a version."""
        from services.store.tables.migration import bring_over

        told_pct = -1

        def progress(done: int, of: int) -> None:
            nonlocal told_pct
            if (pct := 100 * done // of // 10 * 10) > told_pct:
                self._say(f"bringing the history of the version before over: {pct} % of {of:,} files")
                told_pct = pct

        bring_over(storage_of(self.settings), progress)

    def _start(self) -> None:
        if self.settings.mqtt.gateway == "here":
            try:
                load_decoders(self.settings.gateway.decoders)  # else the gateway ends again and again
            except DecoderError as error:
                raise ConfigError(str(error), "docs/decoders.md says what a decoder is.") from error
        for path in self._rules_files:
            load_document(path)
        # Imported here: `hothouse --help` and the edge commands must not pay for Ray.
        with deferred_interrupts():
            from services.runtime.ray_runtime import RayRuntime

        settings = self.settings
        self._parts.enter_context(FolderLock(settings.data_dir))
        self._parts.enter_context(StateLock(owners_of(settings), self._lost, say=self._say))
        if storage_of(settings).entry(RESTORING) is not None:
            raise StartError(
                f"{storage_of(settings).url} holds half of a backup: hothouse restore was interrupted",
                "Remove what it wrote there and in data_dir, then run hothouse restore again.",
            )
        refuse_state_of_a_later_release(storage_of(settings))
        self._bring_history_over()
        settings.logs_dir.mkdir(exist_ok=True)
        logs = settings.logs
        self._parts.callback(log_to_file(settings.logs_dir, "main", logs.format, logs.level, warns=True))
        bring_over(settings.storage_folder, storage_of(settings))
        spans = self._spans = open_spans(settings, "main")
        if spans is not None:
            self._parts.callback(spans.close)
        if not settings.mqtt.host and settings.mqtt.gateway == "here":
            self._say("starting a local MQTT broker")
            own = LocalBroker(settings.data_dir / "broker")
            if settings.mqtt.listen:
                own = LocalBroker(own.folder, port=settings.mqtt.port, listen=settings.mqtt.listen)
            broker = self._parts.enter_context(own)
            self.mqtt_host, self.mqtt_port, self.mqtt_username = broker.host, broker.port, broker.username
            self.mqtt_password_file, self.mqtt_v5 = broker.password_file, broker.address.v5
        warming = self._start_warming()
        self._say("starting Ray")
        runtime = self._runtime = RayRuntime(settings)
        self._parts.enter_context(runtime)
        self._deliveries = AlertDeliveries(
            settings, self._publish_retained, spans
        )  # before the first alert can be made
        self._start_parts()
        self._ingress = runtime.ingress
        self._report()
        if warming is not None:
            warming.join_or_raise()
        if settings.mqtt.gateway == "here":
            self._start_gateway()
        self._retirements = Retirements(self._silent, self._publish, time.monotonic)
        self._repeated = RepeatedPlans(self._repeated_plans, self._publish, time.monotonic)
        self._rule_files = RuleFiles(
            lambda site: settings.site(site).rules_file or settings.alerts.rules_file, self._alert_rules,
            self._publish_order, time.monotonic,
        )  # fmt: skip
        self._parts.enter_context(self._deliveries)
        self._parts.enter_context(Repeating(self._report, REPORT_S, "report"))
        self._parts.enter_context(Repeating(runtime.prune_logs, PRUNE_EVERY_S, "old logs"))
        if runtime.certificate is not None:
            self._parts.enter_context(Repeating(runtime.certificate.renew, LOOK_EVERY_S, "certificate"))
        if self._rules_files:
            self._parts.enter_context(Repeating(self._rule_files.look, RULES_S, "rules of alerts", at_once=True))
        self._parts.enter_context(Repeating(self._retirements.look, RETIRE_S, "retirements"))
        if any(site.repeat_setpoints for site in settings.sites):
            self._parts.enter_context(Repeating(self._repeated.look, RETIRE_S, "repeated plans"))
        self._tell_home_assistant()
        run_file = settings.data_dir / "run.json"
        mqtt = {
            "host": self.mqtt_host,
            "port": self.mqtt_port,
            "username": self.mqtt_username,
            "password_file": str(self.mqtt_password_file or ""),
            "tls_ca_file": str(settings.mqtt.tls_ca_file or ""),
        }
        run_file.write_text(json.dumps({"url": self.url, "pid": os.getpid(), "mqtt": mqtt}) + "\n")
        self._parts.callback(run_file.unlink, missing_ok=True)

    def _lost(self) -> None:
        """Another process has taken our state over: end, as an operator would have us do. What our parts still write
        is fenced by the epochs of snapshots.
        """
        if self._runtime is not None:
            self._runtime.abandon()
        os.kill(os.getpid(), signal.SIGTERM)

    def _start_warming(self) -> _Thread | None:
        if self._warm_up is None:
            open_settings_log(self.settings).close()  # made now: the shards find it
            return None
        log = open_settings_log(self.settings)
        warm_up = self._warm_up

        def import_history() -> None:
            with closing(log):
                warm_up(log)

        return _Thread(import_history, "warm-up")

    def _start_parts(self) -> None:
        with deferred_interrupts():
            import ray.serve  # noqa: F401 - it reads its switches when it is imported: RayRuntime has set them

            from services.learn.loop.retrainer_actor import start_retrainer
            from services.serve.deployment import start_actors, start_serving

        settings = self.settings
        self._serving = start_actors(settings)
        self._say("starting the shards, the API and the forecaster")
        shards = self._shards = _start_shards(settings)  # first: they read what the log holds while the others start
        self._handles += shards
        self._parts.callback(lambda: _stop_all(shards, self._shard_stop_s))
        self.url = start_serving(settings)
        _await_shards(shards)
        self._shard_stop_s = SHARD_STOP_S
        self._say("starting the retrainer")
        retrainer = start_retrainer(settings)
        self._handles.append(retrainer)
        self._parts.callback(_stop_all, [retrainer], RETRAINER_STOP_S)

    def _report(self) -> None:
        """Show on the first live state, which may be a new one, what no actor shows: the ingress and the gateway."""
        publishers = (
            self._retirements, self._repeated, self._rule_files, self._deliveries, self._home_assistant
        )  # fmt: skip
        error = "; ".join(one.error for one in publishers if one is not None and one.error)
        runtime = RuntimeFigures(
            kind=self._ingress.kind, reason=self._ingress.reason, binary=self._ingress.binary, error=error,
            trace_spans_dropped=self._spans.dropped if self._spans else 0,
            **(self._deliveries.figures() if self._deliveries else NO_DELIVERIES),
        )  # fmt: skip
        self._serving.live_states[0].put_stats.remote("runtime", runtime)
        if self.gateway is None:
            return
        status = self.gateway_status
        error = _gateway_problem(status, time.time(), self.gateway)
        kept = {"pid": self.gateway.pid, "restarts": self.gateway.restarts, "error": error}
        self._serving.live_states[0].put_stats.remote("gateway", cast(GatewayFigures, {**(status or {}), **kept}))

    def _silent(self) -> list[SilentZone]:
        return self._of_shards("silent")

    def _repeated_plans(self) -> list[PlanMessage]:
        return self._of_shards("repeated_plans")

    def _alert_rules(self) -> list[SiteRulesShown]:
        return self._of_shards("alert_rules_of_all")

    @property
    def _rules_files(self) -> list[Path]:
        """Every file of rules that the settings name."""
        named = [self.settings.alerts.rules_file, *(site.rules_file for site in self.settings.sites)]
        return [path for path in named if path is not None]

    def _of_shards(self, question: str) -> list[Any]:
        """What all shards answer to a question."""
        import ray

        try:
            calls = [getattr(shard, question).remote() for shard in self._shards]
            answers = ray.get(calls, timeout=ASK_SHARDS_S)
        except ray.exceptions.RayError:
            return []  # one restarts: it is asked again
        return [one for answer in answers for one in answer]

    def _publish(self, topic: str, payload: bytes) -> None:
        publish_once(self._broker(), "hothouse-system", topic, payload)

    def _publish_order(self, topic: str, payload: bytes) -> None:
        try:
            self._publish(topic, payload)
        except PublishError as error:
            raise HothouseError(f"rules cannot be changed: {error}") from error

    def _publish_retained(self, messages: Sequence[tuple[str, bytes]]) -> None:
        try:
            publish_all(self._broker(), "hothouse-alerts", messages, retain=True)
        except PublishError as error:
            raise HothouseError(str(error)) from error

    def _broker(self) -> MqttAddress:
        if not self.mqtt_host:
            raise PublishError("no broker is configured: set mqtt.host")
        try:
            return self._broker_address()
        except OSError as error:
            raise PublishError(f"mqtt.password_file cannot be read: {error}") from error

    def _broker_address(self) -> MqttAddress:
        """The broker that the settings name, or ours; raises ``OSError`` where the password cannot be read."""
        password = self.mqtt_password_file.read_text().strip() if self.mqtt_password_file else ""
        return MqttAddress(
            host=self.mqtt_host, port=self.mqtt_port, username=self.mqtt_username, password=password,
            tls_ca=self.settings.mqtt.tls_ca_file, v5=self.mqtt_v5,
        )  # fmt: skip

    def _tell_home_assistant(self) -> None:
        from services.home_assistant.start import home_assistant_link

        if not self.mqtt_host:
            if self.settings.home_assistant.prefix:
                raise ConfigError("home_assistant.prefix is set, and no broker is configured", "Set mqtt.host.")
            return
        try:
            link = home_assistant_link(
                self.settings, self._broker_address(), self._serving.live_states, self._shards
            )  # fmt: skip
        except OSError as error:
            raise ConfigError(f"mqtt.password_file cannot be read: {error}") from error
        if link is not None:
            self._home_assistant = self._parts.enter_context(link)

    def _start_gateway(self) -> None:
        broker = {
            "host": self.mqtt_host, "port": self.mqtt_port, "username": self.mqtt_username,
            "password_file": self.mqtt_password_file, "version": "5" if self.mqtt_v5 else "3.1.1",
        }  # fmt: skip
        own = {"clock": self._receive_clock, "status_file": self._gateway_status_file}
        mqtt, gateway = self.settings.mqtt, self.settings.gateway
        parts = {"mqtt": mqtt.model_copy(update=broker), "gateway": gateway.model_copy(update=own)}
        settings = self.settings.model_copy(update=parts)
        command = [sys.executable, "-m", "edge.gateway", "--stop-with-stdin"]
        self._say("starting the gateway")
        log_file = settings.logs_dir / "gateway.log"
        self.gateway = ChildProcess("gateway", command, log_file, child_environment(settings))
        self.gateway.start()
        self._parts.callback(self.gateway.stop)


NO_DELIVERIES = DeliveryFigures(alerts_told={}, alerts_waiting={}, alerts_lost={})


def _start_shards(settings: Settings) -> list[Any]:
    """The shard actors, each with its share of the partitions."""
    with deferred_interrupts():
        from services.ingest.shard_actor import start_shard

    count, partitions = settings.stream.shards, range(settings.log.partitions)
    return [start_shard(settings, index, list(partitions[index::count])) for index in range(count)]


def _await_shards(shards: Sequence[Any]) -> None:
    """A shard that cannot start (its settings differ from its snapshot's, say) must stop the start, in one sentence."""
    import ray

    try:
        ray.get([shard.ping.remote() for shard in shards], timeout=SHARD_START_S)
    except ray.exceptions.GetTimeoutError as error:
        raise StartError(f"the shards did not start within {SHARD_START_S:g} s") from error
    except ray.exceptions.RayError as error:
        # Ray tells why an actor's constructor failed as text: its last line is the exception.
        reason = str(error).strip().splitlines()[-1].partition("Error: ")[2] or str(error).splitlines()[0]
        raise StartError(f"a shard did not start: {reason}") from error


def _stop_all(actors: Sequence[Any], timeout_s: float) -> None:
    """Ask actors to stop in order; one that does not answer in time is ended with Ray."""
    import ray

    with suppress(ray.exceptions.RayError):
        ray.get([actor.stop.remote() for actor in actors], timeout=timeout_s)


class _Thread(threading.Thread):
    """A thread whose exception is raised where it is joined."""

    def __init__(self, work: Callable[[], None], name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._work = work
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._error = error

    def join_or_raise(self) -> None:
        self.join()
        if self._error is not None:
            raise self._error


def owners_of(settings: Settings) -> Path | OwnersPlace:
    """Where it is written down who runs on the state."""
    if not settings.storage.url:
        return settings.storage_folder
    return OwnersInStorage(storage_of(settings), this_machine(settings.data_dir), settings.data_dir)


def _gateway_problem(status: GatewayStatus | None, now_s: float, child: ChildProcess) -> str:
    """One sentence when samples do not come in for a reason that the gateway knows; empty when all is well."""
    if child.pid is None:
        return f"it ended with exit code {child.last_exit} and is started again"
    if status is None:
        return "it has not written its status yet"
    age_s = now_s - status["updated_ms"] / 1000
    if age_s > GATEWAY_QUIET_S:
        return f"no sign of life for {age_s:.0f} s"
    if not status["connected"]:
        return f"not connected to the broker: {status['last_error'] or 'connecting'}"
    return ""
