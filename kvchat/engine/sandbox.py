"""Jinja for templates that nobody vouches for: a model file's chat template is code from the internet.

Owns the sandboxed environment and its budget of time and memory. Must not know what a chat is.

Jinja's own sandbox keeps a template away from Python; it does not keep it from looping for hours or from building
gigabytes. So the compiled template is instrumented: every block of statements looks at the clock, every expression that
can make a value is metered, and the operations that can make a huge value in one step (`*`, `**`, `%`, `replace`,
`join`, `indent`, `format`) are checked before they run. Values cannot grow beyond `MAX_SIZE`, nor can a nest of lists
whose text would. No signal, thread or trace function is used, so it works on any thread.

Limits: it guards against runaway and spiteful templates, it is no wall. The clock is looked at between operations; one
operation handles at most `MAX_SIZE` characters. An environment renders one template at a time.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from jinja2 import filters, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError, TemplateError, TemplateRuntimeError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter
from jinja2.utils import Namespace

MAX_SOURCE = 128 << 10  # characters; the largest of seventy real templates has 17,000
MAX_SIZE = 4 << 20  # characters of a string, or of the text that a nest of lists would make
MAX_BYTES = 512 << 20  # all values that one rendering makes, together
MAX_SECONDS = 5.0  # of the thread's CPU time, and for each message:
SECONDS_PER_MESSAGE = 0.02  # some real templates need time in proportion to the square of the messages
_MAX_INT_BITS = 1024
_MAX_WIDTH = 4096  # of padding, indentation and the like

# What a hostile or merely broken template can raise, apart from bugs of ours.
TEMPLATE_ERRORS = (
    ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, SyntaxError, TypeError, ValueError,
    TemplateError,
)  # fmt: skip

# They pad without bound, need minutes for one call, or are not the same from one rendering to the next.
_NO_FILTERS = {
    "batch", "center", "filesizeformat", "forceescape", "pprint", "random", "slice", "striptags", "sum", "urlencode",
    "urlize", "wordwrap", "xmlattr",
}  # fmt: skip
_NO_STRING_METHODS = {"center", "encode", "expandtabs", "ljust", "maketrans", "rjust", "translate", "zfill"}
_CONTAINERS = (list, tuple, dict)


class BudgetError(SecurityError):
    """The template takes more time or memory than any chat template needs."""


class _Budget:
    """What one rendering may still use. Remembers the expanded size of the containers it saw."""

    def __init__(self, messages: int) -> None:
        self.bytes_left = MAX_BYTES
        self.seconds = MAX_SECONDS + SECONDS_PER_MESSAGE * messages
        self.deadline = time.thread_time() + self.seconds
        self._sizes: dict[int, tuple[object, int]] = {}

    def check_time(self) -> None:
        if time.thread_time() > self.deadline:
            raise BudgetError(f"the template runs for more than {self.seconds:.3g} seconds")

    def charge(self, value: object) -> None:
        if isinstance(value, (str, *_CONTAINERS)):
            check_size(self.size(value))
            self.bytes_left -= sys.getsizeof(value)
            if self.bytes_left < 0:
                raise BudgetError(f"the template makes more than {MAX_BYTES >> 20} MiB of values")

    def size(self, value: object) -> int:
        """Characters of the text of `value`, about: a nest of lists counts what is in it as often as it is in it."""
        if isinstance(value, str):
            return len(value)
        if not isinstance(value, Collection) or isinstance(value, range):
            return 1
        known = self._sizes.get(id(value))
        if known is not None:
            return known[1]
        total = 1 + sum(self.size(part) for part in value)
        if isinstance(value, Mapping):
            total += sum(self.size(part) for part in value.values())
        self._sizes[id(value)] = (value, total)
        return total


def check_size(size: int) -> None:
    if size > MAX_SIZE:
        raise BudgetError(f"the template makes a value of more than {MAX_SIZE:,} characters")


class _MeteredGenerator(CodeGenerator):
    """Compiles a template with the checks of its environment in it."""

    def blockvisit(self, body: Iterable[nodes.Node], frame: Frame) -> None:
        self.writeline("environment.tick()")
        super().blockvisit(body, frame)

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        if not isinstance(node, nodes.TemplateData):
            raise nodes.Impossible  # would be evaluated while compiling, out of the budget's reach
        return super()._output_child_to_const(node, frame, finalize)


def _makes_value(node: nodes.Node) -> bool:
    match node:
        case nodes.Name():
            return node.ctx == "load" and node.name in ("varargs", "kwargs")
        case nodes.Tuple():
            return bool(node.ctx == "load")
        case nodes.Getitem():
            return isinstance(node.arg, nodes.Slice)
    return True


def _metered(name: str) -> Callable[..., None]:
    plain = getattr(CodeGenerator, name)

    def visit(self: CodeGenerator, node: nodes.Node, frame: Frame, **options: Any) -> None:
        if not _makes_value(node):
            plain(self, node, frame, **options)
            return
        self.write("environment.meter(")
        plain(self, node, frame, **options)
        self.write(")")

    return visit


_METERED = (
    nodes.Add, nodes.Call, nodes.Compare, nodes.Concat, nodes.Dict, nodes.Filter, nodes.Getitem, nodes.List, nodes.Mod,
    nodes.Mul, nodes.Name, nodes.Pow, nodes.Test, nodes.Tuple,
)  # fmt: skip
for _kind in _METERED:
    setattr(_MeteredGenerator, f"visit_{_kind.__name__}", _metered(f"visit_{_kind.__name__}"))


class _Formatter(SandboxedFormatter):
    def format_field(self, value: Any, format_spec: str) -> Any:
        _check_widths(format_spec)
        return self._env.meter(super().format_field(value, format_spec))  # type: ignore[attr-defined]


class _Namespace(Namespace):
    """Its text is short: one that holds others, twice each, would otherwise print without end."""

    def __repr__(self) -> str:
        return "<Namespace>"


class _Generation(Extension):
    """`{% generation %}` marks what a model is trained on. For rendering it is nothing."""

    tags = {"generation"}  # noqa: RUF012 (Jinja's declaration)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class MeteredEnvironment(ImmutableSandboxedEnvironment):
    """The environment that chat templates are written for, within the limits of this module."""

    code_generator_class = _MeteredGenerator
    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, optimized=False, extensions=["jinja2.ext.loopcontrols", _Generation]
        )
        self.start()
        self.finalize = self._print
        self.filters = {name: func for name, func in self.filters.items() if name not in _NO_FILTERS}
        self.filters.update(tojson=self._tojson, replace=self._replace, indent=self._indent, join=self._join)
        self.filters["format"] = self._format
        for name in ("lipsum", "cycler", "joiner"):
            del self.globals[name]
        self.globals["namespace"] = _Namespace

    def start(self, messages: int = 0) -> None:
        """A fresh budget for what follows: one rendering, or the compilation and its probes."""
        self._budget = _Budget(messages)

    # ---- called by compiled templates

    def tick(self) -> None:
        self._budget.check_time()

    def meter(self, value: Any) -> Any:
        self._budget.check_time()
        self._budget.charge(value)
        return value

    def concat(self, parts: Iterable[str]) -> str:
        kept, size = [], 0
        for part in parts:
            size += len(part)
            check_size(size)
            kept.append(part)
        return str(self.meter("".join(kept)))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        owner, name = getattr(__obj, "__self__", None), getattr(__obj, "__name__", "")
        if isinstance(owner, str) and name == "replace":
            __self._check_replace(owner, *args[:2])
        elif isinstance(owner, str) and name == "join":
            args = (__self._check_join(owner, *args),)
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        for side in (left, right):
            if isinstance(side, int) and side.bit_length() > _MAX_INT_BITS:
                raise BudgetError("the template calculates with huge numbers")
        if operator == "*":
            count = right if isinstance(right, int) else left
            unit = left if isinstance(right, int) else right
            if isinstance(count, int) and not isinstance(unit, (int, float)):
                check_size(self._budget.size(unit) * max(count, 0))
        elif operator == "**" and isinstance(left, int) and isinstance(right, int) and abs(right) > _MAX_INT_BITS:
            raise BudgetError("the template calculates with huge numbers")
        elif operator == "%" and isinstance(left, str):
            self._check_percent(left, right)
        return super().call_binop(context, operator, left, right)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, (int, float)) or (isinstance(obj, str) and attr in _NO_STRING_METHODS):
            return False
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        owner, name = getattr(value, "__self__", None), getattr(value, "__name__", "")
        if not isinstance(owner, str) or name not in ("format", "format_map"):
            return None
        text = owner
        if name == "format_map":
            return lambda mapping: _Formatter(self).vformat(text, (), mapping)
        return lambda *args, **kwargs: _Formatter(self).vformat(text, args, kwargs)

    def _print(self, value: Any) -> str:
        text = value if isinstance(value, str) else str(value)
        self._budget.charge(text)
        return text

    # ---- filters

    def _tojson(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | str | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """As transformers defines it: no HTML escapes, keys in their order."""
        widths = (indent if isinstance(indent, int) else len(indent or ""), *map(len, separators or ()))
        if max(widths) > _MAX_WIDTH:
            raise BudgetError("the template indents JSON too far")
        encoder = json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
        return self.concat(encoder.iterencode(value))

    def _replace(self, text: str, old: str, new: str, count: int = -1) -> str:
        self._check_replace(str(text), str(old), str(new))
        return str(text).replace(str(old), str(new), -1 if count is None else count)

    def _indent(self, text: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
        reach = len(width) if isinstance(width, str) else width
        check_size(len(text) + (text.count("\n") + 1) * reach)
        return filters.do_indent(text, width, first, blank)

    def _format(self, text: str, *args: Any, **kwargs: Any) -> str:
        self._check_percent(str(text), kwargs or args)
        return str(text) % (kwargs or args)

    def _join(self, values: Iterable[Any], separator: str = "", attribute: str | int | None = None) -> str:
        if attribute is not None:
            values = map(filters.make_attrgetter(self, attribute), values)
        return str(separator).join(str(value) for value in self._check_join(str(separator), values))

    # ---- checks before an operation

    def _check_replace(self, text: str, old: str = "", new: str = "") -> None:
        if isinstance(old, str) and isinstance(new, str):
            check_size(len(text) + text.count(old) * len(new))

    def _check_join(self, separator: str, values: Iterable[Any]) -> list[Any]:
        listed = list(values)
        check_size(self._budget.size(listed) + len(separator) * len(listed))
        return listed

    def _check_percent(self, text: str, values: Any) -> None:
        specs = re.findall(r"%[^%a-zA-Z]*", re.sub(r"\([^)]*\)", "", text))
        if any("*" in spec for spec in specs):
            raise BudgetError("the template pads text by a computed width")
        written = " ".join(specs)
        _check_widths(written)
        padding = sum(map(int, re.findall(r"[0-9]+", written)))
        check_size(len(text) + padding + text.count("%") * self._budget.size(values))


def _check_widths(text: str) -> None:
    if any(len(digits) > 4 or int(digits) > _MAX_WIDTH for digits in re.findall(r"[0-9]{4,}", text)):
        raise BudgetError("the template pads text too far")


def fail(message: object = "") -> None:
    """`raise_exception` of templates."""
    raise TemplateRuntimeError(str(message))
