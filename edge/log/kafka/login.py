"""Step 3 of the way of a reading: the password for Kafka, read at each connection.

Kafka's client logs in with the password that it was made with for as long as it lives: who corrects the file would have
to restart all that reads or writes the log.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from kafka.net.sasl import SaslMechanismPlain, SaslMechanismScram, register_sasl_mechanism

from edge.log.kafka.lost_connections import began_login
from edge.secret_file import read_secret

__all__ = ["Mechanism", "take_password_files"]

Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


def take_password_files() -> None:
    """From now on ``sasl_plain_password`` of this process' clients may be the path of a file."""
    for name in get_args(Mechanism):
        made = SaslMechanismPlain if name == "PLAIN" else SaslMechanismScram
        register_sasl_mechanism(name, partial(_login, made), overwrite=True)


def _login(made: Any, **config: Any) -> Any:
    """What a client logs in by at one connection. Raises ``OSError`` where the file cannot be read; the client then
    connects again after a pause.
    """
    password = config["sasl_plain_password"]
    login = made(**{**config, "sasl_plain_password": read_secret(password) if isinstance(password, Path) else password})
    began_login(login)
    return login
