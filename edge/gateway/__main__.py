"""``python -m edge.gateway``."""

from __future__ import annotations

import sys

from edge.gateway.command import main

sys.exit(main())
