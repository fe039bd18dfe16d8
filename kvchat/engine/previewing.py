"""What another configuration would find of a chat on disk, and in which time. Owns this look; must not change anything.

How fast rows are transcoded here is measured on made-up rows when it is asked for the first time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from kvchat.backend.protocol import Preview, Previewed
from kvchat.engine.borrowing import Borrowing
from kvchat.engine.llama_quants import NativeQuants
from kvchat.engine.namespace import page_namespace
from kvchat.engine.seat import Seat
from kvchat.engine.speed import Speed
from kvchat.formats.ggml import GGML_NUMBERS
from kvchat.formats.past import count, dead, resolve
from kvchat.formats.rows import LayerShape, Part, PartShape, Rows
from kvchat.kv.geometry import CacheLayer, Geometry
from kvchat.kv.transcode import Form, Transcoder, form_of

TRIAL = 64  # tokens


def preview(seat: Seat, speed: Speed, command: Preview) -> Previewed:
    """What a chat would find on disk if the context were built in another configuration of the same model."""
    past, _ = resolve(command.ids, command.evictions)
    tokens = len(past.ids) - count(dead(past.evictions, len(past.ids)))
    if seat.store is None or command.config.kv_folder is None:
        return Previewed(command.turn, tokens, 0, speed.first_token(0, tokens))
    cells = command.config.context or seat.context.cells
    namespace = page_namespace(seat.model, cells, command.config)
    borrowing = Borrowing(seat.store, namespace, seat.model.geometry, NativeQuants())
    restored, transcoded = seat.reuser.abroad(borrowing, past)
    if transcoded and not speed.knows_transcoding:
        speed.learn_transcoding(TRIAL, _trial_seconds(seat.model.geometry, form_of(namespace)))
    seconds = speed.first_token(restored, max(0, tokens - restored), transcoded)
    return Previewed(command.turn, tokens, restored, seconds, transcoded)


def _trial_seconds(geometry: Geometry, form: Form) -> float:
    """How long transcoding a trial's tokens takes, from f16 to this form, or to q8_0 where that is no work."""
    exact = Form("f16", "f16")
    transcoder = Transcoder(NativeQuants(), geometry, exact, form if form != exact else Form("q8_0", "q8_0"))
    parts: tuple[tuple[Part, bool], ...] = (("full", False), ("window", True))
    trials = [(part, _made_up([layer for layer in geometry.cache if layer.window == wide])) for part, wide in parts]
    began = time.perf_counter()
    for part, rows in trials:
        transcoder.rows(part, rows)
    return time.perf_counter() - began


def _made_up(layers: Sequence[CacheLayer]) -> Rows:
    """Rows of a trial's tokens, f16."""
    number = GGML_NUMBERS["f16"]
    source = np.random.default_rng(0)
    k, v = (
        tuple(source.standard_normal((TRIAL, size)).astype(np.float16).view(np.uint8) for size in sizes)
        for sizes in ([layer.key for layer in layers], [layer.value for layer in layers])
    )
    shapes = tuple(LayerShape(number, a.shape[1], number, b.shape[1]) for a, b in zip(k, v, strict=True))
    return Rows(PartShape(shapes), np.arange(TRIAL, dtype=np.int32), k, v)
