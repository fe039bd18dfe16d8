"""The questions of `drafts`, by kind of task: how much of an answer stands in its prompt differs. Owns the texts.

The code to be edited is that of two modules of the program itself, as text.
"""

from __future__ import annotations

from importlib.resources import files

_NOTES = (
    "The garden behind the mill was laid out in four beds. The first bed held beans and peas, the second bed held "
    "carrots and onions, the third bed held strawberries, and the fourth bed was left to the bees. Every morning "
    "at six the miller opened the gate, filled two cans at the pump, and watered the beds in the same order. On "
    "Sundays he only watered the strawberries. In June the first strawberries were ripe, and he sold them at the "
    "market in Altdorf for three coins a basket. In July the beans followed, and in August the onions were hung "
    "up to dry under the roof of the mill."
)

_LETTER = (
    "Dear Mrs. Keller, thank you for your letter of 3 March about the repair of the tower clock. We have looked "
    "at the clock on Tuesday. The large wheel is worn and must be replaced, the pendulum is fine, and the two "
    "smaller wheels need new oil only. The new wheel will cost 420 francs, the work 180 francs, and the repair "
    "will take about two weeks. If you agree, we will begin on 17 March, and the clock will strike again by "
    "Easter. With kind regards, Anton Weber, clockmaker."
)

_MODULES = ("speed.py", "interrupt.py")

FREE, SUMMARISE, QUOTE, CODE = "free chat", "summarise", "quote and edit", "code edit"


def tasks() -> dict[str, tuple[str, ...]]:
    """Questions by kind."""
    codes = [(files("kvchat") / "engine" / name).read_text("utf-8") for name in _MODULES]
    return {
        FREE: (
            "Tell me a story about a lighthouse keeper.",
            "What are the advantages of travelling by train?",
            "Explain how a refrigerator works.",
            "Why is the sky blue in the day and red in the evening?",
            "Give me advice on how to learn the piano as an adult.",
        ),
        SUMMARISE: tuple(
            f"{text}\n\n{task}"
            for text in (_NOTES, _LETTER)
            for task in ("Summarise this text in three sentences.", "What is this text about?")
        ),
        QUOTE: tuple(
            f"{text}\n\n{task}"
            for text in (_NOTES, _LETTER)
            for task in (
                "Repeat the text above word for word.",
                "Copy the text above, but correct any spelling mistakes.",
            )
        ),
        CODE: tuple(
            f"```python\n{code}```\n\n{task}"
            for code in codes
            for task in (
                "Write this file again, with a docstring for every function.",
                "Repeat this file without changes.",
            )
        ),
    }
