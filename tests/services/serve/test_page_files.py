"""The files of the page, as the API serves them."""

from __future__ import annotations

import re

from services.serve.api.assets import PAGE
from tests.services.serve.page_files import files_of
from tests.services.serve.system import System, assert_problem


def test_the_page_is_served_whole_and_allows_nothing_foreign(system: System) -> None:
    """Every file of the page is answered locally, of its kind, and not again while it is the same; the documents and
    all that they load stand under a strict content security policy and name no other address.
    """
    kinds = {".js": "text/javascript", ".css": "text/css", ".json": "application/json", ".html": "text/html"}
    files = [file for file in PAGE.rglob("*") if file.is_file()]
    assert len(files) > 20
    for file in files:
        answer = system.client.get(f"/page/{file.relative_to(PAGE)}")
        assert answer.content == file.read_bytes()
        assert answer.headers["content-type"].startswith(kinds.get(file.suffix, ""))
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        for known in (answer.headers["etag"], "*"):
            again = system.client.get(f"/page/{file.relative_to(PAGE)}", headers={"If-None-Match": known})
            assert again.status_code == 304
        if file.parent.name != "vendor":
            assert not re.findall(r"https?://", file.read_text()), file
    for path in ("/", "/docs"):
        answer = system.client.get(path)
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        known = {"If-None-Match": answer.headers["etag"]}
        assert system.client.get(path, headers=known).status_code == 304
    assert_problem(system.client.get("/page/nothing.js"), 404, "there is nothing at /page/nothing.js")


def test_the_page_is_small(system: System) -> None:
    """What each view needs, the chart library among it, is below 200 KB in any one language; all files together, as
    they are sent, are below 120 KB.
    """
    views = [file for file in (PAGE / "views").iterdir() if "View(box" in file.read_text()]
    assert len(views) == 7
    for language in ("en", "nl", "es"):
        for view in views:
            needed = files_of(view.resolve(), language)
            assert PAGE / "vendor" / "uplot.js" in needed
            assert PAGE / "store.js" in needed
            assert sum(file.stat().st_size for file in needed) < 200_000, (view.name, language)
    kept = [file for file in PAGE.rglob("*") if file.suffix in (".js", ".css", ".html", ".json")]
    files = [file for file in kept if file.parent.name != "words" or file.name.startswith("es.")]
    answers = [system.client.get(f"/page/{file.relative_to(PAGE)}") for file in files]
    assert sum(int(answer.headers["content-length"]) for answer in answers) < 120_000
