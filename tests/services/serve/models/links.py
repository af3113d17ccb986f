"""The way of a replica to the model pointer, without Ray."""

from __future__ import annotations

import asyncio
from pathlib import Path

from services.messages import ForecasterFigures, ServedModel
from services.serve.models.model_pointer import ModelPointer
from tests.patience import patience_s


class Link:
    """The model pointer in this process; ``announced`` holds what others were told."""

    def __init__(self, path: Path) -> None:
        self.pointer = ModelPointer(path)
        self.announced: list[tuple[str, str, bool]] = []
        self.told = asyncio.Event()
        self.shown: ForecasterFigures | None = None

    async def wait(self, seen_generation: int) -> ServedModel:
        return await self.pointer.wait(seen_generation, 0.5)

    async def report(self, generation: int, version: str, error: str) -> bool:
        return await self.pointer.report("replica", generation, version, error)

    async def show(self) -> None:
        self.shown = await self.pointer.figures()

    async def announce(self, champion: ServedModel, error: str, first: bool) -> None:
        self.announced.append((champion["version"], error, first))
        self.told.set()

    async def news(self) -> tuple[str, str, bool]:
        """The next announcement."""
        await asyncio.wait_for(self.told.wait(), patience_s(60))
        self.told.clear()
        return self.announced[-1]
