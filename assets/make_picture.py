"""Makes `assets/main.svg`, the picture in the README, from the real app with the built-in model.

    python assets/make_picture.py

Three turns in a chat of a new home folder; the fonts of the picture are those of whoever looks at it.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from pathlib import Path

from kvchat.backend.values import Sampling
from kvchat.chats.thread import StoreThread
from kvchat.config import Settings
from kvchat.paths import Paths, ensure_private
from kvchat.ui.app import KvchatApp
from kvchat.ui.desk import Desk
from kvchat.ui.inbox import Inbox, StoreFailed
from kvchat.ui.launch import EngineLink, local_engine, survey

QUESTIONS = (
    "Give me three short tips for writing a clear letter.",
    "Which of them matters most?",
    "Say it in one sentence.",
)
PICTURE = Path(__file__).with_name("main.svg")


async def picture(home: Path) -> str:
    """The screen as SVG after the last answer."""
    paths = Paths.find({"KVCHAT_HOME": str(home)})
    ensure_private(paths.state_folder)
    sampling = Sampling(temperature=0, max_tokens=90, repeat_penalty=1.1)
    settings = Settings(model="SmolLM2", system="You are brief and exact.", sampling=sampling)
    inbox = Inbox()
    store = StoreThread(paths.chats_db, lambda error: inbox.post(StoreFailed(error)))
    engine = EngineLink(settings, paths, inbox.post, local_engine, survey)
    app = KvchatApp(Desk(settings, paths, store, engine, inbox), None)
    try:
        async with app.run_test(size=(120, 36)) as pilot:
            await wait(lambda: engine.ready is not None)
            await asyncio.sleep(8)  # the engine measures itself
            for question in QUESTIONS:
                await pilot.press(*question)
                await asyncio.sleep(1)
                await pilot.press("enter")
                await asyncio.sleep(8)
            await pilot.press(*"And for a clear report?")
            await asyncio.sleep(2)
            return app.export_screenshot(title="kvchat")
    finally:
        engine.close()
        store.close()


async def wait(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("error: the engine did not start")
        await asyncio.sleep(0.1)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        svg = asyncio.run(picture(Path(folder)))
    # Textual names web fonts; a picture in a README must not fetch anything
    PICTURE.write_text(re.sub(r"@font-face \{.*?\}\n?", "", svg, flags=re.DOTALL))


if __name__ == "__main__":
    main()
