"""Puts the parts together, in the order of the data, and takes them apart in reverse.

``System`` is what ``hothouse up`` and ``hothouse demo`` run.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from edge.gateway.decoders import DecoderError, load_decoders
from edge.log import Log, LogError
from edge.mqtt.broker import BrokerError, LocalBroker
from edge.wire.gateway_status import GatewayStatus
from services.alert.alert_deliveries import AlertDeliveries, DeliveryFigures
from services.alert.rule_files import RuleFiles
from services.alert.rules_file import load_document
from services.app import broker_watch
from services.app.broker_in_use import BrokerInUse
from services.app.broker_watch import BrokerWatch
from services.app.gateway_process import GatewayProcess, read_status, status_file
from services.app.shards import Shards, stop_all
from services.app.warm_up import WarmUp
from services.config import Settings, named_files
from services.earlier_release import bring_files_over
from services.errors import ConfigError, StartError
from services.ingest.plans.repeater import RepeatedPlans
from services.ingest.retirement import Retirements
from services.ingest.snapshots.later_release import refuse_state_of_a_later_release
from services.installation import refuse_an_emptied_storage, remember_installation
from services.log import open_settings_log, warn_of_unread_log
from services.messages import RuntimeFigures
from services.moved_folder import bring_along
from services.observe.logs import log_to_file
from services.runtime.certificate import LOOK_EVERY_S
from services.runtime.folder import FolderLock
from services.runtime.ingress import listens_at
from services.runtime.interrupts import deferred_interrupts, ignored_interrupts
from services.runtime.leftovers import end_left_over
from services.runtime.ports import listening_ports, refuse_taken, shared_ports
from services.runtime.ray_logs import PRUNE_EVERY_S
from services.runtime.state_lock import OwnersPlace, StateLock, this_machine
from services.runtime.threads.repeating import Repeating
from services.store.backup import RESTORING
from services.store.storage import storage_of
from services.store.storage.owners import OwnersInStorage
from services.tracing import open_spans

if TYPE_CHECKING:
    from services.home_assistant.home_assistant_link import HomeAssistantLink
    from services.observe.spans import Spans
    from services.runtime.ray_runtime import RayRuntime

__all__ = ["System", "owners_of"]

Say = Callable[[str], None]

REPORT_S = 1.0
RETIRE_S = 10.0
"""How often shards are asked for zones that are silent for too long."""
REPEAT_S = 10.0
"""How often shards are asked for setpoints of yesterday, to be published as plans."""
RULES_S = 2.0
"""How often files of rules are read."""
RETRAINER_STOP_S = 2.0
NOT_OURS = ("client.", "weather.", "uplink.")
"""Sections with files that other commands read."""


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
        gateway = settings.gateway
        if receive_clock is not None:  # the API issues plans by this clock, too
            gateway = gateway.model_copy(update={"clock": receive_clock})
        # Absolute, because the parts are processes that need not share our working directory.
        own = {"data_dir": settings.data_dir.absolute(), "gateway": gateway}
        self.settings = settings.model_copy(update=own)
        self.url = ""
        self.broker = BrokerInUse.named(settings)
        self.gateway: GatewayProcess | None = None
        self._broker_watch: BrokerWatch | None = None
        self._warm_up = warm_up
        self._say = say
        self._parts = ExitStack()
        self._serving: Any = None
        self._runtime: RayRuntime | None = None
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
            with ignored_interrupts():
                self._parts.close()
            if isinstance(error, BrokerError | LogError):
                hint = "`hothouse doctor` says more." if isinstance(error, LogError) else ""
                raise StartError(str(error), getattr(error, "hint", hint)) from error
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ignored_interrupts():
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
        return read_status(status_file(self.settings))

    @property
    def gateway_problem(self) -> str:
        """What the gateway that runs here fails at, in a sentence; empty where all is well, or it runs elsewhere."""
        figures = None if self.gateway is None else self.gateway.figures()
        return "" if figures is None else figures["error"] or figures.get("last_error", "")

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
        self._check_files()
        # Imported here: `hothouse --help` and the edge commands must not pay for Ray.
        with deferred_interrupts():
            from services.runtime.ray_runtime import RayRuntime

        settings, here = self.settings, self.settings.mqtt.gateway == "here"
        self._claim_state()
        self._check_ports()
        spans = self._spans = open_spans(settings, "main")
        if spans is not None:
            self._parts.callback(spans.close)
        if here and not settings.mqtt.host:
            self._start_broker()
        warming = self._start_warming()
        self._say("starting Ray")
        runtime = self._runtime = RayRuntime(settings)
        self._parts.enter_context(runtime)
        # Before the first alert can be made.
        self._deliveries = AlertDeliveries(settings, self.broker.publish_alerts, spans)
        shards = self._start_parts()
        self._ingress = runtime.ingress
        self._report()
        if warming is not None:
            warming.join()
        if here:
            self._start_gateway()
        self._parts.enter_context(self._deliveries)
        self._start_watches(runtime, shards)
        self._tell_home_assistant(shards)
        run_file = settings.data_dir / "run.json"
        told = {"url": self.url, "pid": os.getpid(), "mqtt": self.broker.written(), "clock": settings.gateway.clock}
        run_file.write_text(json.dumps(told) + "\n")
        self._parts.callback(run_file.unlink, missing_ok=True)

    def _check_files(self) -> None:
        """What the settings name is read before anything starts: a part that cannot read it ends again and again."""
        if self.settings.mqtt.gateway == "here":
            try:
                load_decoders(self.settings.gateway.decoders)
            except DecoderError as error:
                raise ConfigError(str(error), "docs/decoders.md says what a decoder is.") from error
        for setting, path in named_files(self.settings):
            if setting.startswith(NOT_OURS):
                continue
            if not path.is_file():
                raise ConfigError(f"{setting} is {path}: there is no such file", "Make the file, or unset the setting.")
            if not os.access(path, os.R_OK):
                raise ConfigError(f"{setting} is {path}: it cannot be read", "Let the user that runs Hothouse read it.")
        for path in self._rules_files:
            load_document(path)

    def _claim_state(self) -> None:
        """Take the state for this process alone, see that it can be read, and bring over what an earlier version
        wrote.
        """
        settings = self.settings
        self._parts.enter_context(FolderLock(settings.data_dir))
        storage = storage_of(settings)
        refuse_an_emptied_storage(settings.data_dir, storage)
        self._parts.enter_context(StateLock(owners_of(settings), self._lost, say=self._say))
        if storage.entry(RESTORING) is not None:
            raise StartError(
                f"{storage.url} holds half of a backup: hothouse restore was interrupted",
                "Remove what it wrote there and in data_dir, then run hothouse restore again.",
            )
        refuse_state_of_a_later_release(storage)
        remember_installation(settings.data_dir, storage)
        self._bring_history_over()
        settings.logs_dir.mkdir(exist_ok=True)
        logs = settings.logs
        self._parts.callback(log_to_file(settings.logs_dir, "main", logs.format, logs.level, warns=True))
        warn_of_unread_log(settings)
        bring_files_over(settings.storage_folder, storage)
        bring_along(settings, storage)

    def _check_ports(self) -> None:
        """Where others listen is told before Ray starts. What a killed run has left listens at our own, until it is
        ended.
        """
        settings, ports = self.settings, listening_ports(self.settings)
        end_left_over(settings.data_dir)
        for problem in shared_ports(ports):
            raise StartError(problem.why, problem.advice)
        listens_at(settings)  # refuses that of the API; the broker waits for the one that was killed
        for one in ports:
            if one.setting == "gateway.metrics_port":
                refuse_taken(one)

    def _start_broker(self) -> None:
        self._say("starting a local MQTT broker")
        mqtt = self.settings.mqtt
        own = LocalBroker(self.settings.data_dir / "broker")
        if mqtt.listen:
            own = LocalBroker(own.folder, port=mqtt.port, listen=mqtt.listen)
        self.broker = BrokerInUse.own(self._parts.enter_context(own))
        self._broker_watch = BrokerWatch(own)

    def _start_watches(self, runtime: RayRuntime, shards: Shards) -> None:
        """What this process looks at now and then, each in a thread of its own."""
        settings, publish = self.settings, self.broker.publish
        self._retirements = Retirements(lambda: shards.ask("silent"), publish, time.monotonic)
        self._repeated = RepeatedPlans(lambda: shards.ask("repeated_plans"), publish, time.monotonic)
        self._rule_files = RuleFiles(
            lambda site: settings.site(site).rules_file or settings.alerts.rules_file,
            lambda: shards.ask("alert_rules_of_all"), self.broker.publish_rules, time.monotonic,
        )  # fmt: skip
        watches = [
            Repeating(self._report, REPORT_S, "report"),
            Repeating(runtime.prune_logs, PRUNE_EVERY_S, "old logs"),
            Repeating(self._retirements.look, RETIRE_S, "retirements"),
        ]
        if self._broker_watch is not None:
            watches.append(Repeating(self._broker_watch.look, broker_watch.EVERY_S, "broker"))
        if runtime.certificate is not None:
            watches.append(Repeating(runtime.certificate.renew, LOOK_EVERY_S, "certificate"))
        if self._rules_files:
            watches.append(Repeating(self._rule_files.look, RULES_S, "rules of alerts", at_once=True))
        if any(site.repeat_setpoints for site in settings.sites):
            watches.append(Repeating(self._repeated.look, REPEAT_S, "repeated plans"))
        for watch in watches:
            self._parts.enter_context(watch)

    def _lost(self) -> None:
        """Another process has taken our state over: end, as an operator would have us do. What our parts still write
        is fenced by the epochs of snapshots.
        """
        if self._runtime is not None:
            self._runtime.abandon()
        os.kill(os.getpid(), signal.SIGTERM)

    def _start_warming(self) -> WarmUp | None:
        if self._warm_up is None:
            open_settings_log(self.settings).close()  # made now: the shards find it
            return None
        return WarmUp(self.settings, self._warm_up)

    def _start_parts(self) -> Shards:
        with deferred_interrupts():
            import ray.serve  # noqa: F401 - it reads its switches when it is imported: RayRuntime has set them

            from services.learn.loop.retrainer_actor import start_retrainer
            from services.serve.deployment import start_actors, start_serving

        settings = self.settings
        self._serving = start_actors(settings)
        self._say("starting the shards, the API and the forecaster")
        shards = Shards(settings)  # first: they read what the log holds while the others start
        self._parts.callback(shards.stop)
        self.url = start_serving(settings)
        shards.await_started()
        self._say("starting the retrainer")
        retrainer = start_retrainer(settings)
        # An actor lives as long as its handle, which is kept here.
        self._parts.callback(stop_all, [retrainer], RETRAINER_STOP_S)
        return shards

    def _report(self) -> None:
        """Show on the first live state, which may be a new one, what no actor shows: the ingress and the gateway."""
        publishers = (
            self._retirements, self._repeated, self._rule_files, self._deliveries, self._home_assistant,
            self._broker_watch,
        )  # fmt: skip
        error = "; ".join(one.error for one in publishers if one is not None and one.error)
        certificate = None if self._runtime is None else self._runtime.certificate
        ends_ms = None if certificate is None else certificate.ends_ms
        runtime = RuntimeFigures(
            kind=self._ingress.kind, reason=self._ingress.reason, binary=self._ingress.binary, error=error,
            trace_spans_dropped=self._spans.dropped if self._spans else 0,
            certificate_ends_ms={} if ends_ms is None else {"api": ends_ms},
            **(self._deliveries.figures() if self._deliveries else NO_DELIVERIES),
        )  # fmt: skip
        self._serving.live_states[0].put_stats.remote("runtime", runtime)
        if self.gateway is not None:
            self._serving.live_states[0].put_stats.remote("gateway", self.gateway.figures())

    @property
    def _rules_files(self) -> list[Path]:
        """Every file of rules that the settings name."""
        named = [self.settings.alerts.rules_file, *(site.rules_file for site in self.settings.sites)]
        return [path for path in named if path is not None]

    def _tell_home_assistant(self, shards: Shards) -> None:
        from services.home_assistant.start import home_assistant_link

        if not self.broker.host:
            if self.settings.home_assistant.prefix:
                raise ConfigError("home_assistant.prefix is set, and no broker is configured", "Set mqtt.host.")
            return
        link = home_assistant_link(self.settings, self.broker.address(), self._serving.live_states, shards.actors)
        if link is not None:
            self._home_assistant = self._parts.enter_context(link)

    def _start_gateway(self) -> None:
        self._say("starting the gateway")
        self.gateway = GatewayProcess(self.settings, self.broker)
        self.gateway.start()
        self._parts.callback(self.gateway.stop)


NO_DELIVERIES = DeliveryFigures(alerts_told={}, alerts_waiting={}, alerts_lost={})


def owners_of(settings: Settings) -> Path | OwnersPlace:
    """Where it is written down who runs on the state."""
    if not settings.storage.url:
        return settings.storage_folder
    return OwnersInStorage(storage_of(settings), this_machine(settings.data_dir), settings.data_dir)
