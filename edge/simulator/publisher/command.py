"""The publisher's command line: ``python -m edge.simulator.publisher simulate|replay``."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from zoneinfo import ZoneInfo

from edge.mqtt.connection import MqttAddress
from edge.option_numbers import number, whole_number
from edge.recordings.recording import RecordingError
from edge.recordings.replay import RecordingSource
from edge.recordings.sample_source import SampleSource
from edge.simulator.faults import FAULT_KINDS
from edge.simulator.faulty import FaultySource, parse_fault
from edge.simulator.publisher import Publisher
from edge.simulator.publisher.disturb import KINDS, Disturbance, parse_rates
from edge.simulator.publisher.ledger import Ledger
from edge.simulator.publisher.pace import Pace
from edge.simulator.simulator_source import SimulatorSource
from edge.tls_files import tls_files
from edge.wire.reading import EPOCH_2000_MS
from edge.wire.topic import is_name
from models.durations import MINUTE_MS

__all__ = ["main"]

_YEAR_9999_MS = 253_370_764_800_000
"""Nothing later has a date; a fast simulation reaches the next century within months."""

_logger = logging.getLogger(__name__)
_EXAMPLES = """examples:
  a simulated greenhouse, live:
    {prog} simulate --port 1883
  five zones, 900 times as fast, with the gateway's receive time taken from it (gateway.clock: replayed):
    {prog} simulate --zones 5 --seed 7 --speed 900 --clock
  one in which the first zone's thermometer reads 3 K too much for two hours, after half an hour:
    {prog} simulate --speed 60 --fault offset:tomato-1:air_temp_c:30:120:3
  a recording as fast as it goes, and some nonsense in between, counted in status.json:
    {prog} replay recordings/ --timezone Europe/Amsterdam --speed max \\
        --disturb duplicates=0.01 --disturb malformed=0.005 --status-file status.json
"""
_OTHER_TIME = """the system on this data folder takes time from the wall clock: it would refuse samples of another time
Start one that takes it from them, on a data folder of its own: HOTHOUSE_GATEWAY__CLOCK=replayed hothouse up.
`hothouse simulate` without --speed needs none."""


def main(
    arguments: Sequence[str] | None = None,
    prog: str = "python -m edge.simulator.publisher",
    *,
    wall_clock: bool = False,
) -> int:
    """Run the command, say what was published, and return the exit code; help and usage call it ``prog``.

    ``wall_clock``: the gateway takes its time from the wall clock; what it would refuse as of another time is refused
    here, before anything is published.

    0: all was published, or it was stopped; 1: not all was acknowledged; 2: a wrong argument.
    """
    parser = _parser(prog)
    given = parser.parse_args(arguments)
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    is_live = given.speed == 1 and given.command == "simulate"
    with_clock: bool = not is_live if given.clock is None else given.clock
    if wall_clock and with_clock:
        parser.exit(2, f"error: {_OTHER_TIME}\n")
    try:
        password = given.password_file.read_text(encoding="utf-8").strip() if given.password_file else ""
        tls = tls_files(given)
        if tls:
            tls.check()
        rates = parse_rates(given.disturb)
        source = _source(given)
        from_ms = source.start_ms if given.from_ms is None else given.from_ms
        faults = [parse_fault(text, source.zones, from_ms) for text in given.fault]
        source = FaultySource(source, faults, given.seed) if faults else source
        ledger = Ledger(given.status_file, given.ids_file, given.messages_file, _logger.warning)
    except (RecordingError, OSError, ValueError) as error:
        parser.exit(2, f"error: {_words(error)}\n")
    if given.from_ms is not None:
        source.skip(given.from_ms)
    # Without a clock of its own event time must be the wall clock's, or the gateway refuses it as future or ancient.
    anchor = None if with_clock else (time.time_ns() // 1_000_000, time.monotonic())
    address = MqttAddress(host=given.host, port=given.port, username=given.username, password=password, tls=tls)
    publisher = Publisher(
        source, address, ledger, Pace(given.speed, anchor), with_clock=with_clock, until_ms=given.until_ms,
        disturbance=Disturbance(rates, given.seed) if rates else None,
    )  # fmt: skip
    is_stopped = False

    def stop(number: int, frame: object) -> None:
        nonlocal is_stopped
        is_stopped = True
        publisher.stop()

    for told in (signal.SIGTERM, signal.SIGINT):
        signal.signal(told, stop)
    publisher.run()
    sys.stdout.write(f"{ledger.summary}\n")
    return 0 if is_stopped or ledger.status["complete"] else 1


def _source(given: argparse.Namespace) -> SampleSource:
    if given.command == "replay":
        return RecordingSource(
            given.folder, given.mapping, given.site, given.timezone, given.latitude, given.longitude,
            boot_seed=given.boot_seed,
        )  # fmt: skip
    from edge.simulator.simulated_site import SimulatedSite  # a replay needs none of the physics

    start_ms = time.time_ns() // 60_000_000_000 * MINUTE_MS if given.start_ms is None else given.start_ms
    site = SimulatedSite(
        given.site, given.seed, start_ms, zones=given.zones, latitude=given.latitude, longitude=given.longitude,
        timezone=given.timezone,
    )  # fmt: skip
    return SimulatorSource(site, boot_seed=given.boot_seed)


def _speed(text: str) -> float:
    return 0.0 if text == "max" else number(0, 1e9)(text)


def _name(text: str) -> str:
    if not is_name(text):
        raise argparse.ArgumentTypeError(f"it takes letters, digits, '.', '_' and '-', up to 64, not {text[:80]!r}")
    return text


def _start_ms(text: str) -> int:
    found = int(whole_number()(text))
    if not EPOCH_2000_MS <= found < _YEAR_9999_MS:
        words = f"it takes milliseconds since 1970, from the year 2000 on, such as 1646092800000, not {text[:40]!r}"
        raise argparse.ArgumentTypeError(words)
    return found


def _time_zone(text: str) -> str:
    try:
        ZoneInfo(text)
    except (KeyError, ValueError, OSError) as error:
        words = f"it takes an IANA time zone such as Europe/Amsterdam, not {text[:80]!r}"
        raise argparse.ArgumentTypeError(words) from error
    return text


def _words(error: Exception) -> str:
    """What is wrong, without the number that the system gives it."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def _parser(prog: str) -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    broker = common.add_argument_group("broker")
    broker.add_argument("--host", default="127.0.0.1", help="default: %(default)s")
    broker.add_argument("--port", type=whole_number(1, 65_535), default=1883, help="default: %(default)s")
    broker.add_argument("--username", default="", help="user name, if the broker wants one")
    broker.add_argument("--password-file", type=Path, help="file that holds the password")
    broker.add_argument("--tls-ca-file", type=Path, help="CA certificate; use TLS")
    broker.add_argument("--tls-cert-file", type=Path, help="certificate that is shown to a broker which asks for one")
    broker.add_argument("--tls-key-file", type=Path, help="the key of that certificate")
    when = common.add_argument_group("time")
    when.add_argument("--speed", type=_speed, default=1.0, help="times real time; 0 or max: at once; default: 1")
    when.add_argument("--from-ms", type=whole_number(), help="publish nothing up to and including this event time")
    when.add_argument("--until-ms", type=whole_number(), help="publish nothing after this event time")
    when.add_argument(
        "--clock", action=argparse.BooleanOptionalAction,
        help="also publish the event time as the gateway's clock, for a gateway whose gateway.clock is replayed; "
        "default: yes, except for a simulation at speed 1",
    )  # fmt: skip
    ledger = common.add_argument_group("ledger, faults and disturbances")
    ledger.add_argument("--status-file", type=Path, help="JSON with what was published, replaced each second")
    ledger.add_argument("--ids-file", type=Path, help="gets a line `zone device boot seq ts_ms` for each true sample")
    ledger.add_argument("--messages-file", type=Path, help="gets a line `kind<TAB>topic<TAB>payload` for each message")
    ledger.add_argument(
        "--disturb", action="append", default=[], metavar="KIND=RATE",
        help=f"send such messages between the true ones; KIND one of {', '.join(KINDS)}; may be repeated",
    )  # fmt: skip
    ledger.add_argument(
        "--fault", action="append", default=[], metavar="KIND:ZONE:METRIC:AFTER_MIN:MINUTES[:SIZE]",
        help=f"a sensor fails; KIND one of {', '.join(FAULT_KINDS)}; minutes of event time; may be repeated",
    )  # fmt: skip
    ledger.add_argument(
        "--seed", type=whole_number(0), default=7, help="of greenhouse and disturbances; default: %(default)s"
    )
    ledger.add_argument("--boot-seed", type=whole_number(0), help="repeatable boot ids, for tests; default: random")

    parser = argparse.ArgumentParser(
        prog=prog, description="Publish a greenhouse's samples over MQTT.", epilog=_EXAMPLES.format(prog=prog),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    commands = parser.add_subparsers(dest="command", required=True)
    simulate = commands.add_parser(
        "simulate", parents=[common], help="a simulated greenhouse",
        epilog=f"example: {prog} simulate --zones 5",
    )  # fmt: skip
    simulate.add_argument("--site", type=_name, default="demo", help="default: %(default)s")
    simulate.add_argument("--zones", type=whole_number(1), default=3, help="how many; default: %(default)s")
    simulate.add_argument("--start-ms", type=_start_ms, help="event time of its beginning; default: now")
    simulate.add_argument("--timezone", type=_time_zone, default="Europe/Amsterdam", help="default: %(default)s")
    simulate.add_argument(
        "--latitude", type=number(-90, 90), default=51.98,
        help="moves the sun and, south of the equator, the seasons; the climate stays the Dutch coast's; "
        "default: %(default)s",
    )  # fmt: skip
    simulate.add_argument("--longitude", type=number(-180, 180), default=4.53, help="default: %(default)s")
    replay = commands.add_parser(
        "replay", parents=[common], help="a recording: one CSV, CSV.xz or Parquet file a zone",
        epilog=f"example: {prog} replay recordings/ --timezone Europe/Amsterdam --speed max",
    )  # fmt: skip
    replay.add_argument("folder", type=Path, help="folder with the recording")
    replay.add_argument("--mapping", type=Path, help="TOML that says what columns mean; default: FOLDER/recording.toml")
    replay.add_argument("--site", help="default: the mapping's, else the folder's name")
    replay.add_argument("--timezone", help="what the recording's clock follows; default: the mapping's, else UTC")
    replay.add_argument("--latitude", type=number(-90, 90), help="default: the mapping's")
    replay.add_argument("--longitude", type=number(-180, 180), help="default: the mapping's")
    return parser
