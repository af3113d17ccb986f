"""The command line: what it prints, its exit codes, and that it stays light."""

from __future__ import annotations

import json
import resource
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from edge.wire.trace_id import step_trace_id
from services.access_keys import AccessKeys
from services.cli import app
from services.cli.base import need_cluster
from services.cli.running import ask
from services.errors import ConfigError
from tests.conftest import require_program

ORIGIN_MS = 1_646_092_800_000
FORECAST = {
    "site": "demo", "zone": "north-1", "origin_ms": ORIGIN_MS, "origin": "2022-03-01T00:00:00Z", "step_s": 300,
    "model_version": "v3", "degraded": ["co2_ppm: 40 min old"], "now": {"air_temp_c": 21.4, "vpd_kpa": None},
    "freshness_s": {},
    "forecasts": {
        target: [{"horizon_min": minutes, "p10": 1.0, "p50": 2.0, "p90": 3.0} for minutes in (30, 120, 1440)]
        for target in ("air_temp_c", "vpd_kpa")
    },
}  # fmt: skip
MODEL = {
    "version": "v3", "stage": "champion", "aliases": ["champion"], "created_ms": ORIGIN_MS, "weights_sha256": "ab",
    "trained_on": {"from": "2022-02-01T00:00:00Z", "to": "2022-03-01T00:00:00Z"}, "passed": True, "forced": False,
    "held_back_mae": {"air_temp_c": {"60": {"model": 0.51, "persistence": 0.9, "naive_24h": 1.1}}},
    "reason": "beats all", "folder": "",
}  # fmt: skip


WEIGHTS = {"climatology": {"30": 0.25, "120": 0.5, "1440": 1.0}, "trees": {"30": 0.746, "120": 0.496, "1440": 0.0},
           "network": {"30": 0.004, "120": 0.004, "1440": 0.0}}  # fmt: skip


class FakeHothouse:
    """Answers as the API does; keeps what it was asked, and with which key."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str | None]] = []
        self.redirects: dict[str, str] = {}
        self.answers: dict[tuple[str, str], tuple[int, Any]] = {
            ("GET", "/zones"): (200, {"zones": [{"site": "demo", "zone": "north-1"}]}),
            ("GET", "/predict?zone=north-1"): (200, FORECAST),
            ("GET", "/predict?zones=demo%2Fnorth-1"): (200, {"zones": [FORECAST], "problems": []}),
            ("GET", "/predict?zone=west"): (404, {"status": 404, "detail": "no zone west; known is demo/north-1"}),
            ("GET", "/models"): (200, {"models": [MODEL], "serving": ["v3"], "errors": ["MLflow is away"]}),
            ("GET", "/models/zones"): (200, {"zones": [
                {"site": "demo", "zone": zone, "origin_ms": ORIGIN_MS,
                 "serving": {"network": "v3", "trees": "trees-v1"}, "weights": weights}
                for zone, weights in (("a", WEIGHTS), ("b", WEIGHTS), ("c", {"first days": {"30": 1.0}}))
            ]}),
            ("GET", "/status"): (200, {
                "health": {"ready": True, "reasons": [], "zones": 1, "zones_usable": 1},
                "slot": {"champion": {"version": "v3"}},
                "components": {
                    "shard-0": {"accepted": 7, "rejected": {"malformed": 2}},
                    "retrainer": {"next_training": "in 3 h: after the verdict on v2"},
                    "retrainer-trees": {"next_training": "with 5 days of new rows"},
                },
                "errors": ["retrainer: no history"], "models": [MODEL], "events": [],
            }),
            ("POST", "/models/v2/promote"): (200, {"version": "v2", "before": "v3"}),
            ("POST", "/models/rollback"): (409, {"status": 409, "detail": "there is no previous champion"}),
            ("POST", "/models/retrain"): (202, {"accepted": True, "reason": ""}),
        }  # fmt: skip
        self.answers_now = threading.Event()
        self.answers_now.set()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                fake.asked.append((self.command, self.path, self.headers.get("Authorization")))
                fake.answers_now.wait()
                status, content = fake.answers.get(
                    (self.command, self.path), (404, {"detail": "there is nothing here"})
                )
                body = json.dumps(content).encode()
                elsewhere = fake.redirects.get(self.path)
                self.send_response(302 if elsewhere else status)
                if elsewhere:
                    self.send_header("Location", elsewhere)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = _answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def fake() -> Iterator[FakeHothouse]:
    """A running Hothouse, as far as the command line can tell."""
    hothouse = FakeHothouse()
    thread = threading.Thread(target=hothouse.server.serve_forever, name="fake", args=(0.01,))
    thread.start()
    yield hothouse
    hothouse.server.shutdown()
    hothouse.server.server_close()
    thread.join()


@pytest.fixture
def running(fake: FakeHothouse, tmp_path: Path) -> FakeHothouse:
    """The same, found through the data folder, with its operator's key."""
    folder = tmp_path / "hothouse-data"
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps({"url": fake.url, "pid": 1}))
    (folder / "operator.key").write_text("the-key\n")
    return fake


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


def hothouse(*arguments: str) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(app, list(arguments))


def commands() -> list[list[str]]:
    """Every command, with its group."""
    found = []
    for info in app.registered_commands:
        assert info.callback is not None
        found.append([info.name or info.callback.__name__])
    for group in app.registered_groups:
        assert group.typer_instance is not None
        for info in group.typer_instance.registered_commands:
            assert info.callback is not None
            found.append([group.name or "", info.name or info.callback.__name__])
    return found


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_explains_itself(command: list[str]) -> None:
    """Each command answers --help with an example of itself."""
    result = hothouse(*command, "--help")
    assert result.exit_code == 0
    assert f"hothouse {' '.join(command)}" in result.output
    assert "xample: " in result.output


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--ahead", "plans.csv"], "--ahead is for a recording"),
        (["--recording", ".", "--ahead-source", "knmi"], "--ahead-source names plans of a file"),
    ],
)
def test_a_demos_plans_are_those_of_a_file_beside_a_recording(options: list[str], says: str) -> None:
    """What would be left out without a word is refused with a sentence, before anything starts."""
    result = hothouse("demo", *options)
    assert result.exit_code != 0
    assert says in result.stderr


def test_help_stays_light() -> None:
    """`hothouse --help` loads none of the heavy libraries, so it answers at once and on the bare install."""
    heavy = {"ray", "torch", "mlflow", "numpy", "pandas", "pyarrow", "fastapi", "httpx", "paho", "amqtt"}
    code = f"import sys, services.cli\nfound = {heavy} & set(sys.modules)\nassert not found, found"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_without_the_cluster_part_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Ray is not installed, the commands that need it say so in one sentence with the remedy."""
    monkeypatch.setattr("services.cli.base.importlib.util.find_spec", lambda name: None if name == "ray" else object())
    with (
        pytest.raises(ConfigError, match=r"`hothouse up` needs the cluster part; missing: ray") as caught,
        need_cluster("up"),
    ):
        pass
    assert "hothouse[cluster]" in caught.value.hint


def test_dead_letters_are_counted_and_listed(tmp_path: Path) -> None:
    """`deadletters` reads the data folder: counts by reason and topic, or the letters themselves; markup stays text."""
    from services.store.deadletters import DeadLetters
    from services.store.rows import DeadLetter

    letter = DeadLetter(0, 7, 0, 1_646_092_800_000, "hothouse/v1/s/z/d/sample", "malformed", "why [bold]", b"\xff{")
    dead_letters = DeadLetters(tmp_path / "storage", 0)
    dead_letters.put([letter, letter._replace(offset=9), letter._replace(offset=8, reason="late")])
    asked = ["--data-dir", str(tmp_path), "deadletters"]
    (first, second) = json.loads(hothouse(*asked, "--json").output)
    assert (first["reason"], first["count"], second["reason"], second["offset"]) == ("malformed", 2, "late", 8)
    assert [x["offset"] for x in json.loads(hothouse(*asked, "--newest", "2", "--json").output)] == [9, 8]
    for shown in (hothouse(*asked).output, hothouse(*asked, "--newest", "1").output):
        assert "malformed" in shown
        assert "[bold]" in shown


def test_predict_shows_a_table(running: FakeHothouse) -> None:
    """`predict ZONE` shows now, the horizons with their band, the version and why it is degraded."""
    result = hothouse("predict", "north-1")
    assert result.exit_code == 0, result.output
    for part in ("demo/north-1", "21.4", "2.0 (1.0-3.0)", "30 min", "2 h", "24 h", "v3", "co2_ppm: 40 min old"):
        assert part in result.output


def test_predict_says_what_a_change_would_do(running: FakeHothouse) -> None:
    """`predict ZONE --change` shows where the evidence comes from, and the effect with its interval."""
    band = {"p10": [0.0, -1.2], "p50": [0.0, -0.75], "p90": [0.0, -0.3]}
    effect = {"horizon_min": [30, 120], "targets": {"air_temp_c": band}}
    says = "Such changes were seen in simulated houses only, not in this zone."
    answer = {"site": "demo", "zone": "north-1", "origin_ms": 1_646_092_800_000, "says": says, "effect": effect}
    running.answers["POST", "/predict"] = (200, answer)
    result = hothouse("predict", "north-1", "--change", "sp_heat_c -1.5 from 22:00 to 04:00")
    assert result.exit_code == 0, result.output
    for part in (says, "02:00", "-0.75 (-1.20 to -0.30)"):
        assert part in result.output
    assert json.loads(hothouse("predict", "north-1", "--change", "vent_lee_pct >= 10", "--json").output) == answer
    running.answers["POST", "/predict"] = (200, answer | {"effect": None, "says": "There is not enough evidence."})
    result = hothouse("predict", "north-1", "--change", "fog_pct =10 % from 22:00")
    assert result.output.strip() == "demo/north-1: There is not enough evidence."


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("north-1", "--change", "warmer"), "'warmer' is no change"),
        (("--change", "sp_heat_c +1"), "a change is asked of one zone"),
    ],
)
def test_predict_refuses_a_change_that_it_cannot_ask(
    running: FakeHothouse, arguments: tuple[str, ...], says: str
) -> None:  # fmt: skip
    """With how to write it; nothing is asked."""
    result = hothouse("predict", *arguments)
    assert result.exit_code == 2
    assert says in result.stderr
    assert running.asked == []


def test_predict_without_a_zone_shows_all(running: FakeHothouse) -> None:
    """`predict --json` asks for every zone and prints the API's answers."""
    result = hothouse("predict", "--json")
    assert json.loads(result.output) == [FORECAST]


def test_predict_of_all_zones_needs_not_each(running: FakeHothouse) -> None:
    """A zone without fresh readings is told beside the others; where no zone has a forecast that is an error."""
    old = "the forecast of demo/west is too old to be used: the newest reading is 2.1 h old"
    problem = {"zone": "demo/west", "status": 503, "detail": old}
    zones = [{"site": "demo", "zone": zone} for zone in ("north-1", "west")]
    running.answers["GET", "/zones"] = (200, {"zones": zones})
    both = "GET", "/predict?zones=demo%2Fnorth-1%2Cdemo%2Fwest"
    running.answers[both] = (200, {"zones": [FORECAST], "problems": [problem]})
    result = hothouse("predict", "--json")
    assert (result.exit_code, json.loads(result.stdout), result.stderr.strip()) == (0, [FORECAST], old)
    running.answers[both] = (200, {"zones": [], "problems": [problem]})
    result = hothouse("predict")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"{old}\nerror: no zone has a forecast that can be shown\n")


def test_predict_says_what_a_first_forecast_waits_for(running: FakeHothouse) -> None:
    """While no zone has a forecast, `predict` says how many samples came and when the first row closes."""
    running.answers["GET", "/zones"] = (200, {"zones": []})
    words = "no zone has a forecast yet: 12 samples came; the first row, of demo, closes in 3 min 20 s of the stream"
    running.answers["GET", "/status"][1]["health"] = {"ready": False, "reasons": [words], "zones": 0}
    result = hothouse("predict")
    assert (result.exit_code, result.output.strip()) == (0, words)


def test_a_running_demo_is_found(running: FakeHothouse, tmp_path: Path) -> None:
    """A demo keeps its own folder inside the data folder, and is asked with its own key where nothing else runs."""
    (tmp_path / "hothouse-data").rename(tmp_path / "demo")
    (tmp_path / "hothouse-data").mkdir()
    (tmp_path / "demo").rename(tmp_path / "hothouse-data" / "demo")
    assert hothouse("retrain").exit_code == 0
    assert running.asked == [("POST", "/models/retrain", "Bearer the-key")]


def test_an_unknown_zone_is_one_sentence(running: FakeHothouse) -> None:
    """The API's problem detail becomes the error, without a traceback."""
    result = hothouse("predict", "west")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.strip() == "error: no zone west; known is demo/north-1"


def test_timeline_tells_what_led_to_what(running: FakeHothouse) -> None:
    """A line an event, in their order: why a model was trained, and why it serves."""
    _, status = running.answers["GET", "/status"]
    status["events"] = [
        {"time_ms": 0, "kind": "drift", "message": "out_temp_c is 6 degC below the two weeks before"},
        {"time_ms": 1, "kind": "retrain", "version": "v2", "trigger": "drift", "seconds": 9, "reason": "0.9 of v1"},
        {"time_ms": 2, "kind": "swap", "version": "v2", "before": "v1", "reason": "0.9 of v1"},
    ]
    lines = hothouse("timeline").output.splitlines()
    assert [line.split()[2] for line in lines] == ["drift", "retrain", "swap"]
    assert "0.9 of v1 Trained in 9 s because of: drift." in lines[1]
    assert "v1 to v2" in lines[2]


def test_status_says_what_serves_and_what_failed(running: FakeHothouse) -> None:
    """`status` shows readiness, the serving model, the next training, the parts' counts and their last errors."""
    result = hothouse("status")
    assert result.exit_code == 0, result.output
    for part in ("ready; 1 of 1 zones; model v3", "accepted 7", "rejected.malformed 2", "retrainer: no history"):
        assert part in result.output
    assert "next training in 3 h: after the verdict on v2" in result.output.splitlines()
    assert "next training of trees with 5 days of new rows" in result.output.splitlines()


def test_models_are_listed_with_their_error(running: FakeHothouse) -> None:
    """`models list` shows each model beside persistence and the 24-hour naive."""
    result = hothouse("models", "list")
    for part in ("v3", "champion", "0.51 / 0.90 / 1.10", "2022-02-01 to 2022-03-01", "beats all"):
        assert part in result.stdout
    assert result.stderr == "MLflow is away\n"


def test_what_serves_each_zone_is_listed_with_its_mixture(running: FakeHothouse) -> None:
    """`models list` shows each zone's versions and what the experts weigh by horizon, zones that are alike together."""
    lines = [line.rstrip() for line in hothouse("models", "list").stdout.splitlines()]
    at = lines.index("demo/a, demo/b  network v3, trees trees-v1")
    assert lines[at + 1 : at + 4] == [
        "    in 30 min  trees 75%, climatology 25%", "    in 2 h     climatology 50%, trees 50%",
        "    in 24 h    climatology 100%",
    ]  # fmt: skip
    assert lines[at + 4 : at + 6] == ["demo/c  network v3, trees trees-v1", "    in 30 min  first days 100%"]
    running.answers["GET", "/models/zones"] = (503, {"detail": "shard-0 does not answer now"})
    result = hothouse("models", "list")
    assert (result.exit_code, "beats all" in result.stdout) == (0, True)
    assert "it is not known now what serves the zones: shard-0 does not answer now" in result.stderr


def test_orders_carry_the_operators_key(running: FakeHothouse) -> None:
    """Orders to the system of this data folder carry its operator's key."""
    assert hothouse("models", "promote", "v2").output.strip() == "v2 is the champion, v3 was"
    assert hothouse("retrain").exit_code == 0
    for command in (["retrain"], ["models", "rollback", "--leave", "v2"], ["models", "promote", "online"]):
        hothouse(*command, "--expert", "trees")
    assert running.asked == [
        ("POST", "/models/v2/promote", "Bearer the-key"),
        ("POST", "/models/retrain", "Bearer the-key"),
        ("POST", "/models/retrain?expert=trees", "Bearer the-key"),
        ("POST", "/models/rollback?expert=trees&leave=v2", "Bearer the-key"),
        ("POST", "/models/online/promote?expert=trees", "Bearer the-key"),
    ]


def test_the_key_goes_nowhere_else(running: FakeHothouse, tmp_path: Path) -> None:
    """A system that is named with --url and is not the one of the data folder never gets the key."""
    (tmp_path / "hothouse-data" / "run.json").write_text(json.dumps({"url": "http://127.0.0.1:1", "pid": 1}))
    hothouse("retrain", "--url", running.url)
    assert running.asked == [("POST", "/models/retrain", None)]


@pytest.mark.parametrize("before", [True, False], ids=["before the command", "after it"])
def test_a_system_elsewhere_is_asked_with_its_key(fake: FakeHothouse, tmp_path: Path, before: bool) -> None:
    """`--url` and `--key-file` reach a system that needs a key from a machine without its data folder."""
    (tmp_path / "reader.key").write_text("read-me\n")
    where = ["--url", f"{fake.url}/", "--key-file", "reader.key"]
    for command in (["predict", "north-1"], ["status"], ["timeline"], ["models", "list"], ["retrain"]):
        result = hothouse(*where, *command) if before else hothouse(*command, *where)
        assert result.exit_code == 0, result.output
    assert [key for _, _, key in fake.asked] == ["Bearer read-me"] * 6


def test_a_system_elsewhere_may_be_a_setting(
    fake: FakeHothouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """client.url and client.key_file say it once for all commands; the key follows no other --url."""
    (tmp_path / "reader.key").write_text("read-me")
    monkeypatch.setenv("HOTHOUSE_CLIENT__KEY_FILE", "reader.key")
    assert hothouse("--url", fake.url, "status").exit_code == 0
    monkeypatch.setenv("HOTHOUSE_CLIENT__URL", fake.url)
    assert hothouse("status").exit_code == 0
    monkeypatch.setenv("HOTHOUSE_CLIENT__URL", "http://127.0.0.1:1")
    assert hothouse("--url", fake.url, "status").exit_code == 0
    assert [key for _, _, key in fake.asked] == ["Bearer read-me", "Bearer read-me", None]


def test_a_named_key_comes_before_the_folders_own(running: FakeHothouse, tmp_path: Path) -> None:
    """--key-file is the key that is sent, also to the system of the data folder."""
    (tmp_path / "reader.key").write_text("read-me")
    assert hothouse("--key-file", "reader.key", "status").exit_code == 0
    assert [key for _, _, key in running.asked] == ["Bearer read-me"]


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--url", "localhost:8000", "status"], 2, "'localhost:8000' is not the address"),
        (["--url", "file:///etc/hostname", "status"], 2, "is not the address"),
        (["--key-file", "gone.key", "status"], 2, "the key file gone.key cannot be read"),
        (["--key-file", "empty.key", "status"], 2, "the key file empty.key is empty"),
        (
            ["--key-file", "odd.key", "status"],
            2,
            "the key file odd.key must hold one line of printable ASCII",
        ),
        (["--url", "http://127.0.0.1:1", "deadletters"], 2, "deadletters"),
        (["--key-file", "empty.key", "doctor"], 2, "doctor"),
    ],
    ids=lambda value: "" if isinstance(value, int) else None,
)
def test_a_wrong_address_or_key_file_is_one_sentence(
    running: FakeHothouse, tmp_path: Path, options: list[str], code: int, says: str
) -> None:
    """What is wrong is named before anything is asked; a command that asks nobody does not take them."""
    (tmp_path / "empty.key").write_text("\n")
    (tmp_path / "odd.key").write_text("schlüssel\n")
    result = hothouse(*options)
    assert (result.exit_code, running.asked) == (code, [])
    assert says in result.stderr


def test_a_missing_or_wrong_key_says_how_to_give_one(running: FakeHothouse) -> None:
    """The API's refusal comes with what to do next."""
    for status, detail in ((401, "reading needs a key"), (403, "the key that was sent does not allow reading")):
        running.answers["GET", "/status"] = (status, {"detail": detail})
        result = hothouse("status")
        assert (result.exit_code, detail in result.stderr, "--key-file" in result.stderr) == (1, True, True)


def test_every_command_that_asks_takes_both_before_its_name_too() -> None:
    """The commands that have --url are those that the options before a command are for."""
    asking = set()
    for command in commands():
        shown = hothouse(*command, "--help").output
        if "--url" in shown:
            asking.add(command[0])
            assert "--key-file" in shown
    assert asking == set(ask.COMMANDS)


def test_a_key_follows_no_redirect(fake: FakeHothouse, tmp_path: Path) -> None:
    """A system that sends elsewhere is an error that names where to: the key goes to the named address only."""
    (tmp_path / "reader.key").write_text("read-me")
    fake.redirects["/status"] = f"{fake.url}/elsewhere"
    result = hothouse("--url", fake.url, "--key-file", "reader.key", "status")
    assert (result.exit_code, f"{fake.url}/elsewhere" in result.stderr) == (1, True)
    assert [path for _, path, _ in fake.asked] == ["/status"]


def test_the_systems_certificates_are_trusted(
    fake: FakeHothouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind TLS a system is asked where its CA is among those of the machine, and nowhere else."""
    openssl = require_program("openssl")
    made = [
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=house",
        "-keyout",
        "key",
        "-out",
        "ca",
    ]
    names = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([openssl, "req", *made, *names], cwd=tmp_path, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "ca", tmp_path / "key")
    fake.server.socket = context.wrap_socket(fake.server.socket, server_side=True)
    where = fake.url.replace("http:", "https:")
    unknown = hothouse("--url", where, "status")
    assert (unknown.exit_code, "CERTIFICATE_VERIFY_FAILED" in unknown.stderr, fake.asked) == (1, True, [])
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca"))
    assert hothouse("--url", where, "status").exit_code == 0


def test_no_proxy_of_the_environment_is_asked(running: FakeHothouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address is asked itself, whatever proxy the environment names for the world outside."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert hothouse("retrain").exit_code == 0
    assert running.asked == [("POST", "/models/retrain", "Bearer the-key")]


def test_an_answer_that_is_no_json_is_one_sentence(running: FakeHothouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """What answers there is something else: that, and the setting to look at, is all that is said."""
    monkeypatch.setattr("json.dumps", lambda content: "<html>")
    result = hothouse("status")
    assert (result.exit_code, "did not answer with JSON" in result.stderr, "--url" in result.stderr) == (1, True, True)


def test_help_shows_how_to_ask_a_system_elsewhere() -> None:
    """`hothouse --help` names both options, with an example."""
    shown = " ".join(hothouse("--help").output.split())
    assert "hothouse --url http://greenhouse:8000 --key-file reader.key status" in shown


def test_a_refused_order_gives_its_reason(running: FakeHothouse) -> None:
    """A refusal is an error with the reason that the system gave, also where it came with a 2xx."""
    rolled = hothouse("models", "rollback")
    assert (rolled.exit_code, "there is no previous champion" in rolled.stderr) == (1, True)
    running.answers["POST", "/models/retrain"] = (202, {"accepted": False, "reason": "one runs already"})
    asked = hothouse("retrain")
    assert (asked.exit_code, "one runs already" in asked.stderr) == (1, True)


def test_an_order_without_an_answer_may_be_carried_out(running: FakeHothouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits in vain is told to look before the order is given again; who only asked, that the system is busy."""
    monkeypatch.setattr(ask, "ORDER_S", 0.05)
    monkeypatch.setattr(ask, "QUESTION_S", 0.05)
    running.answers_now.clear()
    ordered, asked = hothouse("models", "rollback"), hothouse("status")
    running.answers_now.set()
    assert (ordered.exit_code, asked.exit_code) == (1, 1)
    assert "did not answer within" in ordered.stderr
    assert "see `hothouse models list` before you give it again" in ordered.stderr
    assert "It is busy" in asked.stderr


@pytest.mark.parametrize(
    ("zone", "says"),
    [
        ("north-1", "does not name a site and a zone"),
        ("demo/_site", "cannot be retired alone"),
        ("a/b/c", "a zone and"),
    ],
)
def test_only_a_zone_can_be_retired(zone: str, says: str) -> None:
    """A zone without its site, the weather station and a longer path are refused in a sentence, before any broker."""
    result = hothouse("zones", "retire", zone)
    assert result.exit_code == 2
    assert says in " ".join(result.output.replace("│", " ").split())


def test_a_folder_where_nothing_has_run_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In another folder than `hothouse up` runs in, no dead letters are no news, and a new login or key opens nothing:
    the folder is named in full.
    """
    monkeypatch.chdir(tmp_path)
    words, here = "no hothouse has run on the data folder", str(tmp_path / "hothouse-data")
    asked = hothouse("deadletters")
    assert (asked.exit_code, asked.stdout) == (1, "")
    for options in (
        ["deadletters"],
        ["devices", "list"],
        ["keys", "list"],
        ["devices", "add", "d"],
        ["keys", "add", "k"],
    ):
        told = hothouse(*options).stderr
        assert words in told.lower(), options
        assert here in told
    (tmp_path / "hothouse-data" / "storage").mkdir()
    for options in (
        ["deadletters"],
        ["devices", "list"],
        ["keys", "list"],
        ["devices", "add", "e"],
        ["keys", "add", "l"],
    ):
        result = hothouse(*options)
        assert (result.exit_code, result.stderr) == (0, ""), options


def test_nothing_running_is_one_sentence() -> None:
    """Without a running system the error says how to start one."""
    result = hothouse("status")
    assert result.exit_code == 1
    assert f"no Hothouse runs on the data folder {Path('hothouse-data').absolute()}" in result.stderr
    assert "hothouse up" in result.stderr


def test_a_dead_address_is_one_sentence() -> None:
    """An address that does not answer is named."""
    result = hothouse("status", "--url", "http://127.0.0.1:1")
    assert (result.exit_code, "nothing answers at http://127.0.0.1:1" in result.stderr) == (1, True)


@pytest.mark.parametrize("command", [["doctor"], ["config"], ["up"], ["status"]], ids=" ".join)
def test_a_wrong_setting_stops_every_command(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong setting is named with its value and what is allowed; exit code 2, no traceback."""
    monkeypatch.setenv("HOTHOUSE_STREAM__STEP_S", "7")
    result = hothouse(*command)
    assert result.exit_code == 2
    told = result.output + result.stderr
    for part in ("stream.step_s", "'7'", "10"):
        assert part in told
    assert "Traceback" not in told


def test_settings_are_listed_for_whoever_wrote_a_wrong_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command's hint names `hothouse config`, which fails, too, and lists them all first."""
    monkeypatch.setenv("HOTHOUSE_MQTT__PROT", "1884")
    result = hothouse("config")
    assert result.exit_code == 2
    assert "mqtt.prot is not a setting; did you mean mqtt.port?" in result.stderr
    assert "Each setting stands above with its default." in result.stderr
    assert "storage.url" in result.stdout
    as_json = hothouse("config", "--json")
    assert (as_json.exit_code, as_json.stdout) == (2, "")


def test_doctor_speaks_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """`doctor --json` prints every check with its state."""
    monkeypatch.setenv("HOTHOUSE_API__PORT", "0")
    result = hothouse("doctor", "--json")
    assert {check["state"] for check in json.loads(result.output)} <= {"ok", "warn", "fail"}


def test_config_lists_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """`config --json` lists value and source of every setting, and no secret."""
    monkeypatch.setenv("HOTHOUSE_INFLUX__TOKEN", "hush-hush")
    result = hothouse("config", "--json")
    views = {view["name"]: view for view in json.loads(result.output)}
    assert (views["influx.token"]["source"], "hush" in result.output) == ("environment", False)


def test_config_says_which_setting_an_option_gave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An option wins over a variable, and is what `config` names then."""
    monkeypatch.setenv("HOTHOUSE_DATA_DIR", "/var/lib/hothouse")
    for options, said in (((), "environment"), (("--data-dir", str(tmp_path)), "option")):
        views = {view["name"]: view for view in json.loads(hothouse(*options, "config", "--json").output)}
        assert views["data_dir"]["source"] == said


def test_init_writes_a_file_once() -> None:
    """`init` writes a file that is valid, and never overwrites one unasked."""
    assert hothouse("init").exit_code == 0
    assert hothouse("--config", "hothouse.toml", "config").exit_code == 0
    again = hothouse("init")
    assert (again.exit_code, "--force" in again.stderr) == (2, True)
    assert hothouse("init", "--force").exit_code == 0
    assert "`hothouse --config green.toml doctor` checks it" in hothouse("init", "green.toml").output


def test_what_cannot_be_written_whole_is_not_there(tmp_path: Path) -> None:
    """As on a full disk: here no file may be longer than a kilobyte. A second try finds no half file in its way."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        refused = hothouse("init", str(tmp_path / "h.toml"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (refused.exit_code, "cannot be written: File too large" in refused.stderr) == (2, True)
    assert list(tmp_path.glob("*.toml")) == []
    assert hothouse("init", str(tmp_path / "h.toml")).exit_code == 0


def test_a_summary_without_a_folder_is_refused_at_once(tmp_path: Path) -> None:
    """A demo that could not write its summary is refused before it starts."""
    result = hothouse("demo", "--summary", "gone/s.json")
    assert (result.exit_code, "--summary gone/s.json" in result.stderr) == (2, True)


def test_an_unknown_error_shows_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of ours is told in one line, and --debug shows where it is."""

    def broken(*_: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr("services.cli.setup.commands.list_settings", broken)
    result = hothouse("config")
    assert result.exit_code == 1
    assert "RuntimeError: boom" in result.stderr
    assert "--debug" in result.stderr
    assert isinstance(hothouse("--debug", "config").exception, RuntimeError)


def test_a_buffer_is_not_run_as_a_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """With uplink.to the log is emptied as its records leave: `hothouse up` on it is refused in a sentence."""
    monkeypatch.setenv("HOTHOUSE_UPLINK__TO", "mqtt://central.example")
    result = hothouse("up")
    assert result.exit_code == 2
    assert "this log is a buffer" in result.output


def test_keys_are_made_listed_and_revoked(tmp_path: Path) -> None:
    """The key is printed once, alone on its line; afterwards there is its name, scope and end."""
    keys = ["--data-dir", str(tmp_path), "keys"]
    made = CliRunner().invoke(app, [*keys, "add", "display", "--scope", "read", "--days", "2"])
    assert made.exit_code == 0, made.output
    assert AccessKeys(tmp_path).find(made.stdout.strip()) is not None
    (listed,) = json.loads(CliRunner().invoke(app, [*keys, "list", "--json"]).output)
    assert (listed["name"], listed["scope"]) == ("display", "read")
    assert listed["expires_ms"] - listed["created_ms"] == 2 * 86_400_000
    assert "display" in CliRunner().invoke(app, [*keys, "list"]).output
    again = CliRunner().invoke(app, [*keys, "add", "display"])
    assert again.exit_code == 2
    assert CliRunner().invoke(app, [*keys, "revoke", "display"]).exit_code == 0
    limited = CliRunner().invoke(app, [*keys, "add", "north", "--site", "demo", "--site", "other"])
    assert limited.exit_code == 0
    assert "Reading is open to all" in limited.output
    (listed,) = json.loads(CliRunner().invoke(app, [*keys, "list", "--json"]).output)
    assert listed["sites"] == ["demo", "other"]
    assert "demo, other" in CliRunner().invoke(app, [*keys, "list"]).output
    assert CliRunner().invoke(app, [*keys, "add", "south", "--site", "a/b"]).exit_code == 2
    assert CliRunner().invoke(app, [*keys, "revoke", "north"]).exit_code == 0
    assert AccessKeys(tmp_path).listed() == []
    assert CliRunner().invoke(app, [*keys, "add", "a b"]).exit_code == 2


def test_a_sample_is_followed_by_its_time(tmp_path: Path) -> None:
    """Its step and the step's id, and each line with that id in the order of time, whatever form a log has."""
    (tmp_path / "logs").mkdir()
    id = step_trace_id("demo", 1_646_136_300_000)
    line = {"time": "2022-03-01T12:05:31.000+00:00", "level": "INFO", "message": "forecast", "trace_id": id}
    (tmp_path / "logs" / "shard-0.log").write_text(json.dumps(line) + "\nanother line\n")
    (tmp_path / "logs" / "gateway.log").write_text(f"2022-03-01 12:03:11,000 INFO edge: refused [trace_id={id}]\n")
    for time in ("2022-03-01T12:03:10Z", "2022-03-01T13:03:10+01:00", "1646136190000"):
        said = hothouse("--data-dir", str(tmp_path), "trace", "demo", time).output.splitlines()
        assert said == [
            f"step of demo that ends 2022-03-01T12:05:00Z: trace_id {id}",
            f"2022-03-01 12:03:11,000 gateway: INFO edge: refused [trace_id={id}]",
            "2022-03-01T12:05:31.000+00:00 shard-0: INFO forecast",
        ]
    assert "is no time" in hothouse("trace", "demo", "yesterday").output


@pytest.mark.parametrize("time", ["1646136190000000000", "9999-12-31T23:59:59Z"])
def test_a_time_that_no_sample_has_is_told(time: str) -> None:
    """A ts in nanoseconds, say, is a mistake of the user and not a fault of ours."""
    result = hothouse("trace", "demo", time)
    assert result.exit_code == 2
    assert "is no time of a sample" in result.stderr


def test_a_login_is_made_only_where_its_password_can_be_written(tmp_path: Path) -> None:
    """Else nobody would ever see it; and a login that is refused leaves no empty file."""
    add = ("--data-dir", str(tmp_path / "data"), "devices", "add", "bench", "--password-file")
    refused = hothouse(*add, str(tmp_path / "none" / "p"))
    assert (refused.exit_code, "cannot be written" in refused.stderr) == (2, True)
    made = hothouse(*add, str(tmp_path / "p"))
    assert made.exit_code == 0, made.output
    assert (tmp_path / "p").stat().st_mode & 0o777 == 0o600
    assert "exists" in hothouse(*add, str(tmp_path / "p")).stderr
    again = hothouse(*add, str(tmp_path / "q"))
    assert (again.exit_code, "named bench already" in again.stderr, (tmp_path / "q").exists()) == (2, True, False)
    (tmp_path / "file").touch()
    nowhere = hothouse("--data-dir", str(tmp_path / "file"), "devices", "add", "bench")
    assert (nowhere.exit_code, "cannot be changed" in nowhere.stderr) == (2, True)
