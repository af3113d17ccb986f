"""Runs in a container on the field's network: publishes one message as a login, and prints what the broker said.

python3 publish.py HOST LOGIN PASSWORD_FILE TOPIC     (an empty LOGIN: none)
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any


def main() -> None:
    """Connect, publish, print."""
    from paho.mqtt import client as paho
    from paho.mqtt.enums import CallbackAPIVersion

    host, login, file, topic = sys.argv[1:]
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    if login:
        client.username_pw_set(login, Path(file).read_text().strip())
    said = {"connect": "no answer", "publish": "not tried"}
    done = threading.Event()

    def connected(_: object, __: object, ___: object, code: Any, ____: object) -> None:
        said["connect"] = str(code)
        if code.is_failure:
            done.set()
        else:
            client.publish(topic, b"{}", qos=1)

    def published(_: object, __: object, ___: int, code: Any, ____: object) -> None:
        said["publish"] = str(code)
        done.set()

    client.on_connect, client.on_publish = connected, published
    client.connect(host, 1883)
    client.loop_start()
    done.wait(10)
    client.loop_stop()
    print(json.dumps(said))


if __name__ == "__main__":
    main()
