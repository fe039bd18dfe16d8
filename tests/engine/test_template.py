"""Chat templates: seventy real ones, what they may use, and what a hostile one may not do."""

from __future__ import annotations

import time
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kvchat.engine import sandbox
from kvchat.engine.template import FALLBACK_NAME, ChatTemplate, Turn, choose_template
from kvchat.errors import KvchatError

TEMPLATES = sorted((Path(__file__).parents[1] / "data" / "templates").glob("*.jinja"))
CLOCK = datetime(2026, 3, 14, 12, tzinfo=UTC).timestamp()
DAY = 86_400.0
PRINT = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
TALK = (Turn("system", "Be brief."), Turn("user", "Hi?"), Turn("assistant", "Yes."), Turn("user", "And?"))

# They print today's date; Firefunction the time as well.
DATED = {
    "fireworks-ai-llama-3-firefunction-v2",
    "meta-llama-Llama-3.2-3B-Instruct",
    "openai-gpt-oss-120b",
    "upstage-Solar-Open-100B",
}


def load(source: str) -> ChatTemplate:
    return ChatTemplate(source, bos="<s>", eos="</s>")


@pytest.mark.parametrize("file", TEMPLATES, ids=lambda file: file.stem)
def test_real_templates(file: Path) -> None:
    template, name, note = choose_template(file.read_text(), "<s>", "</s>")
    assert (name, note) == ("GGUF", None)
    assert template.system_role == (file.stem != "google-gemma-2-2b-it")  # it raises "System role not supported"
    talk = TALK if template.system_role else TALK[1:]
    text = template.render(talk, CLOCK)
    places = [text.find(turn.text) for turn in talk[-3:]]
    assert -1 not in places
    assert places == sorted(places)
    assert template.render(talk, CLOCK) == text
    assert (template.render(talk, CLOCK + DAY) != text) == (file.stem in DATED)


def test_all_real_templates_are_there() -> None:
    assert len(TEMPLATES) == 70


def test_the_clock_is_local_time(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "{{ strftime_now('%d %b %Y %H:%M') }} " + PRINT
    monkeypatch.setenv("TZ", "XYZ-14")  # fourteen hours ahead of UTC: the next day already
    time.tzset()
    try:
        assert load(source).render(TALK, CLOCK).startswith("15 Mar 2026 02:00 ")
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("{{ bos_token }}{{ eos_token }}", "<s></s>"),
        ("{% generation %}a{% set b = 1 %}{%- endgeneration %}{{ b }}", "a1"),
        (
            "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}"
            "{{ i }}{% endfor %}",
            "02",
        ),
        ("{{ {'b': 'é<&', 'a': [1]}|tojson }}", '{"b": "é<&", "a": [1]}'),
        ("{{ {'a': [1]}|tojson(indent=2) }}", '{\n  "a": [\n    1\n  ]\n}'),
        ("{{ [1, 2]|tojson(separators=(',', ':')) }}", "[1,2]"),
        ("{{ tools is defined }} {{ documents is defined }} {{ add_generation_prompt }}", "False False True"),
        ("{{ '%s-%d'|format('a', 3) }} {{ '{}{x}'.format(1, x=2) }} {{ 'a %s' % 'b' }}", "a-3 12 a b"),
        ("{{ '{x}-{y}'.format_map({'x': 1, 'y': 'b'}) }}", "1-b"),
        (
            "{{ ['a', 'b']|join('-') }} {{ '-'.join(['a', 'b']) }} {{ [{'n': 1}, {'n': 2}]|join('+', attribute='n') }}",
            "a-b a-b 1+2",
        ),
        ("{{ 'aXb'|replace('X', '--') }} {{ 'aXb'.replace('X', '') }} {{ 'XX'|replace('X', 'y', 1) }}", "a--b ab yX"),
        ("{{ 'a\nb'|indent(2) }}{{ 'a\nb'|indent('> ', true) }}", "a\n  b> a\n> b"),
        (
            "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n > 0 }}",
            "True",
        ),
        ("{% macro f(x) %}<{{ x }}>{{ caller() }}{% endmacro %}{% call f(1) %}in{% endcall %}", "<1>in"),
        ("{% set x %}a{{ 1 }}{% endset %}{{ x|upper }}{% filter upper %}b{% endfilter %}", "A1B"),
        ("{% macro f() %}{{ varargs|join(',') }}{{ kwargs.k }}{% endmacro %}{{ f(1, 2, k=3) }}", "1,23"),
        ("{{ 'abc'[1:] }}{{ [1, 2, 3][::-1]|last }}{{ 7 // 2 }}{{ 2 ** 8 }}{{ 'ab' * 2 }}", "bc13256abab"),
        ("{% if true %}\n  {% if true %}\nx\n  {% endif %}\n{% endif %}", "x\n"),
    ],
)
def test_what_templates_may_use(source: str, wanted: str) -> None:
    assert load(source + "|" + PRINT).render(TALK, CLOCK).split("|", 1)[0] == wanted


def test_content_as_parts() -> None:
    source = "{% for m in messages %}{% for p in m.content %}{{ p['text'] }};{% endfor %}{% endfor %}"
    assert load(source).render(TALK, CLOCK) == "Be brief.;Hi?;Yes.;And?;"


@pytest.mark.parametrize(
    "source",
    [
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + PRINT,
        "{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}",
    ],
)
def test_refused_and_dropped_system_messages(source: str) -> None:
    assert not load(source).system_role


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (None, "the model file has no chat template"),
        ("  \n", "the model file has no chat template"),
        ("{% if %}", "does not compile: Expected an expression"),
        ("{{ 1|nosuch }}", "does not compile: No filter named 'nosuch'"),
        ("{{ a.b.c }}", "refuses this conversation: 'a' is undefined"),
        ("{{ raise_exception('Never.') }}", "refuses this conversation: Never."),
        ("{% include 'other' %}", "refuses this conversation: no loader"),
        ("nothing", "leaves out what the user says"),
        (
            "{% for m in messages if m.role == 'assistant' %}{{ m.content }}{% endfor %}",
            "leaves out what the user says",
        ),
        (" " * (sandbox.MAX_SOURCE + 1), "longer than"),
    ],
)
def test_fallback_is_named_and_says_why(source: str | None, why: str) -> None:
    source = source if source is None or len(source) <= sandbox.MAX_SOURCE else source + PRINT
    template, name, note = choose_template(source, "<s>", "</s>")
    assert name == template.name == FALLBACK_NAME == "ChatML (fallback)"
    assert note is not None
    assert why in note
    assert template.system_role
    assert "<|im_end|>" in template.stops
    assert template.render(TALK[:2], CLOCK) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_refusal_in_mid_chat_is_an_error_with_a_hint() -> None:
    template = load("{% if messages|length > 3 %}{{ raise_exception('Too\n  long.' * 500) }}{% endif %}" + PRINT)
    with pytest.raises(KvchatError) as caught:
        template.render(TALK, CLOCK)
    assert caught.value.message.startswith("the chat template refuses this conversation: Too long.Too")
    assert len(caught.value.message) < 400
    assert caught.value.hint


GROW = "{% set ns = namespace(x='a', y=[1], z={'a': 1}) %}{% for i in range(60) %}"
HOSTILE = {
    "endless loop": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "endless output": "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}",
    "huge range": "{{ range(10**9)|list }}",
    "string times number": "{{ 'a' * 10**9 }}",
    "number times string": "{{ 10**9 * 'a' }}",
    "list times number": "{{ ([0] * 10**9)|length }}",
    "power": "{{ 9 ** (9 ** 9) }}",
    "huge division": "{% set x = ('f' * 4000000)|int(0, 16) %}{{ x // (x|int) }}",
    "doubling by +": GROW + "{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}",
    "doubling by ~": GROW + "{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
    "doubling by set": GROW + "{% set b %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = b %}{% endfor %}",
    "doubling by nesting": GROW + "{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.y }}",
    "doubling by views": GROW + "{% set ns.z = {'a': ns.z.items(), 'b': ns.z.items()} %}{% endfor %}{{ ns.z }}",
    "doubling by varargs": "{% macro f(n) %}{% if n %}{{ f(n - 1, varargs, varargs) }}{% else %}{{ varargs }}"
    "{% endif %}{% endmacro %}{{ f(60, 1, 1) }}",
    "doubling by calls": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "endless recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "a block in itself": "{% block a %}{{ self.a() }}{{ self.a() }}{% endblock %}",
    "kept copies": "{% set ns = namespace(l=[]) %}{% set b = 'a' * 40000 %}{% for i in range(99999) %}"
    "{% set ns.l = ns.l + [b[1:]] %}{% endfor %}",
    "kept output": "{% set b = 'a' * 4000000 %}{% set y %}" + "{{ b|upper }}" * 2000 + "{% endset %}",
    "center": "{{ 'a'.center(10**9) }}",
    "center filter": "{{ 'a'|center(10**9) }}",
    "zfill": "{{ 'a'.zfill(10**9) }}",
    "to_bytes": "{{ (1).to_bytes(10**9, 'big') }}",
    "percent width": "{{ '%1000000000d' % 1 }}",
    "percent star": "{{ '%*d' % (10**9, 1) }}",
    "percent repeated": "{{ ('%(a)s' * 9000) % {'a': 'a' * 1000000} }}",
    "format width": "{{ '{:1000000000}'.format(1) }}",
    "format inner width": "{{ '{:{}}'.format('a', 10**9) }}",
    "format repeated": "{{ ('{0}' * 9000).format('a' * 1000000) }}",
    "indent": "{{ 'a\nb'|indent(10**9, true) }}",
    "json indent": "{{ [[1]]|tojson(indent=10**9) }}",
    "json separators": "{{ range(9999)|list|tojson(separators=('a' * 1000000, ':')) }}",
    "join": "{{ range(99999)|join('a' * 99999) }}",
    "str.join": "{{ ('a' * 99999).join([''] * 99999) }}",
    "replace": "{{ ('a' * 99999)|replace('a', 'b' * 99999) }}",
    "str.replace": "{{ ('a' * 99999).replace('', 'b' * 99999) }}",
    "constant": "{{ 'a\nb'|indent(10**9) }}",
    "constant of autoescape": "{% autoescape 'a'|indent(10**9) %}{% endautoescape %}",
    "deep source": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "nested loops in source": "{% for i in [1] %}" * 30 + "{% endfor %}" * 30,
    "python": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "list changed": "{{ [].append(1) }}",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_templates_end(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In bounded time and memory, as an error. With the limits of the program this takes up to five seconds each."""
    monkeypatch.setattr(sandbox, "MAX_SECONDS", 0.3)
    monkeypatch.setattr(sandbox, "MAX_BYTES", 64 << 20)
    began = time.thread_time()
    with pytest.raises(KvchatError) as caught:
        load(HOSTILE[kind] + PRINT)
    assert caught.value.hint
    assert time.thread_time() - began < 5  # CPU time, and a bound far from what it takes


@pytest.mark.parametrize("pads", ["{{ ('%(a)4096d' * 8192) % {'a': 1} }}", "{{ ('%(a)4096d' * 8192)|format(a=1) }}"])
def test_padding_that_adds_up_is_refused_before_it_is_made(pads: str) -> None:
    """Each is as wide as is allowed; together they would be 32 MiB."""
    tracemalloc.start()
    try:
        with pytest.raises(KvchatError, match="takes too much"):
            load(pads + PRINT)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_what_is_turned_hostile_by_a_message_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    template = load("{% for m in messages %}{{ m.content * (m.content|length) ** 2 }}{% endfor %}")
    with pytest.raises(KvchatError, match="takes too much"):
        template.render((Turn("user", "a" * 1000),), CLOCK)


def test_text_of_namespaces_and_lists_that_hold_themselves_ends() -> None:
    source = "{% set ns = namespace() %}{% set ns.a = ns %}{% set ns.b = [ns] %}{{ ns }}{{ ns.b }}" + PRINT
    assert load(source).render(TALK[1:2], CLOCK) == "<Namespace>[<Namespace>]user:Hi?;"
