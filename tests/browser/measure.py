"""How fast the page is, with a hundred zones and a year of rows: ``python -m tests.browser.measure`` prints it."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median

import httpx
import numpy as np

from services.store.rows import SiteStep
from tests.browser.driver import Page, open_page
from tests.browser.serving import HOUR_MS, STEP_MS, House, climate, opened

ROUNDS = 7
SIZES = """(() => { const files = performance.getEntriesByType('resource').filter((one) => one.name.includes('/page/'));
    const sum = (part) => files.reduce((total, one) => total + one[part], 0);
    return [sum('decodedBodySize'), sum('transferSize')]; })()"""
PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


def first_paint(page: Page, address: str, ready: str) -> None:
    """Time until something is to be seen, until all is there, and what was loaded until then."""
    paints, done, sizes = [], [], [0, 0]
    for _ in range(ROUNDS):
        page.renew()
        page.open(address)
        page.until(ready)
        done.append(page.ask("performance.now()"))
        paints.append(page.ask(PAINT))
        sizes = page.ask(SIZES)
    print(
        f"first paint {median(paints):.0f} ms, complete {median(done):.0f} ms; "
        f"{sizes[0] / 1000:.0f} KB of files, {sizes[1] / 1000:.0f} KB sent"
    )


def year_of_rows(folder: Path) -> None:
    """Time of an answer with a year of 5-minute rows, one metric and all of the charts."""
    house = House(folder, zones=("z1",))
    history, end = house.backend.history, house.origin_ms
    assert history is not None
    row = np.array([list(climate(end).values())[:-1]], np.float32)
    for month in range(13):
        ends = range(end - (month + 1) * 29 * 24 * HOUR_MS, end - month * 29 * 24 * HOUR_MS, STEP_MS)
        history.add(SiteStep(0, "demo", at, ("z1",), row + np.float32(np.sin(at / 1e7)), row * 0, []) for at in ends)
        history.flush()
    history.compact(end, [0])
    house.fill()
    every = "air_temp_c,rh_pct,co2_ppm,vpd_kpa,dew_point_c,leaf_temp_c,sp_heat_c,sp_vent_c,vent_lee_pct," \
        "screen_energy_pct,heat_pipe_low_c,out_temp_c,out_radiation_w_m2"  # fmt: skip
    with opened(house) as address:
        for metrics in ("air_temp_c", every):
            took = []
            for _ in range(ROUNDS):
                began = time.monotonic()
                asked = f"metrics={metrics}&since_ms={end - 365 * 24 * HOUR_MS}&until_ms={end}"
                assert httpx.get(f"{address}/zones/z1/series?{asked}").status_code == 200
                took.append(1000 * (time.monotonic() - began))
            print(f"a year of rows, {metrics.count(',') + 1} metrics: {median(took):.0f} ms")


def main() -> None:
    """Print all figures."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        house = House(Path(folder) / "house", zones=[f"z{n}" for n in range(100)])
        house.fill()
        with opened(house) as address, open_page(Path(folder) / "profile") as page:
            first_paint(page, address, "document.querySelectorAll('.zone').length === 100")
            first_paint(page, f"{address}/#/zone/demo/z7", "document.querySelectorAll('.uplot canvas').length === 3")
        year_of_rows(Path(folder) / "year")


if __name__ == "__main__":
    main()
