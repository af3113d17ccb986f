"""The composition root: only this package and the command line know every part.

``whole_system`` puts the parts together; ``broker_in_use`` is where the system publishes, ``gateway_process`` and
``shards`` are the parts that it starts and asks, ``warm_up`` fills the log beside the start.
"""

from services.app.whole_system import System, owners_of

__all__ = ["System", "owners_of"]
