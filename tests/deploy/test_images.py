"""What the images set."""

from __future__ import annotations

from pathlib import Path

from services.runtime.ray_runtime import GIVES_BACK, GIVES_UP

ROOT = Path(__file__).parents[2]


def test_processes_in_containers_give_memory_back_as_those_of_a_local_runtime_do() -> None:
    """The same settings of the same allocators, and of what is done where memory runs out."""
    text = (ROOT / "deploy" / "images" / "cluster.Dockerfile").read_text()
    for name, value in (GIVES_BACK | GIVES_UP).items():
        assert f"    {name}={value} \\\n" in text
