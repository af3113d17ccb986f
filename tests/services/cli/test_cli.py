"""The command line: help, settings, and what needs no running system; its exit codes, and that it stays light."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edge.wire.trace_id import step_trace_id
from services.access_keys import AccessKeys
from services.cli import app, base
from services.cli.base import need_cluster, need_out
from services.cli.system import takes_the_network
from services.config import load_settings
from services.errors import ConfigError
from tests.services.cli.command_line import commands, hothouse

pytestmark = pytest.mark.usefixtures("empty_folder")


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_explains_itself(command: list[str]) -> None:
    """Each command answers --help with an example of itself."""
    result = hothouse(*command, "--help")
    assert result.exit_code == 0
    assert f"hothouse {' '.join(command)}" in result.output
    assert "xample: " in result.output


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (["demo", "--minutes", "x"], "--minutes': it takes a number of at least 0.1, not 'x'"),
        (["demo", "--minutes", "nan"], "--minutes': it takes a number of at least 0.1, not 'nan'"),
        (["demo", "--speed", "inf"], "--speed': it takes a number of at least 1, not 'inf'"),
        (["demo", "--latitude", "91"], "--latitude': it takes a number from -90 to 90, not '91'"),
        (["up", "--port", "70000"], "--port': it takes a whole number from 0 to 65,535, not '70000'"),
        (["keys", "add", "reader", "--days", "1.5"], "--days': it takes a whole number from 1 to 36,500, not '1.5'"),
        (["export", "x.csv", "--since", "soon"], "--since': it takes a day, or a time such as 2022-03-01T00:05, not"),
        (["change", "calibrate", "a", "b", "c", "d", "--offset", "nan"], "--offset': it takes a number, not 'nan'"),
    ],
)
def test_an_option_says_what_it_takes(told: list[str], says: str) -> None:
    """What is no such number, or no time, is refused before anything starts, in plain words."""
    result = hothouse(*told)
    assert result.exit_code == 2
    assert says in " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.parametrize("command", [["status"], ["keys", "list"], ["models", "list"], ["plan", "show", "north-1"]])
def test_debug_shows_where_a_command_failed(command: list[str]) -> None:
    """Also one of a group: with --debug the error is not told, it is raised."""
    told = hothouse("--config", "none.toml", *command)
    assert (told.exit_code, type(told.exception)) == (2, SystemExit)
    assert "none.toml does not exist" in told.stderr
    assert isinstance(hothouse("--debug", "--config", "none.toml", *command).exception, ConfigError)


def test_no_command_names_a_type_of_a_programming_language_for_a_number() -> None:
    """Help says "number", and so does an error."""
    for command in commands():
        assert not re.search("<(int|float)", hothouse(*command, "--help").output), command


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--ahead", "plans.csv"], "--ahead is for a recording"),
        (["--recording", ".", "--ahead-source", "knmi"], "--ahead-source names plans of a file"),
        (["--summary", "."], ". cannot be written: it is a folder"),
    ],
)
def test_a_demos_plans_are_those_of_a_file_beside_a_recording(options: list[str], says: str) -> None:
    """What would be left out without a word is refused with a sentence, before anything starts."""
    result = hothouse("demo", *options)
    assert result.exit_code != 0
    assert says in result.stderr


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (["up", "--config", "x.toml"], "It stands before the command: hothouse --config ... up"),
        (["models", "list", "--data-dir", "x"], "It stands before the command: hothouse --data-dir ... models list"),
        (["up", "--debug"], "It stands before the command: hothouse --debug up"),
    ],
)
def test_an_option_that_stands_behind_its_command_is_shown_its_place(told: list[str], says: str) -> None:
    """What every command has stands before it; who writes it behind is told where it goes."""
    result = hothouse(*told)
    assert result.exit_code == 2
    assert says in " ".join(result.stderr.replace("│", " ").split())
    assert "stands before" not in hothouse("up", "--confg", "x").stderr
    assert "stands before" not in hothouse("zones", "retire", "demo/z", "--version", "3").stderr, "it runs no command"


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
    assert "pip install '.[cluster]'" in caught.value.hint


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
    misspelt = "nothing was kept out as lat; known reasons here are late, malformed"
    for options in ((), ("--newest", "2")):
        assert hothouse(*asked, "--reason", "lat", *options).output.strip() == misspelt
    (tmp_path / "quiet" / "storage").mkdir(parents=True)
    assert hothouse("--data-dir", str(tmp_path / "quiet"), "deadletters").output.strip() == "nothing was kept out"


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
    shown = hothouse("init", "-")
    assert (shown.stdout, Path("-").exists()) == (Path("green.toml").read_text(), False)


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


def test_a_summary_may_go_into_a_pipe() -> None:
    """As `--summary /dev/stdout`: no file can be made in that folder, and none need be."""
    reading, writing = os.pipe()
    need_out(Path(f"/dev/fd/{writing}"), "the summary")
    os.close(writing)
    os.close(reading)


def test_a_summary_may_go_where_a_link_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `--summary /dev/stdout > file`: nobody but root may make a file in /dev, and none is made there."""
    asked: list[Path] = []
    monkeypatch.setattr(base.tempfile, "TemporaryFile", lambda dir: asked.append(dir) or nullcontext())
    for folder in ("dev", "home"):
        (tmp_path / folder).mkdir()
    (tmp_path / "home" / "out").touch()
    (tmp_path / "dev" / "stdout").symlink_to(tmp_path / "home" / "out")
    need_out(tmp_path / "dev" / "stdout", "the summary")
    assert asked == [tmp_path / "home"]


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


def test_a_mistyped_variable_is_told_by_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container all settings are variables: one that names none would have no effect, and nobody would know."""
    monkeypatch.setenv("HOTHOUSE_STREM__STEP_S", "60")
    (tmp_path / "file").touch()
    result = hothouse("--data-dir", str(tmp_path / "file"), "up")
    assert result.exit_code == 2
    assert "warning: the variable HOTHOUSE_STREM__STEP_S is no setting, and is not read" in result.stderr


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


@pytest.mark.parametrize(
    ("mqtt", "does"),
    [
        ({}, False),
        ({"listen": "127.0.0.1"}, False),
        ({"listen": "::1"}, False),
        ({"listen": "localhost"}, False),
        ({"listen": "0.0.0.0"}, True),
        ({"listen": "192.168.1.5"}, True),
        ({"listen": "greenhouse"}, True),
        ({"listen": "0.0.0.0", "gateway": "elsewhere"}, False),
        ({"listen": "0.0.0.0", "host": "broker.example"}, False),
    ],
)
def test_up_names_the_network_only_where_the_broker_takes_it(mqtt: dict[str, str], does: bool) -> None:
    """Nobody on the network reaches a broker on loopback: `hothouse up` must not say so."""
    assert takes_the_network(load_settings(mqtt=mqtt)) is does
