"""Makes the pictures in the README from the real app with the built-in model.

    python assets/make_pictures.py

A chat of a few turns in a new home folder, then each screen; the fonts of a picture are those of whoever looks at it.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from pathlib import Path

from textual.pilot import Pilot

from kvchat.backend.values import Sampling
from kvchat.chats.thread import StoreThread
from kvchat.config import Settings
from kvchat.paths import Paths, ensure_private
from kvchat.ui.app import KvchatApp
from kvchat.ui.desk import Desk
from kvchat.ui.inbox import Inbox, StoreFailed
from kvchat.ui.launch import EngineLink, any_engine, survey

CHATS = (
    ("What is a good name for a small grey cat?",),
    ("Explain in three sentences why the sky is blue.",),
    (
        "Write a Python function that says whether a number is prime.",
        "Give me three short tips for writing a clear letter.",
        "Which of them matters most?",
    ),
)
PATIENCE = 90.0  # seconds for one answer
FOLDER = Path(__file__).parent


async def wait(condition, seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("error: the engine did not get so far")
        await asyncio.sleep(0.1)


async def ask(pilot: Pilot[None], question: str) -> None:
    """Type a question, and wait for the answer and for what follows it: a title, a forecast."""
    await pilot.press(*question, "enter")
    await asyncio.sleep(1)
    await wait(lambda: not pilot.app.screen.room.is_busy)  # type: ignore[attr-defined]
    await asyncio.sleep(3)


def save(app: KvchatApp, name: str) -> None:
    """Textual names web fonts; a picture in a README must not fetch anything."""
    svg = app.export_screenshot(title="kvchat")
    (FOLDER / f"{name}.svg").write_text(re.sub(r"@font-face \{.*?\}\n?", "", svg, flags=re.DOTALL))


async def pictures(home: Path) -> None:
    """All of them, one after the other."""
    paths = Paths.find({"KVCHAT_HOME": str(home)})
    ensure_private(paths.state_folder)
    sampling = Sampling(temperature=0, max_tokens=120, repeat_penalty=1.1)
    settings = Settings(model="SmolLM2", system="You are brief and exact.", sampling=sampling)
    inbox = Inbox()
    store = StoreThread(paths.chats_db, lambda error: inbox.post(StoreFailed(error)))
    engine = EngineLink(settings, paths, inbox.post, any_engine, survey)
    app = KvchatApp(Desk(settings, paths, store, engine, inbox), None)
    try:
        async with app.run_test(size=(120, 36)) as pilot:
            await wait(lambda: engine.ready is not None)
            await asyncio.sleep(8)  # the engine measures itself
            for number, questions in enumerate(CHATS):
                if number:
                    await pilot.press("ctrl+n")
                for question in questions:
                    await ask(pilot, question)
            await pilot.press(*"And for a clear report?")
            await asyncio.sleep(2)
            save(app, "main")
            for name, keys in (
                ("inspector", ("f3",)),
                ("settings", ("f2",)),
                ("palette", ("ctrl+p", *"cache")),
                ("browse", ("ctrl+o", "k", "k")),
            ):
                await pilot.press(*keys)
                await asyncio.sleep(2)
                save(app, name)
                await pilot.press("escape")
                await asyncio.sleep(0.5)
    finally:
        engine.close()
        store.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(pictures(Path(folder)))


if __name__ == "__main__":
    main()
