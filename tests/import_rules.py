"""Who may import whom, as lists of what is allowed: a kind of contract for import-linter, and what it cannot see.

``pyproject.toml`` has the lists. What is on none is refused, a module or library of tomorrow included; what is on
a list and no longer imported must go from it.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import PurePath
from typing import cast

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

__all__ = ["MOST_MODULES", "AllowList", "circles", "clock_reads", "crowded", "environment_reads"]

PURE = frozenset({
    "__future__", "abc", "array", "base64", "bisect", "cmath", "collections", "contextlib", "copy", "dataclasses",
    "datetime", "decimal", "difflib", "enum", "fractions", "functools", "graphlib", "hashlib", "heapq", "inspect", "io",
    "itertools", "json", "logging", "math", "numbers", "operator", "random", "re", "statistics", "string", "struct",
    "textwrap", "types", "typing", "unicodedata", "warnings", "weakref", "zlib", "zoneinfo",
})  # fmt: skip
"""What of Python's own library reaches neither files nor other processes, the network, the environment or a clock."""


MOST_MODULES = 15
"""In one folder, its ``__init__`` included: who opens it must see at a glance what is where."""


class AllowList(Contract):
    """The modules below ``modules``, but for those below ``but``, import what is below ``may_import`` and nothing else.

    ``package.__init__`` is a package's own file alone. In ``may_import``, ``<stdlib>`` is Python's library, ``<pure>``
    is :data:`PURE`, ``<libraries>`` are all others. ``exceptions`` are single imports: ``importer -> imported``.
    Only direct imports are looked at: what the imported one imports is a matter of its own list.
    """

    type_name = "allow_list"

    modules = fields.ListField(subfield=fields.StringField())
    but = fields.ListField(subfield=fields.StringField(), required=False, default=[])
    may_import = fields.ListField(subfield=fields.StringField())
    exceptions = fields.ListField(subfield=fields.StringField(), required=False, default=[])

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Broken by an import that is on no list, and by what is on a list in vain."""
        modules, but, allowed = (cast(list[str], names) for names in (self.modules, self.but, self.may_import))
        ours = set(cast(list[str], self.session_options["root_packages"]))
        unused = {f"{name} is allowed": name for name in allowed if not name.startswith("<") and name not in ours}
        unused |= {f"{one} is an exception": one for one in cast(list[str], self.exceptions)}
        wrong = []
        for importer, imported in _imports(graph, modules, but):
            edge, names = f"{importer} -> {imported}", [name for name in allowed if _covers(name, imported, ours)]
            if not names and edge not in unused.values():
                lines = ", ".join(
                    str(found["line_number"])
                    for found in graph.get_import_details(importer=importer, imported=imported)
                )
                wrong.append(f"{importer} may not import {imported}" + (f" (line {lines})" if lines else ""))
            unused = {why: name for why, name in unused.items() if name not in (*names, edge)}
        wrong += [f"{why}, but no longer imported: take it from the list" for why in unused]
        wrong += [f"there is no module {name}" for name in (*modules, *but) if not _has(graph, name)]
        return ContractCheck(kept=not wrong, metadata={"wrong": wrong})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """A line each."""
        for line in check.metadata["wrong"]:
            output.print_error(f"- {line}", bold=False)
        output.print_error(f"It may import {', '.join(cast(list[str], self.may_import))}.", bold=False)


def _imports(graph: ImportGraph, modules: Sequence[str], but: Sequence[str]) -> Iterator[tuple[str, str]]:
    for importer in sorted(graph.modules):
        if graph.is_module_squashed(importer) or not any(_below(name, importer) for name in modules):
            continue
        if not any(_below(name, importer) for name in but):
            yield from ((importer, imported) for imported in sorted(graph.find_modules_directly_imported_by(importer)))


def _below(name: str, module: str) -> bool:
    return module in (name, name.removesuffix(".__init__")) or module.startswith(f"{name}.")


def _has(graph: ImportGraph, name: str) -> bool:
    return name.removesuffix(".__init__") in graph.modules


def _covers(name: str, imported: str, ours: set[str]) -> bool:
    top = imported.partition(".")[0]
    if name == "<stdlib>":
        return top in sys.stdlib_module_names
    if name == "<pure>":
        return imported in PURE
    if name == "<libraries>":
        return top not in sys.stdlib_module_names and top not in ours
    return _below(name, imported)


def environment_reads(source: str) -> list[int]:
    """The lines of a module that look into the environment, or have a library do it for them."""
    found = []
    for node in ast.walk(ast.parse(source)):
        names: list[str | None] = []
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("os", "posix"):
            names = [node.attr]
        elif isinstance(node, ast.ImportFrom) and node.module in ("os", "posix", "pydantic_settings"):
            names = [node.module, *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.keyword):
            names = [node.arg]
        if {"environ", "environb", "getenv", "getenvb", "envvar", "pydantic_settings"} & set(names):
            found.append(node.lineno)
    return sorted(found)


def clock_reads(source: str) -> list[int]:
    """The lines of a module that ask ``datetime`` for the present; other clocks are a matter of imports."""
    return sorted(
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and node.attr in ("now", "utcnow", "today")
        and isinstance(node.value, ast.Name | ast.Attribute)
        and (node.value.id if isinstance(node.value, ast.Name) else node.value.attr) in ("datetime", "date")
    )


def circles(graph: ImportGraph) -> list[str]:
    """A circle of modules that import each other, also where they do so late, inside a function; empty: there is none.

    One of several circles is enough to say: the next shows when it is gone.
    """
    ours = {name for name in graph.modules if not graph.is_module_squashed(name)}
    try:
        TopologicalSorter({name: graph.find_modules_directly_imported_by(name) & ours for name in ours}).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def crowded(modules: Iterable[str]) -> dict[str, int]:
    """Folders with more than :data:`MOST_MODULES` of these files, and how many they have."""
    found = Counter(str(PurePath(name).parent) for name in modules)
    return {folder: count for folder, count in sorted(found.items()) if count > MOST_MODULES}
