"""Configuration: one file plus the environment, checked once, told in one sentence."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from edge.config import EdgeSettings, SettingsError, gateway_settings, stray_variables
from edge.config import settings as edge_settings
from services.cli.setup.settings_view import commented_toml, list_settings, unknown_variables
from services.config import MqttSettings, Settings, child_environment, load_settings
from services.errors import ConfigError


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(text: str) -> Path:
    """A configuration file with this content."""
    path = Path("h.toml")
    path.write_text(text)
    return path


def test_defaults_are_valid() -> None:
    """Without file and environment every default passes its own checks."""
    assert load_settings() == Settings()


def test_the_environment_wins_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable replaces one value of a section; the file's others in that section stay."""
    monkeypatch.setenv("HOTHOUSE_STREAM__LATENESS_S", "7")
    settings = load_settings(write("[stream]\nlateness_s = 5\nidle_s = 90\n"))
    assert (settings.stream.lateness_s, settings.stream.idle_s, settings.stream.step_s) == (7, 90, 300)


def test_overrides_win_over_the_file() -> None:
    """What a command's own option says replaces the file's value, and leaves the rest of its section."""
    settings = load_settings(write('[api]\nport = 9\nhost = "::1"\n'), api={"port": 0})
    assert (settings.api.port, settings.api.host) == (0, "::1")


def test_overrides_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command's own option says replaces a variable, too: images set HOTHOUSE_DATA_DIR."""
    monkeypatch.setenv("HOTHOUSE_DATA_DIR", "/var/lib/hothouse")
    monkeypatch.setenv("HOTHOUSE_API__PORT", "9")
    monkeypatch.setenv("HOTHOUSE_API", '{"host": "::1"}')
    settings = load_settings(data_dir=Path("elsewhere"), api={"port": 0})
    assert (settings.data_dir, settings.api.port, settings.api.host) == (Path("elsewhere"), 0, "::1")
    assert load_settings().data_dir == Path("/var/lib/hothouse")


def test_an_empty_path_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty means none, as with other settings, and not the current folder; a data folder there must be."""
    monkeypatch.setenv("HOTHOUSE_MQTT__PASSWORD_FILE", "")
    settings = load_settings(write('[api]\nread_key_file = ""\n[[sites]]\nname = "s"\nrules_file = ""\n'))
    assert (settings.mqtt.password_file, settings.api.read_key_file, settings.sites[0].rules_file) == (None,) * 3
    monkeypatch.setenv("HOTHOUSE_DATA_DIR", "")
    with pytest.raises(ConfigError, match="data_dir is '': must name a folder"):
        load_settings()


def test_a_secret_of_another_type_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that JSON takes for a number is wrong, and stays secret."""
    monkeypatch.setenv("HOTHOUSE_INFLUX", '{"token": 4711}')
    with pytest.raises(ConfigError, match=r"influx\.token must be text, in quotes") as wrong:
        load_settings()
    assert "4711" not in str(wrong.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[stream]\nstep_s = "five"\n', "stream.step_s is 'five': must be a whole number"),
        ("[stream]\nstep_s = 60.5\n", "stream.step_s is 60.5: must be a whole number"),
        ("[stream]\nsnapshot_s = 0\n", "stream.snapshot_s is 0: must be more than 0"),
        ("data_dir = 5\n", "data_dir is 5: must be text, in quotes"),
        ("mqtt = 5\n", "mqtt is 5: must be a section: its name in brackets, its settings below it"),
        ('[learn]\nsharded = "maybe"\n', "learn.sharded is 'maybe': must be true or false"),
        ("[learn]\nuse_gpu = true\n", "learn.use_gpu is true: must be 'auto', 'yes' or 'no'"),
        ("[weather]\nvariables = 5\n", 'weather.variables is 5: must be a table, such as { name = "value" }'),
        ('[mqtt]\nclient_id = ""\n', "mqtt.client_id is '': must have a length of at least 1"),
    ],
)
def test_a_wrong_value_is_told_in_plain_words(text: str, said: str) -> None:
    """No word of the library that checks: neither its types nor what it tried."""
    with pytest.raises(ConfigError) as wrong:
        load_settings(write(text))
    assert str(wrong.value) == f"{said} (in h.toml or the environment)"


def test_a_file_that_is_no_text_says_so() -> None:
    """As editors of Windows save it, in UTF-16."""
    path = write("")
    path.write_bytes("[api]".encode("utf-16"))
    with pytest.raises(ConfigError, match="is no text in UTF-8"):
        load_settings(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[stream]\nstep_s = 7\n", ("stream.step_s", "7", "10")),
        ("[stream]\nstep_s = 7000\n", ("stream.step_s", "7000", "3600")),
        ("[stream]\nstep_s = 299\n", ("stream.step_s", "299", "divide an hour")),
        ("[stream]\nstep_s = 'x'\n", ("stream.step_s", "'x'", "whole number")),
        ("[stream]\nsteps = 300\n", ("stream.steps", "not a setting")),
        ("[mqtt]\nprot = 1884\n", ("mqtt.prot is not a setting; did you mean mqtt.port?",)),
        ("[site]\nname = 'a'\n", ("site is not a setting; did you mean sites?",)),
        ("data_dirr = 'x'\n", ("data_dirr is not a setting; did you mean data_dir?",)),
        ("retrain_every_s = 5\n", ("retrain_every_s is not a setting; did you mean learn.retrain_every_s?",)),
        ("[mqtt]\nPORT = 5\n", ("mqtt.PORT is not a setting; did you mean mqtt.port?",)),
        ("[[sites]]\nname = 's'\ntime_zone = 'UTC'\n", ("sites.time_zone (site s) is not", "mean sites.timezone?")),
        ("[mqtt]\nqqq = 1\n", ("mqtt.qqq is not a setting (in",)),
        ("[[sites]]\nlatitude = 200\n[[sites]]\nname = 's'\n", ("sites.name (site number 1) must be given",)),
        ("[sites]\nname = 's'\n", ("sites must be blocks, one a site: write [[sites]]",)),
        ("sites = 'demo'\n", ("sites must be blocks, one a site: write [[sites]]",)),
        ("sites = ['demo']\n", ("sites must be blocks, one a site: write [[sites]]",)),
        ("[api]\nrate_per_s = 2e6\n", ("api.rate_per_s is 2000000.0: must be at most 1000000 (",)),
        ("[kafka]\nservers = 'a:9092'\n", ("kafka.servers is 'a:9092': must be a list",)),
        ("[mqtt]\nport = 5\n[api]\n[mqtt]\n", ("has [mqtt] twice, again at line 4",)),
        ("[log]\nkind = 'redis'\n", ("log.kind", "'redis'", "sqlite")),
        ("[forecast]\nhorizons_min = [10, 5]\n", ("forecast.horizons_min", "rise")),
        ("[forecast]\nhorizons_min = [7]\n", ("forecast.horizons_min", "stream.step_s")),
        ("[stream]\nlateness_s = 1600\n", ("forecast.stale_after_s must be at least 1900", "stream.lateness_s")),
        ("[stream]\nring_hours = 26\n[forecast]\nlookback_hours = 48\n", ("stream.ring_hours", "lookback_hours")),
        ("[[sites]]\nname = 's'\ntimezone = 'Mars/Olympus'\n", ("sites", "Mars/Olympus", "Europe/Amsterdam")),
        ("[[sites]]\nname = 's'\nlatitude = 91\n", ("latitude", "91", "90")),
        ("[learn]\nretrain_cron = '0 25 * * *'\n", ("learn.retrain_cron", "0 25 * * *", "bad hour", "0 3 * * *")),
        ("[learn]\nretrain_cron = '0 0 3 * * *'\n", ("learn.retrain_cron", "minute, hour", "0 3 * * *")),
        ("[learn]\nretrain_cron = '0 3 30 2 *'\n", ("learn.retrain_cron", "0 3 30 2 *")),
        ("[learn]\nretrain_timezone = 'Mars/Olympus'\n", ("learn.retrain_timezone", "Europe/Amsterdam")),
        ("[learn]\nretrain_timezone = 'Europe'\n", ("learn.retrain_timezone", "Europe/Amsterdam")),
        ("[influx]\ntoken = 'secret'\n", ("influx.token", "HOTHOUSE_INFLUX__TOKEN")),
        ("[stream\n", ("h.toml", "TOML")),
        ("[forecast]\ntargets = ['air_temp']\n", ("forecast.targets", "air_temp", "vocabulary")),
        ("[forecast]\ntargets = ['wind_dir_deg']\n", ("forecast.targets", "direction", "wind_dir_deg")),
        ("[[sites]]\nname = '../b'\n", ("sites", "../b", "topic")),
        ("[[sites]]\nname = 's'\nprimary = {air_temp = 'd'}\n", ("primary", "air_temp", "vocabulary")),
        ("[[sites]]\nname = 's'\n[[sites]]\nname = 's'\n", ("sites: two have the name s",)),
        ("influx = 5\n", ("influx", "5")),
        ("[learn]\nretrain_every_s = inf\n", ("learn.retrain_every_s", "inf", "finite")),
        ("[alerts]\nmqtt_clear_min = nan\n", ("alerts.mqtt_clear_min", "nan", "finite")),
        ("[mqtt]\nport = true\n", ("mqtt.port", "true", "a number")),
        ("[mqtt]\nhost = 'broker:1883'\n", ("mqtt.host", "broker:1883", "a port has a setting")),
        ("[mqtt]\nhost = 'mqtt://broker'\n", ("mqtt.host", "mqtt://broker", "a port has a setting")),
        ("[mqtt]\nhost = 'my broker'\n", ("mqtt.host", "my broker", "broker.example.org")),
        ("[mqtt]\nclient_id = ''\n", ("mqtt.client_id", "at least 1")),
        ("[mqtt]\nshare = 'a/b'\n", ("mqtt.share", "a/b", "such as gateways")),
        ("[kafka]\ntopic = 'a b'\n", ("kafka.topic", "a b", "such as hothouse.samples")),
        ("[kafka]\nservers = ['']\n", ("kafka.servers (entry 1)", "host:port")),
        ("[kafka]\nservers = ['a:9092', 'b:90920']\n", ("kafka.servers (entry 2)", "b:90920", "host:port")),
        ("[kafka]\nservers = ['a']\n", ("kafka.servers (entry 1)", "'a'", "host:port")),
        ("[kafka]\ntopic = 't'\ndirect_topic = 't'\n", ("kafka", "another topic")),
        ("[api]\nhost = ''\n", ("api.host", "0.0.0.0")),
        ("[gateway]\nmetrics_host = ''\n", ("gateway.metrics_host", "0.0.0.0")),
        ("[influx]\nurl = 'influx:8086'\n", ("influx.url", "influx:8086", "http://")),
        ("[client]\nurl = 'greenhouse'\n", ("client.url", "greenhouse", "http://")),
        ("[learn]\nmlflow_uri = 'mlflow'\n", ("learn.mlflow_uri", "'mlflow'", "http://")),
        ("[learn]\nworkers = 1\nmin_workers = 2\n", ("learn", "min_workers is 2", "workers, 1")),
        ("[learn]\nwindow_days = 1\n", ("learn.window_days", "1", "at least 2")),
        ("[alerts]\nemail_to = ['grower']\n", ("alerts.email_to (entry 1)", "grower", "grower@example.org")),
        ("[[sites]]\nname = 's'\nlatitude = 52\n", ("sites", "s: latitude and longitude", "both")),
        (
            "[[sites]]\nname = 's'\nrepeat_setpoints = ['a b']\n",
            ("repeat_setpoints (site s, entry 1) is 'a b'", "topic"),
        ),
        ("[[sites]]\nname = 's'\nzone_labels = {'a/b' = 'B'}\n", ("sites.zone_labels.a/b (site s)", "a/b", "topic")),
        ("[[sites]]\nname = 's'\nprimary = {air_temp_c = ''}\n", ("sites.primary.air_temp_c (site s)", "topic")),
        ("[home_assistant]\nprefix = 'a//b'\n", ("home_assistant.prefix", "a//b", "such as homeassistant")),
        ("[api]\nroute = 'north'\n", ("api.route", "north", "such as /north")),
        ("[api]\nurl = 'front:8000'\n", ("api.url", "front:8000", "such as http://front:8000")),
        ("[api]\ncors_origins = ['office']\n", ("api.cors_origins (entry 1)", "such as https://office.example.org")),
        ("[weather]\nurl = ''\n", ("weather.url", "such as https://weather.example.org/v1/forecast")),
        ("[alerts]\nwebhook_url = 'hook'\n", ("alerts.webhook_url", "hook", "such as https://example.org/path")),
        ("[traces]\nendpoint = 'a:4318'\n", ("traces.endpoint", "a:4318", "such as http://collector:4318")),
        ("[storage]\nurl = 'gs://b/f'\n", ("storage.url", "gs://b/f", "such as s3://my-bucket/greenhouse")),
        ("[storage]\nendpoint = 'minio'\n", ("storage.endpoint", "minio", "such as https://example.org/path")),
        ("[ray]\napi_resource = 'A!'\n", ("ray.api_resource", "A!", "such as api")),
    ],
)
def test_a_wrong_setting_is_named(text: str, said: tuple[str, ...]) -> None:
    """The error names the setting, its value and what is allowed; its exit code is 2."""
    with pytest.raises(ConfigError) as caught:
        load_settings(write(text))
    told = f"{caught.value.message} {caught.value.hint}"
    assert [part for part in said if part not in told] == []
    assert caught.value.exit_code == 2
    assert "\n" not in told
    assert "pattern" not in told
    assert "secret" not in told.replace("secrets", "")


def test_addresses_of_every_kind_are_taken() -> None:
    """Names, both kinds of addresses, and none where there may be none."""
    for host in ("", "broker", "10.0.7.1", "::1", "fe80::1%eth0", "mosquitto.hothouse.svc.cluster.local"):
        assert load_settings(mqtt={"host": host}).mqtt.host == host
    servers = ("kafka-1:9092", "[::1]:9092")
    assert load_settings(kafka={"servers": servers}).kafka.servers == servers
    for url in ("", "http://influx:8086", "https://example.org/influx/"):
        assert load_settings(influx={"url": url}).influx.url == url


def test_a_folder_is_no_configuration_file() -> None:
    """Naming a folder is said in one sentence."""
    with pytest.raises(ConfigError, match="cannot be read"):
        load_settings(Path.cwd())


def test_a_missing_file_is_said() -> None:
    """A file that was asked for and is not there is an error, not a silent default."""
    with pytest.raises(ConfigError, match=r"nothere\.toml does not exist"):
        load_settings(Path("nothere.toml"))


def test_a_misspelt_variable_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that looks like a setting and names none is listed; those of the tests are not."""
    monkeypatch.setenv("HOTHOUSE_STREM__STEP_S", "60")
    monkeypatch.setenv("HOTHOUSE_TEST_MQTT", "x:1")
    monkeypatch.setenv("HOTHOUSE_API__PORT", "1")
    assert unknown_variables() == ["HOTHOUSE_STREM__STEP_S"]


def test_settings_say_where_they_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each listed setting names its source: default, file or environment."""
    monkeypatch.setenv("HOTHOUSE_API__PORT", "1234")
    views = {view.name: view for view in list_settings(load_settings(write("[stream]\nlateness_s = 5\n")))}
    assert [views[name].source for name in ("api.port", "stream.lateness_s", "stream.idle_s")] == [
        "environment",
        "file",
        "default",
    ]
    assert (views["api.port"].value, views["api.port"].default) == ("1234", "8000")


def test_a_secret_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    """No view of the settings holds the token."""
    monkeypatch.setenv("HOTHOUSE_INFLUX__TOKEN", "hush-hush")
    assert not [view for view in list_settings(load_settings()) if "hush" in repr(view)]


def test_every_setting_says_what_it_is() -> None:
    """Every setting carries a description."""
    assert [view.name for view in list_settings(Settings()) if not view.description] == []


def test_the_commented_file_changes_nothing() -> None:
    """What `hothouse init` writes is valid TOML that leaves every default."""
    assert load_settings(write(commented_toml())) == Settings()


def test_a_file_may_begin_with_the_mark_of_an_editor() -> None:
    """Notepad writes it before the first letter, where nobody sees it."""
    path = write("")
    path.write_bytes(b"\xef\xbb\xbf[mqtt]\r\nport = 1885\r\n")
    assert load_settings(path).mqtt.port == 1885


def test_the_commented_file_can_be_uncommented() -> None:
    """Taking away every # gives valid settings again: the shown defaults are real ones."""
    lines = [
        line[1:] if line.startswith("#") and line[1:2] not in (" ", "") else line
        for line in commented_toml().splitlines()
    ]
    text = "\n".join(line for line in lines if not line.endswith('= "path"'))
    assert set(tomllib.loads(text)) == set(Settings.model_fields)
    settings = load_settings(write(text))
    assert settings.model_copy(update={"sites": ()}) == Settings()
    assert settings.sites[0].timezone == "Europe/Amsterdam"


def test_an_uplink_needs_a_file_as_buffer() -> None:
    """uplink.to with a log on Kafka is refused."""
    with pytest.raises(ConfigError, match="buffer"):
        load_settings(uplink={"to": "mqtt://a"}, log={"kind": "kafka"}, kafka={"servers": ["a:1"]})


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HOTHOUSE_MQTT", '{"password": "geheim"'),
        ("HOTHOUSE_KAFKA__SERVERS", "geheim:9092"),
        ("HOTHOUSE_FORECAST__HORIZONS_MIN", "5, 60"),
    ],
)
def test_a_variable_that_is_no_json_is_an_error_of_ours(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the variable, of all that a container has, and how lists are written, never what the variable holds."""
    monkeypatch.setenv("HOTHOUSE_MQTT__HOST", "broker")
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match=f"the variable {variable} cannot be read: lists .* are JSON") as caught:
        load_settings()
    assert "geheim" not in caught.value.words
    assert caught.value.exit_code == 2


WHOLE = """
data_dir = "data"
[mqtt]
host = "broker"
port = 8883
[gateway]
decoders = ["plant"]
[log]
max_mib = 5
[stream]
step_s = 600
[learn]
epochs = 3
[forecast]
horizons_min = [10]
[influx]
url = "http://influx"
[[sites]]
name = "demo"
"""


def test_the_gateway_reads_the_same_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of the whole system gives the gateway alone the same values, and variables win in both; a name that is
    no section of either is an error in both.
    """
    monkeypatch.setenv("HOTHOUSE_MQTT__PORT", "1884")
    monkeypatch.setenv("HOTHOUSE_LEARN__EPOCHS", "4")
    path = write(WHOLE)
    whole, alone = load_settings(path), gateway_settings(path)
    assert (alone.mqtt.port, alone.log.max_mib, whole.learn.epochs) == (1884, 5, 4)
    assert alone.model_dump() == {name: whole.model_dump()[name] for name in EdgeSettings.model_fields}
    wrong = write(WHOLE + "[mqtttt]\nport = 1\n")
    with pytest.raises(ConfigError, match="mqtttt is not a setting"):
        load_settings(wrong)
    with pytest.raises(SettingsError, match="mqtttt is not a setting"):
        gateway_settings(wrong)


def test_the_gateway_knows_the_sections_that_it_leaves_unread() -> None:
    """They are those of the whole system that are not its own: a new one is added to its list."""
    assert set(edge_settings._SYSTEM_SECTIONS) == set(Settings.model_fields) - set(EdgeSettings.model_fields)


def test_a_child_has_exactly_the_settings_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a variable of ours, in any letters, nor a file where it starts changes one; no secret is handed on."""
    write(WHOLE).rename("hothouse.toml")
    for name, value in (("HOTHOUSE_MQTT__PORT", "7"), ("hothouse_mqtt__host", "x"), ("HOTHOUSE_INFLUX__TOKEN", "t0k")):
        monkeypatch.setenv(name, value)
    settings = Settings(data_dir=Path("/elsewhere"), mqtt={"username": "ü", "password_file": "p"}).model_copy(
        update={"mqtt": MqttSettings(host="broker", port=1885, password_file=Path("p"))}
    )
    given = child_environment(settings)
    assert "t0k" not in repr(given)
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ:
            patch.delenv(name)
        for name, value in given.items():
            patch.setenv(name, value)
        theirs = gateway_settings()
    assert theirs.mqtt == settings.mqtt
    assert theirs.model_dump() == settings.model_dump(include=set(EdgeSettings.model_fields))


def test_a_variable_of_no_section_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """One underscore too few, or a slip of the pen: what the gateway warns of; what the system reads is none."""
    for name in ("HOTHOUSE_MQTT_HOST", "HOTHOUSE_GATEWAYS__CLOCK", "HOTHOUSE_LEARN__EPOCHS", "HOTHOUSE_DATA_DIR"):
        monkeypatch.setenv(name, "1")
    assert stray_variables() == ["HOTHOUSE_GATEWAYS__CLOCK", "HOTHOUSE_MQTT_HOST"]


def test_a_kind_of_model_that_replicas_cannot_ask_is_refused() -> None:
    """`learn.kind` names a kind that takes windows of rows; the error says which there are."""
    assert load_settings(learn={"kind": "network"}).learn.kind == "network"
    for kind in ("trees", "oracle"):
        with pytest.raises(ConfigError, match=r"takes windows of rows: network"):
            load_settings(learn={"kind": kind})


@pytest.mark.parametrize(
    ("ray", "shards", "wanted"),
    [({}, 4, 1), ({"address": "head:6379"}, 4, 4), ({"live_states": 3}, 4, 3), ({"live_states": 9}, 4, 4)],
)
def test_a_machine_has_one_live_state_and_a_cluster_one_for_each_shard(
    ray: dict[str, object], shards: int, wanted: int
) -> None:
    """Unless the settings say otherwise; none is without a shard, and each shard has one."""
    settings = load_settings(ray=ray, stream={"shards": shards})
    assert settings.live_states == wanted
    assert {settings.live_state_of(shard) for shard in range(shards)} == set(range(wanted))
