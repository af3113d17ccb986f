"""Step 2 of the way of a reading: the decoders that the configuration names, from installed packages.

A package offers one through the entry-point group ``hothouse.decoders``: a name, and a class that is called without
arguments. A decoder is foreign code. Its samples are checked like those of devices. If it fails at a message, the
gateway refuses the message and goes on.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

import msgspec

from edge.decoders import BUILT_IN
from edge.wire.decoder import MAX_DOCUMENT_BYTES, Answer, DecodedMessage, Decoder, HothouseDecoder, refused
from edge.wire.envelope import UNKNOWN_SITE
from edge.wire.reading import Refusal, Sample, decode, decode_refusals, encode_message, encode_refusals
from edge.wire.topic import is_name, sample_topic

__all__ = ["GROUP", "CheckedDecoder", "DecoderError", "load_decoders"]

GROUP = "hothouse.decoders"

_TOPIC_BYTES = 65_536
_ANSWERS = msgspec.msgpack.Decoder(list[Answer])
_logger = logging.getLogger(__name__)


class DecoderError(ValueError):
    """A decoder that the configuration names is not installed, or is no decoder."""


class CheckedDecoder:
    """``decoder``, whose samples pass the checks of our own format.

    A message at which it raises a ``ValueError`` is refused as malformed; one at which it fails otherwise as
    ``decoder_failed``, and that is logged.
    """

    def __init__(self, name: str, decoder: Decoder) -> None:
        self.name, self.prefix = name, decoder.prefix
        self._decoder = decoder
        self._last_error = ""

    def take(self, topic: str, payload: bytes, receive_ms: int) -> DecodedMessage:
        """Check one message; never raises."""
        try:
            return _checked(self._decoder.take(topic, payload, receive_ms), topic, payload, receive_ms)
        except ValueError as error:  # also what JSON and msgspec say of a payload
            return refused("malformed", topic, payload, str(error))
        except Exception as error:
            detail = f"the decoder {self.name} failed: {type(error).__name__}: {error}"
            if detail != self._last_error:
                _logger.warning("%s, at a message on %s", detail, topic)
            self._last_error = detail
            return refused("decoder_failed", topic, payload, detail)


def load_decoders(names: Iterable[str]) -> tuple[Decoder, ...]:
    """New instances of our own decoder and of those with these names. Raises :class:`DecoderError` in one sentence."""
    decoders: list[Decoder] = [HothouseDecoder()]
    for name in dict.fromkeys(names):
        made = _make(name, _find(name))
        for other in decoders:
            if made.prefix.startswith(other.prefix) or other.prefix.startswith(made.prefix):
                raise DecoderError(
                    f"the decoder {name} reads {made.prefix}#, of which another decoder reads {other.prefix}#: "
                    "topics have one decoder each"
                )
        decoders.append(CheckedDecoder(name, made))
    return tuple(decoders)


def _find(name: str) -> EntryPoint:
    own = [EntryPoint(own, place, GROUP) for own, place in BUILT_IN.items()]
    installed: list[EntryPoint] = [*own, *entry_points(group=GROUP)]
    found = [entry for entry in installed if entry.name == name]
    if not found:
        there = ", ".join(sorted(f"{entry.name} ({_package(entry)})" for entry in installed)) or "none at all"
        raise DecoderError(
            f"gateway.decoders names {name!r}, which no installed package offers; there is: {there}. "
            "Install the package that has it into the gateway's environment"
        )
    if len(found) > 1:
        packages = " and ".join(sorted(map(_package, found)))
        raise DecoderError(f"the decoder {name} is offered by {packages}: uninstall one")
    return found[0]


def _make(name: str, entry: EntryPoint) -> Decoder:
    said = f"the decoder {name} of {_package(entry)} ({entry.value})"
    try:
        made = entry.load()()
    except Exception as error:
        raise DecoderError(f"{said} cannot be loaded: {type(error).__name__}: {error}") from error
    prefix = getattr(made, "prefix", None)
    if not callable(getattr(made, "take", None)) or not isinstance(prefix, str):
        raise DecoderError(f"{said} is no decoder: it needs a prefix and take(topic, payload, receive_ms)")
    if not prefix.endswith("/") or len(prefix) == 1 or {"+", "#", "\0"} & set(prefix):
        raise DecoderError(f"{said} has the prefix {prefix!r}: it must end with / and hold neither + nor #")
    decoder: Decoder = made
    return decoder


def _package(entry: EntryPoint) -> str:
    if entry.dist is None:
        return "hothouse" if entry.value in BUILT_IN.values() else "a package without a name"
    return f"{entry.dist.name} {entry.dist.version}"


def _checked(taken: DecodedMessage, topic: str, payload: bytes, receive_ms: int) -> DecodedMessage:
    """The same with samples as if their devices had sent them in our own format; raises where it is no
    ``DecodedMessage``.
    """
    if taken.record is not None:
        raise TypeError("a package's decoder gives samples, refusals and answers, no records")
    samples = list[Sample]()
    refusals = decode_refusals(encode_refusals(taken.refusals))
    answers = _ANSWERS.decode(msgspec.msgpack.encode(taken.answers))
    for answer in answers:
        if not _may_publish(answer.topic):
            raise TypeError(f"it answers on {answer.topic!r}, where nothing can be published")
        if len(answer.payload) > MAX_DOCUMENT_BYTES:
            raise TypeError(f"it answers with {len(answer.payload)} bytes, at most {MAX_DOCUMENT_BYTES}")
    for sample in taken.samples:  # each by itself: together they may be longer than a message of ours
        decoded = decode(sample_topic(taken.site, sample.zone, sample.device), _as_sent(sample), receive_ms)
        samples += decoded.samples
        refusals += [msgspec.structs.replace(each, topic=topic, payload=payload) for each in decoded.refusals]
    site = taken.site if is_name(taken.site) else UNKNOWN_SITE
    return DecodedMessage(site, samples, [_short(each) for each in refusals], answers=answers)


def _as_sent(sample: Sample) -> bytes:
    """The message of a sample. What is no finite number stays in it, to be refused: ``encode_message`` has null for
    it, which says nothing.
    """
    if all(not isinstance(value, float) or math.isfinite(value) for value in sample.values.values()):
        return encode_message([sample])
    said = {"boot": sample.boot, "ts": sample.ts_ms, "seq": sample.seq, "values": sample.values}
    return json.dumps(said).encode()


def _may_publish(topic: str) -> bool:
    return 0 < len(topic.encode()) < _TOPIC_BYTES and not {"+", "#", "\0"} & set(topic)


def _short(refusal: Refusal) -> Refusal:
    return msgspec.structs.replace(refusal, topic=refusal.topic[:256], payload=refusal.payload[:1024])
