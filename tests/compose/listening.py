"""Which ports listen beyond loopback in a container, and whether docs/security.md says so. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tests.compose.stack import ROOT

__all__ = ["READ", "listening", "not_as_told", "told"]

READ = ("cat", "/proc/net/tcp", "/proc/net/tcp6")
"""Prints what :func:`listening` reads, in any image that has `cat`."""
LISTEN = "0A"
LOOPBACK = re.compile("[0-9A-F]{6}7F|0{24}01000000|0{16}FFFF0000[0-9A-F]{6}7F")
ANY = "Ray's own"


def listening(text: str) -> set[int]:
    """The ports at which somebody of another machine would be heard, of what :data:`READ` printed.

    >>> sorted(listening('''  sl  local_address rem_address   st
    ...    0: 0100007F:1F40 00000000:0000 0A
    ...    1: 00000000:22B3 00000000:0000 0A
    ...    2: 0A00F40A:C350 0B00F40A:22B3 01
    ...    0: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 0A
    ...    1: 0000000000000000FFFF00000A00F40A:1F90 00000000000000000000000000000000:0000 0A'''))
    [8080, 8883]
    """
    found = set()
    for line in text.splitlines():
        match line.split()[1:4]:
            case [local, _, state] if state == LISTEN:
                address, _, port = local.partition(":")
                if not LOOPBACK.fullmatch(address):
                    found.add(int(port, 16))
    return found


def told(where: str) -> dict[str, tuple[set[int], bool]]:
    """Part -> its ports in docs/security.md, and whether Ray chooses some more; ``where`` heads the table's column.

    >>> told("Kubernetes")["mosquitto"], told("Kubernetes")["ray-head"][1]
    (({8883}, False), True)
    """
    text = (ROOT / "docs/security.md").read_text()
    rows = [
        [cell.strip() for cell in line.strip("| ").split("|")]
        for line in text.split("### Ports")[1].split("\n## ")[0].splitlines()
        if line.startswith("|")
    ]
    column = rows[0].index(where)
    return {
        part: ({int(port) for port in re.findall(r"\d+", row[column])}, ANY in row[column])
        for row in rows[2:] for part in row[0].split(", ") if row[column] != "–"
    }  # fmt: skip


def not_as_told(where: str, seen: Mapping[str, set[int]]) -> list[str]:
    """What listens and is not in the table, or is there and does not listen; a part a line, nothing where all is so."""
    table, wrong = told(where), []
    for part, ports in sorted(seen.items()):
        named, more = table.get(part, (set[int](), False))
        if surplus := set() if more else ports - named:
            wrong.append(f"{part} listens at {sorted(surplus)}")
        if missing := named - ports:
            wrong.append(f"{part} does not listen at {sorted(missing)}")
    return wrong + [f"{part} was not looked at" for part in sorted(table.keys() - seen.keys())]
