"""``hothouse pretrain train``, and ``hothouse pretrain`` by itself: a fleet becomes an artefact."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from models import artefact
from models.pretraining.shipped_arrays import FOLDER
from services.cli.pretrain import simulate, train
from services.cli.pretrain.upload import upload
from services.cli.root import app
from services.store.storage import FolderStorage
from tests.models.pretraining.fleets import write


def run(*arguments: str) -> tuple[int, str]:
    """The exit code, and all that was said, on one line."""
    result = CliRunner().invoke(app, ["pretrain", *arguments])
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.thorough
def test_a_fleet_is_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says how much it was, and how good it is on zones held back; the artefact is whole, made once, uploaded."""
    monkeypatch.setenv("HOTHOUSE_DATA_DIR", str(tmp_path / "data"))
    fleet, out = write(tmp_path / "fleet"), tmp_path / "out"
    small = ("--days", "2", "--epochs", "1", "--origins-each", "80", "--device", "cpu")
    code, said = run("train", "--fleet", str(fleet), "--out", str(out), *small, "--upload")
    assert code == 0, said
    assert "uploaded: pretrained/" in said
    assert "2.9 site-weeks, on cpu" in said
    assert "On zones held back its error is" in said
    artefact.load(out).verify_golden()
    code, said = run("train", "--fleet", str(fleet), "--out", str(out), *small)
    assert code == 2
    assert "an artefact never changes" in said


def test_what_is_uploaded_is_an_artefact(tmp_path: Path) -> None:
    """Every file, in a folder that its weights name; a second time changes nothing."""
    storage = FolderStorage(tmp_path)
    folder = upload(storage, FOLDER)
    assert folder == upload(storage, FOLDER)
    assert storage.list_folder("pretrained").folders == (folder.partition("/")[2],)
    artefact.load(tmp_path / folder).verify_golden()


def test_a_storage_that_does_not_answer_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is simulated or trained."""
    login = tmp_path / "login"
    login.write_text("[default]\naws_access_key_id = a\naws_secret_access_key = b\n")
    monkeypatch.setenv("HOTHOUSE_STORAGE__CREDENTIALS_FILE", str(login))
    monkeypatch.setenv("HOTHOUSE_STORAGE__URL", "s3://nowhere")
    monkeypatch.setenv("HOTHOUSE_STORAGE__ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("HOTHOUSE_STORAGE__RETRY_S", "0.1")
    code, said = run("--out", str(tmp_path / "both"), "--sites", "1", "--upload")
    assert code == 1
    assert "does not answer" in said
    assert not (tmp_path / "both").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--fleet", "nowhere"), "simulate a fleet"),
        (("--fleet", "nowhere", "--device", "abacus"), "Choose cpu, cuda or auto"),
    ],
)
def test_what_cannot_be_trained_on_is_said(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    """In a sentence, with what to do."""
    code, said = run("train", "--out", str(tmp_path / "out"), *arguments)
    assert code in (1, 2)
    assert words in said


@pytest.mark.thorough
def test_a_fleet_that_is_too_short_is_refused(tmp_path: Path) -> None:
    """With how long it has to be."""
    code, said = run("train", "--fleet", str(write(tmp_path / "fleet")), "--out", str(tmp_path / "out"))
    assert code == 1
    assert "need recordings of 11 days or more" in said
    assert not (tmp_path / "out").exists()


def test_by_itself_it_asks_where_to(tmp_path: Path) -> None:
    """``hothouse pretrain`` with options needs a folder; one that has an artefact is refused before the simulation."""
    code, said = run("--sites", "3")
    assert code == 2
    assert "--out is missing" in said
    (tmp_path / "artefact").mkdir()
    code, said = run("--out", str(tmp_path))
    assert code == 2
    assert "an artefact never changes" in said


@pytest.mark.thorough
def test_by_itself_it_simulates_and_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both folders are there afterwards; the artefact says of which fleet it was made. Six days less of each site, and
    of each zone, show as much: 1.6 weeks are the 11 days that are asked for where a fleet is too short.
    """
    simulated = simulate.simulate

    def shorter(out: Path, sites: int, weeks: float, seed: int) -> None:
        simulated(out, sites, weeks - 6 / 7, seed)

    monkeypatch.setattr(simulate, "simulate", shorter)
    monkeypatch.setattr(train, "train", partial(train.train, days=8 - 6, epochs=1))
    code, said = run("--out", str(tmp_path / "both"), "--sites", "4", "--weeks", "1.6", "--seed", "3")
    assert code == 0, said
    made = artefact.load(tmp_path / "both" / "artefact")
    fleet = made.manifest["trained_on"]["fleet"]
    assert (fleet["seed"], fleet["sites"], fleet["days"]) == (3, 4, 11 - 6)
