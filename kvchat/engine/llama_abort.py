"""How a decode is broken off. Owns the function and the argument by which llama.cpp asks whether to, between two nodes
of a graph; must not decide anything.

It asks some hundred times for each token. Each time Python takes 0.2 microseconds, a fiftieth of the time of a small
model, and waits for whichever thread holds the interpreter; a `Flag` is read by a function of the C library.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import llama_cpp.llama_cpp as lib

from kvchat.engine.interrupt import Flag

# A function of a pointer that is 1 where the flag's byte is set, else 0: the length of a text, whose end is a byte 0.
# As bool (*)(void *) (ggml_abort_callback, ggml.h) it is read by its lowest byte.
_READ = ctypes.cast(ctypes.CDLL(None).strlen, ctypes.c_void_p).value or 0


class AbortCallback:
    """Of one context, for as long as that lives. `interrupt` is asked during a decode on CPU and ends it when true."""

    def __init__(self, context: Any, interrupt: Callable[[], bool]) -> None:
        self._context = context
        self._asks = True
        self._data: Any = None
        if isinstance(interrupt, Flag):
            self._data = (ctypes.c_char * 2).from_buffer(interrupt.memory)
            self._function = lib.ggml_abort_callback(_READ)
        else:
            self._function = lib.ggml_abort_callback(lambda _: interrupt())
        self._none = lib.ggml_abort_callback()
        self._set()

    def ask(self, asks: bool) -> None:
        """Whether the decodes from now on may be broken off."""
        if asks != self._asks:
            self._asks = asks
            self._set()

    def _set(self) -> None:
        data = ctypes.c_void_p(0) if self._data is None else ctypes.cast(self._data, ctypes.c_void_p)
        lib.llama_set_abort_callback(self._context, self._function if self._asks else self._none, data)
