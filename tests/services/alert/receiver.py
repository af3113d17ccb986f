"""A real HTTP server on loopback that behaves as it is told."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["Receiver"]


class Receiver:
    """Keeps (headers, body) of each POST. ``answers`` are statuses, the last one for ever; ``hang``: it never answers;
    ``drip``: a byte of its answer now and then; ``cut``: it ends the connection after the request.
    """

    def __init__(self, port: int = 0) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[int | str] = [204]
        self.released = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
                answer = receiver.answers.pop(0) if len(receiver.answers) > 1 else receiver.answers[0]
                if answer == "cut":
                    self.connection.shutdown(socket.SHUT_RDWR)
                elif answer == "hang":
                    receiver.released.wait()
                elif answer == "drip":
                    while not receiver.released.wait(0.05):
                        self.wfile.write(b"H")
                        self.wfile.flush()
                else:
                    self.send_response(int(answer))
                    self.send_header("Content-Length", "0")
                    self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def keys(self) -> list[str]:
        """The idempotency keys that came, in order."""
        return [headers["idempotency-key"] for headers, _ in self.got]

    def kill(self) -> None:
        """End it, with whatever it was doing."""
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
