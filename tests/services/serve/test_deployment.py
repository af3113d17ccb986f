"""Serving's parts that need no Ray."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest


@pytest.mark.skipif(platform.system() != "Linux", reason="libraries have these names on Linux only")
def test_torch_is_linked_before_it_is_imported() -> None:
    """Its libraries are in the process, and nothing of it was imported: what is left of the import holds nobody up."""
    code = (
        "import sys; from services.serve.deployment import link_torch; link_torch(); "
        "print('libtorch_cpu.so' in open('/proc/self/maps').read(), 'torch' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["True", "False"]
