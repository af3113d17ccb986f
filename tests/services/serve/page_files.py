"""Which files a view of the page asks for."""

from __future__ import annotations

import re
from pathlib import Path

from services.serve.api.assets import PAGE


def files_of(view: Path, language: str) -> set[Path]:
    """The files that a view needs: the page's own, the words, and every module that is imported from one of them."""
    found = {PAGE / "index.html", PAGE / "words" / f"{language}.json"}
    parts = [view.stem, *(["models"] if view.stem == "system" else [])]  # system says when the next training is
    found |= {file for part in parts for file in (PAGE / "words").glob(f"{language}.{part}.json")}
    found |= {PAGE / name for name in re.findall(r'(?:href|src)="page/([^"]+)"', (PAGE / "index.html").read_text())}
    waiting = [view, *found]
    while waiting:
        module = waiting.pop()
        found.add(module)
        named = (
            re.findall(r'^import .*?from "([^"]+)"', module.read_text(), re.MULTILINE) if module.suffix == ".js" else []
        )
        waiting += {(module.parent / name).resolve() for name in named} - found
    return found
