"""Writes settings.md and keys.md from the tables that the program itself uses.

    python docs/make_reference.py

A test compares both files with what this would write.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from kvchat.arguments import whole_parser
from kvchat.config import Settings, value_of
from kvchat.config_options import OPTIONS, Option
from kvchat.ui.key_catalogue import SECTIONS, actions
from kvchat.ui.key_names import shown
from kvchat.ui.slash import COMMANDS

FOLDER = Path(__file__).parent
# Settings that have no flag, so no help of one.
WORDS = {
    "mouse": "whether the app takes the mouse; false leaves it to the terminal, to select text",
    "follow": "where the view goes while an answer comes: bottom (with its end), start (to its beginning), off",
    "auto_title": "whether the model names a new chat once it has answered",
    "model_folders": "whole paths of folders that are looked through for models, too; `:` between them in a variable",
}
SETTINGS_HEAD = """# Settings

Made by `python docs/make_reference.py`; do not change it by hand.

A setting is a key of `config.toml`, a variable `KVCHAT_` with the key in capitals, and, where it stands here, a flag.
Defaults are overruled by the file, the file by `KVCHAT_*` and llama.cpp's `LLAMA_ARG_*`, these by flags, and where
both variables are set `KVCHAT_*` counts. What a chat has of its own (sampling, history, overflow, drafter) goes
before all but flags. `kvchat paths` says where the file is; a mistake in it is told with its line. The words are
those of the flag: of `--no-mmap` and its like the key is without the `no`, and takes `false`.

Sizes are such as `8GiB` or `500M`; yes and no are `true` and `false` in the file, also `on`, `off`, `yes`, `no`, `1`,
`0` in a variable. Flags have llama.cpp's names where llama.cpp has them, but for `-c` and `-s`: the context size is
`--ctx-size`, the seed is `--seed`. In the app ^S in the settings (F2) writes the file; what a chat has of its own is
marked there, and Backspace gives it back to the default.

```toml
model = "SmolLM2"
cache_type_k = "q8_0"            # K and V apart
cache_type_v = "q8_0"
kv_budget = "8GiB"
model_draft = "SmolLM2-Q4"
temp = 0.7
theme = "paper"
model_folders = ["/data/gguf"]
lora = ["/data/style.gguf:0.8"]
```
"""
SETTINGS_END = """
## Servers

A table `[remote.NAME]` names a server that answers in place of a model of this machine: `url`, and as needed `model`,
`key_env` (the variable that holds its key) or `keyring` (a service of the system's keyring). See
[remote.md](remote.md). A variable of its own is `KVCHAT_REMOTE_KEY`, the key for `--remote URL`.

## Presets

A preset is a system prompt with a name: a Markdown file in `presets/` beside `config.toml`. `/preset` lists them,
`/preset NAME` takes one for the chat, `/preset save NAME` keeps the chat's. It may carry sampling, above the text, with
the names of `config.toml`:

```
+++
temp = 0.3
+++
You are brief and exact.
```

## Other variables

| variable | does |
|---|---|
| `KVCHAT_HOME` | everything under one folder, see [files.md](files.md) |
| `VISUAL`, `EDITOR` | what Ctrl+G opens the draft in |
| `NO_COLOR`, `COLORFGBG` | no colours; whether the background is light |
| `HF_TOKEN`, `HF_ENDPOINT` | a token for Hugging Face, a mirror of it (`kvchat models pull hf:...`) |
"""
KEYS_HEAD = """# Keys and commands

Made by `python docs/make_reference.py`; do not change it by hand.

What is built in. `/keys` makes a file `keys.toml` beside `config.toml` in which each of these names can have other
keys, one or a list: `chat.new = ["ctrl+n", "f9"]`, `[]` for none. F1 in the app lists those in force for what has the
keyboard.
"""


def settings_page() -> str:
    """settings.md."""
    helps = {action.dest: action for action in whole_parser()._actions}
    lines = [SETTINGS_HEAD]
    for title, options in _groups():
        lines += [f"## {title[:1].upper()}{title[1:]}", "", "| key | flag | default | does |", "|---|---|---|---|"]
        lines += [_row(option, helps.get(option.key)) for option in options]
        lines.append("")
    llama = [option for option in OPTIONS if option.llama]
    lines += ["## llama.cpp's variables", "", "These count where `KVCHAT_*` is not set:", ""]
    lines.append(", ".join(f"`{option.llama}` (`{option.key}`)" for option in llama) + ".")
    return "\n".join(lines) + "\n" + SETTINGS_END


def _groups() -> Iterator[tuple[str, list[Option]]]:
    """The options by the group of their flag, as `kvchat --help` has them; those without a flag come last."""
    left = {option.key: option for option in OPTIONS}
    for group in whole_parser()._action_groups:
        found = [left.pop(action.dest) for action in group._group_actions if action.dest in left]
        if found:
            yield (group.title or "").partition(" (")[0], found
    yield "without a flag", list(left.values())


def _row(option: Option, action: argparse.Action | None) -> str:
    words = action.help if action is not None else WORDS[option.key]
    takes = f" {action.metavar}" if action is not None and action.metavar else ""
    flag = f"`{option.flag.replace('/', '`, `')}{takes}`".replace("|", "\\|") if option.flag else ""
    return f"| `{option.key}` | {flag} | {_default(option.key)} | {words} |".replace("|  |", "| |")


def _default(key: str) -> str:
    match value_of(Settings(), key):
        case None | ():
            return ""
        case bool() as value:
            return f"`{str(value).lower()}`"
        case value:
            return f"`{value}`"


def keys_page() -> str:
    """keys.md."""
    lines = [KEYS_HEAD]
    for section in SECTIONS:
        lines += [f"## {section.title}", "", "| keys | does | name |", "|---|---|---|"]
        for action in actions(section):
            keys = _cell(" ".join(shown(key) for key in action.usual))
            lines.append(f"| {keys} | {action.words} | `{action.name}` |")
        lines.append("")
    lines += ["## Commands in the prompt", "", "| command | takes | does |", "|---|---|---|"]
    lines += [
        f"| `{name}` | {_cell(takes)} | {words} |".replace("|  |", "| |") for name, (takes, words) in COMMANDS.items()
    ]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Text as a cell of a table."""
    return re.sub(r"([|`\\*_<\[\]])", r"\\\1", text)


PAGES = {"settings.md": settings_page, "keys.md": keys_page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
