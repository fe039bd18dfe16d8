"""What the app has loaded when its first frame is drawn: what that needs, and nothing that can come later."""

from __future__ import annotations

import json
import subprocess
import sys

# With modules that the first frame does without. What loads them would make the start slower for everybody.
LATER = (
    "kvchat.backend.local",
    "kvchat.backend.protocol",
    "kvchat.backend.values",
    "kvchat.chats.resolve",
    "kvchat.chats.transfer",
    "kvchat.conversation",
    "kvchat.formats",
    "kvchat.kv",
    "kvchat.library",
    "kvchat.ui.first_run",
    "kvchat.ui.inspector",
    "kvchat.ui.markdown_body",
    "kvchat.ui.model_picker",
    "kvchat.ui.palette",
    "kvchat.ui.settings_screen",
    "kvchat.ui.sidebar",
    "markdown_it",
    "multiprocessing",
    "numpy",
    "pygments.lexers",
    "tomllib",
)
PROGRAM = """
import json, os, sys
from kvchat.chats.store import ChatStore
from kvchat.chats.thread import StoreThread
from kvchat.config import load_settings
from kvchat.paths import Paths
from kvchat.ui.app import KvchatApp
from kvchat.ui.chat_screen import ChatScreen
from kvchat.ui.desk import Desk
from kvchat.ui.inbox import Inbox
from kvchat.ui.launch import EngineLink, any_engine, survey

def begin(self):
    print(json.dumps(sorted(sys.modules)))
    self.app.exit()

ChatScreen._begin = begin
paths = Paths.find(os.environ)
inbox = Inbox()
store = StoreThread(paths.chats_db, print)
store.run(ChatStore.latest).result()
settings = load_settings(paths, os.environ, {})
engine = EngineLink(settings, paths, inbox.post, any_engine, survey)
KvchatApp(Desk(settings, paths, store, engine, inbox), None).run(headless=True)
store.close()
"""


def test_what_is_not_loaded_before_the_first_frame() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    loaded = json.loads(done.stdout.splitlines()[0])
    assert "kvchat.ui.transcript" in loaded
    early = [name for name in loaded if name.startswith(tuple(f"{each}." for each in LATER)) or name in LATER]
    assert early == []
