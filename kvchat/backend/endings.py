"""How an engine ended, in words for the person. Owns the sentences; must not decide what happens next."""

from __future__ import annotations

import signal

from kvchat.backend.fidelity import Measure, Measured
from kvchat.backend.protocol import Pin, Pinned, Summarize, Summarized, TurnFinished
from kvchat.backend.values import Failure, Usage
from kvchat.errors import KvchatError

CRASHES = {signal.SIGILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE}
UNHEARD = "does not listen, and too much waits for it already"
HOPELESS = "another llama-cpp-python may run it; to try again, remove state/journal.json (see kvchat paths)"


def cause_of(code: int, fault: str = "") -> str:
    """How a process ended, by its return code, to be read on from "the engine ". `fault`: why we killed it, if it
    did not die before."""
    if fault and code == -signal.SIGKILL:
        return fault
    if code >= 0:
        return f"ended by itself with code {code}"
    name = next((each.name for each in signal.Signals if each == -code), f"signal {-code}")
    return f"was killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")


def given_up(cause: str, *, crashed: bool, was_ready: bool) -> Failure:
    """Why no other engine is started after one that ended by `cause`."""
    if crashed:
        hint = "every safer configuration died as well: this llama.cpp cannot run this model on this machine"
    elif was_ready:
        hint = "start it again; the log says what happened"
    else:
        hint = "if memory ran out: a smaller model, a smaller --ctx-size, or cache types q8_0"
    return Failure(f"the engine {cause}, and is not started again", hint)


def not_started(error: OSError | KvchatError) -> Failure:
    """Why there is no process at all."""
    if isinstance(error, KvchatError):
        return Failure(error.message, error.hint)
    return Failure(f"the engine process could not be started: {error.strerror or error}")


def unfinished(turn: str, cause: str) -> TurnFinished:
    """The end of a turn whose engine ended by `cause`."""
    failure = Failure(f"the engine {cause}", "the text so far is kept, and can be continued")
    return TurnFinished(turn, "died", Usage(), failure)


def unanswered(command: Measure | Summarize | Pin, cause: str) -> Measured | Summarized | Pinned:
    """The end of what was being made beside the chat when its engine ended by `cause`."""
    if isinstance(command, Measure):
        return Measured(command.turn, None, Failure(f"the engine {cause}", "measure again"))
    if isinstance(command, Pin):
        hint = "what it had computed of the prefix is kept; pin it again"
        return Pinned(command.turn, command.prefix, failure=Failure(f"the engine {cause}", hint))
    return Summarized(command.turn, failure=Failure(f"the engine {cause}", "the chat is as it was; try again"))
