"""``benchmarks.ingest`` against the judge: every row of any input, recomputed by a program that shares nothing."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.judge import judge_lines

ROOT = Path(__file__).parents[2]
START_MS = 1_646_092_800_000
BAD = [b"{", b'{"boot":"12345678","samples":[]}', b"\xff", b'{"boot":"12345678","ts":1,"seq":-1,"values":{"rh_pct":1}}']


def dirty_lines(seed: int) -> list[tuple[int, str, bytes]]:
    """What a bad day brings: disorder, copies, stragglers, clocks ahead, nonsense, silence, counters and angles."""
    rng = random.Random(seed)
    lines: list[tuple[int, str, bytes]] = []
    seq = 0
    for second in range(0, 1800, 5):
        now_ms = START_MS + second * 1000
        for site, zone, device in [(f"s{n % 2}", f"z{n % 3}", f"d{n}") for n in range(6)]:
            if site == "s1" and 600 < second < 1000:
                continue  # silent for longer than the idle time
            seq += 1
            ahead_ms = 600_000 if rng.random() < 0.01 else 50_000 if rng.random() < 0.01 else 0
            values: dict[str, Any] = {
                "air_temp_c": round(rng.uniform(15, 30), 3), "rh_pct": rng.choice([70, 101.5, 103]),
                "wind_dir_deg": rng.randrange(361), "irrigation_l_m2": second % 300, "out_temp_c.2": None,
            }  # fmt: skip
            values = {name: values[name] for name in rng.sample(sorted(values), rng.randrange(1, 6))}
            point = {"ts": now_ms + ahead_ms, "seq": seq, "values": values}
            body = {"boot": f"boot-{device}-0001", **point}
            if rng.random() < 0.2:
                body = {"boot": body["boot"], "samples": [point, {**point, "seq": seq + 10**6}]}
            payload = rng.choice(BAD) if rng.random() < 0.02 else json.dumps(body).encode()
            delay_ms = rng.choice([0, 20, 400, 20_000]) if rng.random() > 0.02 else 200_000
            for _ in range(2 if rng.random() < 0.02 else 1):
                lines.append((now_ms + delay_ms, f"hothouse/v1/{site}/{zone}/{device}/sample", payload))
    lines.append((now_ms, "hothouse/v1/s0/../etc/sample", b"{}"))
    return sorted(lines, key=lambda line: line[0])


CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("s0/_site/op", {"type": "settings", "step_s": 120}),
    ("s0/z0/d0", {"type": "calibration", "metric": "air_temp_c", "offset": -0.5, "scale": 1.1}),
    ("s1/z1/d1", {"type": "alias", "to": "renamed"}),
    ("s0/z0/d0", {"type": "alias", "metric": "air_temp_c", "to": "leaf_temp_c"}),
    ("s1/z1/d1", {"type": "calibration", "metric": "wind_dir_deg", "offset": 350, "from_ms": START_MS + 1_200_000}),
    ("s1/_site/op", {"type": "settings", "step_s": 600, "lateness_s": 10, "idle_s": 30}),
    ("s1/z1/d1", {"type": "alias", "to": "d1"}),
    ("s0/_site/op", {"type": "settings", "step_s": 60, "lateness_s": 60}),
]


def with_changes(lines: list[tuple[int, str, bytes]], seed: int) -> list[tuple[int, str, bytes]]:
    """The lines with changes of the settings among them, and each of these a second time."""
    rng = random.Random(seed)
    places = sorted(rng.sample(range(len(lines) // 2), len(CHANGES)))
    for version, (at, (where, change)) in enumerate(zip(places, CHANGES, strict=True), 2):
        payload = json.dumps({**change, "version": version}).encode()
        for place in (at + 2 * version, at + 2 * version + rng.randrange(200)):
            lines.insert(place, (lines[place][0], f"hothouse/v1/{where}/event", payload))
    return lines


@pytest.mark.parametrize("changes", [False, True])
@pytest.mark.parametrize(("seed", "step", "lateness_s"), [(1, "1min", 30), (2, "5min", 60), (3, "1min", 0)])
@pytest.mark.thorough
def test_every_row_of_a_dirty_stream_is_the_judges(
    tmp_path: Path, seed: int, step: str, lateness_s: int, changes: bool
) -> None:
    """Rows are equal to the last bit; late, duplicate and refused samples are counted as the judge counts them."""
    lines = with_changes(dirty_lines(seed), seed) if changes else dirty_lines(seed)
    (tmp_path / "lines.tsv").write_bytes(
        b"".join(b"%d\t%s\t%s\n" % (receive, topic.encode(), payload) for receive, topic, payload in lines)
    )
    files = [str(tmp_path / "lines.tsv"), str(tmp_path / "rows.parquet")]
    options = ["--samples", files[0], "--rows-out", files[1], "--step", step, "--lateness", f"{lateness_s}s"]
    options.append("--no-references")
    ran = _run("-m", "benchmarks.ingest", *options)
    said = json.loads(ran.stdout.splitlines()[-1])
    step_s = int(step.removesuffix("min")) * 60
    judged = _run("tests/chaos/judge.py", *files, "--step-s", str(step_s), "--lateness-s", str(lateness_s))
    assert ", 0 differ" in judged.stdout, judged.stdout
    judge = judge_lines(lines, step_s * 1000, lateness_s * 1000, 60_000)
    late = sum(count for (reason, _), count in judge.dead_letters.items() if reason == "late")
    assert (said["rows"], said["duplicates"], said["late"]) == (len(judge.rows), judge.duplicates, late)
    assert said["samples"] == judge.accepted + judge.duplicates + late + said["rejected"]
    assert min(said["rejected"], late, judge.duplicates) > 0


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done
