"""What is installed is used: the package imports the libraries that it asks for, and asks for those that it imports."""

from __future__ import annotations

import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import grimp
import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("edge", "models", "services")
NOT_IMPORTED = {
    "tzdata": "zoneinfo reads it where the system has no time zones",
}
"""Asked for without being imported, and why."""
COMES_WITH = {"grpc": "ray", "pwdlib": "amqtt", "pydantic": "pydantic-settings", "starlette": "fastapi"}
"""Imported without being asked for -> what brings it, and cannot do without it."""


def said() -> dict[str, Any]:
    """The project's own table."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return table


def names(requirements: list[str]) -> set[str]:
    """The names of distributions, in one spelling."""
    return {plain(re.split(r"[\[<>=!~; ]", one, maxsplit=1)[0]) for one in requirements}


def plain(name: str) -> str:
    """The normal form of a distribution's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def imported(*packages: str) -> set[str]:
    """The distributions that these packages import; of several that hold a module the one that is asked for."""
    graph = grimp.build_graph(*PACKAGES, include_external_packages=True, cache_dir=None)
    tops = {
        target.partition(".")[0]
        for module in graph.modules
        if module.partition(".")[0] in packages
        for target in graph.find_modules_directly_imported_by(module)
    }
    asked = names(
        [*said()["dependencies"], *(one for extra in said()["optional-dependencies"].values() for one in extra)]
    )
    foreign = tops - set(sys.stdlib_module_names) - set(PACKAGES)
    known = packages_distributions()
    holders = [{plain(name) for name in known.get(top, [top])} for top in foreign]
    return {min(found & asked or found) for found in holders}


@pytest.mark.parametrize("extra", ["", "cluster", "kafka", "library", "traces"])
def test_what_is_asked_for_is_imported(extra: str) -> None:
    """A bare dependency is a download for nothing; what only tests and benchmarks import is in `dev`."""
    asked = names(said()["optional-dependencies"][extra] if extra else said()["dependencies"])
    assert asked - imported(*PACKAGES) - set(NOT_IMPORTED) == set()


def test_what_is_imported_is_asked_for() -> None:
    """Nothing is there only because something else happens to bring it."""
    extras = said()["optional-dependencies"]
    asked = names(
        [*said()["dependencies"], *extras["cluster"], *extras["kafka"], *extras["library"], *extras["traces"]]
    )
    assert imported(*PACKAGES) - asked - set(COMES_WITH) == set()
    assert set(COMES_WITH.values()) <= asked


def test_an_exception_is_one() -> None:
    """A library that is imported, or asked for, after all needs no excuse."""
    assert set(NOT_IMPORTED) & imported(*PACKAGES) == set()


def test_the_edge_needs_no_extra_but_for_kafka_and_parquet() -> None:
    """The bare install runs a site; what Kafka and Parquet need is imported where they are asked for."""
    bare = names(said()["dependencies"])
    assert imported("edge") - bare - set(COMES_WITH) == {"kafka-python", "pyarrow"}


def test_the_lock_names_all_of_it() -> None:
    """Each library that is asked for, the tools' too, has one tested version, as `name==version`."""
    lines = (ROOT / "requirements.lock").read_text().split()
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line) for line in lines)
    locked = {plain(line.partition("==")[0]) for line in lines}
    assert len(locked) == len(lines)
    extras = said()["optional-dependencies"]
    assert names([*said()["dependencies"], *(one for extra in extras.values() for one in extra)]) - locked == set()
