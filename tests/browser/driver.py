"""A Chromium that a test drives as a person does, over its DevTools protocol: keys are pressed, scripts are asked."""

from __future__ import annotations

import itertools
import json
import os
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.conftest import require_program
from tests.patience import patience_s, until

__all__ = ["FLAGS", "Page", "chromium", "open_page"]

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--enable-logging=stderr",
    "--no-proxy-server", "--window-size=1280,900", "--accept-lang=en-GB",
)  # fmt: skip
KEYS = {"Enter": 13, "Tab": 9, "Escape": 27, " ": 32, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
TYPED = {"Enter": "\r", " ": " "}
SHIFT = 8
AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text
ANSWER_S = 60.0
HURRY = """for (const name of ["setTimeout", "setInterval"]) {
    const real = window[name].bind(window);
    window[name] = (run, ms, ...given) => real(run, ms === LENGTH ? ms / 10 : ms, ...given);
}"""


def chromium() -> str:
    """The browser's path; without one the test is skipped, or fails (see ``require_program``)."""
    return require_program("chromium", "chromium-browser", "google-chrome")


class Page:
    """One open page."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._ids = itertools.count(1)
        self._rest = b""
        self._session = self._context = ""
        self.complaints: list[str] = []  # errors of scripts, and what the browser refused to load

    def renew(self, width: int = 1280, height: int = 900, **media: str) -> None:
        """A new window that knows nothing of the one before: no storage, no keys. ``media`` are its preferences."""
        if self._context:
            self._session = ""
            self.call("Target.disposeBrowserContext", browserContextId=self._context)
        self._context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=self._context)["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime.enable", "Log.enable"):
            self.call(domain)
        self.complaints.clear()
        small = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=small)
        features = [{"name": name.replace("_", "-"), "value": value} for name, value in media.items()]
        self.call("Emulation.setEmulatedMedia", features=features)

    def hurry(self, timer_ms: int) -> None:
        """Timers of just this length take a tenth of it, in whatever this window opens from now on."""
        self.call("Page.enable")
        self.call("Page.addScriptToEvaluateOnNewDocument", source=HURRY.replace("LENGTH", str(timer_ms)))

    def speak(self, *languages: str) -> None:
        """What the browser's user reads, in the order of liking."""
        self.call("Emulation.setUserAgentOverride", userAgent="", acceptLanguage=",".join(languages))

    def open(self, url: str) -> None:
        """Load an address."""
        if not self._session:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.navigate", url=url)

    def ask(self, script: str) -> Any:
        """The value of a JavaScript expression in the page, a promise's once it is there."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, script: str) -> None:
        """Wait until the expression is true; while the page is not there yet it may fail."""

        def holds() -> Any:
            answer = self._answer("Runtime.evaluate", {"expression": f"Boolean({script})", "returnByValue": True})
            result = answer.get("result", {})
            return "exceptionDetails" not in result and result.get("result", {}).get("value")

        until(holds, script)

    def type(self, text: str) -> None:
        """Type into whatever has the focus."""
        self.call("Input.insertText", text=text)

    def press(self, key: str, modifiers: int = 0) -> None:
        """Press and release one of ``KEYS``, or a character."""
        code = KEYS.get(key, ord(key.upper()[0]))
        text = TYPED.get(key, key if len(key) == 1 else "")
        same = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **same)
        self.call("Input.dispatchKeyEvent", type="keyUp", **same)

    def drag(self, selector: str, right: float, down: float) -> None:
        """Take an element at its middle with the mouse, and draw it that many pixels."""
        where = f"""(() => {{
            const found = document.querySelector({json.dumps(selector)});
            found.scrollIntoView({{block: "center"}});
            const box = found.getBoundingClientRect();
            return [box.left + box.width / 2, box.top + box.height / 2];
        }})()"""
        x, y = self.ask(where)
        button = {"button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type="mousePressed", x=x, y=y, buttons=1, **button)
        for part in (0.3, 0.7, 1.0):
            there = {"x": x + part * right, "y": y + part * down}
            self.call("Input.dispatchMouseEvent", type="mouseMoved", buttons=1, button="left", **there)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", x=x + right, y=y + down, **button)

    def barriers(self) -> list[str]:
        """What axe finds wrong with the page for people who cannot see, hear or point well: WCAG 2.2 A and AA."""
        if not self.ask("Boolean(window.axe)"):
            self.call("Runtime.evaluate", expression=AXE())
        found = self.ask("""(async () => {
            const rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
            const { violations } = await axe.run(document, { runOnly: rules });
            const where = (node) => `${node.target} ${node.any[0]?.message ?? ""}`;
            return violations.map((one) => `${one.id}: ${one.nodes.map(where).join(" | ")}`);
        })()""")
        assert isinstance(found, list)
        return found

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a call of the DevTools protocol."""
        answer = self._answer(method, parameters)
        assert "error" not in answer, (method, answer)
        result: dict[str, Any] = answer["result"]
        return result

    def _answer(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        number = next(self._ids)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                return answer
            self._hear(answer)

    def _hear(self, told: dict[str, Any]) -> None:
        said = told.get("params", {})
        if told.get("method") == "Runtime.exceptionThrown":
            details = said["exceptionDetails"]
            self.complaints.append(str(details.get("exception", {}).get("description", details["text"])))
        elif told.get("method") == "Log.entryAdded" and said["entry"]["level"] == "error":
            self.complaints.append(f"{said['entry']['text']} {said['entry'].get('url', '')}")

    def _next(self) -> dict[str, Any]:
        end_s = time.monotonic() + patience_s(ANSWER_S)
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], max(end_s - time.monotonic(), 0))
            assert ready, "the browser does not answer"
            read = os.read(self._from, 1 << 16)
            assert read, "the browser ended"
            self._rest += read
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found


@contextmanager
def open_page(profile: Path) -> Iterator[Page]:
    """A browser with an empty profile, that ends with the block."""
    commands, to_browser = os.pipe()
    from_browser, answers = os.pipe()
    # The browser takes commands from its file 3 and answers on its file 4.
    command = f'exec "$0" "$@" 3<&{commands} 4>&{answers}'
    flags = [*FLAGS, "--remote-debugging-pipe", f"--user-data-dir={profile}"]
    with (profile.with_name(f"{profile.name}.log")).open("wb") as log:
        browser = subprocess.Popen(
            ["bash", "-c", command, chromium(), *flags], pass_fds=(commands, answers), stdout=log, stderr=log
        )
    os.close(commands)
    os.close(answers)
    try:
        yield Page(to_browser, from_browser)
    finally:
        browser.kill()
        browser.wait(patience_s(60))
        os.close(to_browser)
        os.close(from_browser)
