"""The end-to-end test of the installation on Kubernetes, from outside.

    python3 -m tests.kubernetes.run [--keep] [--again] [--only WORDS ...] [--pretrain] [--restore]

Needs a cluster that this machine's addresses reach, with KubeRay's operator and the images loaded (docs/kubernetes.md).
Brings servers, a greenhouse and the overlay `small` up; follows samples from the broker into rows, /predict and
Prometheus; retrains and swaps; kills and evicts the pods of one part after the other under twenty requests a second;
has a second Ray cluster take over; balances the ledger of every message; and takes everything down.
Prints a timeline and a table. Standard library only.
The exit code is 0 if all held.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tests.ci.record import FOLDER_VARIABLE
from tests.compose.listening import READ, listening, not_as_told
from tests.compose.report import Report, clock, stretches
from tests.compose.settings import make_secrets
from tests.compose.stack import ROOT, ZONES, StackError
from tests.compose.waiting import until
from tests.kubernetes.accounts import ACCOUNTS, QUESTIONS, rights
from tests.kubernetes.cluster import (
    APPLY,
    BACKUP,
    CHANGED,
    GREENHOUSE,
    NAMESPACE,
    SERVERS,
    SERVERS_NAMESPACE,
    SYSTEM,
    Cluster,
    kubeconfig,
    run,
    secret,
)  # fmt: skip
from tests.kubernetes.harm import HARMS, change_settings, forecasts, harm, kill_system, upgrade
from tests.kubernetes.job import FILES, pretrain
from tests.kubernetes.load import Load, Seen
from tests.patience import budget_s

LOGS = ROOT / "deploy" / "e2e-logs"
SECRETS = ROOT / "deploy" / "secrets"
FIRST_FORECAST_S = 240.0
VOLUMES = 3  # claims of Redis, MLflow and Mosquitto
LEARN_FROM_MS = 36 * 3_600_000  # the first day warms the climatology, the last hours are held back
SYSTEM_KILLED, AWAY_S = "system killed", 180.0
"""Nothing can answer meanwhile; for how long it may not."""
CHANGED_IN_PLACE, UPGRADED, AGAIN = "settings changed", "upgraded", "upgraded again"
"""Each brings the settings of the other one of two overlays. The last takes three minutes more, so it is only done
where it is named: it waits until what was there before is gone."""
OFFICE = "https://office.example.org"
"""Pages of that origin may ask the API with the settings of `CHANGED`, and not with those of `SYSTEM`."""
ENOUGH = 20
"""So many questions reach each of two pods, but for two cases in a million."""
SETTLED = (
    "samples", "plans", "nonsense", "in_rows", "late", "refused", "open", "lost", "twice", "copies", "late_copies",
)  # fmt: skip


def main() -> int:
    """Run the whole story."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="leave everything running")
    parser.add_argument("--again", action="store_true", help="on what an earlier run with --keep left")
    parser.add_argument("--ledger", action=argparse.BooleanOptionalAction, default=True, help="balance it in the end")
    parser.add_argument("--only", nargs="*", help='of what is done, only this: "ray head killed" ...; nothing: nothing')
    parser.add_argument("--pretrain", action="store_true", help="then have a RayJob pre-train a network")
    parser.add_argument("--restore", action="store_true", help="then back up, delete all but Kafka's log, and restore")
    given = parser.parse_args()
    if problem := kubeconfig():
        print(problem, file=sys.stderr)
        return 2
    report, cluster, table = Report(), Cluster(), list[tuple[str, float, Seen]]()
    if problem := not_ours(cluster.get("/api/v1/namespaces")["items"]):
        print(problem, file=sys.stderr)
        return 2
    try:
        if not given.again:
            _start(cluster, report)
        _tell(cluster, report, table, given.only)
        if given.ledger:
            _settle(cluster, report)
        if given.pretrain:
            _pretrain(cluster, report)
        if given.restore:
            _restore(cluster, report)
    except (StackError, TimeoutError, OSError, LookupError, ValueError) as error:
        held_up = isinstance(error, StackError | OSError)
        report.check("the story was told to its end", False, f"{type(error).__name__}: {error}", held_up)
    finally:
        with closing(cluster):
            try:
                if report.failed:
                    cluster.keep_logs(LOGS)
                    report.say(f"logs are in {LOGS.relative_to(ROOT)}")
            finally:  # also where a pod has gone that was asked for its log
                if not given.keep:
                    _take_down(cluster, report)
    _print(table)
    report.print()
    if folder := os.environ.get(FOLDER_VARIABLE):
        report.record((sys.executable, "-m", "tests.kubernetes.run", *sys.argv[1:])).write(Path(folder))
    return 1 if report.failed else 0


def _start(cluster: Cluster, report: Report) -> None:
    _take_down(cluster, report)  # of a run that was interrupted
    cluster.check_volumes(VOLUMES)
    make_secrets()
    report.say("starting")
    began_s = time.monotonic()
    _bring_up(cluster)
    until(lambda: set(cluster.origins()) == set(ZONES), "a forecast of every zone", 3 * FIRST_FORECAST_S)
    first_s, limit_s = time.monotonic() - began_s, budget_s(FIRST_FORECAST_S)
    report.check(f"first forecast of every zone within {limit_s:.0f} s", first_s <= limit_s, f"{first_s:.0f} s", True)


def _tell(cluster: Cluster, report: Report, table: list[tuple[str, float, Seen]], only: list[str] | None) -> None:
    with Load(cluster.address("hothouse-api"), ZONES[0]) as load:
        _see_the_way(cluster, report)
        if not cluster.ask("/models")["models"]:
            _learn(cluster, report, load)
        _see_the_ports(cluster, report)
        _see_the_accounts(cluster, report)
        done = [(what.words, what.most_failed, partial(harm, cluster, what)) for what in HARMS]
        done += [(SYSTEM_KILLED, round(20 * AWAY_S), partial(kill_system, cluster))]
        changes = ((CHANGED_IN_PLACE, change_settings), (UPGRADED, upgrade), (AGAIN, upgrade))
        done += [(words, 0, partial(_with_other_settings, cluster, report, words, how)) for words, how in changes]
        wanted = [words for words, *_ in done if words != AGAIN] if only is None else only
        for words, most_failed, do in done:
            if words not in wanted:
                continue
            began_s = time.monotonic()
            report.say(f"{words} at {clock(max(forecasts(cluster).values()))} of the greenhouse's time ...")
            took_s = do()
            seen = load.seen(began_s)
            table.append((words, took_s, seen))
            report.check(f"{words}: at most {most_failed} fail", seen.failed <= most_failed, seen.words)
        _see_the_way(cluster, report)


def _with_other_settings(
    cluster: Cluster, report: Report, words: str, change: Callable[[Cluster, Path], float]
) -> float:
    """Apply the other one of the two overlays."""
    before = cluster.takes_pages_of(OFFICE)
    took_s = change(cluster, SYSTEM if before else CHANGED)
    taken = {cluster.takes_pages_of(OFFICE) for _ in range(ENOUGH)}
    report.check(f"{words}: its settings hold", taken == {not before}, f"{OFFICE}: {taken}")
    return took_s


def _bring_up(cluster: Cluster) -> None:
    """From an empty cluster: the secrets first, so that nothing waits for them."""
    for namespace in (NAMESPACE, SERVERS_NAMESPACE):
        cluster.kubectl("create", "namespace", namespace)
    cluster.kubectl("label", "namespace", SERVERS_NAMESPACE, "hothouse/e2e=true")
    run(str(ROOT / "deploy/kubernetes/secrets.sh"), NAMESPACE)
    names = ("influx_token", "storage_credentials", "mqtt_greenhouse")
    files = {**{name: SECRETS / name for name in names}, "ca.crt": SECRETS / "tls/ca.crt"}
    cluster.kubectl(*secret(SERVERS_NAMESPACE, "login", files))
    scripts = (ROOT / "deploy/influxdb/setup.sh", ROOT / "deploy/storage/start.sh")
    made = ["create", "configmap", "scripts", *(f"--from-file={path}" for path in scripts)]
    cluster.kubectl("-n", SERVERS_NAMESPACE, *made)
    cluster.apply(SERVERS)
    run(str(APPLY), str(SYSTEM))
    # A broker keeps messages for a session, which is there once the gateway was: devices must not speak before.
    gateway = ("-n", NAMESPACE, "rollout", "status", "statefulset/gateway", f"--timeout={FIRST_FORECAST_S:.0f}s")
    cluster.kubectl(*gateway, timeout_s=FIRST_FORECAST_S)
    cluster.apply(GREENHOUSE)


def not_ours(namespaces: Sequence[Mapping[str, Any]]) -> str:
    """Why nothing is to be deleted on a cluster with these namespaces; empty: what is there, an earlier run left."""
    labels = {one["metadata"]["name"]: one["metadata"].get("labels", {}) for one in namespaces}
    there = {NAMESPACE, SERVERS_NAMESPACE} & labels.keys()
    if not there or labels.get(SERVERS_NAMESPACE, {}).get("hothouse/e2e") == "true":
        return ""
    return (
        f"The cluster that KUBECONFIG names has {' and '.join(sorted(there))}, which no run of this test left: "
        "it would delete them. Name another cluster, or delete these namespaces yourself."
    )


def _take_down(cluster: Cluster, report: Report) -> None:
    """All at once, but for Redis: the operator removes from it what Ray clusters left, before they are gone."""
    at_once = ("--ignore-not-found", "--wait=false")
    cluster.kubectl("-n", NAMESPACE, "delete", "rayjob,raycluster,deployment", "--all", *at_once)
    cluster.kubectl("delete", "namespace", SERVERS_NAMESPACE, *at_once)
    # Nobody is to be served any more: nodes need not be drained.
    of_work = ("pod", "-l", "app.kubernetes.io/component in (ray-worker, ray-api, hothouse)", "--grace-period=1")
    cluster.kubectl("-n", NAMESPACE, "delete", *of_work, *at_once)
    cluster.kubectl("-n", NAMESPACE, "delete", "raycluster", "--all", "--ignore-not-found", timeout_s=400)
    for namespace in (NAMESPACE, SERVERS_NAMESPACE):
        cluster.kubectl("delete", "namespace", namespace, "--ignore-not-found", timeout_s=300)
    report.say("everything is taken down")


def _see_the_way(cluster: Cluster, report: Report) -> None:
    """What came over the broker is in Prometheus, InfluxDB and /predict."""
    before = forecasts(cluster)
    until(lambda: cluster.newest_point() >= max(before.values()), "rows in InfluxDB", 60)
    report.check("rows of every zone in InfluxDB, by Flux", True, f"to {clock(cluster.newest_point())}")
    for job, metric in (("gateway", "hothouse_gateway_samples_total"), ("hothouse", "hothouse_samples_accepted_total")):
        until(lambda metric=metric: cluster.measured(metric) > 0, f"{metric} is in Prometheus", 60)  # type: ignore[misc]
        report.check(f"{metric} in Prometheus", True, f"{cluster.measured(metric):,.0f} from {job}")
    found = [cluster.ask(f"/predict?zone={zone}") for zone in ZONES]
    bands = [
        point["p10"] <= point["p50"] <= point["p90"]
        for answer in found
        for points in answer["forecasts"].values()
        for point in points
    ]
    report.check("/predict of each zone: quantiles in order", bool(bands) and all(bands), f"{len(bands)} points")
    ordered = cluster.run_inside("order.py", "http://hothouse-api", ZONES[0])
    report.check("an order by the API goes through the broker, and alerts do", all(ordered.values()), str(ordered))


def _see_the_ports(cluster: Cluster, report: Report) -> None:
    """What listens is what docs/security.md says."""
    seen: defaultdict[str, set[int]] = defaultdict(set)
    for pod in cluster.pods("app.kubernetes.io/name=hothouse"):
        part = pod["metadata"]["labels"]["app.kubernetes.io/component"]
        seen[part] |= listening(cluster.exec(pod["metadata"]["name"], *READ))
    wrong = not_as_told("Kubernetes", seen)
    said = "; ".join(wrong) or f"{sum(map(len, seen.values()))} ports of {len(seen)} parts"
    report.check("what listens is what docs/security.md says", not wrong, said)
    told = cluster.told_without_tls("redis", 6379, b"PING\r\n")
    report.check("Redis says nothing without TLS", not told, str(told))


def _see_the_accounts(cluster: Cluster, report: Report) -> None:
    """No pod may ask the API server for anything."""
    found = rights(cluster.post)
    said = ", ".join(found) or f"{len(ACCOUNTS) * len(QUESTIONS)} questions of {len(ACCOUNTS)} accounts"
    report.check("no account may do anything", not found, said)


def _learn(cluster: Cluster, report: Report, load: Load) -> None:
    """A retraining, and a swap under the steady reader."""
    report.say("waiting for enough history to learn from")
    began_ms = cluster.ask(f"/history?zone={ZONES[0]}")["end_ms"][0]
    until(lambda: max(cluster.origins().values()) >= began_ms + LEARN_FROM_MS, "36 hours of history", 480)
    asked_s = time.monotonic()
    cluster.hothouse("retrain")
    until(lambda: any(cluster.ask("/models")[told] for told in ("models", "errors")), "a training ends", 420, every_s=2)
    if not (found := cluster.ask("/models"))["models"]:
        raise TimeoutError(f"no model is registered: {found['errors']}")
    report.say(f"v1 is registered after {time.monotonic() - asked_s:.0f} s")
    if cluster.ask("/status")["slot"]["champion"]["version"] != "v1":
        cluster.hothouse("models", "promote", "v1")
    until(lambda: load.answers[-1].version == "v1", "v1 answers", 120)
    time.sleep(5)
    seen = load.seen(asked_s)
    report.check("no request failed in training and swap", not seen.failed, seen.words)
    if seen.failed:
        cluster.keep_logs(LOGS / "training")  # the pods are killed later, and what they said goes with them
    until(lambda: cluster.measured("hothouse_swaps_total") >= 1, "the swap is in Prometheus", 60)
    report.check("hothouse_swaps_total in Prometheus", True, f"{cluster.measured('hothouse_swaps_total'):.0f}")


def _settle(cluster: Cluster, report: Report) -> None:
    """Every message that was published, in a row or a dead letter."""
    report.balancing = True
    stopped_ms = cluster.stop_simulator()
    report.say(f"the greenhouse stops at {clock(stopped_ms)} of its time")
    cluster.simulate(stopped_ms + 20 * 60_000, stopped_ms + 40 * 60_000)
    until(lambda: cluster.newest_point() > stopped_ms - 300_000, "the last rows are in InfluxDB", 90)
    cluster.write("/tmp/messages.tsv", cluster.published())
    found = cluster.run_inside("settle.py", "/tmp/messages.tsv", timeout_s=300)
    report.ledger = {name: found[name] for name in SETTLED}
    said = f"{found['in_log']:,} of {found['published']:,}{stretches(found['never_came'])}"
    report.check("every message is in Kafka", found["in_log"] == found["published"], said)
    lost, twice = found["lost"], found["twice"]
    report.check("0 lost, 0 counted twice", not (lost or twice), f"{lost} and {twice}")
    for line in found["disputed"]:
        report.say(line)
    report.check("samples still in open rows", found["open"] == 0, str(found["open"]))
    other = {name: found[name] for name in ("rows_not_in_influxdb", "rows_other_in_influxdb", "points_without_row")}
    report.check("InfluxDB has the rows of the history", not any(other.values()), f"{found['rows']:,} rows; {other}")


def _pretrain(cluster: Cluster, report: Report) -> None:
    """A network, from simulated sites, on a Ray cluster of its own."""
    report.say("pre-training")
    began_s = time.monotonic()
    found = pretrain(cluster)
    said = f"after {time.monotonic() - began_s:.0f} s: {', '.join(found)}"
    report.check("a RayJob pre-trains, and the bucket has the artefact", found == FILES, said)


def _restore(cluster: Cluster, report: Report) -> None:
    """The same forecasts and models after everything but Kafka's log was deleted. The greenhouse must be silent."""
    report.say("backing up")
    before = _known(cluster)
    with tempfile.TemporaryDirectory() as folder:
        run(str(BACKUP), folder, timeout_s=300)
        report.say("deleting the installation, and what the object store has")
        cluster.kubectl("-n", NAMESPACE, "delete", "raycluster", "--all", timeout_s=400)
        cluster.kubectl("delete", "namespace", NAMESPACE, timeout_s=300)
        storage = ("-n", SERVERS_NAMESPACE, "rollout")
        cluster.kubectl(*storage, "restart", "deployment/storage")  # its disk ends with its pod
        cluster.kubectl(*storage, "status", "deployment/storage")
        began_s = time.monotonic()
        cluster.kubectl("create", "namespace", NAMESPACE)
        run(str(ROOT / "deploy/kubernetes/secrets.sh"), NAMESPACE)
        run(str(BACKUP), "--restore", folder, str(SYSTEM), timeout_s=600)
    cluster.forget_addresses()
    until(lambda: set(cluster.origins()) == set(ZONES), "a forecast of every zone", 3 * FIRST_FORECAST_S)
    # The retrainer reads one kind of model after the other, and last of all. Each replica of the API hears of it for
    # itself, so that one may answer with a model that another lacks. What lacks after a minute is told below.
    with suppress(TimeoutError):
        until(lambda: _known(cluster) == before, "what was known before", 60)
    took_s, after = time.monotonic() - began_s, _known(cluster)
    other = [f"{there} is {here} now" for there, here in zip_longest(before, after) if there != here]
    said = "; ".join([f"after {took_s:.0f} s", *(words[:400] for words in other)])
    report.check("restored into an empty cluster: the same forecasts", not other, said)


def _known(cluster: Cluster) -> list[tuple[object, ...]]:
    """Each zone's forecast, and the models."""
    names = ("origin_ms", "model_version", "forecasts")
    found = [cluster.ask(f"/predict?zone={zone}") for zone in ZONES]
    models = [(model["version"], model["aliases"]) for model in cluster.ask("/models")["models"]]
    return [*(tuple(answer[name] for name in names) for answer in found), *models]


def _print(table: list[tuple[str, float, Seen]]) -> None:
    if not table:
        return
    print(f"\n{'what was done':24} {'asked':>7} {'failed':>7} {'longest gap':>12} {'recovered after':>16}")
    for words, took_s, seen in table:
        print(f"{words:24} {seen.asked:7,} {seen.failed:7,} {seen.longest_gap_s:10.1f} s {took_s:14.0f} s")


if __name__ == "__main__":
    sys.exit(main())
