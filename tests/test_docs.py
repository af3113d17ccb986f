"""Documentation keeps up with the code: settings, routes, commands, reasons, links and modules."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from edge.figure_fields import figures_of
from services.cli import app
from services.cli.setup.settings_view import list_settings, markdown_table
from services.config import Settings, SiteSettings
from services.observe.metrics import metrics_page
from services.serve.components import SHOWN_ON_METRICS
from tests.services.cli.command_line import commands

ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
PACKAGES = ("edge", "models", "services")
MODULES = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
ROUTE = re.compile(r'@routes\.(get|post|put|patch|delete)\(\s*"([^"]+)"')


def text(name: str) -> str:
    """A page of the documentation."""
    return (ROOT / name).read_text()


def test_configuration_reference_is_up_to_date() -> None:
    """docs/configuration.md ends with what `hothouse config --markdown` prints."""
    assert text("docs/configuration.md").endswith(markdown_table())


def test_the_table_of_metrics_is_up_to_date() -> None:
    """docs/metrics.md is what `python -m services.serve.components` prints."""
    assert text("docs/metrics.md") == metrics_page(SHOWN_ON_METRICS)


def test_every_metric_in_the_documentation_is_there() -> None:
    """A name of a metric that a page tells is one that is declared; the changelog and decisions may tell old ones."""
    declared = {figure.name for kind in SHOWN_ON_METRICS.values() for figure in figures_of(kind).values()}
    told = {
        (page.name, name)
        for page in PAGES
        if page.name != "CHANGELOG.md" and page.parent.name != "adr"
        for name in re.findall(r"`(hothouse_\w+)[`{]", page.read_text())
    }
    assert len(told) > 50
    assert sorted((page, name) for page, name in told if name not in declared) == []


def test_every_setting_is_documented() -> None:
    """Each setting has its row."""
    page = text("docs/configuration.md")
    assert [
        view.name for view in list_settings(Settings()) if f"`{view.name}`" not in page and view.name != "sites"
    ] == []


def test_every_setting_that_is_told_is_one() -> None:
    """By its name or as a variable, in code, of all pages but the changelog and decisions."""
    there = {view.name for view in list_settings(Settings())} | {f"sites.{name}" for name in SiteSettings.model_fields}
    sections = {name.partition(".")[0] for name in there}
    files = {"ray.token", "kafka.properties", "kafka.pid"}
    told = set[tuple[str, str]]()
    for page in [page for page in PAGES if page.name != "CHANGELOG.md" and page.parent.name != "adr"]:
        said = page.read_text()
        told |= {(page.name, name) for name in re.findall(r"`([a-z_]+\.[a-z_]+)(?: = [^`]*)?`", said)}
        told |= {(page.name, ".".join(two).lower()) for two in re.findall(r"\bHOTHOUSE_([A-Z]+)__([A-Z_]+)\b", said)}
    told = {(page, name) for page, name in told if name.partition(".")[0] in sections and name not in files}
    assert len(told) > 200
    assert sorted((page, name) for page, name in told if name not in there) == []


def test_every_command_is_documented() -> None:
    """Each command stands in docs/cli.md."""
    page = text("docs/cli.md")
    assert [command for command in commands() if f"`hothouse {' '.join(command)}" not in page] == []


@cache
def command_line() -> Any:
    """`hothouse` with its commands and options."""
    return typer.main.get_command(app)


def strange_words(line: str) -> list[str]:
    """What of the words behind `hothouse` is no command, or an option that neither it nor `hothouse` has."""
    command = command_line()
    takes_value, words, strange = {"--help": False}, line.split(), list[str]()
    while True:
        inner: dict[str, Any] = getattr(command, "commands", {})
        for each in command.params:
            takes_value |= dict.fromkeys(each.opts + each.secondary_opts, not getattr(each, "is_flag", False))
        while words and (words[0].startswith("-") or not inner):
            name, given, _ = words.pop(0).partition("=")
            if name.startswith("--") and len(name) > 2 and name not in takes_value:
                strange.append(name)
            elif name.startswith("-") and takes_value.get(name) and not given:
                words = words[1:]
        if not words or words[0] not in inner:
            return strange + words[:1]
        command = inner[words.pop(0)]


def test_every_command_line_that_is_shown_is_one() -> None:
    """The commands and options of `hothouse` that pages have in code are there; the changelog may tell old ones."""
    lines = {
        (page.name, line)
        for page in PAGES
        if page.name != "CHANGELOG.md"
        for code in re.findall(r"```.*?```|`[^`]+`", page.read_text().replace("\\\n", " "), re.S)
        for line in re.findall(r"(?<!-n)(?:^|[\s`/])hothouse (-?-?[a-z][^\n`|;&>#)]*)", code, re.M)
    }
    assert len(lines) > 200
    assert sorted((page, line) for page, line in lines if strange_words(line)) == []
    assert [strange_words(line) for line in ("predict --sit demo", "models promot v1", "--url http://a:1 status")] == [
        ["--sit"], ["promot"], []
    ]  # fmt: skip


def test_every_route_is_documented() -> None:
    """Each route of the API stands in docs/api.md with its method, and none stands there that is gone."""
    found = {
        f"{method.upper()} {path}"
        for file in (ROOT / "services/serve").rglob("*.py")
        for method, path in ROUTE.findall(file.read_text())
    }
    told = {match.split("?")[0] for match in re.findall(r"^\| `([A-Z]+ /[^`]*)`", text("docs/api.md"), re.M)}
    assert found
    assert told - {"GET /", "GET /docs", "GET /openapi.json"} == found


def test_every_reason_of_refusal_is_documented() -> None:
    """Each reason under which the gateway counts a refusal stands in docs/operations.md."""
    reasons = set(re.findall(r'(?:_refused|refuse)\(\s*"([a-z_]+)"', text("edge/wire/reading.py")))
    reasons |= set(re.findall(r'wrong\.append\(\("([a-z_]+)"', text("edge/wire/reading.py")))
    page = text("docs/operations.md")
    assert len(reasons) >= 7
    assert [reason for reason in reasons if f"`{reason}`" not in page] == []


def test_every_variable_and_container_is_documented() -> None:
    """What deploy/compose.yaml is filled in with, and each container of it, stands in docs/containers.md."""
    page = text("docs/containers.md")
    file = text("deploy/compose.yaml")
    variables = set(re.findall(r"\$\{([A-Z_]+)", file)) - {"HOTHOUSE_VERSION"}  # a label
    services = re.findall(
        r"^  ([a-z][a-z0-9-]+):(?: #.*)?$", file.partition("\nservices:")[2].partition("\nnetworks:")[0], re.M
    )
    assert len(services) > 12
    assert [name for name in [*sorted(variables), *services] if f"`{name}`" not in page] == []


def test_nobody_is_told_to_install_by_name() -> None:
    """On the package index `hothouse` is another project: a page, unit or message names this folder instead."""
    by_name = re.compile(r"pip install[^\n`]*[\s'\"]hothouse\b(?![-_])")
    asked = [*(page for page in PAGES if page.name != "CHANGELOG.md"), *ROOT.glob("deploy/*.*"), *MODULES]
    assert [str(path) for path in asked if by_name.search(path.read_text())] == []
    assert by_name.search("/opt/hothouse/bin/pip install 'hothouse[kafka]'")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link of a page names a file that is there."""
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", page.read_text()) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_that_a_page_names_are_there(page: Path) -> None:
    """Code in backticks by its path; the changelog may tell old ones."""
    told = re.findall(r"`((?:edge|models|services|tests|benchmarks)/[\w./-]+\.(?:py|csv|js))`", page.read_text())
    assert page.name == "CHANGELOG.md" or [path for path in told if not (ROOT / path).exists()] == []


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found = re.findall(r"^#+ (.+)$", page.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_to_headings_lead_somewhere(page: Path) -> None:
    """Every link to a heading of this or another page names one that is there."""
    links = [link for link in re.findall(r"\]\(([^)\s:]*#[^)\s]+)", page.read_text()) if "://" not in link]
    targets = [((page.parent / path) if path else page, anchor) for path, anchor in (link.split("#") for link in links)]
    assert [(str(target), anchor) for target, anchor in targets if anchor not in headings(target)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_link_that_is_called_after_a_page_leads_to_it(page: Path) -> None:
    """Also after what it leads to has moved to another page; the changelog may tell old ones."""
    pages = {one.stem for one in (ROOT / "docs").glob("*.md")}
    links = re.findall(r"\[(?:docs/)?([a-z-]+)(?:\.md)?\]\(([^)#\s]*)(?:#[^)\s]*)?\)", page.read_text())
    wrong = [(name, path) for name, path in links if name in pages and Path(path or page.name).stem != name]
    assert page.name == "CHANGELOG.md" or wrong == []


CHANGES = re.findall(r"^```diff\n(.*?)^```$", text("CONTRIBUTING.md"), re.M | re.S)


@pytest.mark.parametrize("diff", CHANGES, ids=["metric", "route", "expert"])
def test_the_first_changes_apply(diff: str) -> None:
    """Each diff that CONTRIBUTING.md shows a newcomer fits the code, or is in it already."""
    tried = [
        subprocess.run(["git", "apply", "--check", *how, "-"], input=diff, text=True, cwd=ROOT, capture_output=True)
        for how in ([], ["--reverse"])
    ]
    assert 0 in [one.returncode for one in tried], tried[0].stderr


@pytest.mark.parametrize("diff", CHANGES, ids=["metric", "route", "expert"])
def test_the_first_changes_use_names_that_are_there(diff: str, tmp_path: Path) -> None:
    """A newcomer who types one gets no `NameError`: a diff may fit long after a name in it has gone."""
    changed = re.findall(r"^\+\+\+ b/(.+)$", diff, re.M)
    for name in changed:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text(name))
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    subprocess.run(["git", "apply", "-"], input=diff, text=True, cwd=tmp_path, capture_output=True)  # or is in it
    look = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", *changed]
    found = subprocess.run(look, cwd=tmp_path, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout


def test_the_architecture_names_real_files() -> None:
    """Every module or folder that docs/architecture.md names in code type is there."""
    named = re.findall(r"`((?:edge|models|services)/[\w/.]*)`", text("docs/architecture.md"))
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def steps_of(module: str) -> set[int]:
    """The steps of the way of a reading that a module's first line names."""
    said = re.match(r'"""Steps? ([\d, a-z]+) of the way of a reading', text(module))
    found = set[int]()
    for first, last in re.findall(r"(\d+)(?: to (\d+))?", said[1] if said else ""):
        found |= set(range(int(first), int(last or first) + 1))
    return found


def test_modules_name_the_step_at_which_the_architecture_names_them() -> None:
    """Who opens a module of the table finds the step in its first line."""
    table = re.findall(r"^\| (\d+) [a-z]+ \|.*\| (.*) \|$", text("docs/architecture.md"), re.M)
    named = [(int(step), module) for step, where in table for module in re.findall(r"`([\w/]+\.py)`", where)]
    assert len(table) == 17
    assert [(step, module) for step, module in named if step not in steps_of(module)] == []


def test_no_output_is_left_out() -> None:
    """The README shows real output where it promises some."""
    assert "<!-- OUTPUT" not in text("README.md")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_public_names_are_there_and_explained(path: Path) -> None:
    """A module says what it is; its __all__ names what exists; public functions and classes have docstrings."""
    tree = ast.parse(path.read_text())
    if not tree.body:
        return
    assert ast.get_docstring(tree), "no docstring"
    exported: list[str] = []
    defined: set[str] = set()
    in_blocks = [inner for block in tree.body if isinstance(block, ast.With) for inner in block.body]
    for node in [*tree.body, *in_blocks]:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                names = {name.id for name in ast.walk(target) if isinstance(name, ast.Name)}
                defined |= names
                if "__all__" in names and node.value is not None:
                    exported = ast.literal_eval(node.value)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            defined |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defined.add(node.name)
            assert node.name.startswith("_") or ast.get_docstring(node), f"{node.name} has no docstring"
        elif isinstance(node, ast.Try | ast.If | ast.For):
            defined |= {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
    assert [name for name in exported if name not in defined] == [], "__all__ names what is not there"
