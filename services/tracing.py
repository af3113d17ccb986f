"""Where the spans of a process go, as the settings say; ``services.observe.spans`` makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.config import Settings, TracesSettings
from services.errors import ConfigError
from services.installation import installation_of
from services.observe.version import hothouse_version
from services.store.storage import storage_of

if TYPE_CHECKING:
    from services.observe.spans import Spans

__all__ = ["open_spans"]


def open_spans(settings: Settings, component: str) -> Spans | None:
    """The spans of ``component`` (``shard-0``, ``main`` ...); ``None`` where ``traces.endpoint`` is empty.

    Raises :class:`ConfigError` without the extra, and where the file of headers cannot be read.
    """
    said = settings.traces
    if not said.endpoint:
        return None
    headers = _headers(said)
    try:
        from services.observe.spans import Spans, otlp_exporter

        exporter = otlp_exporter(said.endpoint, headers)
    except ImportError as error:
        raise ConfigError(
            f"traces.endpoint is set, and OpenTelemetry's exporter is not installed: {error}",
            "Install it: pip install '.[traces]' in Hothouse's folder.",
        ) from error
    made_by = {
        "service.name": f"hothouse-{component.partition('-')[0]}", "service.instance.id": component,
        "service.namespace": installation_of(storage_of(settings)), "service.version": hothouse_version(),
    }  # fmt: skip
    return Spans(exporter, made_by, said.share)


def _headers(said: TracesSettings) -> dict[str, str]:
    if said.headers_file is None:
        return {}
    try:
        lines = said.headers_file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(
            f"traces.headers_file: {said.headers_file} cannot be read: {reason}", "Make the file, or unset it."
        ) from error
    named = [line.partition(":") for line in lines if line.strip()]
    if not all(name.strip() and colon for name, colon, _ in named):
        raise ConfigError(f"traces.headers_file: a line of {said.headers_file} is no header", "Write `name: value`.")
    return {name.strip().lower(): value.strip() for name, _, value in named}
