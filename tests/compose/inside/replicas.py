"""Run in a container of network `core`: how many workers lead to a replica with forecasts, at the name given."""

import json
import socket
import sys
import urllib.error
import urllib.request


def answers(address: str) -> bool:
    """Whether HTTP of a worker leads to a replica that is ready."""
    try:
        with urllib.request.urlopen(f"http://{address}:8000/health/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


if __name__ == "__main__":
    addresses = {str(found[4][0]) for found in socket.getaddrinfo(sys.argv[1], 8000, socket.AF_INET)}
    print(json.dumps(sum(map(answers, sorted(addresses)))))
