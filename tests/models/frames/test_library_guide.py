"""docs/library.md does what it says: every example runs, and prints what the page shows."""

import doctest
import re
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "library.md"


def examples() -> str:
    """The page's examples, one after the other."""
    return "\n".join(re.findall(r"^```pycon\n(.*?)^```$", PAGE.read_text(), re.M | re.S))


@pytest.mark.thorough
def test_the_guide_runs(tmp_path, monkeypatch):
    """Each line gives what stands below it, on the recording that it names."""
    monkeypatch.chdir(ROOT)
    mpl.use("Agg")
    parsed = doctest.DocTestParser().get_doctest(examples(), {"folder": tmp_path}, "docs/library.md", str(PAGE), 0)
    assert len(parsed.examples) > 15
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    told: list[str] = []
    result = runner.run(parsed, out=told.append, clear_globs=False)
    plt.close("all")
    assert result.failed == 0, "".join(told)


def test_a_forecast_takes_ten_lines():
    """The first example, from the first import to the plot."""
    first = re.search(r"^```pycon\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    assert first is not None
    lines = first[1].strip().splitlines()
    assert len(lines) == 10
    assert "import" in lines[0]
    assert "plot" in lines[-1]
