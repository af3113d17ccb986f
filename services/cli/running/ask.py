"""``predict``, ``status``, ``timeline``, ``models``, ``retrain``: questions and orders to a running system, by HTTP."""

from __future__ import annotations

import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from services.cli.base import Group, console, errors, options_of, print_json
from services.cli.running.change_words import change_of, what_if_view
from services.cli.running.client import Client, NoAnswerError, connect
from services.cli.running.tables import figures_table, forecast_view, model_view, parts_table, zones_view
from services.errors import ConfigError, HothouseError
from services.observe.timeline import event_line

if TYPE_CHECKING:
    from services.messages import LearningFigures, LiveEvent  # with NumPy, which `hothouse --help` must not pay for
    from services.serve.api.answer_types import (
        StatusAnswer,  # a part of the cluster's: questions run on the bare install
        WhatIfAnswer,
    )
    from services.serve.models.model_pointer import PointerAnswer

__all__ = ["COMMANDS", "AsJson", "KeyFile", "Url", "register"]

COMMANDS = ("predict", "status", "timeline", "models", "retrain", "plan")

Url = Annotated[
    str | None, typer.Option(help="Address of a running system to ask; else client.url, or the one on the data folder.")
]
KeyFile = Annotated[Path | None, typer.Option(help="File with the key for it; else client.key_file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]

WhoseModel = Annotated[
    str | None,
    typer.Option("--expert", help="The expert: `network` (the default), `trees` or `tuned`.", metavar="EXPERT"),
]

PANEL = "Ask a running system"

QUESTION_S = 10.0
ORDER_S, SUBMIT_S = 45.0, 120.0
"""How long a command waits for an answer; with an order longer than the API does, whose words say what became of it."""

ZONES_A_CALL = 50
"""With the longest names they are as long as an address may be."""

models_app = typer.Typer(cls=Group, help="The registry: list, promote, roll back, submit.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command(rich_help_panel=PANEL, epilog="Example: hothouse predict tomato-1")(predict)
    app.command(rich_help_panel=PANEL, epilog="Example: hothouse status --json")(status)
    app.command(rich_help_panel=PANEL, epilog="Example: hothouse timeline")(timeline)
    app.command(rich_help_panel=PANEL, epilog="Example: hothouse retrain")(retrain)
    app.add_typer(models_app, name="models", rich_help_panel=PANEL)


def _client(ctx: typer.Context, url: str | None, key_file: Path | None, timeout_s: float | None = None) -> Client:
    """What a command asks: its own options come before those that stand before its name."""
    options = options_of(ctx)
    return connect(options.settings(), url or options.url, key_file or options.key_file, timeout_s or QUESTION_S)


def predict(
    ctx: typer.Context,
    zone: Annotated[str | None, typer.Argument(help="Zone; all zones where none is named.")] = None,
    site: Annotated[str | None, typer.Option(help="Only zones of this site.")] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(help="What if? Such as 'sp_heat_c -1.5 from 22:00 to 04:00'; may be given several times."),
    ] = None,
    url: Url = None,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Show what is forecast: now, in 30 minutes, in 2 hours, in 24 hours, with the p10-p90 band; or what a change of a
    setpoint or of the weather would do.
    """
    if change and not zone:
        raise ConfigError("a change is asked of one zone", "Name it: hothouse predict ZONE --change ...")
    changes = [change_of(words) for words in change or ()]
    client = _client(ctx, url, key_file)
    of_site = {"site": site} if site else {}
    if changes:
        question = {"zone": zone, "changes": changes, **of_site}
        answer: WhatIfAnswer = client.post("/predict", question)
        if as_json:
            print_json(answer)
        else:
            console.print(what_if_view(answer))
        return
    if zone:
        answers = [client.get("/predict", zone=zone, **of_site)]
        problems: list[str] = []
    else:
        answers, problems = _of_all(client, of_site)
    for words in problems:
        errors.print(words, markup=False, highlight=False, soft_wrap=True)
    if problems and not answers:
        raise HothouseError("no zone has a forecast that can be shown", "`hothouse status` says what it waits for.")
    if as_json:
        print_json(answers[0] if zone else answers)
    elif not answers:
        found = client.get("/status")["health"]["reasons"] or ["the first forecast has just come: ask again"]
        console.print(found[-1], markup=False, highlight=False, soft_wrap=True)
    else:
        console.print(forecast_view(answers))


def _of_all(client: Client, of_site: dict[str, str]) -> tuple[list[Any], list[str]]:
    """The forecasts of all zones, or of those ``of_site``, and why some have none: one without readings keeps no other
    back.
    """
    named = [f"{row['site']}/{row['zone']}" for row in client.get("/zones", **of_site)["zones"]]
    answers, problems = list[Any](), list[str]()
    for begin in range(0, len(named), ZONES_A_CALL):
        found = client.get("/predict", zones=",".join(named[begin : begin + ZONES_A_CALL]))
        answers += found["zones"]
        problems += [problem["detail"] for problem in found["problems"]]
    return answers, problems


def status(
    ctx: typer.Context,
    url: Url = None,
    key_file: KeyFile = None,
    as_json: AsJson = False,
    figures: Annotated[bool, typer.Option("--figures", help="Show all figures of the parts.")] = False,
) -> None:
    """Say whether the system is ready, which model serves, when the next training can begin and why then, what the
    parts have done, and what went wrong last.
    """
    client = _client(ctx, url, key_file)
    answer: StatusAnswer = client.get("/status")
    if as_json:
        print_json({"url": client.url, **answer})
        return
    health = answer["health"]
    state = "[green]ready[/]" if health["ready"] else "[bold red]not ready[/]"
    serving = _serving(answer["slot"])
    zones = f"{health['zones_usable']} of {health['zones']} zones"
    console.print(f"{client.url} is {state}; {zones}; model {serving}", soft_wrap=True)
    for reason in health["reasons"]:
        console.print(f"  {reason}", markup=False, highlight=False)
    components = answer["components"]
    for name, whose in (("retrainer", ""), ("retrainer-trees", " of trees"), ("retrainer-tuned", ", fine-tuned,")):
        if words := cast("LearningFigures", components.get(name, {})).get("next_training"):
            console.print(f"next training{whose} {words}", markup=False, highlight=False, soft_wrap=True)
    console.print(figures_table(components) if figures else parts_table(components))
    for error in answer["errors"]:
        errors.print(f"last error of {error}", markup=False, highlight=False)


def _serving(slot: PointerAnswer) -> str:
    """What the replicas serve, and beside it the champion where they do not."""
    champion = slot.get("champion", {}).get("version")
    if not champion:
        return slot.get("error", "unknown")
    served = sorted({report["version"] for report in slot.get("replicas", {}).values()}) or [champion]
    return ", ".join(served) + ("" if served == [champion] else f"; the champion {champion} does not serve yet")


def timeline(ctx: typer.Context, url: Url = None, key_file: KeyFile = None, as_json: AsJson = False) -> None:
    """Show what the learning loop did, oldest first: drifts that may start a training, trainings and why, swaps.

    The system keeps the newest 200 events, and none over a restart of its live state.
    """
    events: list[LiveEvent] = _client(ctx, url, key_file).get("/status")["events"]
    if as_json:
        print_json(events)
    elif events:
        for event in events:
            console.print(event_line(event, dated=True), highlight=False, soft_wrap=True)
    else:
        console.print("nothing has happened yet")


@models_app.command("list", epilog="Example: hothouse models list")
def list_models(ctx: typer.Context, url: Url = None, key_file: KeyFile = None, as_json: AsJson = False) -> None:
    """List the registered models, newest first, with their held-back error and what the gate or the watch said; then
    what each zone is served by, and what each expert weighs in its mixture. What fails in training or registry now
    goes to standard error.
    """
    client = _client(ctx, url, key_file)
    answer = client.get("/models")
    try:
        answer["zones"] = client.get("/models/zones")["zones"]
    except HothouseError as error:  # a shard restarts: the models are there all the same
        answer["zones"] = []
        answer["errors"] = [*answer["errors"], f"it is not known now what serves the zones: {error.message}"]
    for error_words in () if as_json else answer["errors"]:
        errors.print(error_words, markup=False, highlight=False, soft_wrap=True)
    if as_json:
        print_json(answer)
        return
    if answer["models"]:
        console.print(model_view(answer["models"]))
    else:
        console.print(f"no model is registered yet; {', '.join(answer['serving']) or 'nothing'} serves")
    if answer["zones"]:
        console.print(zones_view(answer["zones"]))


@models_app.command(epilog="Example: hothouse models promote v3")
def promote(
    ctx: typer.Context,
    version: Annotated[
        str, typer.Argument(help="Version, as `hothouse models list` shows it; `online`: serve without a model.")
    ],
    expert: WhoseModel = None,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Make a registered model the champion; replicas, or shards, swap to it without a pause."""
    path = f"/models/{urllib.parse.quote(version, safe='')}/promote"
    answer = _order(_client(ctx, url, key_file, ORDER_S), path + _query(expert=expert))
    console.print(f"{answer['version']} is the champion, {answer['before']} was")


@models_app.command(epilog="Example: hothouse models submit /srv/models/mine")
def submit(
    ctx: typer.Context,
    folder: Annotated[Path, typer.Argument(help="An artefact's folder, on the machine of the retrainer.")],
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Register a model that was made elsewhere. It is compared with the champion on live rows, and serves if it wins.

    The folder holds manifest.json, weights.safetensors and golden.safetensors, as the storage's models do.
    """
    answer = _order(_client(ctx, url, key_file, SUBMIT_S), "/models/submit", {"folder": str(folder.absolute())})
    console.print(f"{answer['version']} is compared with {answer['against']}; `hothouse timeline` shows the outcome")


@models_app.command(epilog="Example: hothouse models rollback")
def rollback(
    ctx: typer.Context,
    expert: WhoseModel = None,
    leave: Annotated[
        str | None, typer.Option(help="The version to go back from; where another serves, nothing is done.")
    ] = None,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Go back to the model that served before. A second call returns to the present one, except with --leave."""
    answer = _order(_client(ctx, url, key_file, ORDER_S), "/models/rollback" + _query(expert=expert, leave=leave))
    console.print(f"{answer['version']} is the champion again, {answer['before']} was")


def retrain(ctx: typer.Context, expert: WhoseModel = None, url: Url = None, key_file: KeyFile = None) -> None:
    """Ask for a retraining now; `hothouse models list` shows its outcome."""
    _order(_client(ctx, url, key_file, ORDER_S), "/models/retrain" + _query(expert=expert))
    console.print("a retraining begins; `hothouse models list` shows its outcome", highlight=False)


def _query(**asked: str | None) -> str:
    given = {name: value for name, value in asked.items() if value}
    return f"?{urllib.parse.urlencode(given)}" if given else ""


def _order(client: Client, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Give an order; a refusal with its reason is an error."""
    try:
        answer = client.post(path, body)
    except NoAnswerError as error:
        hint = "The order may be carried out all the same: see `hothouse models list` before you give it again."
        raise HothouseError(error.message, hint) from error
    if not isinstance(answer, dict) or answer.get("accepted") is False:
        raise HothouseError((answer or {}).get("reason") or "the order was refused")
    return answer
