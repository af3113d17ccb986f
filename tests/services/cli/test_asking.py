"""Commands that ask a running system, here or elsewhere: what they print, their keys, and what goes wrong."""

from __future__ import annotations

import json
import ssl
import subprocess
from pathlib import Path

import pytest

from services.cli.running import ask
from tests.conftest import require_program
from tests.services.cli.command_line import commands, hothouse
from tests.services.cli.fake_hothouse import FORECAST, FakeHothouse

pytestmark = pytest.mark.usefixtures("empty_folder")


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


def test_predict_of_a_site_shows_its_zones_alone(running: FakeHothouse) -> None:
    """And says so where there is no such site."""
    running.answers["GET", "/zones"] = (200, {"zones": [{"site": "east", "zone": "z1"}]})
    running.answers["GET", "/zones?site=demo"] = (200, {"zones": [{"site": "demo", "zone": "north-1"}]})
    running.answers["GET", "/zones?site=dmeo"] = (
        404,
        {"status": 404, "detail": "there is no site dmeo; known are demo"},
    )
    assert json.loads(hothouse("predict", "--site", "demo", "--json").output) == [FORECAST]
    result = hothouse("predict", "--site", "dmeo")
    assert (result.exit_code, result.stderr.splitlines()[0]) == (1, "error: there is no site dmeo; known are demo")


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
    """`status` shows readiness, the serving model, the next training, what the parts have done and their last errors;
    all figures where they are asked for.
    """
    result = hothouse("status")
    assert result.exit_code == 0, result.output
    for part in ("ready; 1 of 1 zones; model v3", "7 samples taken, 2 refused (malformed 2)", "retrainer: no history"):
        assert part in result.output
    assert "accepted 7, rejected.malformed 2" in hothouse("status", "--figures").output
    assert "next training in 3 h: after the verdict on v2" in result.output.splitlines()
    assert "next training of trees with 5 days of new rows" in result.output.splitlines()


@pytest.mark.parametrize(
    ("served", "words"),
    [
        (["v3", "v3"], "model v3"),
        (["v2", "v2"], "model v2; the champion v3 does not serve yet"),
        (["v3", "v2"], "model v2, v3; the champion v3 does not serve yet"),
    ],
)
def test_status_names_what_answers_where_that_is_not_the_champion(
    running: FakeHothouse, served: list[str], words: str
) -> None:
    """A champion that replicas cannot load, or have not loaded yet, is not named as if it served."""
    _, status = running.answers["GET", "/status"]
    status["slot"]["replicas"] = {
        f"replica-{index}": {"generation": 2, "version": version, "error": ""} for index, version in enumerate(served)
    }
    first = hothouse("status").output.splitlines()[0]
    assert first.endswith(f"ready; 1 of 1 zones; {words}")


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


def test_an_order_whose_answer_is_broken_off_may_be_carried_out(
    running: FakeHothouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether HAProxy says so, or nobody stands before a replica that dies: it is no system that does not run."""
    broken = {"status": 502, "detail": "an API replica broke off its answer"}
    running.answers["POST", "/models/retrain"] = (502, broken)
    told = hothouse("retrain")
    monkeypatch.setattr(
        "http.server.BaseHTTPRequestHandler.send_response", lambda handler, *_: handler.connection.close()
    )
    cut = hothouse("retrain")
    assert broken["detail"] in told.stderr
    assert "broke off before it had answered" in cut.stderr
    for result in (told, cut):
        assert result.exit_code == 1
        assert "see `hothouse models list` before you give it again" in result.stderr


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
