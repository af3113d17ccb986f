"""One name, one thing: public classes and modules have names of their own, and the glossary's words are in use."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("edge", "models", "services")
TWICE = {
    "__init__": "every package has one",
    "__main__": "`python -m` of a package",
    "command": "the command line of the gateway, and of the publisher",
    "family": "how one kind of model is made, fitted and loaded: the network's, and the trees'",
    "frames": "pandas frames of a backtest, and of the store; user code imports both",
    "loop": "the main loop of the gateway, and of the publisher",
    "metrics": "of the gateway, which has the bare install, and of all other parts",
    "settings": "the file that a gateway reads (edge), what it works by (gateway), and the whole system's (services)",
}
"""Module names that are there twice, where folder and name together say what is meant."""
SAME = {
    "How": ("edge/simulator/fleet/edits.py", "models/effects/plan_change.py"),
    "PlanKind": ("edge/wire/plan.py", "models/features/plans.py"),
}
"""Types with one name because they are the same: ``edge`` and ``models`` do not import each other."""
WORDS = re.findall(r"^\| ([a-z ]+) \|", (ROOT / "docs/glossary.md").read_text(), re.M)[1:]


def sources() -> dict[str, str]:
    """Module -> its source."""
    found = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    return {str(path.relative_to(ROOT)): path.read_text() for path in found}


def types_twice(modules: Mapping[str, str]) -> dict[str, list[str]]:
    """Public classes, and names for types in ``__all__``, that several modules define; and which."""
    found = defaultdict(list)
    for path, source in sorted(modules.items()):
        body = ast.parse(source).body
        given = {node.targets[0].id: node.value for node in body
                 if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)}  # fmt: skip
        public = ast.literal_eval(given["__all__"]) if "__all__" in given else []
        names = [node.name for node in body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
        for name in [*names, *(name for name in public if name in given and not name.isupper())]:
            found[name].append(path)
    return {name: paths for name, paths in found.items() if len(paths) > 1}


def modules_twice(modules: Mapping[str, str]) -> set[str]:
    """Names that several modules have."""
    names = [Path(path).stem for path in modules]
    return {name for name in names if names.count(name) > 1}


def uses(word: str, texts: Mapping[str, str]) -> list[str]:
    """Where a word, in singular or plural, stands on its own or as part of an identifier."""
    pattern = re.compile(rf"(?<![a-z]){word.replace(' ', '[ _]?')}s?(?![a-z])", re.I)
    return [path for path, text in texts.items() if pattern.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text))]


def test_no_public_type_has_the_name_of_another() -> None:
    """Who reads a name knows which class or type is meant, without looking at the imports."""
    assert types_twice(sources()) == {name: list(paths) for name, paths in SAME.items()}


def test_a_type_with_the_name_of_another_is_seen() -> None:
    """Both modules are named; what is private is their module's own matter."""
    modules = {"edge/a.py": "class Watch: ...\nclass _Own: ...", "models/b.py": "class Watch: ...\nclass _Own: ..."}
    assert types_twice(modules) == {"Watch": ["edge/a.py", "models/b.py"]}
    modules = {"edge/a.py": '__all__ = ["How"]\nHow = int\nOwn = str', "models/b.py": "class How: ...\nclass Own: ..."}
    assert types_twice(modules) == {"How": ["edge/a.py", "models/b.py"]}


def test_module_names_are_there_twice_only_where_their_folder_says_the_rest() -> None:
    """Each exception is on the list with its reason, and none stays there that is no longer needed."""
    assert modules_twice(sources()) == set(TWICE)


def test_a_module_name_that_is_there_twice_is_seen() -> None:
    """A module of tomorrow needs a name of its own or a line in the list."""
    assert modules_twice({"edge/wire/reading.py": "", "models/reading.py": "", "models/spec.py": ""}) == {"reading"}


@pytest.mark.parametrize("word", WORDS)
def test_each_word_of_the_glossary_is_used(word: str) -> None:
    """A word that neither code nor documentation uses explains nothing."""
    pages = {str(path): path.read_text() for path in (ROOT / "docs").glob("*.md") if path.name != "glossary.md"}
    assert uses(word, sources() | pages)


def test_a_word_that_nobody_uses_is_seen() -> None:
    """Parts of longer words do not count; identifiers do."""
    texts = {"a.py": "class LiveState: ...", "b.py": "shadows = subrows(1)"}
    assert uses("live state", texts) == ["a.py"]
    assert uses("shadow", texts) == ["b.py"]
    assert uses("row", texts) == []


def test_the_glossary_is_short() -> None:
    """Some twenty words, each explained in at most two sentences."""
    lines = [line for line in (ROOT / "docs/glossary.md").read_text().splitlines() if line.startswith("| ")][1:]
    assert 15 <= len(WORDS) == len(lines) <= 25
    assert [line for line in lines if len(re.findall(r"\.(?: |$)", line.split("|")[2])) > 2] == []
