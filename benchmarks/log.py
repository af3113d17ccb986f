"""Appending to and reading a log, in samples a second of wall time and of CPU time.

    python -m benchmarks.log [--log FILE | kafka://host:port/topic] [--records 4000] [--samples-a-record 50]

A temporary SQLite log without ``--log``. Appends are durable when they return (SQLite: an fsync each; Kafka: acks=all);
each carries ``--batch`` records. What is read is decoded, as a shard does.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from edge.log import NewRecord
from edge.log.open_log import open_log
from edge.wire.reading import Sample
from edge.wire.samples import SampleColumns, encode_samples

NOW_MS = 1_646_092_800_000
METRICS = ("air_temp_c", "rh_pct", "co2_ppm", "par_umol_m2_s", "soil_vwc_pct", "vent_lee_pct")


def main() -> None:
    """Run and print; the last line is JSON."""
    parser = argparse.ArgumentParser(description="Speed of a log.")
    parser.add_argument("--log", default="", help="SQLite file or kafka://host:port/topic; should be new")
    parser.add_argument("--records", type=int, default=4000)
    parser.add_argument("--samples-a-record", type=int, default=50)
    parser.add_argument("--batch", type=int, default=40, help="records an append (default: %(default)s)")
    given = parser.parse_args()
    values = dict.fromkeys(METRICS, 21.4)
    payloads = [
        encode_samples([
            Sample("demo", f"zone-{n % 100}", "climate", "9f3c62d1a07be845", record * 1000 + n, NOW_MS + record, values)
            for n in range(given.samples_a_record)
        ])
        for record in range(given.records)
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        log = open_log(given.log or str(Path(folder) / "log.sqlite"), 1)
        start = log.end_offset(0)
        appending = _Timer()
        for first in range(0, given.records, given.batch):
            batch = payloads[first : first + given.batch]
            log.append([NewRecord("demo", "samples", NOW_MS, payload) for payload in batch])
        appended = appending.stop()
        read = _Timer()
        offset, samples = start, 0
        while offset < start + given.records:
            records = log.read(0, offset, 200)
            samples += sum(len(SampleColumns.of(record.payload)) for record in records)
            offset = records[-1].offset + 1 if records else offset
        done = read.stop()
        log.close()
    figures = {
        "append_samples_per_s": round(samples / appended[0]), "append_samples_per_cpu_s": round(samples / appended[1]),
        "read_samples_per_s": round(samples / done[0]), "read_samples_per_cpu_s": round(samples / done[1]),
    }  # fmt: skip
    print(json.dumps({"samples": samples, "bytes_a_record": len(payloads[0]), **figures}))


class _Timer:
    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def stop(self) -> tuple[float, float]:
        """Seconds of wall and of CPU time (all threads) since it was made."""
        return time.perf_counter() - self._wall, time.process_time() - self._cpu


if __name__ == "__main__":
    main()
