"""Chat templates are rendered as transformers renders them: whole templates with many conversations, and single expressions.

The templates here are written for the tests. Those that are published are compared, too, where they are: in the package of transformers,
in the package trl if it is installed, and in the folders of LLAMATH_CHAT_TEMPLATES.
"""

from __future__ import annotations

import ast
import os
from datetime import datetime
from functools import cache
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from llamath.tokenizers.chat_prompt import encode_chat
from llamath.tokenizers.jinja import JinjaTemplate
from llamath.tokenizers.model_template import ModelTemplate
from llamath.utils.errors import LlamathError
from support.chat_templates import TEMPLATES
from support.control_vocabulary import vocabulary
from support.conversations import ARGUMENTS, CONVERSATIONS, TOKENS, TOOLS
from support.each_case import each

pytestmark = pytest.mark.transformers
NOW = datetime(2026, 7, 26, 13, 5)


class FrozenTime(datetime):
    @classmethod
    def now(cls, tz: object = None) -> datetime:  # type: ignore[override]  # noqa: ARG003
        return NOW


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.utils import chat_template_utils

    monkeypatch.setattr(chat_template_utils, "datetime", FrozenTime)


def theirs(
    template: str,
    messages: list[dict[str, Any]],
    add_generation_prompt: bool,
    arguments: dict[str, Any],
) -> str | None:
    """What `apply_chat_template` returns; None if it raises."""
    from transformers.utils.chat_template_utils import render_jinja_template

    present = [{key: x for key, x in message.items() if x is not None} for message in messages]
    given: dict[str, Any] = {"tools": None, "documents": None} | TOKENS | arguments
    try:
        texts, _ = render_jinja_template(
            [present], chat_template=template, add_generation_prompt=add_generation_prompt, **given
        )
    except Exception:
        return None
    return str(texts[0])


def ours(
    template: JinjaTemplate,
    messages: list[dict[str, Any]],
    add_generation_prompt: bool,
    arguments: dict[str, Any],
) -> str | None:
    try:
        return template.render(
            messages, add_generation_prompt=add_generation_prompt, arguments=arguments, now=NOW
        )
    except LlamathError:
        return None


@cache
def published_templates() -> dict[str, str]:
    """The published templates on this machine."""
    import transformers

    found = {}
    for path in sorted(Path(transformers.__file__).parent.glob("models/*/*.py")):
        text = path.read_text()
        if "{%" in text and "endfor" in text:
            constants = [
                x.value
                for x in ast.walk(ast.parse(text))
                if isinstance(x, ast.Constant) and isinstance(x.value, str)
            ]
            found |= {
                f"{path.stem}-{i}": x
                for i, x in enumerate(constants)
                if "{%" in x and "messages" in x and "endfor" in x
            }
    folders = [x for x in os.environ.get("LLAMATH_CHAT_TEMPLATES", "").split(os.pathsep) if x]
    trl = find_spec("trl")
    folders += [str(Path(trl.origin).parent / "chat_templates")] if trl and trl.origin else []
    return found | {
        path.stem: path.read_text()
        for folder in folders
        for path in sorted(Path(folder).rglob("*.jinja"))
    }


def check_template(text: str, name: str) -> int:
    """Compare every rendering of a template; return how many there were."""
    template, rendered = JinjaTemplate(text, name, TOKENS), 0
    for (case, messages), prompted, tools, arguments in product(
        CONVERSATIONS.items(), (False, True), (None, TOOLS), ARGUMENTS
    ):
        given = arguments | {"tools": tools}
        expected = theirs(text, messages, prompted, given)
        assert ours(template, messages, prompted, given) == expected, (name, case, prompted, given)
        rendered += expected is not None
    return rendered


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.usefixtures("frozen")
def test_templates_equal_those_of_transformers(name: str) -> None:
    assert check_template(TEMPLATES[name], name) > 40


@pytest.mark.usefixtures("frozen")
def test_published_templates_equal_those_of_transformers() -> None:
    templates = published_templates()
    rendered = {name: check_template(text, name) for name, text in templates.items()}
    assert len([name for name, count in rendered.items() if count]) >= 2


@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize("name", TEMPLATES)
def test_ids_equal_those_of_transformers(name: str) -> None:
    from transformers import PreTrainedTokenizerFast

    tokenizer = vocabulary(special=True)
    reference = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.engine, chat_template=TEMPLATES[name], **TOKENS
    )
    form = ModelTemplate(
        {"default": TEMPLATES[name]},
        name,
        TOKENS,
        arguments={"tools": TOOLS, "date_string": "1 Jan 2025"},
    )
    compared = 0
    for case, messages in CONVERSATIONS.items():
        try:
            ids = encode_chat(form, tokenizer, messages)
        except LlamathError:
            continue
        expected = reference.apply_chat_template(
            messages,
            tools=TOOLS,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=False,
            date_string="1 Jan 2025",
        )
        assert ids == expected or case in ("hostile text", "thinking"), (
            case
        )  # their control tokens stay text
        compared += 1
    assert compared > 5


EXPRESSIONS = """
1 + 2 * 3 - 4 / 2 // 1 % 5 ** 2 | -7 // 2 | -7 % 3 | 2 ** -1 | 1e3 | 0.1 + 0.2 | 10 / 4 | 7 // 2.0 | +5 | not 0 | true + 1 | 1 == 1.0 == true
'a' ~ 1 ~ none ~ true ~ [1, 'x'] ~ {'k': 'v'} ~ (1,) ~ 1.0 ~ undefined_name | 'a' 'b' | 'it\\'s' | "tab\\there" | 'ab' * 3 | 3 * 'ab' | 'a' + 1
[1, 2] + [3] | [1] * 3 | (1, 2)[1] | (1, 2) + (3,) | {'a': 1}['a'] | {'a': 1}.a | {'a': 1}.b | {'items': 1}.items is callable | {'items': 1}['items'] | range(5)[1:3] | bos_token['x':] | 'abc'[::0] | {'a': none}.a
{'a': {'b': [1, {'c': 2}]}}.a.b[1].c | 'abc'[1] | 'abc'[-1] | 'abc'[5] | 'abc'[1:] | 'abc'[::-1] | 'abc'[:-1] | [1, 2, 3][1:2] | [1][5] | tools[1:] | foo[1:] | foo.bar
1 < 2 < 3 | 3 > 2 >= 2 | 1 in [1] | 'a' in 'abc' | 'k' in {'k': 1} | 1 not in [2] | 'a' in undefined_name | undefined_name in [1] | none in [none] | 1 in 'a'
1 if true | 1 if false | 1 if false else 2 | (1 if false) is defined | none or 'x' | '' or 0 or [] | 1 and 2 | not none | undefined_name or 'd'
foo is defined | foo is undefined | 1 is number | true is number | true is integer | 1.0 is float | 1 is integer | 'a' is string | [1] is sequence | 'a' is sequence
{} is mapping | [] is iterable | 1 is iterable | none is none | 'a' is none | 4 is even | 3 is odd | 4 is divisibleby(2) | 4 is divisibleby 3 | 'A' is upper | 'a' is lower
true is true | 1 is true | false is false | true is boolean | 1 is boolean | 1 is eq 1 | 1 is ne 2 | 1 is lt 2 | 2 is ge 2 | 1 is in [1] | foo is iterable | foo is sequence
foo is callable | range is callable | 'a' is callable | none is sameas none | 1 is not none | {}.items() is sequence | {}.items() is iterable | ([1] | map('string')) is sequence
' x ' | trim | lower ## 'aBc' | capitalize ## 'hello big-world (x)' | title ## 'abc' | upper | replace('B', 'x') ## 'a-b-c' | replace('-', '+', 1) ## 'abc' | reverse ## [1, 2] | reverse | list
[3, 1, 2] | sort ## ['b', 'A', 'c'] | sort ## ['b', 'A'] | sort(case_sensitive=true) ## [3, 1] | sort(reverse=true) ## [{'a': 2}, {'a': 1}] | sort(attribute='a') | map(attribute='a') | list
[1, 1, 2] | unique | list ## ['a', 'A'] | unique | list ## [1, 2, 3] | sum ## [{'n': 1}, {'n': 2}] | sum(attribute='n') ## [1, 2, 3] | min ## [1, 2, 3] | max ## [] | min ## ['b', 'C'] | max
[1, 2, 3] | first ## [1, 2, 3] | last ## [] | first ## '' | first ## 'abc' | first ## 'abc' | last ## 'abc' | length ## [] | length ## {'a': 1} | length ## foo | length ## none | length ## 5 | length
[1, 2, 3, 4, 5] | batch(2) | list ## [1, 2, 3] | batch(2, 'x') | list ## [1, 2, 3, 4, 5] | slice(2) | list ## [1, 2, 3] | slice(2, 'x') | list ## 'abc' | list ## {'b': 1, 'a': 2} | list
{'b': 1, 'a': 2} | dictsort ## {'b': 1, 'a': 2} | dictsort(by='value') ## {'b': 1, 'A': 2} | dictsort ## {'a': 1} | items | list ## foo | items | list ## none | items | list
['a', 1, none] | join('-') ## 'abc' | join(',') ## [{'a': 1}, {'a': 2}] | join(',', attribute='a') ## [] | join ## foo | join(',') ## none | join(',')
[1, 'a', none, 2.5] | select('number') | list ## [0, 1, 2] | select | list ## [0, 1] | reject | list ## ['a', 'b'] | reject('equalto', 'a') | list ## none | select | list ## foo | map('upper') | list
[{'a': 1}, {'a': 0}, {}] | selectattr('a') | list ## [{'a': 1}, {}] | selectattr('a', 'defined') | list ## [{'a': 1}, {'a': 2}] | rejectattr('a', 'eq', 1) | list ## [{'a': {'b': 1}}] | map(attribute='a.b') | list
['a', 'b'] | map('upper') | join ## [[1, 2]] | map('first') | list ## [{'a': 1}, {}] | map(attribute='a', default=9) | list ## ['x'] | map('replace', 'x', 'y') | list ## ([] | map('upper')) and 'true'
'5' | int ## 'x' | int ## 'x' | int(7) ## '1.9' | int ## 3.7 | int ## '0x1f' | int(base=16) ## none | int ## '1.5' | float ## 'x' | float ## 2.567 | round ## 2.567 | round(1) ## 2.1 | round(method='ceil') ## 2.19 | round(1, 'floor') ## -3 | abs
foo | default('d') ## none | default('d') ## '' | default('d', true) ## 0 | d('z') ## foo | default ## 'a b c' | wordcount ## [] | wordcount ## 5 | indent ## foo | dictsort ## messages[0][1:] ## 'abc' | center(7) ~ '|' ## 1 | string ~ 2 ## 'x' | string | length
'%s-%d-%5.2f-%%' | format('a', 3, 2.5) ## '%(a)s' | format(a=1) ## '%s' % 'x' ## '%s %s' % ('x', 1) ## '%s %s' % 'x' ## '%r' % 'x' ## '%05d' % 42 ## '%x' % 255 ## '%s' % none ## '%d' % 'x' ## '%s' % [1] ## '%c' % 65
'{} {}'.format('a', 1) ## '{0}{1}{0}'.format(1, 2) ## '{a}'.format(a='x') ## '{{}}'.format() ## '{:>4}|{:.2f}'.format('a', 1.0) ## '{!r}'.format('a') ## '{}'.format() ## '{:d}'.format(5)
'a\\nb\\n\\nc' | indent ## 'a\\nb' | indent(2, true) ## 'a\\n\\nb' | indent(2, blank=true) ## 'a\\nb' | indent('>') ## 'a\\n' | indent ## '' | indent ## 'a\\r\\nb' | indent(1)
'a,b,,c'.split(',') ## ' a  b '.split() ## 'a,b,c'.split(',', 1) ## 'a,b,c'.rsplit(',', 1) ## ' a b c '.split(none, 1) ## ' a b c '.rsplit(none, 1) ## 'a\\nb\\r\\nc\\n'.splitlines() ## 'a\\nb'.splitlines(true) ## 'abc'.split('')
'a=b=c'.partition('=') ## 'a=b=c'.rpartition('=') ## 'abc'.partition('x') ## 'xxabxx'.strip('x') ## 'xxab'.lstrip('x') ## 'abxx'.rstrip('x') ## '  '.strip() ## ''.strip() ## 'abc'.removeprefix('a') ## 'abc'.removesuffix('c') ## 'abc'.removesuffix('')
'abc'.startswith('a') ## 'abc'.startswith(('x', 'a')) ## 'abc'.endswith('bc') ## 'abc'.find('c') ## 'abc'.index('z') ## 'abca'.count('a') ## 'a b'.title() ## 'aBc'.swapcase() ## 'ß'.upper() ## 'İ'.lower() ## 'abc'.isalpha() ## '5'.isdigit()
'abc'.replace('b', 'xx') ## 'aaa'.replace('a', 'b', 2) ## 'abc'.replace('', '-') ## 'abc'.zfill(5) ## 'a'.ljust(3) ~ '|' ## 'a'.rjust(3, '*') ## 'a'.center(4, '-') ## 'a\\tb'.expandtabs(4) ## '-'.join(['a', 'b']) ## '-'.join([1]) ## '-'.join('abc')
{'a': 1}.get('a') ## {'a': 1}.get('b') ## {'a': 1}.get('b', 2) ## {'a': 1}.keys() | list ## {'a': 1}.values() | list ## {'a': 1}.items() | list ## {'a': 1}.items() ## {'a': 1}.items() | length ## {'a': 1}.copy() ## [1, 2].index(2) ## [1, 1].count(1) ## (1, 2).count(1)
range(3) | list ## range(1, 7, 2) | list ## range(3) ## range(3)[1] ## range(5) | length ## dict(a=1) ## dict({'a': 1}, b=2) ## dict([('a', 1)]) ## namespace(a=1).a ## namespace(a=1).b is defined ## joiner(',')() ## cycler(1, 2).next() ## strftime_now('%Y-%m-%d %H:%M')
{'a': [1, 2.5, none, true, 'é"<&>\\n']} | tojson ## [1, {'a': 2}] | tojson(indent=2) ## 'é' | tojson(ensure_ascii=true) ## {'b': 1, 'a': 2} | tojson(sort_keys=true) ## [1, 2] | tojson(separators=(',', ':')) ## foo | tojson ## (1, 2) | tojson ## {1: 2} | tojson ## [] | tojson ## 1.0 | tojson
[1, [2, [3]]] == [1, [2, [3]]] ## {'a': 1} == {'a': 1.0} ## foo == bar ## foo == none ## foo == '' ## 'a' < 'b' ## [1, 2] < [1, 3] ## 'a' == 1 ## none == false ## (1, 2) == [1, 2]
('<b>' | safe) + '<i>' ## '<i>' + ('<b>' | safe) ## ('<b>' | safe) ~ '<i>' ## ['<b>' | safe, '<'] | join ## ('<b>' | safe) | length ## ('a' | safe) + ('b' | safe) + '"\\'&' ## '<b>' | safe
messages ## messages[0] ## messages[0].role ~ messages[-1]['content'] ## messages | length ## messages | map(attribute='role') | join(',') ## bos_token + eos_token ## tools ## tools is none ## documents is defined ## add_generation_prompt ## mask_token is defined ## loop
"""


def expressions() -> list[str]:
    """The expressions of the table, one by one; ` ## ` separates those that contain filters."""
    lines = EXPRESSIONS.strip().splitlines()
    return [x.strip() for line in lines for x in line.split(" ## " if " ## " in line else " | ")]


@pytest.mark.usefixtures("frozen")
@each("expression", expressions())
def test_expression_equals_that_of_transformers(expression: str) -> None:
    text = "[{{ " + expression + " }}]"
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "<y>"}]
    assert ours(JinjaTemplate(text, "test", TOKENS), messages, True, {}) == theirs(
        text, messages, True, {}
    )


SPACES = [
    "{% for role, items in (messages + messages) | groupby('role') %}{{ role }}{{ items | length }}{% endfor %}{{ messages | groupby('role') }}",
    "{% for g in [{'a': 'X'}, {'a': 'x'}, {}] | groupby('a', default='z') %}{{ g.grouper }}{{ g.list | length }}{{ g[0] }}{% endfor %}",
    "{% for x in [1, 2] %}\n  a\n  {% endfor %}\nb",
    "  {%- if true %}  \n x {% endif -%}  \n y",
    "{% if true +%}\n x{% endif %}",
    "  {%+ if true %}x{% endif %}\n\n",
    "a {{- 1 -}} b {{ 2 }}\n",
    "{#- c -#}  x {# d #}\n y",
    "{% raw -%}  {{ x }} {%- endraw %}",
    "a\n{%- set x = 1 -%}\nb{{ x }}\n\n",
    "a\r\n{% if true %}\r\nb{% endif %}\r\n",
    "{{ '{{' }}{% set x %}\n a \n{% endset %}[{{ x }}]",
    "{% macro f(a, b='x') %} {{ a }}{{ b }} {% endmacro %}{{ f(1) }}{{ f(1, b=2) }}{{ f() }}{{ f.name }}",
    "{% macro f() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ f() }}{% set x = 2 %}{{ f() }}{% for x in [3] %}{{ f() }}{% endfor %}",
    "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}",
    "{% for i in [1] %}{% if true %}{% set y = 5 %}{% endif %}{{ y }}{% endfor %}{{ y is defined }}",
    "{% for a, b in {'x': 1}.items() %}{{ a }}{{ b }}{% endfor %}{% for a, b in [1] %}{% endfor %}",
    "{% for i in [1, 2, 3] if i != 2 %}{{ i }}{{ loop.index }}/{{ loop.length }}{% endfor %}{% for i in [] %}{% else %}none{% endfor %}",
    "{% for i in foo %}{% else %}none{% endfor %}{% for c in 'ab' %}{{ c }}{% endfor %}{% for k in {'a': 1} %}{{ k }}{% endfor %}",
    "{% set x = [1, 2] | map('string') %}{{ x | join }}{{ x | join }}",
    "{% if [] | map('upper') %}yes{% endif %}{% if {}.items() %}yes{% else %}no{% endif %}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(b=2) }}",
    "{% set ns = namespace({'a': 1}, b=2) %}{% set ns.a = ns.a + ns.b %}{{ ns.a }}{% set x.y = 1 %}",
    "{% include 'x' %}",
    "{% foo %}",
    "{{ raise_exception('no') }}",
]


@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize("text", SPACES)
def test_statement_equals_that_of_transformers(text: str) -> None:
    messages = [{"role": "user", "content": "x"}]
    assert ours(JinjaTemplate(text, "test", TOKENS), messages, True, {}) == theirs(
        text, messages, True, {}
    )
