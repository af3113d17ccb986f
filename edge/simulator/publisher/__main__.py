"""``python -m edge.simulator.publisher``."""

from __future__ import annotations

import sys

from edge.simulator.publisher.command import main

sys.exit(main())
