"""Files of every version that there was: they open, become ones of the newest version, and nothing in them is lost. The
copies that are kept of them, and which go."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from kvchat.chats.backup import KEPT, back_up, backups
from kvchat.chats.schema import MIGRATIONS, connect
from kvchat.chats.store import ChatStore
from kvchat.chats.types import KnownIds
from kvchat.errors import KvchatError
from kvchat.formats.past import Eviction

SAMPLES = {int(file.stem): file for file in (Path(__file__).parent / "versions").glob("*.sql")}


def make(path: Path, version: int) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(SAMPLES[version].read_text())
    path.chmod(0o600)


@pytest.mark.parametrize("version", sorted(SAMPLES))
def test_a_file_of_each_version(tmp_path: Path, version: int) -> None:
    path = tmp_path / "chats.db"
    make(path, version)
    with closing(ChatStore(path)) as store:
        chat = store.get("01CHAT")
        assert (chat.title, chat.system, chat.model, chat.head) == ("Über Zebras", "Be brief.", "SmolLM2", "01A")
        assert chat.clock == 1700000000.0
        assert [message.text for message in store.path("01A")] == [
            "Why do zebras have stripes?",
            "Nobody knows: 한국어 👩‍💻",
        ]
        assert store.branch("01CHAT", "01A").siblings["01A"] == ("01A", "01B")
        assert [hit.message for hit in store.search("stripes")] == ["01Q"]
        assert [summary.chat.id for summary in store.trashed()] == ["01TRASH"]
        evicted = (Eviction(4, ((1, 2),)),) if version >= 4 else ()
        assert store.known_ids("01A", "key-1") == {
            "01Q": KnownIds((1, 2, 3), ()),
            "01A": KnownIds((4, 5), (), evicted),
        }
        assert (chat.pinned_at is not None) == (version >= 2)
        assert chat.title_by == ("model" if version >= 2 else "person")
        assert store.draft("01CHAT").text == ("half a draft" if version >= 3 else "")
        assert store.path("01A")[0].pinned == (version >= 5)
        assert [each.text for each in store.branch("01CHAT", "01A").summaries] == ["About zebras."] * (version >= 5)
        store.rename("01CHAT", "Another title")
        (said,) = store.remarks
        assert f"chats.db.v{version}.backup" in said
    with closing(ChatStore(path)) as again:
        assert again.remarks == []
        assert again.get("01CHAT").title == "Another title"
    (backup,) = backups(path)
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    with closing(sqlite3.connect(backup)) as copy:
        assert copy.execute("PRAGMA user_version").fetchone() == (version,)
        assert copy.execute("SELECT title FROM chats WHERE id = '01CHAT'").fetchone() == ("Über Zebras",)


def test_there_is_a_sample_of_every_version_but_the_newest() -> None:
    assert sorted(SAMPLES) == list(range(1, len(MIGRATIONS)))


def test_samples_are_what_the_migrations_make(tmp_path: Path) -> None:
    """A migration that was released is not changed any more."""
    for version in SAMPLES:
        make(tmp_path / f"sample{version}.db", version)
        connect(tmp_path / f"made{version}.db", MIGRATIONS[:version]).close()
        schemas = []
        for name in ("sample", "made"):
            with closing(sqlite3.connect(tmp_path / f"{name}{version}.db")) as connection:
                schemas.append(connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall())
        assert schemas[0] == schemas[1]


def test_the_oldest_copies_go(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    make(path, 1)
    for version in (1, 2, 9, 10):
        back_up(path, version)
    (tmp_path / "chats.db.old.backup").write_text("the person's own")
    assert [each.name for each in backups(path)] == ["chats.db.v10.backup", "chats.db.v9.backup"]
    assert KEPT == 2
    assert (tmp_path / "chats.db.old.backup").exists()


def test_what_was_left_of_a_copy_is_no_hindrance(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    make(path, 1)
    (tmp_path / "chats.db.v1.backup.tmp").write_text("half")
    back_up(path, 1)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["chats.db", "chats.db.v1.backup"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_without_a_copy_nothing_is_changed(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "chats.db"
    path.parent.mkdir()
    make(path, 1)
    path.parent.chmod(0o500)
    with pytest.raises(KvchatError):
        ChatStore(path)
    path.parent.chmod(0o700)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)


def test_a_copy_that_cannot_be_made_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "chats.db"
    make(path, 1)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kvchat.chats.schema.back_up", full)
    with pytest.raises(KvchatError, match="No space left") as caught:
        ChatStore(path)
    assert "nothing was changed" in caught.value.hint
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
