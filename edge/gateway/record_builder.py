"""Step 2 of the way of a reading: messages become log records. Pure: no broker, no log, time is an argument.

Every message that a decoder reads ends in the records exactly once: its samples in a ``samples`` record of its site,
what was refused in a ``refused`` record, a plan or an event in one of its own. Records of a site keep the order of its
messages. A decoder reads a message (``edge.wire.decoder``). Messages without a decoder are counted, and only a few of
them get a record (``edge.gateway.other_topics``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from edge.clock import CLOCK_TOPIC, ReceiveClock, ReplayedClock, decode_clock
from edge.gateway.other_topics import OWN, OtherTopics
from edge.gateway.same_names import SameNames
from edge.log.contract import NewRecord, RecordKind
from edge.wire.decoder import Answer, DecodedMessage, Decoder, HothouseDecoder, refused
from edge.wire.envelope import UNKNOWN_SITE
from edge.wire.events import site_retirement
from edge.wire.reading import Refusal, Sample, encode_refusals
from edge.wire.samples import encode_samples
from edge.wire.topic import is_alert_topic

__all__ = ["MAX_SAMPLES", "Message", "RecordBuilder"]

MAX_SAMPLES = 1000
"""Samples of one record at most; also refusals of one record."""

_MAX_RECORD_BYTES = 1024 * 1024  # every log takes this much in one record
_DETAIL_CHARACTERS = 1024
_TICKS_A_STEP = 10


class Message(NamedTuple):
    """What came from the broker, unchecked."""

    topic: str
    payload: bytes
    retained: bool = False
    """The broker had kept it, and sent it because we subscribed."""


class RecordBuilder:
    """Turns messages into records to append, and adds the ticks that let a silent site's rows close.

    ``clock`` stamps the records. A :class:`ReplayedClock` follows the clock messages among the messages; with any other
    clock those are refused. ``sites`` are the sites known from the log, ``newest_ms`` is its newest receive time: ticks
    go on from there. ``step_ms`` is the length of a row: each known site gets a tick when the receive time enters a new
    tenth of it. Two kinds of sites get none. A site with a gateway of its own gets its ticks there: ticks from here
    would close its rows while it is merely cut off. A site that has left (``edge.wire.events.Retirement``) gets ticks
    again after its next sample.

    The decoder whose prefix begins a message's topic reads it. Without one the message is counted and refused
    (``edge.gateway.other_topics``), except for what Hothouse itself publishes.

    >>> builder = RecordBuilder(ReplayedClock(1646092800500), step_ms=300_000)
    >>> body = b'{"boot":"9f3c62d1a07be845","ts":1646092800000,"seq":1,"values":{"rh_pct":71.0}}'
    >>> records = builder.take([Message("hothouse/v1/s/z/d/sample", body), Message("hothouse/v1/s", b"?")])
    >>> [(r.site, r.kind) for r in records]
    [('s', 'samples'), ('_unknown', 'refused')]
    """

    def __init__(
        self, clock: ReceiveClock, step_ms: int, sites: Iterable[str] = (), newest_ms: int | None = None,
        decoders: Sequence[Decoder] = (HothouseDecoder(),),
    ) -> None:  # fmt: skip
        self.messages = 0
        self.samples = 0
        self.refused = 0
        self.relayed = 0  # records of other gateways
        self.other_topics = 0  # messages that no decoder reads
        self.retained = 0  # samples of retained messages that were left out
        self._decoders = decoders
        self._clock = clock
        self._tick_ms = max(1, step_ms // _TICKS_A_STEP)
        self._sites = dict.fromkeys(sites, 0)  # to be ticked for -> newest time of a sample, as far as it is known
        now_ms = clock.now_ms()  # another gateway's record may be ahead of it
        self._tick = (now_ms if newest_ms is None else min(newest_ms, now_ms)) // self._tick_ms
        self._now_ms = 0
        self._samples: dict[str, list[Sample]] = {}
        self._refusals: dict[str, list[Refusal]] = {}
        self._records: list[NewRecord] = []
        self._answers: list[Answer] = []
        self._others = OtherTopics()
        self._same_names = SameNames()

    def take(self, messages: Iterable[Message] = ()) -> list[NewRecord]:
        """The records of these messages, and the ticks that are due; also to be called when no message came."""
        self._now_ms = self._clock.now_ms()
        self._tell_of_others()
        for message in messages:
            if message.topic.startswith(OWN) or is_alert_topic(message.topic):
                continue
            self.messages += 1
            if message.topic == CLOCK_TOPIC and isinstance(self._clock, ReplayedClock):
                self._advance_clock(self._clock, message)
            else:
                self._take_message(message)
        self._flush()
        self._tick_sites()
        records, self._records = self._records, []
        return records

    def answers(self) -> list[Answer]:
        """What decoders answer to the messages that were taken since the last call."""
        answers, self._answers = self._answers, []
        return answers

    def _advance_clock(self, clock: ReplayedClock, message: Message) -> None:
        try:
            now_ms = decode_clock(message.payload)
        except ValueError as error:
            refusal = Refusal("malformed", message.topic[:256], str(error), message.payload[:1024])
            self._refusals.setdefault(UNKNOWN_SITE, []).append(refusal)
            self.refused += 1
            return
        self._flush()  # what came before the message keeps the time before it
        clock.advance(now_ms)
        self._now_ms = clock.now_ms()
        self._tell_of_others()
        self._tick_sites()

    def _tell_of_others(self) -> None:
        for refusal in self._others.due(self._now_ms):
            self._refusals.setdefault(UNKNOWN_SITE, []).append(refusal)

    def _count_other(self, message: Message) -> None:
        self.other_topics += 1
        self.refused += 1
        refusal = self._others.take(message.topic, message.payload)
        if refusal is not None:
            self._refusals.setdefault(UNKNOWN_SITE, []).append(refusal)

    def _take_message(self, message: Message) -> None:
        decoder = self._decoder(message.topic)
        if decoder is None:
            return self._count_other(message)
        taken = self._decoded(decoder, message)
        self._answers += taken.answers
        samples = self._made_once(taken.samples) if message.retained else taken.samples
        if samples:
            self._sites.setdefault(taken.site, 0)
            self._samples.setdefault(taken.site, []).extend(samples)
            self.samples += len(samples)
            if decoder.prefix == HothouseDecoder.prefix:  # other decoders name as they like
                looked = (self._same_names.look(message.topic, sample, self._now_ms) for sample in samples)
                if told := [same for same in looked if same is not None]:
                    self._refusals.setdefault(taken.site, []).extend(told)
        if taken.refusals:
            self._refusals.setdefault(taken.site, []).extend(map(_short, taken.refusals))
            self.refused += sum(refusal.samples for refusal in taken.refusals if refusal.whole)
        if taken.record is not None:
            self._flush(taken.site)
            self._records.append(taken.record)
            self._retire(taken.record)
            if taken.record.origin is not None:
                self.relayed += 1
                if taken.record.kind == "samples":
                    self._sites.pop(taken.site, None)  # it has a gateway of its own now

    def _decoded(self, decoder: Decoder, message: Message) -> DecodedMessage:
        """What a decoder reads in a message. If it raises, which it must not, the message is refused: otherwise the
        message would end the gateway, and come again at each start.
        """
        try:
            return decoder.take(message.topic, message.payload, self._now_ms)
        except Exception as error:
            detail = f"its decoder failed: {type(error).__name__}: {error}"
            return refused("decoder_failed", message.topic, message.payload, detail)

    def _made_once(self, samples: Sequence[Sample]) -> list[Sample]:
        """The samples of a retained message that have a time of their own.

        A decoder stamps the others with the time at which they came: a sensor that died long ago would look fresh again
        each time that the gateway connects.
        """
        kept = [sample for sample in samples if sample.ts_ms != self._now_ms]
        self.retained += len(samples) - len(kept)
        return kept

    def _retire(self, record: NewRecord) -> None:
        change = site_retirement(record)
        if change is not None and self._sites.get(record.site, 0) <= (change.until_ms or 0):
            self._sites.pop(record.site, None)

    def _decoder(self, topic: str) -> Decoder | None:
        return next((decoder for decoder in self._decoders if topic.startswith(decoder.prefix)), None)

    def _flush(self, site: str | None = None) -> None:
        """Close the open records of one site, or of all."""
        for name in list(self._samples) if site is None else [site]:
            samples = self._samples.pop(name, [])
            if name in self._sites:
                self._sites[name] = max([self._sites[name], *(sample.ts_ms for sample in samples)])
            for start in range(0, len(samples), MAX_SAMPLES):
                self._close_record(name, "samples", samples[start : start + MAX_SAMPLES], encode_samples)
        for name in list(self._refusals) if site is None else [site]:
            refusals = self._refusals.pop(name, [])
            for start in range(0, len(refusals), MAX_SAMPLES):
                self._close_record(name, "refused", refusals[start : start + MAX_SAMPLES], encode_refusals)

    def _close_record(
        self, site: str, kind: RecordKind, entries: Sequence[Any], encode: Callable[[Sequence[Any]], bytes]
    ) -> None:
        """One record, or several where one would be longer than every log takes."""
        payload = encode(entries)
        if len(payload) > _MAX_RECORD_BYTES and len(entries) > 1:
            half = len(entries) // 2
            self._close_record(site, kind, entries[:half], encode)
            self._close_record(site, kind, entries[half:], encode)
        else:
            self._records.append(NewRecord(site, kind, self._now_ms, payload))

    def _tick_sites(self) -> None:
        tick = self._now_ms // self._tick_ms
        if tick != self._tick:  # a clock that was ahead is set back
            self._tick = tick
            self._records.extend(NewRecord(site, "tick", self._now_ms, b"") for site in self._sites)


def _short(refusal: Refusal) -> Refusal:
    """The refusal with its detail cut to :data:`_DETAIL_CHARACTERS`, however much is wrong with the message."""
    if len(refusal.detail) <= _DETAIL_CHARACTERS:
        return refusal
    return msgspec.structs.replace(refusal, detail=refusal.detail[:_DETAIL_CHARACTERS])
