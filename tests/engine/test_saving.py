"""What is handed to the writer, and what happens when its queue has no room. No model is loaded."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import numpy as np
import pytest

from kvchat.engine import saving, writing
from kvchat.engine.cells import Cells
from kvchat.engine.place import Place
from kvchat.engine.reuse import Reuser
from kvchat.engine.saving import Saver
from kvchat.engine.track import Outputs, Track
from kvchat.engine.writing import PageWriter
from kvchat.formats.rows import LayerShape, PartShape, Rows
from kvchat.formats.state import Layout

STATE = 1000  # bytes of the recurrent state
ROW = 4  # bytes of K of one token


class Memory:
    """A recurrent state, and keys of all tokens where `parts` says so. Counts how often rows are copied out."""

    recurrent, window, spoilt, length = True, 0, False, 0

    def __init__(self, parts=("state",)):
        self.layout = Layout(parts, has_v=False)
        self.shapes = {"full": PartShape((LayerShape(0, ROW, 0, 0),))}
        self.copies = 0
        self.copied = None  # the last that was copied out, while somebody has it

    def snapshot(self):
        return memoryview(bytearray(STATE))

    def truncate(self, length):
        return True

    def state_rows(self, blob):
        row = np.frombuffer(blob, np.uint8).reshape(1, STATE)
        shape = PartShape((LayerShape(0, STATE, 0, 0),))
        return Rows(shape, np.array([0], np.int32), (row,), (np.empty((1, 0), np.uint8),))

    def copy_out(self, start, end):
        self.copies += 1
        positions = np.arange(start, end, dtype=np.int32)
        self.copied = weakref.ref(positions)
        keys = positions.view(np.uint8).reshape(-1, ROW)
        return {"full": Rows(self.shapes["full"], positions, (keys,), (np.empty((end - start, 0), np.uint8),))}


class Disk:
    """A page store that keeps the pages, and writes one only when `free` is set."""

    def __init__(self):
        self.free = threading.Event()
        self.pages = []

    def tidy(self):
        pass

    def put(self, page):
        self.free.wait()
        self.pages.append(page)
        return page.payload_bytes or 1

    def ends(self, kind):
        return [page.position + len(page.ids) for page in self.pages if page.kind == kind]


@pytest.fixture
def disk():
    disk = Disk()
    yield disk
    disk.free.set()


def saver_of(disk, memory, tokens):
    cells = Cells(memory, bytes(32))
    cells.append(range(tokens), 1.0)
    return Saver(cells, PageWriter(disk), disk, {}, lambda length: None), cells


def test_a_state_that_the_queue_has_no_room_for_is_handed_out_at_the_end(disk, monkeypatch):
    """One that is larger than what may wait, with a page before it in the queue."""
    monkeypatch.setattr(writing, "BACKLOG", STATE // 2)
    saver, cells = saver_of(disk, Memory(("full", "state")), 100)
    saver.checkpoint(cells.take_snapshot())
    disk.free.set()
    saved = saver.finish()
    assert saved.problem is None
    assert disk.ends("checkpoint") == [100]
    assert disk.ends("page")[-1] == 100


def test_a_state_that_could_not_be_handed_out_is_a_problem(disk, monkeypatch):
    monkeypatch.setattr(writing, "BACKLOG", STATE // 2)
    monkeypatch.setattr(saving, "PATIENCE", 0.0)
    saver, cells = saver_of(disk, Memory(("full", "state")), 100)
    saver.checkpoint(cells.take_snapshot())
    assert saver.finish().problem == "the disk is too slow, the state after 100 tokens is not kept"


def test_pages_beside_a_recurrent_state_are_copied_together(disk):
    """Every copy brings the state along, so there is one for 16 pages, and each page has the rows of its tokens."""
    disk.free.set()
    memory = Memory(("full", "state"))
    saver, cells = saver_of(disk, memory, 2047)
    saver.advance(2047)
    assert memory.copies == 0
    cells.append([2047], 0.1)
    saver.advance(2048)
    assert memory.copies == 1
    assert cells.pages_on_disk == 16
    saver.finish()
    assert disk.ends("page") == [*range(128, 2049, 128)]
    for page in disk.pages:
        (keys,) = page.groups[0].parts
        assert np.frombuffer(keys, np.int32).tolist() == list(page.ids)


def test_pages_of_a_chat_that_has_left_its_place_are_not_protected_any_more(disk):
    """A turn beside another one protects its chain; alone it displaces what the other chat has on disk."""
    protected = []
    disk.protect = lambda keys: protected.append(set(keys))
    disk.free.set()
    writer = PageWriter(disk)
    places = []
    for number in (0, 1):
        memory = Memory(("full",))
        memory.recurrent = False
        cells = Cells(memory, bytes([number]) * 32)
        cells.append(range(128), 1.0)
        saver = Saver(cells, writer, disk, {}, lambda length: None)
        places.append(Place(Track(number, memory, Outputs(None)), cells, Reuser(cells, None), saver))
        saver.begin()
    one, other = (place.cells.key(0) for place in places)
    assert protected[-1] == {one, other}
    places[0].release()
    places[1].saver.begin()
    assert protected[-1] == {other}


def test_pages_that_the_queue_has_no_room_for_stay(disk, monkeypatch):
    monkeypatch.setattr(writing, "BACKLOG", 3 * 128 * ROW)
    saver, cells = saver_of(disk, Memory(("full", "state")), 2048)
    saver.advance(2048)
    assert cells.pages_on_disk == 3
    disk.free.set()
    assert saver.finish().problem is None
    assert disk.ends("page") == [*range(128, 2049, 128)]


def test_what_is_written_is_let_go_of(disk):
    """A copy of a long chat's cells can have hundreds of MB."""
    disk.free.set()
    memory = Memory(("full",))
    memory.recurrent = False
    saver, _ = saver_of(disk, memory, 128)
    assert saver.finish().pages == 1
    disk.pages.clear()
    for _ in range(1000):  # the writer tells that a page is written a moment before it is done with it
        gc.collect()
        if memory.copied() is None:
            return
        time.sleep(0.005)
    raise AssertionError("the copy is still held")
