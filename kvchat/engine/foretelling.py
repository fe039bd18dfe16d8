"""What is done for a chat ahead of its turn, without computing: bringing its past back, telling what a send would cost.

Owns these two answers. Must not change the cells of a chat that answers.
"""

from __future__ import annotations

from collections.abc import Callable

from kvchat.backend.protocol import Forecast, Forecasted, Generate, Warm, Warmed
from kvchat.backend.values import PromptMessage
from kvchat.engine.asked import read_request
from kvchat.engine.evicting import excess
from kvchat.engine.history import computed_before
from kvchat.engine.lending import best_loan
from kvchat.engine.seat import Seat
from kvchat.engine.speed import Speed
from kvchat.formats.past import resolve


def warm(seat: Seat, command: Warm, make_way: Callable[[], None]) -> Warmed | None:
    """Bring what is stored of a chat's past into cells that nobody else needs. `make_way` is called before that. None:
    there is no place now."""
    ids = command.ids
    past, _ = resolve(ids, command.evictions)
    system = seat.model.system_part.tokens(ids, (PromptMessage("system", command.system),), command.clock)
    place, needed = seat.best(past), excess(past, 0)
    if place is None:
        return None
    if needed > seat.context.cells:
        return Warmed(command.turn, len(ids), 0, 0, 0.0, None, system_tokens=system)
    start = place.reuser.plan(past, len(past.ids))
    if not start.loads or not seat.make_room(needed - place.occupied, place):
        return Warmed(command.turn, len(ids), start.kept, 0, 0.0, None, system_tokens=system)
    make_way()
    seat.enter(place)
    reuse = place.reuser.warm(past)
    return Warmed(
        turn=command.turn,
        tokens=len(ids),
        reused=reuse.reused,
        pages=reuse.pages,
        seconds=reuse.seconds,
        cut=reuse.cut,
        checkpoint=reuse.checkpoint,
        system_tokens=system,
        transcoded=reuse.transcoded,
        transcoded_tokens=reuse.transcoded_tokens,
    )


def forecast(seat: Seat, speed: Speed, command: Forecast) -> Forecasted:
    """What a send would reuse and cost. Raises KvchatError when the prompt cannot be built."""
    request = Generate(
        command.turn,
        command.messages,
        history=command.history,
        clock=command.clock,
        evictions=command.evictions,
    )
    asked = read_request(request, seat.model, seat.context.memory)
    whole, prompt = asked.past, asked.prompt
    past = asked.numbering.position(min(prompt.past, computed_before(command.messages)))
    place = seat.best(whole) or seat.front
    reuser = place.resident if command.incognito else place.reuser
    found = reuser.outlook(whole, past)
    loan = best_loan(reuser.lenders(), whole.upto(len(whole.ids) - 1)) if seat.taken else None
    resident, loaded = found.resident, found.pages + found.checkpoint
    if loan is not None and loan.length > found.reused:
        resident, loaded = loan.length, 0
    tokens = asked.tokens
    computed = max(0, tokens - resident - loaded)
    lost = resident + loaded < tokens - (len(whole.ids) - past) - 1
    return Forecasted(
        turn=command.turn,
        tokens=tokens,
        resident=resident,
        pages=min(found.pages, loaded),
        checkpoint=min(found.checkpoint, loaded),
        computed=computed,
        seconds=speed.first_token(loaded, computed, min(found.transcoded_tokens, loaded)),
        cut=(reuser.reason(whole, past) if lost else None) or prompt.cut or command.past_cut,
    )
