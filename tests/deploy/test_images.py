"""What the images set."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.runtime.ray_runtime import GIVES_BACK, GIVES_UP

ROOT = Path(__file__).parents[2]


def test_processes_in_containers_give_memory_back_as_those_of_a_local_runtime_do() -> None:
    """The same settings of the same allocators, and of what is done where memory runs out."""
    text = (ROOT / "deploy" / "images" / "cluster.Dockerfile").read_text()
    for name, value in (GIVES_BACK | GIVES_UP).items():
        assert f"    {name}={value} \\\n" in text


@pytest.mark.parametrize("image", ["cluster", "edge"])
def test_nobodys_root_may_run_the_scripts_whoever_cloned_them(image: str) -> None:
    """A checkout made with umask 077 has them for its owner alone, and a copy would stay so."""
    text = (ROOT / "deploy" / "images" / f"{image}.Dockerfile").read_text()
    copied = [line for line in text.splitlines() if line.startswith("COPY") and line.endswith("/usr/local/bin/")]
    assert copied
    assert all(line.startswith("COPY --chmod=0755 ") for line in copied)
