"""The known ways out of Jinja and of its sandbox, as chat templates in model files would try them: none reaches Python.

CVE-2024-34359 and CVE-2026-5760 rendered templates of model files without a sandbox; CVE-2016-10745, CVE-2019-10906,
CVE-2024-56326 and CVE-2025-27516 left the sandbox by way of `str.format`, CVE-2024-56201 by way of the compiler,
CVE-2024-22195 and CVE-2024-34064 are about `xmlattr`.
"""

from __future__ import annotations

import builtins
import os
import subprocess
from pathlib import Path

import pytest

from kvchat.engine.sandbox import TEMPLATE_ERRORS, MeteredEnvironment, fail
from kvchat.engine.template import ChatTemplate, Turn
from kvchat.errors import KvchatError

TALK = (Turn("user", "Hi?"),)
SECRET = "sesame-48151623"
# What only Python's inside says of itself; the last one would be the environment of the process.
INSIDE = ("<class", "<module", "<function", "<built-in", "built-in function", "__builtins__", "posix", SECRET)

ESCAPES = {
    # no sandbox
    "lipsum": "{{ lipsum.__globals__['os'].popen('touch CANARY').read() }}",
    "lipsum by filter": "{{ (lipsum|attr('__globals__'))['os'].popen('touch CANARY').read() }}",
    "cycler": "{{ cycler.__init__.__globals__.os.popen('touch CANARY').read() }}",
    "joiner": "{{ joiner.__init__.__globals__.os.popen('touch CANARY').read() }}",
    "namespace": "{{ namespace.__init__.__globals__.os.popen('touch CANARY').read() }}",
    "self": "{{ self.__init__.__globals__.__builtins__.__import__('os').popen('touch CANARY').read() }}",
    "self by its names": "{{ self._TemplateReference__context.environment.loader }}",
    "subclasses": "{% for c in ''.__class__.__base__.__subclasses__() %}{{ c }}{% endfor %}",
    "subclasses of a list": "{{ [].__class__.__mro__[-1].__subclasses__() }}",
    "message": "{{ messages[0].__class__.__mro__[-1].__subclasses__() }}",
    "by index": "{{ ''['__class__']['__mro__'][1]['__subclasses__']() }}",
    "by filter": "{{ ''|attr('__class__')|attr('__mro__') }}",
    "by spelling": "{{ ''|attr('\\x5f\\x5fclass\\x5f\\x5f')|attr('\\x5f\\x5fmro\\x5f\\x5f') }}",
    "by joining": "{{ ''|attr(['_', '_cla', 'ss_', '_']|join) }}",
    "by map": "{{ ['']|map(attribute='__class__')|list }}",
    "by groupby": "{{ ['']|groupby('__class__') }}",
    "by sort": "{{ ['', '']|sort(attribute='__class__') }}",
    "by selectattr": "{{ ['']|selectattr('__class__')|list }}",
    "raise_exception": "{{ raise_exception.__globals__ }}",
    "strftime_now": "{{ strftime_now.__globals__ }}",
    "tojson": "{{ messages|tojson.__globals__ }}",
    "range": "{{ range.__self__ }}",
    "dict": "{{ dict.mro() }}",
    "generator": "{{ (messages|map(attribute='role')).gi_frame.f_globals }}",
    "generator by filter": "{{ (messages|map('upper'))|attr('gi_frame') }}",
    "macro": "{% macro m() %}{{ caller.__globals__ }}{% endmacro %}{% call m() %}{% endcall %}",
    "macro's function": "{% macro m() %}{% endmacro %}{{ m._func.__globals__ }}",
    "loop": "{% for m in messages %}{{ loop.__init__.__globals__ }}{% endfor %}",
    "loop's context": "{% for m in messages %}{{ loop._undefined.__init__.__globals__ }}{% endfor %}",
    "undefined": "{{ nothing.__init__.__globals__ }}",
    "undefined by its names": "{{ nothing._undefined_exception.__mro__ }}",
    "exceptions": "{{ raise_exception.__class__.__call__ }}",
    "imports": "{% import 'os' as os %}{{ os.popen('touch CANARY') }}",
    "includes": "{% include '/etc/passwd' %}",
    "extends": "{% extends '/etc/passwd' %}",
    # str.format
    "format": "{{ '{0.__class__.__mro__}'.format('') }}",
    "format by index": "{{ '{0[__class__]}'.format(messages[0]) }}",
    "format of a function": "{{ '{0.__globals__}'.format(raise_exception) }}",
    "format_map": "{{ '{a.__class__.__mro__}'.format_map({'a': 42}) }}",
    "format later": "{% set f = '{0.__class__.__mro__}'.format %}{{ f('') }}",
    "format by a filter": "{{ ['']|map('{0.__class__}'.format)|list }}",
    "format by attr": "{% set f = '{0.__class__.__mro__}'|attr('format') %}{{ f('') }}",
    "format_map by attr": "{% set f = '{a.__class__.__mro__}'|attr('format_map') %}{{ f({'a': 42}) }}",
    "format called by map": "{% set f = ['{0.__class__.__mro__}']|map(attribute='format')|first %}{{ f('') }}",
    "format in a macro": "{% macro m(f) %}{{ f('') }}{% endmacro %}{{ m('{0.__class__.__mro__}'.format) }}",
    "format in a namespace": "{% set n = namespace(f='{0.__class__}'.format) %}{{ n.f('') }}",
    "format in a dict": "{{ {'f': '{0.__class__}'.format}['f']('') }}",
    "format of a safe text": "{{ ('{0.__class__.__mro__}'|safe).format('') }}",
    "format of a safe text by attr": "{{ (('{0.__class__.__mro__}'|safe)|attr('format'))('') }}",
    "the filter": "{{ '%(a)s'|format(a=''.__class__) }}",
    "percent": "{{ '%(__class__)s' % messages[0] }}",
    # the compiler
    "name in braces": '{% set x = \'{__import__("os").system("touch CANARY")}\' %}{{ x.nothing.more }}',
    "filter in braces": '{{ 1|attr(\'{__import__("os").system("touch CANARY")}\') }}',
    "block name": "{% block x %}{% endblock %}{{ self.x.__init__.__globals__ }}",
    # filters
    "xmlattr": "{{ {'a b><script': 'x'}|xmlattr }}",
}


def output_of(source: str) -> str:
    """What it renders; "" when it is refused."""
    environment = MeteredEnvironment()
    environment.start(1)
    try:
        template = environment.from_string(source)
        return template.render(
            messages=[{"role": "user", "content": "Hi?"}], raise_exception=fail, strftime_now=lambda f: "today"
        )
    except TEMPLATE_ERRORS:
        return ""


@pytest.fixture(autouse=True)
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a canary would be, and something that only the process knows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SESAME", SECRET)
    for module, name in ((os, "system"), (os, "popen"), (subprocess, "Popen"), (builtins, "eval")):
        monkeypatch.setattr(module, name, refuse)
    return tmp_path


def refuse(*_: object, **__: object) -> None:
    raise AssertionError("a template got out")


@pytest.mark.parametrize("kind", ESCAPES)
def test_none_gets_out(kind: str, watched: Path) -> None:
    output = output_of(ESCAPES[kind])
    assert not any(word in output for word in INSIDE), output
    assert list(watched.iterdir()) == []


@pytest.mark.parametrize("kind", ESCAPES)
def test_none_gets_out_of_a_model_either(kind: str, watched: Path) -> None:
    """As the program loads and renders it: refused with words, or harmless."""
    source = ESCAPES[kind] + "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}"
    try:
        output = ChatTemplate(source, bos="<s>", eos="</s>").render(TALK, 0.0)
    except KvchatError as error:
        assert error.message
        return
    assert not any(word in output for word in INSIDE), output
    assert list(watched.iterdir()) == []
