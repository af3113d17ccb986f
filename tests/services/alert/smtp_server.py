"""What the SMTP servers of these tests share."""

from __future__ import annotations

import socketserver
import threading


class SmtpHandler(socketserver.StreamRequestHandler):
    """One conversation; a subclass has ``handle``."""

    def say(self, words: str) -> None:
        """One line."""
        self.wfile.write(f"{words}\r\n".encode())


class SmtpServer:
    """A server on loopback, at ``port``, that talks as ``handler`` does until it is closed."""

    def __init__(self, handler: type[SmtpHandler]) -> None:
        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        """Take no more conversations."""
        self._server.shutdown()
        self._server.server_close()
