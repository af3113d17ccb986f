"""``hothouse demo``: the whole system on one machine, fed by a simulated or recorded greenhouse, and judged."""

from services.demo.options import DemoOptions
from services.demo.run import run_demo

__all__ = ["DemoOptions", "run_demo"]
