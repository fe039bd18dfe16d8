"""Documents for the tests of Markdown, and what rows of them look like as text."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from kvchat.ui.markdown_rows import AnyRow, runs_of

CASES = {
    "fence, then text": "Intro\n\n```python\nprint(1)\nx = 2\n```\n\nAfter text.\n",
    "fence without blank lines": "Intro\n```python\nprint(1)\n\nx = 2\n```\nAfter text.\n",
    "fence at the end": "Intro\n\n```python\nprint(1)\n```",
    "fence that is not closed": "```js\nlet a=1;\nlet b",
    "tildes, fence in a fence": "````md\n```py\nx\n```\n````\n\n~~~\na\n~~~\ndone",
    "line that is nearly a closing fence": "```\na\n``\n```b\n ```\nafter",
    "setext": "Title\n=====\n\nSub\n---\n\ntext",
    "paragraph, then table": "Here:\n\n| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n\nend",
    "table without blank lines": "Here it is\n| a | b |\n|:-:|--:|\n| 1 | 2 |\n# Title\n",
    "table with odd cells": "| a | b |\n|---|---|\n| 1 |\n| 1 | 2 | 3 |\n| `x|y` | a\\|b<br>c |\n",
    "list": "- a\n- b\n  - c\n    continued\n- d\n\n1. x\n2. y\n",
    "loose list": "- a\n\n- b\n\n  para in b\n\n- c\n",
    "list with code": "1. First:\n\n   ```bash\n   ls -la\n   ```\n\n2. Second\n   ```\n   x\n   ```\n3. Third\n\nText",
    "list of ones": "1. a\n1. b\n1. c\n\n7) d\n8) e\n",
    "tasks": "- [ ] todo **now**\n- [x] done\n  - [X] deeper\n",
    "quote": "> a\n> b\n>\n> - c\n>\n> ```\n> code\n> ```\nlazy?\n\nx",
    "quote in a list": "- a\n  > b\n  > c\n- d\n",
    "rules": "a\n\n---\n\nb\n\n***\n- - -\n",
    "html": "<div>\nabc\n</div>\n\nHello <b>x</b><br>y\n",
    "indented code": "para\n\n    code line\n\n    two\n\nend",
    "emphasis across lines": "This is **bold\ntext** and `co\nde` and ***all*** ~~gone~~ end",
    "headings": "# A\n## B\n### C\ntext\n#### D",
    "line breaks": "one  \ntwo\\\nthree\nfour",
    "escapes": "\\*not\\* &amp; &copy; &#42; 2 \\< 3 snake_case_name",
    "links": "[a](http://x.y/(z)) [b](rel.md 'title') <http://auto.z> ![alt](img.png) http://bare.w",
    "formulas": "\\( a_1 * b_2 * c \\) and \\[\n\\frac{a}{b}\n\\] and $$x^2 * y$$ \\( open",
    "blank lines": "\n\nA\n\n\n\nB\n\n",
    "list, then paragraph, then list": "* one\n* two\n\nAfter\n\n* three\n",
    "marks that turn into others": "- a\n-\n---\n+ x\n1\n1.\n1. y\n#\n#z\n",
    "wide characters": "键值缓存的误差，한국어 문장 👩‍💻 **粗体** `代码`\n\n| 键 | 값 |\n|--|--:|\n| 值值 | 가나다 |\n",
    "long paragraph": "A sentence with **bold** words and `code` here, and 键值. " * 60,
    "long paragraph with an open mark": "a * b and more words to fill the line " * 150,
    "long line of code": "```\n" + "word " * 800 + "\n```\n",
    "nested deeply": "".join(f"{'  ' * n}- level {n}\n" for n in range(30)),
    "long list": "".join(f"{n}. item {n} with some words\n" for n in range(1, 130)),
}
# Later text changes settled blocks: the streamed rows are right only after the end.
INHERENT = {
    "reference links": "See [foo][1] and [bar][1].\n\nmore\n\n[1]: https://example.com\n",
    "mark closed far away": "a **b " + "words and more words " * 300 + "c** end",
}


def texts(rows: Iterable[AnyRow]) -> list[str]:
    """Rows as they stand on the screen."""
    return ["".join(run.text for run in runs_of(row)).rstrip() for row in rows]


def trimmed(rows: Iterable[AnyRow]) -> list[AnyRow]:
    """Without blank rows at the end."""
    found = list(rows)
    while found and not any(run.text for run in runs_of(found[-1])):
        found.pop()
    return found


def pieces(text: str, seed: int) -> Iterator[str]:
    """The text in random pieces of at most twelve characters; seed 0: of one."""
    rng = random.Random(seed)
    position = 0
    while position < len(text):
        size = rng.randint(1, 12) if seed else 1
        yield text[position : position + size]
        position += size
