"""Step 1 of the way of a reading: a local MQTT broker for one machine.

If Mosquitto is installed, it is started; otherwise the embedded broker. It listens on loopback, on a free port, with a
generated user; where it is told to, on the LAN, where devices have logins of their own
(``edge.mqtt.device_logins``). The broker runs under a small process of its own (``python -m edge.mqtt.broker``) that
ends it when its parent is gone.
"""

from __future__ import annotations

import argparse
import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from paho.mqtt import client as paho
from paho.mqtt.reasoncodes import ReasonCode

from edge.listening import EVERYWHERE, why_no_broker
from edge.mqtt import mosquitto
from edge.mqtt.broker_log import LOG
from edge.mqtt.connection import MqttAddress, new_client, open_connection
from edge.secret_file import write_secret

__all__ = ["BrokerError", "BrokerKind", "LocalBroker", "installed_kind"]

BrokerKind = Literal["mosquitto", "amqtt"]

_HOST = "127.0.0.1"
_USERNAME = "hothouse"
_START_S = 15.0
_STOP_S = 5.0
_LOGIN_S = 3.0
_PORTS_TRIED = 5


class BrokerError(Exception):
    """The local broker did not come up; the message names its log, or ``hint`` what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def installed_kind() -> BrokerKind:
    """Which broker a :class:`LocalBroker` will be on this machine."""
    return "mosquitto" if mosquitto.is_installed() else "amqtt"


class LocalBroker:
    """A broker in ``folder``, from ``with`` or :meth:`start` until its end or :meth:`stop`.

    The folder keeps password, configuration, log, Mosquitto's sessions and queues, and the secret of our sessions; all
    of it is only readable by the user. ``port`` 0 takes the one of the last time if it is still free. ``listen`` is the
    address on which it listens, and ``host`` the one at which we reach it. Stopped when our process ends, whatever ends
    it.
    """

    username = _USERNAME

    def __init__(self, folder: str | Path, kind: BrokerKind | None = None, port: int = 0, listen: str = _HOST) -> None:
        self.folder = Path(folder).absolute()
        self.listen = listen
        self.kind: BrokerKind = kind or installed_kind()
        self.host = _HOST if listen in EVERYWHERE else listen
        self.port = port
        self.password = self.session_secret = ""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def password_file(self) -> Path:
        """Holds the password, for processes that should not get it as an argument."""
        return self.folder / "password"

    @property
    def session_secret_file(self) -> Path:
        """Goes into the ids of our clients: a device that knew one would be given what waits for us."""
        return self.folder / "session-secret"

    @property
    def log_file(self) -> Path:
        """The broker's output."""
        return self.folder / LOG

    @property
    def address(self) -> MqttAddress:
        """Where to connect."""
        v5 = self.kind == "mosquitto"
        return MqttAddress(
            host=self.host, port=self.port, username=self.username, password=self.password, v5=v5,
            session_secret=self.session_secret,
        )  # fmt: skip

    @property
    def running(self) -> bool:
        """Whether the broker's process lives."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start and wait until it answers. Raises :class:`BrokerError`."""
        if self.kind == "mosquitto" and not mosquitto.is_installed():
            raise BrokerError("Mosquitto is not installed: install the packages mosquitto and mosquitto-clients")
        self.prepare()
        wanted = self.port
        for _ in range(1 if wanted else _PORTS_TRIED):
            self.port = wanted or _free_port(self.folder / "port")
            if self._launch():
                (self.folder / "port").write_text(str(self.port))
                return
        why, hint = why_no_broker(self.listen, wanted) if wanted else ("", "")
        said = f": {why}" if why else f" on port {self.port}; see {self.log_file}"
        raise BrokerError(f"the local broker ({self.kind}) did not start{said}", hint)

    def prepare(self) -> None:
        """Make the folder and its secrets, or read what is there; :meth:`start` does so."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        is_new = not self.password_file.exists()
        if not self.session_secret_file.exists():
            # A broker of before keeps sessions for clients without one: what waits there would not be theirs any more.
            write_secret(self.session_secret_file, secrets.token_urlsafe(24) if is_new else "")
        if is_new:
            write_secret(self.password_file, secrets.token_urlsafe(24))
        self.password = self.password_file.read_text().strip()
        self.session_secret = self.session_secret_file.read_text().strip()

    def stop(self) -> None:
        """End it in good order: Mosquitto saves its sessions and queues."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._kill_group()
        self._forget()

    def kill(self) -> None:
        """End it as a crash would (SIGKILL)."""
        if self._process is not None:
            self._kill_group()
            self._forget()

    def restart(self) -> None:
        """Start again on the same port with the same data, whether it was stopped or killed or still runs."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _launch(self) -> bool:
        command = [sys.executable, "-m", "edge.mqtt.broker", "--folder", str(self.folder), "--port", str(self.port)]
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--kind", self.kind, "--listen", self.listen, "--stop-with-stdin"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=Path(__file__).parents[2],  # where `-m edge.mqtt.broker` is found, from wherever we were started
                start_new_session=True,  # Ctrl-C is for our process, which then stops the broker in its turn
            )
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline and self._process.poll() is None:
            # A login, not just a connection: another program may have taken the port before ours could.
            if _accepts(self.address, self._process) and self._process.poll() is None:
                return True
            time.sleep(0.02)
        self.kill()
        return False

    def _kill_group(self) -> None:
        assert self._process is not None
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return  # it had ended already
        self._process.wait()
        deadline = time.monotonic() + _STOP_S
        while not _is_free(self.port) and time.monotonic() < deadline:
            time.sleep(0.01)  # Mosquitto, the process's child, goes a moment after it

    def _forget(self) -> None:
        assert self._process is not None
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process = None


def _free_port(remembered: Path) -> int:
    """The port in the file ``remembered`` if it is free, else any other."""
    text = remembered.read_text().strip() if remembered.exists() else ""
    if text.isdigit() and _is_free(int(text)):
        return int(text)
    with socket.socket() as listener:
        listener.bind((_HOST, 0))
        return int(listener.getsockname()[1])


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((_HOST, port))
        except (OSError, OverflowError):
            return False
    return True


def _accepts(address: MqttAddress, process: subprocess.Popen[bytes]) -> bool:
    """Whether the broker there accepts our login; asked for as long as our process lives."""
    answered = threading.Event()
    reasons: list[ReasonCode] = []

    def on_connect(client: paho.Client, _: Any, flags: Any, reason: ReasonCode, properties: Any) -> None:
        reasons.append(reason)
        answered.set()

    client = new_client(address, f"hothouse-check-{os.getpid()}", v5=address.v5)
    client.on_connect = on_connect
    try:
        open_connection(client, address)
    except OSError:
        return False
    deadline = time.monotonic() + _LOGIN_S
    while not answered.wait(0.05) and process.poll() is None and time.monotonic() < deadline:
        pass
    client.disconnect()
    client.loop_stop()
    return bool(reasons) and not reasons[0].is_failure


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a broker in the foreground; what :class:`LocalBroker` starts."""
    parser = argparse.ArgumentParser(
        prog="python -m edge.mqtt.broker",
        description="A local MQTT broker on loopback; the password of user 'hothouse' is in FOLDER/password.",
        epilog="example: python -m edge.mqtt.broker --folder hothouse-data/broker --port 1883",
    )
    parser.add_argument("--folder", type=Path, required=True, help="for password, configuration and queues")
    parser.add_argument("--port", type=int, required=True, help="port to listen on")
    parser.add_argument("--listen", default=_HOST, help="address to listen on; default: %(default)s")
    parser.add_argument("--kind", choices=("mosquitto", "amqtt"), default=installed_kind(), help="default: %(default)s")
    parser.add_argument("--stop-with-stdin", action="store_true", help="end when standard input ends")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    folder: Path = given.folder.absolute()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (folder / "password").exists():
        write_secret(folder / "password", secrets.token_urlsafe(24))
    if given.kind == "mosquitto":
        run = mosquitto.run
    else:
        from edge.mqtt.embedded_broker import run  # only this process pays for importing amqtt
    password = (folder / "password").read_text().strip()
    return run(folder, given.listen, given.port, _USERNAME, password, given.stop_with_stdin)


if __name__ == "__main__":
    sys.exit(main())
