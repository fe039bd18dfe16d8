"""The words of the command line. Owns the parsers and their help; must not load settings or run anything.

Values of settings stay texts here: config reads and checks them, whatever source they come from. A flag that is not
given leaves no attribute, so that it may stand before or after the name of the command.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import kvchat
from kvchat.arguments_bench import add_bench_flags
from kvchat.arguments_chat import add_chat_flags, add_offline, add_screen_flags
from kvchat.arguments_foreign import foreign_command, no_flag, refuse_foreign, stray_flag
from kvchat.arguments_hardware import add_hardware_flags, add_memory_flags, add_rope_flags
from kvchat.arguments_meaning import MEANING
from kvchat.config_options import BY_KEY, nearest
from kvchat.errors import UsageError

_CHAT: dict[str, Any] = {"metavar": "CHAT", "help": "its title or ID, or as much of either as only one has"}


class Parser(argparse.ArgumentParser):
    """argparse, with errors as UsageError and the nearest word for a wrong choice. `words`: the whole command line."""

    def __init__(self, words: Sequence[str] = (), **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)
        self._words = words

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, f"{self.prog} --help")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        stray = stray_flag(self._words, value)
        if stray is not None:
            raise no_flag(self.prog, stray)
        guess = nearest(str(value), action.choices)
        name = value if len(value) <= 60 else value[:57] + "..."
        if action.dest == "command" and (here := foreign_command(value)):
            hint = here
        elif guess:
            hint = f"did you mean {guess}?"
        elif action.dest == "command" and " " in value.strip():
            hint = f'to ask the model: {self.prog} ask "..."'
        else:
            hint = f"there are: {', '.join(action.choices)}"
        raise UsageError(f"{self.prog} has no command {name!r}", hint)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line as a namespace: `command` ("" for the app) and what was given. UsageError when it is wrong."""
    refuse_foreign(arguments)
    parser = _parser(arguments)
    parsed, unknown = parser.parse_known_args(arguments)
    if unknown:
        raise _unknown_words(unknown, parsed.command)
    action = f"{parsed.command} {getattr(parsed, 'action', '')}"
    meant = MEANING.get(action, MEANING[parsed.command])
    for given in vars(parsed):
        if given != "command" and given not in meant:
            flag = BY_KEY[given].flag if given in BY_KEY else _flag_of(given)
            raise UsageError(f"{flag} means nothing to kvchat {parsed.command}", f"kvchat {parsed.command} --help")
    return parsed


def _unknown_words(words: Sequence[str], command: str) -> UsageError:
    name = f"kvchat {command}".strip()
    flag = next((word for word in words if word.startswith("-")), None)
    if flag is None:
        return UsageError(f"{name} has no use for {' '.join(words)!r}", f"{name} --help")
    return no_flag(name, flag)


def _flag_of(attribute: str) -> str:
    return "-c/--continue" if attribute == "continue_last" else f"--{attribute}"


def whole_parser() -> Parser:
    """The parser with the words of every command."""
    return _parser(tuple(_COMMANDS))


def _parser(arguments: Sequence[str]) -> Parser:
    """The words of a command, which take a while, are only added when its name stands somewhere in the arguments."""
    parser = Parser(
        arguments,
        prog="kvchat",
        usage="kvchat [FLAGS]\n       kvchat COMMAND [FLAGS]",
        description="Chat with a model on this machine. Without a command: the app.",
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--version", action="version", version=f"kvchat {kvchat.__version__}")
    words = "kvchat COMMAND --help tells more of one"
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", prog="kvchat", title="commands", description=words, parser_class=Parser
    )
    _add_opening_flags(parser)
    _add_engine_flags(parser)
    add_chat_flags(parser)
    add_screen_flags(parser)
    parser.set_defaults(command="")
    for name, (text, add) in _COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text, argument_default=argparse.SUPPRESS)
        if name in arguments:
            add(command)
    return parser


def _add_ask(ask: Parser) -> None:
    ask.usage = "kvchat ask [FLAGS] [QUESTION]"
    _add_json(ask)
    ask.add_argument("question", nargs="*", help="the question")
    _add_opening_flags(ask)
    ask.add_argument("--resume", action="store_true", help="go on with an answer that was not finished")
    words = "so many answers, side by side from one prompt, each with a seed of its own; the chat keeps all"
    ask.add_argument("--n", metavar="N", help=words)
    ask.add_argument("--prefix", metavar="NAME", help="a new chat on a pinned prefix, see kvchat kv pin")
    _add_engine_flags(ask)
    add_chat_flags(ask)


def _add_chats(group: Parser) -> None:
    actions = _add_actions(group, "chats", "CHAT", _CHAT["help"])
    actions.choices["ls"].add_argument("--trash", action="store_true", help="list those in the trash")
    search = _action(actions, "search", "find words in titles and messages; the last one may be a beginning")
    search.add_argument("query", metavar="QUERY", nargs="+", help="words that all occur, in any order")
    rename = _action(actions, "rename", "give a chat another title")
    rename.add_argument("name", **_CHAT)
    rename.add_argument("title", metavar="TITLE", nargs="+", help="the new one")
    remove = _action(actions, "rm", "move a chat to the trash")
    remove.add_argument("name", **_CHAT)
    words = "remove it at once and for good, also from the trash: its words, and the KV that only it has had"
    remove.add_argument("--purge", action="store_true", help=words)
    remove.add_argument("--yes", action="store_true", help="do not ask")
    empty = _action(actions, "empty-trash", "remove all that is in the trash for good, as rm --purge does")
    empty.add_argument("--yes", action="store_true", help="do not ask")
    _action(actions, "restore", "take a chat out of the trash").add_argument("name", **_CHAT)
    _action(actions, "pin", "keep a chat at the top of the list").add_argument("name", **_CHAT)
    _action(actions, "unpin", "let a chat go from the top of the list").add_argument("name", **_CHAT)
    export = _action(actions, "export", "write a chat to stdout or into a file, or all into a folder")
    export.add_argument("name", nargs="?", **_CHAT)
    export.add_argument("--all", dest="everything", action="store_true", help="every chat, into the folder of -o")
    words = "md: the branch that is shown; json: everything, for import. Without: by the name of the file"
    export.add_argument("--format", dest="form", metavar="md|json", help=words)
    export.add_argument("-o", "--output", metavar="FILE", help="a new file, or a folder for --all")
    files = _action(actions, "import", "add the chats of files: of kvchat, ChatGPT, llama.cpp's server")
    files.add_argument("files", metavar="FILE", nargs="+", help="JSON, JSON lines, a ZIP archive, or a folder of such")


def _add_models(group: Parser) -> None:
    actions = _add_actions(group, "models on this machine", "MODEL", "a GGUF file or the name of one")
    scan = _action(actions, "scan", "look for models everywhere anew, also for what one cannot chat with")
    scan.add_argument("folders", metavar="FOLDER", nargs="*", help="further folders, this time")
    pull = _action(actions, "pull", "fetch a model; without a name: what the catalogue has")
    words = "a name of the catalogue, hf:OWNER/REPOSITORY[:FILE or quantization], or the URL of a .gguf file"
    pull.add_argument("name", metavar="MODEL", nargs="?", help=words)
    pull.add_argument("--sha256", metavar="HEX", help="the checksum that the file of a URL must have")
    add_offline(pull)
    remove = _action(actions, "rm", "remove a model from kvchat's own folder; those of other programs stay")
    remove.add_argument("name", metavar="MODEL", help="its name, as models ls has it, or its file")
    remove.add_argument("--yes", action="store_true", help="do not ask")


def _add_kv(group: Parser) -> None:
    actions = _add_actions(group, "chains and pinned prefixes", "CHAIN", "its key, or the beginning of it")
    _action(actions, "verify", "check every page on disk")
    collect = _action(actions, "gc", "delete what is not needed of the KV on disk, and what is beyond the budget")
    collect.add_argument("--kv-budget", metavar="SIZE", help="most that the KV state may take on disk")
    _add_pin(_action(actions, "pin", "compute the beginning of chats once, and keep it whatever the budget is"))
    _action(actions, "unpin", "let a pinned prefix go").add_argument("name", metavar="NAME", help="its name")
    transcode = _action(actions, "transcode", "write a chain once more in another cache type")
    transcode.add_argument("name", metavar="CHAIN", help="its key, or the beginning of it")
    transcode.add_argument("--to", metavar="TYPE", help="for K and V: f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0, iq4_nl")
    transcode.add_argument("--k", dest="to_k", metavar="TYPE", help="for K alone")
    transcode.add_argument("--v", dest="to_v", metavar="TYPE", help="for V alone")
    transcode.add_argument("--kv-budget", metavar="SIZE", help="most that the KV state may take on disk")


def _add_pin(pin: Parser) -> None:
    pin.usage = "kvchat kv pin --name NAME [FLAGS]\n       kvchat kv pin NAME [FLAGS]"
    words = "the one that is there, computed again for the model and cache type that are chosen"
    pin.add_argument("name", metavar="NAME", nargs="?", help=words)
    pin.add_argument("--name", dest="prefix_name", metavar="NAME", help="a new one: what it is called")
    pin.add_argument("-s", "--system", metavar="TEXT", help="its system prompt")
    words = "a text file behind that, as a fenced block with its name; repeatable"
    pin.add_argument("--file", dest="files", metavar="FILE", action="append", help=words)
    pin.add_argument("--replace", action="store_true", help="in place of the one that is called so")
    _add_engine_flags(pin, remote=False, answers=False)
    group = pin.add_argument_group("store")
    group.add_argument("--fit", metavar="ask|off", help="whether to ask before loading what does not fit")
    group.add_argument("--kv-budget", metavar="SIZE", help="most that the KV state may take on disk")
    group.add_argument("--kv-type-disk", metavar="TYPE", help="cache type in which it is saved")


def _add_plan(plan: Parser) -> None:
    _add_json(plan)
    plan.add_argument("name", metavar="MODEL", help="a GGUF file or the name of one")
    group = plan.add_argument_group("what to plan for (flags as in llama.cpp)")
    _add_cache_flags(group)
    add_memory_flags(group)
    _add_parallel(group)
    group.add_argument("-m", "--model", help=argparse.SUPPRESS)  # else it is taken for the beginning of -md
    group.add_argument("-md", "--model-draft", metavar="DRAFT", help="a draft model beside it")


def _add_bench(bench: Parser) -> None:
    _add_json(bench)
    add_bench_flags(bench)
    _add_engine_flags(bench, remote=False)


def _add_doctor(doctor: Parser) -> None:
    doctor.usage = "kvchat doctor [FLAGS]"
    _add_json(doctor)
    _add_engine_flags(doctor, remote=False)


def _add_completions(parser: Parser) -> None:
    words = "bash, zsh or fish; the output is a script for it"
    parser.add_argument("shell", metavar="SHELL", help=words)


def _add_actions(group: Parser, what: str, one: str, words: str) -> Any:
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=Parser)
    _action(actions, "ls", f"list the {what}")
    _action(actions, "show", f"show one of the {what}").add_argument("name", metavar=one, help=words)
    return actions


def _action(actions: Any, name: str, text: str) -> Parser:
    parser: Parser = actions.add_parser(name, help=text, description=text, argument_default=argparse.SUPPRESS)
    _add_json(parser)
    return parser


def _add_json(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_opening_flags(parser: Parser) -> None:
    group = parser.add_argument_group("which chat")
    group.add_argument("-c", "--continue", dest="continue_last", action="store_true", help="go on with the last chat")
    group.add_argument("--chat", metavar="ID", help="go on with this chat")


def _add_engine_flags(parser: Parser, *, remote: bool = True, answers: bool = True) -> None:
    """`remote`: also a server in place of a model of this machine. Not `answers`: none are written, and `-md` is
    known so that it can be refused: else it would be a beginning of `-m`."""
    group = parser.add_argument_group("model and cache (flags as in llama.cpp)")
    group.add_argument("-m", "--model", metavar="MODEL", help="a GGUF file or the name of one")
    if remote:
        words = "a server that answers in its place: its URL, or a name of the settings; -m is then a model of it"
        group.add_argument("--remote", metavar="URL|NAME", help=words)
    words = "a small model that drafts for it; none for none"
    group.add_argument("-md", "--model-draft", metavar="DRAFT", help=words if answers else argparse.SUPPRESS)
    _add_cache_flags(group)
    group.add_argument("-t", "--threads", metavar="N", help="threads, 0 for automatic")
    if answers:
        _add_parallel(group)
        words = "what goes first when a prompt is read beside answers: these, both alike, or the prompt"
        group.add_argument("--favour", metavar="answers|balanced|prompts", help=words)
    hardware = parser.add_argument_group("machine (flags as in llama.cpp)")
    add_memory_flags(hardware)
    add_hardware_flags(hardware)
    add_rope_flags(parser.add_argument_group("positions (flags as in llama.cpp)"))


def _add_parallel(group: Any) -> None:
    words = "answers that are computed together at most, 0 for automatic"
    group.add_argument("-np", "--parallel", metavar="N", help=words)


def _add_cache_flags(group: Any) -> None:
    group.add_argument("--ctx-size", metavar="N", help="context size in tokens, 0 for automatic")
    group.add_argument("-ctk", "--cache-type-k", metavar="TYPE", help="type of cached keys: f16, bf16, q8_0, q4_0")
    group.add_argument("-ctv", "--cache-type-v", metavar="TYPE", help="type of cached values, the same")
    group.add_argument("-fa", "--flash-attn", metavar="on|off|auto", help="flash attention")
    group.add_argument("-ngl", "--n-gpu-layers", metavar="N", help="layers on the GPU: a number, auto or all")


# What each command is for, and what adds its words to a parser.
_COMMANDS: dict[str, tuple[str, Callable[[Parser], None]]] = {
    "ask": ("ask one question and print the answer; stdin is put before the question", _add_ask),
    "chats": ("chats: list, show, search, rename, export, import, remove", _add_chats),
    "models": ("models: list, show, fetch, remove", _add_models),
    "kv": ("the KV cache on disk: list, check, pin, transcode", _add_kv),
    "plan": ("the memory that a model takes, and what fits", _add_plan),
    "bench": ("how fast a model is here, and what cache types, reuse and drafts make of it", _add_bench),
    "paths": ("where settings, chats, models and KV pages are", _add_json),
    "doctor": ("what this build and machine can do", _add_doctor),
    "completions": ("what bash, zsh or fish needs to complete these words", _add_completions),
}
