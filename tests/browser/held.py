"""Answers that come later than others."""

from __future__ import annotations

import json

from tests.browser.driver import Page


def hold(page: Page, path: str) -> None:
    """Hold back the next answer to a path that begins so, as it is now, until :func:`let_go`."""
    page.ask(f"""{{ const real = window.fetch; let held = false; delete window.release;
        window.fetch = async (path, ...more) => {{
            const answer = await real(path, ...more);
            if (String(path).startsWith({json.dumps(path)}) && !held) {{
                held = true;
                await new Promise((go) => {{ window.release = go; }});
            }}
            return answer;
        }}; }}""")


def let_go(page: Page) -> None:
    """Let the page have the answer, and do with it what it does."""
    page.until("window.release")
    page.ask("window.release()")
    # What is read of an answer comes in later turns: another one, that began after it, is read to its end first.
    page.ask("fetch('page/style.css', {cache: 'reload'}).then((answer) => answer.text())")
    page.ask("new Promise((go) => setTimeout(() => requestAnimationFrame(() => go(1))))")
