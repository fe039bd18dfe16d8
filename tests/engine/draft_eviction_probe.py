"""A chat that outgrows its context with a draft model beside it: `draft_eviction_probe.py FOLDER POLICY MODEL DRAFT`.

The same turns without drafts and with them, with time between the turns in which the draft model reads. Prints JSON, a
list of turns: whether the answers, and what left, are the same; what was drafted and stood; and what the draft model
read in the turn and after it, beside the number of tokens that were new. At the end the same of one turn more in a
session that was reopened. Exit code 1, with a reason, when its cells hold anything but its record.
"""

import json
import random
import sys
from pathlib import Path

from eviction_probe import Chat, text

from kvchat.engine import llama
from kvchat.formats.past import live

CONTEXT = 256
TURNS = [(12, 60), (15, 40), (30, 30), (8, 90), (12, 40), (12, 30)]


def opened(folder, policy, model, **draft):
    return Chat(model, folder, policy, CONTEXT, type_k="q8_0", type_v="q8_0", **draft)


def read_of(chat):
    """Watches how many tokens the draft model reads from now on."""
    context, counts = chat.session._companion.model.seat.context, [0]
    decode = type(context).decode

    def counted(tokens, position, **how):
        counts[0] += len(tokens)
        decode(context, tokens, position, **how)

    context.decode = counted
    return counts


def check_cells(chat):
    cells = chat.session._companion.model.seat.cells
    wanted = [at for start, end in live(0, len(cells), cells.memory.holes) for at in range(start, end)]
    rows = cells.memory.live_rows("full")
    if cells.memory.length != len(cells) or (rows is not None and list(rows.positions) != wanted):
        raise SystemExit(f"the draft model has {len(cells)} tokens, {cells.memory.length} in its cells")


def turn(plain, drafted, words, tokens):
    counts, log = read_of(drafted), len(drafted.log)
    usage, ids = drafted.ask(words, tokens)
    in_turn = counts[0]
    while drafted.session.aside is not None:
        drafted.session.advance_aside()
    check_cells(drafted)
    others = plain.ask(words, tokens)[1]
    return {
        "same": ids == others and drafted.log == plain.log,
        "evictions": len(drafted.log) - log,
        "proposed": usage.draft_proposed,
        "accepted": usage.draft_accepted,
        "read": [in_turn, counts[0]],
        "new": len(drafted.messages[-2].ids) + len(ids),
        "note": usage.draft_note,
    }


def main():
    folder, policy, model, draft = Path(sys.argv[1]), sys.argv[2], *map(Path, sys.argv[3:5])
    llama.start(lambda text, error: None)
    rng = random.Random(4)
    plain = opened(folder / "plain", policy, model)
    drafted = opened(folder / "drafted", policy, model, draft="model", draft_path=str(draft))
    turns = [turn(plain, drafted, text(rng, words), tokens) for words, tokens in TURNS]
    drafted.close()
    again = opened(folder / "drafted", policy, model, draft="model", draft_path=str(draft)).goes_on_as(drafted)
    turns.append(turn(plain, again, text(rng, 10), 20))
    again.close()
    plain.close()
    print(json.dumps(turns))


if __name__ == "__main__":
    main()
