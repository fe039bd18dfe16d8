"""A chat database that is damaged in every way that we know: it is kept, what can be read of it comes back, and nothing
that is not damage is taken for it."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from operator import itemgetter
from pathlib import Path

import pytest
from failing_disk import files_of_at_most

from kvchat.chats.backup import back_up
from kvchat.chats.damage import all_aside, is_marked, mark, move
from kvchat.chats.resolve import title_of
from kvchat.chats.salvage import LOST, REST_LOST
from kvchat.chats.schema import MIGRATIONS, NotSavedError, connect
from kvchat.chats.store import ChatStore
from kvchat.chats.types import Chat, Draft, Message, Role, Summary
from kvchat.errors import KvchatError
from kvchat.formats.past import Eviction
from kvchat.formats.sqlite_file import rows

PAGE = 4096
CHATS, TURNS = 4, 8
LENGTHS = (3, 40, 300, 2500)  # words: within a page, and over several


def text_of(chat: int, place: int) -> str:
    return f"Zebra {chat}/{place}: " + "wörds " * LENGTHS[(chat + place) % len(LENGTHS)]


def fill(path: Path) -> None:
    """Chats of TURNS messages, written in turn, with all that belongs to them."""
    with closing(ChatStore(path)) as store:
        for place in range(TURNS):
            for chat in range(CHATS):
                role: Role = "assistant" if place % 2 else "user"
                parent = f"m{chat}-{place - 1}" if place else None
                name = f"m{chat}-{place}"
                message = Message(name, f"c{chat}", parent, role, text_of(chat, place), 1.5 + place, "")
                store.add_turn(Chat(f"c{chat}", f"Chat {chat}", 1.0, 2.0, "Be kind.", 1.0, "m", None), [message])
                store.set_ids("key", {name: range(place * 100)})
        store.set_evictions("m0-3", "key", [Eviction(4, ((1, 2),))])
        store.put_summary(Summary("s", "m1-3", "About zebras.", 3.0, "m", 5, 50))
        store.set_draft("c1", Draft("half a draft"))
        store.rename("c2", "Named by me")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "data" / "chats.db"
    fill(file)
    return file


def said(store: ChatStore) -> dict[str, list[str]]:
    """The texts of the branch of each chat."""
    return {each.chat.id: [message.text for message in store.path(each.chat.head)] for each in store.chats()}


ALL = {f"c{chat}": [text_of(chat, place) for place in range(TURNS)] for chat in range(CHATS)}


def assert_sound(path: Path) -> None:
    assert {each.name for each in path.parent.iterdir()} <= {path.name, *(each.name for each in asides(path))}
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert raw.execute("PRAGMA foreign_key_check").fetchall() == []
        raw.execute("INSERT INTO message_text (message_text, rank) VALUES ('integrity-check', 1)")
    assert all(stat.S_IMODE(each.stat().st_mode) == 0o600 for each in path.parent.iterdir())


def asides(path: Path) -> list[Path]:
    return [each for each in path.parent.iterdir() if each.name.startswith("chats.db.damaged-")]


def leaves_with(path: Path, words: bytes) -> list[int]:
    """The pages, from 1, of rows in which these words stand."""
    raw = path.read_bytes()
    pages = [raw[start : start + PAGE] for start in range(0, len(raw), PAGE)]
    return [number for number, page in enumerate(pages, 1) if page[0] == 0x0D and words in page]


def overwrite(path: Path, start: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(content)


def garbage(length: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(length)


# ---------------------------------------------------------------------- what is read from the file


def test_the_reader_finds_what_sqlite_finds(path: Path) -> None:
    """In the file alone and with its log, rows that run over several pages among them."""
    with closing(ChatStore(path)), closing(sqlite3.connect(path)) as raw:
        assert path.with_name("chats.db-wal").stat().st_size == 0
        raw.execute("UPDATE messages SET text = text || ' and more' WHERE number % 5 = 0")
        raw.execute("DELETE FROM message_ids WHERE message LIKE 'm2-%'")
        raw.commit()
        assert path.with_name("chats.db-wal").stat().st_size > 0
        found = list(rows(path))
        tables = {12: "messages", 14: "chats", 7: "summaries"}
        for count, table in tables.items():
            names = "number, NULL, *" if table == "messages" else "rowid, *"
            want = raw.execute(f"SELECT {names} FROM {table}").fetchall()
            have = [(row.number, *row.values) for row in found if len(row.values) == count]
            if table == "messages":  # whose first column is the number once more, and is not stored
                want = [(*row[:2], *row[3:]) for row in want]
            assert sorted(have, key=itemgetter(0)) == want
        ids = [row.values for row in found if len(row.values) == 3 and isinstance(row.values[2], bytes)]
        assert sorted(ids) == sorted(raw.execute("SELECT * FROM message_ids"))


# ---------------------------------------------------------------------- kinds of damage


def header_lost(path: Path) -> None:
    overwrite(path, 0, garbage(100))


def first_page_lost(path: Path) -> None:
    overwrite(path, 0, bytes(PAGE))


def roots_lost(path: Path) -> None:
    """The pages from which SQLite finds all others of messages and chats."""
    with closing(sqlite3.connect(path)) as raw:
        found = raw.execute("SELECT rootpage, name FROM sqlite_master WHERE type = 'table' OR sql IS NULL").fetchall()
    inner = [page for page, name in found if name in ("messages", "message_ids")]
    for page in inner:
        assert path.read_bytes()[(page - 1) * PAGE] == 5  # no rows of its own
        overwrite(path, (page - 1) * PAGE, garbage(PAGE))


@pytest.mark.parametrize("damage", [header_lost, first_page_lost, roots_lost])
def test_all_comes_back_where_no_row_was_hit(path: Path, damage: Callable[[Path], None]) -> None:
    damage(path)
    before = path.read_bytes()
    with closing(ChatStore(path)) as store:
        if damage is roots_lost:  # met when the messages are read
            with pytest.raises(KvchatError, match="damaged") as caught:
                said(store)
            assert "when kvchat starts again" in caught.value.hint
            assert is_marked(path)
    with closing(ChatStore(path)) as store:
        assert said(store) == ALL
        assert store.known_ids("m0-7", "key")["m0-3"].evictions == (Eviction(4, ((1, 2),)),)
        assert store.known_ids("m0-7", "key")["m0-7"].ids == tuple(range(700))
        assert [each.text for each in store.branch("c1", "m1-7").summaries] == ["About zebras."]
        assert store.draft("c1").text == "half a draft"
        assert (store.get("c2").title, store.get("c2").title_by) == ("Named by me", "person")
        assert [hit.message for hit in store.search("3/5")] == ["m3-5"]
    (aside,) = asides(path)
    assert aside.read_bytes() == before
    assert_sound(path)


def test_it_is_told_once(path: Path) -> None:
    header_lost(path)
    with closing(ChatStore(path)) as store:
        (remark,) = store.remarks
    (aside,) = asides(path)
    assert str(aside) in remark
    assert "4 chats with 32 messages could be read" in remark
    with closing(ChatStore(path)) as store:
        assert store.remarks == []


@pytest.mark.parametrize("content", [b"These are my notes.\n" * 100, b"x", garbage(20_000), b"\0" * 8192])
def test_what_is_no_database_is_kept_beside(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with closing(ChatStore(path)) as store:
        assert store.chats() == ()
        (remark,) = store.remarks
        assert "nothing could be read" in remark
    (aside,) = asides(path)
    assert aside.read_bytes() == content
    assert_sound(path)


def assert_no_word_is_wrong(store: ChatStore) -> int:
    """What is shown of each chat is what was said, or says that it is not; how many messages are whole."""
    whole = 0
    for chat, texts in said(store).items():
        for text in texts:
            if text in ALL.get(chat, []):
                whole += 1
            elif text.endswith(REST_LOST):
                shown = text.removesuffix(f"\n{REST_LOST}")
                assert any(each.startswith(shown) for each in ALL[chat]), text[:100]
            else:
                assert text == LOST
        found = [text for text in texts if text in ALL.get(chat, [])]
        assert found == [text for text in ALL[chat] if text in found]  # in their order
    return whole


@pytest.mark.parametrize("part", [0.25, 0.5, 0.9, 0.99])
def test_a_file_that_is_cut(path: Path, part: float) -> None:
    size = int(path.stat().st_size * part)
    os.truncate(path, size)
    with closing(ChatStore(path)) as store:
        pass
    mark(path)  # where the end was not needed yet
    with closing(ChatStore(path)) as store:
        whole = assert_no_word_is_wrong(store)
    assert whole >= (part - 0.25) * CHATS * TURNS * 0.5
    assert whole or part == 0.25
    assert [each.stat().st_size for each in asides(path)] == [size]
    assert_sound(path)


def test_any_page(path: Path, tmp_path: Path) -> None:
    """Each page in turn is overwritten. Of the chats, only what was on that page is missing, and its place says so."""
    count = path.stat().st_size // PAGE
    hit = 0
    for page in range(1, count + 1):
        home = tmp_path / str(page)
        home.mkdir()
        copy = home / "chats.db"
        shutil.copy(path, copy)
        overwrite(copy, (page - 1) * PAGE, garbage(PAGE, page))
        mark(copy)
        with closing(ChatStore(copy)) as store:
            whole = assert_no_word_is_wrong(store)
            hit += whole < CHATS * TURNS
            assert whole >= CHATS * TURNS - 12  # what fits into a page of short ones
            assert {each.chat.id for each in store.chats()} == set(ALL)
            for each in store.chats():
                roles = [message.role for message in store.path(each.chat.head)]
                assert roles == (["user", "assistant"] * TURNS)[: len(roles)]
                assert TURNS - 3 <= len(roles) <= TURNS
        assert len(asides(copy)) == 1 or whole == CHATS * TURNS
        assert_sound(copy)
    assert hit > 10
    assert hit < count


def test_a_message_that_is_cut_keeps_its_beginning(path: Path) -> None:
    """And has no token ids any more: they are those of another text."""
    for number in range(path.stat().st_size // PAGE - 1, 1, -1):
        copy = path.parent.with_name(str(number)) / "chats.db"
        copy.parent.mkdir()
        copy.write_bytes(path.read_bytes()[: number * PAGE])
        mark(copy)
        with closing(ChatStore(copy)) as store:
            assert_no_word_is_wrong(store)
            cut = [m for each in store.chats() for m in store.path(each.chat.head) if m.text.endswith(REST_LOST)]
            for message in cut:
                assert len(message.text) > 1000
                assert message.id not in store.known_ids(message.id, "key")
            if cut:
                assert "ended too early" in store.remarks[-1]
                return
    raise AssertionError("no message was cut")


# ---------------------------------------------------------------------- the log


def with_log(path: Path) -> Path:
    """The file as a program leaves it that is killed: the last messages are in the log alone."""
    with closing(ChatStore(path)) as store:
        for place in range(TURNS, TURNS + 3):
            message = Message(f"m0-{place}", "c0", f"m0-{place - 1}", "user", f"Late {place} " * 900, 9.0, "")
            store.add_turn(Chat("c0", "", 1.0, 2.0, "", 1.0, "m", None), [message])
        killed = path.parent.with_name("killed")
        shutil.copytree(path.parent, killed)
    return killed / "chats.db"


def late(place: int) -> str:
    return f"Late {place} " * 900


def test_a_log_that_is_sound_is_none_of_our_business(path: Path) -> None:
    killed = with_log(path)
    with closing(ChatStore(killed)) as store:
        assert said(store)["c0"] == [*ALL["c0"], late(8), late(9), late(10)]
        assert store.remarks == []
    assert asides(killed) == []


def test_what_is_in_the_log_alone_comes_back(path: Path) -> None:
    killed = with_log(path)
    with closing(sqlite3.connect(path)) as raw:
        (page,) = raw.execute("SELECT rootpage FROM sqlite_master WHERE name = 'prefixes'").fetchone()
    overwrite(killed, (page - 1) * PAGE, garbage(PAGE))
    mark(killed)
    with closing(ChatStore(killed)) as store:
        assert said(store) == {**ALL, "c0": [*ALL["c0"], late(8), late(9), late(10)]}
    assert len(asides(killed)) == 1
    assert_sound(killed)


def test_a_log_that_is_nonsense(path: Path) -> None:
    """SQLite would drop it without a word."""
    killed = with_log(path)
    log = killed.with_name("chats.db-wal")
    log.write_bytes(garbage(log.stat().st_size))
    content = log.read_bytes()
    with closing(ChatStore(killed)) as store:
        assert said(store) == ALL
        assert "log of" in store.remarks[0]
    assert [each.read_bytes() for each in asides(killed) if each.name.endswith("-wal")] == [content]
    assert_sound(killed)


def test_a_log_that_is_damaged_in_its_middle(path: Path) -> None:
    """SQLite would end there, and drop what was committed afterwards."""
    killed = with_log(path)
    log = killed.with_name("chats.db-wal")
    frames = (log.stat().st_size - 32) // (PAGE + 24)
    overwrite(log, 32 + 1 * (PAGE + 24) + 24 + 1000, garbage(50))
    assert frames > 8
    with closing(ChatStore(killed)) as store:
        assert said(store)["c0"][-1] == late(10)
        assert_after_the_old(said(store)["c0"])
        assert "log of" in store.remarks[0]
    assert_sound(killed)


def assert_after_the_old(texts: list[str]) -> None:
    assert texts[:TURNS] == ALL["c0"]
    for text in texts[TURNS:]:
        assert text in (late(8), late(9), late(10), LOST) or text.endswith(REST_LOST)


def test_an_empty_file_beside_a_log(path: Path) -> None:
    """SQLite would take it for a new one, and remove the log."""
    killed = with_log(path)
    os.truncate(killed, 0)
    then = time.time() - 60
    os.utime(killed, (then, then))
    with closing(ChatStore(killed)) as store:
        assert late(10) in said(store)["c0"]
        rest = [text for text in said(store)["c0"] if text not in (LOST, late(8), late(9), late(10))]
        assert all(text in ALL["c0"] or text.endswith(REST_LOST) for text in rest)
    assert_sound(killed)


# ---------------------------------------------------------------------- copies of older versions


def test_what_is_missing_comes_from_the_copy_of_an_older_version(path: Path) -> None:
    back_up(path, 5)
    with closing(ChatStore(path)) as store:
        store.add_turn(
            Chat("c0", "", 1.0, 2.0, "", 1.0, "m", None), [Message("new", "c0", "m0-7", "user", "New words", 9.0, "")]
        )
        store.rename("c1", "Since the copy")
    for page in leaves_with(path, b"Zebra")[:2]:
        overwrite(path, (page - 1) * PAGE, garbage(PAGE))
    mark(path)
    with closing(ChatStore(path)) as store:
        assert said(store) == {**ALL, "c0": [*ALL["c0"], "New words"]}
        assert store.get("c1").title == "Since the copy"
        assert "came from chats.db.v5.backup" in store.remarks[0]


def test_a_copy_of_the_first_version_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    with closing(connect(path, MIGRATIONS[:1])) as first:
        first.execute("INSERT INTO chats VALUES ('c', 'title', 1, 1, '', 1, '', NULL, NULL, '{}')")
        first.execute("INSERT INTO messages VALUES (1, 'm', 'c', NULL, 'user', 'words', 1, '', '', NULL, NULL)")
        first.execute("UPDATE chats SET head = 'm'")
    ChatStore(path).close()
    path.write_bytes(garbage(9000))
    with closing(ChatStore(path)) as store:
        assert said(store) == {"c": ["words"]}
        assert store.get("c").title_by == "person"


def test_an_empty_file_beside_a_copy(path: Path) -> None:
    back_up(path, 5)
    os.truncate(path, 0)
    then = time.time() - 60
    os.utime(path, (then, then))
    with closing(ChatStore(path)) as store:
        assert said(store) == ALL


# ---------------------------------------------------------------------- what hangs together


def test_a_chat_whose_row_is_lost_gets_one(path: Path) -> None:
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("PRAGMA secure_delete = ON")
        raw.execute("DELETE FROM chats WHERE id = 'c3'")
        raw.commit()
    header_lost(path)
    with closing(ChatStore(path)) as store:
        assert said(store) == ALL
        assert store.get("c3").title == title_of(text_of(3, 0))
        assert (store.get("c3").created, store.get("c3").updated) == (1.5, 8.5)


@pytest.mark.parametrize(
    ("gone", "shown"),
    [
        ([3], [0, 1, 2, LOST, 4, 5, 6, 7]),
        ([2, 3], [0, 1, LOST, LOST, 4, 5, 6, 7]),
        ([0], [LOST, 1, 2, 3, 4, 5, 6, 7]),
        ([7], [0, 1, 2, 3, 4, 5, 6]),
    ],
)
def test_gaps_in_a_branch(path: Path, gone: list[int], shown: list[int | str]) -> None:
    """What came before and after hangs together, and who speaks changes from message to message."""
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("PRAGMA secure_delete = ON")
        raw.executemany("DELETE FROM messages WHERE id = ?", [(f"m0-{place}",) for place in gone])
        raw.commit()
    header_lost(path)
    with closing(ChatStore(path)) as store:
        messages = store.path(store.get("c0").head)
        assert [m.text for m in messages] == [text_of(0, each) if isinstance(each, int) else each for each in shown]
        assert [m.role for m in messages] == ["user", "assistant"] * (len(shown) // 2) + ["user"] * (len(shown) % 2)
    assert_sound(path)


# ---------------------------------------------------------------------- rescues that do not come to their end


def test_a_rescue_that_was_killed_goes_on(path: Path) -> None:
    """After the damaged file has its new name, and before another one has the old one."""
    killed = with_log(path)
    header_lost(killed)
    aside = killed.with_name("chats.db.damaged-2001-02-03")
    mark(killed, aside)
    killed.rename(aside)  # its log is not moved yet
    with closing(ChatStore(killed)) as store:
        assert said(store)["c0"] == [*ALL["c0"], late(8), late(9), late(10)]
        assert str(aside) in store.remarks[0]
    assert killed.with_name(f"{aside.name}-wal").exists()
    assert_sound(killed)


def test_the_mark_is_taken_away_where_all_is_well(path: Path) -> None:
    mark(path)
    with closing(ChatStore(path)) as store:
        assert said(store) == ALL
        assert store.remarks == []
    assert not is_marked(path)
    assert asides(path) == []


def test_a_disk_without_room_for_a_rescue(path: Path) -> None:
    header_lost(path)
    before = path.read_bytes()
    with files_of_at_most(30_000), pytest.raises(KvchatError, match="cannot be brought over") as caught:
        ChatStore(path)
    assert "nothing was changed" in caught.value.hint
    assert path.read_bytes() == before
    assert asides(path) == []
    with closing(ChatStore(path)) as store:
        assert said(store) == ALL
    assert_sound(path)


def test_nothing_is_written_over(path: Path) -> None:
    for number in range(3):
        path.write_bytes(f"nonsense {number}".encode() * 100)
        ChatStore(path).close()
    assert sorted(each.read_bytes()[:10] for each in all_aside(path)) == [b"nonsense 0", b"nonsense 1", b"nonsense 2"]


OPEN = """
import sys
from pathlib import Path
from kvchat.chats.store import ChatStore
sys.stdin.readline()
store = ChatStore(Path(sys.argv[1]))
print(len(store.chats()), len(store.remarks))
"""


def test_two_processes_find_the_damage_at_once(path: Path) -> None:
    header_lost(path)
    processes = [
        subprocess.Popen([sys.executable, "-c", OPEN, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    found = [each.communicate(b"go\n", timeout=60)[0].split() for each in processes]
    assert sorted(found) == [[b"4", b"0"], [b"4", b"0"], [b"4", b"1"]]
    assert len(list(all_aside(path))) == 1


def test_a_program_that_has_it_open_is_told(path: Path) -> None:
    with closing(ChatStore(path)) as old:
        header_lost(path)
        with closing(ChatStore(path)) as new:
            assert said(new) == ALL
            with pytest.raises(NotSavedError, match="moved or deleted"):
                old.rename("c0", "Elsewhere")


# ---------------------------------------------------------------------- what is no damage


def assert_untouched(path: Path, before: bytes) -> None:
    assert path.read_bytes() == before
    assert asides(path) == []
    assert not is_marked(path)


def test_a_newer_version_is_no_damage(path: Path) -> None:
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    with pytest.raises(KvchatError, match="newer kvchat"):
        ChatStore(path)
    assert_untouched(path, before)


def test_the_database_of_another_program_is_no_damage(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("CREATE TABLE bookmarks (url TEXT)")
        raw.commit()
    before = path.read_bytes()
    with pytest.raises(KvchatError, match="not a chat database"):
        ChatStore(path)
    assert_untouched(path, before)


def test_a_lock_is_no_damage(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvchat.chats.schema._BUSY_SECONDS", 0.1)
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        before = path.read_bytes()
        raw.execute("PRAGMA locking_mode = EXCLUSIVE")
        raw.execute("BEGIN IMMEDIATE")
        raw.execute("UPDATE chats SET title = title")
        with pytest.raises(NotSavedError, match="locked"), closing(ChatStore(path)) as store:
            store.rename("c0", "Other")
        raw.execute("ROLLBACK")
    assert_untouched(path, before)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_rights_are_no_damage(path: Path) -> None:
    before = path.read_bytes()
    path.chmod(0)
    with pytest.raises(KvchatError, match="cannot be written"):
        ChatStore(path)
    path.chmod(0o600)
    assert_untouched(path, before)


def test_a_file_behind_a_link(path: Path, tmp_path: Path) -> None:
    """The link stays, and the files are beside what it leads to."""
    link = tmp_path / "link" / "chats.db"
    link.parent.mkdir()
    link.symlink_to(path)
    header_lost(path)
    with closing(ChatStore(link)) as store:
        assert said(store) == ALL
    assert link.is_symlink()
    assert len(asides(path)) >= 1
    assert [each.name for each in link.parent.iterdir()] == ["chats.db"]


def test_a_purge_says_that_a_damaged_file_may_still_have_it(path: Path) -> None:
    header_lost(path)
    with closing(ChatStore(path)) as store:
        with pytest.raises(KvchatError, match="may still have it") as caught:
            store.purging.purge(["c0"], lambda own, others: None)
        assert str(asides(path)[0]) in caught.value.message
        assert "c0" not in said(store)
    (aside,) = all_aside(path)
    move(aside, path.with_name("elsewhere"))
    with closing(ChatStore(path)) as store:
        store.purging.purge(["c1"], lambda own, others: None)
