"""Run in the service's container: wait until so many API replicas run, as Serve knows; the last line is their number.

python3 await_replicas.py NUMBER SECONDS

A worker's HTTP answers before its own replica does: its proxy leads to the other worker's meanwhile.
"""

import logging
import sys
import time

import ray
from ray import serve


def running() -> int:
    """How many replicas of the API run."""
    return sum(
        count
        for application in serve.status().applications.values()
        for name, deployment in application.deployments.items()
        if name == "Api"
        for state, count in deployment.replica_states.items()
        if state == "RUNNING"
    )


if __name__ == "__main__":
    wanted, deadline_s = int(sys.argv[1]), time.monotonic() + float(sys.argv[2])
    ray.init(address="ray-head:6379", logging_level=logging.ERROR, log_to_driver=False)
    while (found := running()) < wanted and time.monotonic() < deadline_s:
        time.sleep(0.5)
    print(found)
