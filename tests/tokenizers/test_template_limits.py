"""Hostile templates end with an error, after a number of operations that does not depend on what they ask for."""

from __future__ import annotations

import tracemalloc

import pytest

from llamath.tokenizers.jinja import JinjaTemplate, Limits
from llamath.tokenizers.jinja.template_values import Budget
from llamath.utils.errors import LlamathError

MESSAGES = [{"role": "user", "content": "hi"}]
LISTS = "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}"
TUPLES = (
    LISTS.replace("[ns.x, ns.x]", "(ns.x, ns.x)")
    .replace("[ns.y, ns.y]", "(ns.y, ns.y)")
    .replace("x=[1]", "x=(1,)")
)

TOO_MUCH = {
    "endless loops": "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "a repeated text": "{{ 'a' * 10**10 }}",
    "a repeated list": "{{ ([1] * 10**9) | length }}",
    "a repeated message": "{{ messages[0].content * 10**10 }}",
    "a text that doubles": "{% set ns = namespace(x='aaaa') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
    "a list that doubles": "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "output in output": "{% macro g(x) %}{% for i in range(1000) %}{{ x }}{% endfor %}{% endmacro %}{{ g(g(g(g('aaaa')))) }}",
    "a long replacement": "{% set x = 'a' * 10000 %}{{ x.replace('a', 'b' * 10000) }}",
    "a replacement of nothing": "{{ ('a' * 10000) | replace('', 'b' * 10000) }}",
    "a long separator": "{{ ('a' * 10000).join(range(10000) | map('string')) }}",
    "a nested list as JSON": LISTS + "{{ ns.x | tojson }}",
    "a nested list as text": LISTS + "{{ ns.x }}",
    "a nested list formatted": LISTS + "{{ '%s' % [ns.x] }}",
    "nested lists compared": LISTS + "{{ ns.x == ns.y }}",
    "nested lists ordered": LISTS + "{{ ns.x < ns.y }}",
    "nested lists sorted": LISTS + "{{ [ns.x, ns.y] | sort }}",
    "the largest nested list": LISTS + "{{ [ns.x, ns.y] | max }}",
    "nested lists in groups": LISTS + "{{ [{'a': ns.x}, {'a': ns.y}] | groupby('a') }}",
    "a nested list searched": LISTS + "{{ ns.x in [ns.y] }}",
    "nested lists counted": LISTS + "{{ [ns.x].count(ns.y) }}",
    "nested lists that change": LISTS + "{% for i in [1, 2] %}{{ loop.changed(ns.x) }}{% endfor %}",
    "a nested key": TUPLES + "{{ {ns.x: 1} }}",
    "a nested key looked up": TUPLES + "{{ {}.get(ns.x) }}",
    "a nested key of an item": TUPLES + "{{ {}[ns.x] }}",
    "a nested key of dict": TUPLES + "{{ dict([(ns.x, 1)]) }}",
    "nested keys that are unique": TUPLES + "{{ [ns.x] | unique | list }}",
    "every character": "{% for x in 'a' * 1000000 %}{% endfor %}",
    "an indentation of many lines": "{{ ('a\n' * 10000) | indent(1000) }}",
    "many tabs": "{{ ('\t' * 10000).expandtabs(1000) | length }}",
}  # fmt: skip


@pytest.mark.parametrize("name", TOO_MUCH)
@pytest.mark.slow
def test_operations_are_limited(name: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(
            LlamathError,
            match=r"line 1: expected at most .* operations, found more|line 2: expected at most",
        ):
            JinjaTemplate(TOO_MUCH[name], "model", limits=Limits(operations=50_000)).render(
                MESSAGES
            )
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()


REFUSED = {
    "a power": ("{{ 7 ** (10 ** 10) }}", "an exponent of at most"),
    "a power of a power": ("{{ (2 ** 1000) ** 4000 }}", "integers of at most 1,024 bits"),
    "a product": ("{% set ns = namespace(x=3) %}{% for i in range(99) %}{% set ns.x = ns.x * ns.x %}{% endfor %}", "integers of at most"),
    "a range": ("{{ range(10**9) | list }}", "a range of at most 100,000 numbers"),
    "an endless range": ("{{ range(10**300) | list }}", "model: chat template: line 1:"),
    "a macro without an end": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "calls at most 48 deep|nested too deeply"),
    "a loop without an end": ("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "calls at most 48 deep|nested too deeply"),
    "a nested list written": (
        "{% set ns = namespace(x=[1]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}", "nested too deeply",
    ),
    "a nested list as JSON": (
        "{% set ns = namespace(x=[1]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson }}", "nested too deeply",
    ),
    "parentheses": ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "nested too deeply"),
    "a long sum": ("{{ 1" + " + 1" * 5000 + " }}", "nested too deeply"),
    "nested branches": ("{% if 1 %}" * 3000 + "{% endif %}" * 3000, "nested too deeply"),
    "a long template": ("x" * ((1 << 18) + 1), "expected at most 262,144 characters"),
    "a width": ("{{ 'a' | center(10**9) }}", "a width of at most 1,000"),
    "a width of a method": ("{{ 'a'.ljust(10**9) }}", "a width of at most 1,000"),
    "a width of zeros": ("{{ 'a'.zfill(10**9) }}", "a width of at most 1,000"),
    "a width of a percent": ("{{ '%1000000000d' % 1 }}", "a field width of at most 3 digits"),
    "a width as an argument": ("{{ '%*d' % (1000000000, 1) }}", "a field width of at most 3 digits"),
    "a width in braces": ("{{ '{:>1000000000}'.format(1) }}", "is not supported"),
    "a width in JSON": ("{{ [1] | tojson(indent=10**9) }}", "a width of at most 1,000"),
    "a batch": ("{{ [1] | batch(10**9, 0) | list }}", "a width of at most 1,000"),
    "slices": ("{{ [1] | slice(10**9) | list }}", "a width of at most 1,000"),
    "digits": ("{{ 1.5 | round(10**9, 'ceil') }}", "a width of at most 1,000"),
    "a date": ("{{ strftime_now('%1000000000Y') }}", "a format of directives"),
    "a class": ("{{ ''.__class__.__mro__ }}", "access to the attribute '__class__' is not allowed"),
    "a class as an item": ("{{ ''['__class__'] }}", "access to the attribute '__class__' is not allowed"),
    "a class by a filter": ("{{ '' | attr('__class__') }}", "access to the attribute '__class__' is not allowed"),
    "a class of a list": ("{{ messages | map(attribute='__class__') | list }}", "access to the attribute '__class__' is not allowed"),
    "a class in braces": ("{{ '{0.__class__}'.format(1) }}", "of format.…. is not supported"),
    "the globals of a function": ("{{ raise_exception.__globals__ }}", "access to the attribute '__globals__' is not allowed"),
    "the code of a function": ("{{ raise_exception[1] }}{{ raise_exception.call.x }}", "it is undefined"),
    "an attribute of a namespace": ("{% set ns = namespace() %}{% set ns.__class__ = 1 %}", "access to the attribute '__class__' is not allowed"),
    "a message removed": ("{{ messages.pop() }}", "would change a list"),
    "a message changed": ("{{ messages[0].update({'a': 1}) }}", "would change a dict"),
    "another file": ("{% include '/etc/passwd' %}", "the statement Include is not supported"),
    "a module": ("{% import 'os' as os %}", "the statement Import is not supported"),
    "a base": ("{% extends 'x' %}", "the statement Extends is not supported"),
    "an unknown statement": ("{% foo %}", "unknown tag 'foo'"),
    "an unknown filter": ("{{ 1 | foo }}", "no filter 'foo'"),
    "an unknown test": ("{{ 1 is foo }}", "no test 'foo'"),
    "a filter for HTML": ("{{ '<' | escape }}", "the filter 'escape' is not supported"),
    "an unfinished expression": ("{{ 1", "line 1: unexpected end of template"),
    "a division by zero": ("{{ 1 / 0 }}", "division by zero"),
    "a comparison": ("{{ 1 < 'a' }}", "not supported between"),
    "an error of its own": ("{{ raise_exception('no <b>system</b> role') }}", "the template refuses the conversation: no <b>system</b> role"),
    "something undefined": ("{{ foo.bar }}", "'foo' is undefined"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.slow
def test_hostile_template_is_refused(name: str) -> None:
    template, message = REFUSED[name]
    with pytest.raises(LlamathError, match=message) as error:
        JinjaTemplate(template, "model").render(MESSAGES)
    assert str(error.value).startswith("model: chat template: ")
    assert "--chat-template NAME" in error.value.hint


def test_budget_grows_with_the_messages() -> None:
    template = JinjaTemplate(
        "{% for x in messages[0].content %}{{ x }}{% endfor %}",
        "model",
        limits=Limits(operations=1000, operations_per_character=0),
    )
    long = "a" * 1000
    with pytest.raises(LlamathError, match="operations"):
        template.render([{"role": "user", "content": long}])
    generous = JinjaTemplate(
        template.text, "model", limits=Limits(operations=1000, operations_per_character=20)
    )
    assert generous.render([{"role": "user", "content": long}]) == long


def test_elements_are_charged_as_often_as_they_occur() -> None:
    inner = ["x"] * 9
    budget = Budget(Limits(operations=1000), 0)
    budget.charge_value([inner, inner])
    assert budget.total - budget.left == 3 + 2 * (10 + 9)


@pytest.mark.parametrize(
    "arguments",
    [
        {"messages": []},
        {"add_generation_prompt": True},
        {"a b": 1},
        {"tools": "x"},
        {"documents": [1]},
    ],
)
def test_reserved_arguments_are_refused(arguments: dict[str, object]) -> None:
    from llamath.tokenizers.model_template import ModelTemplate

    with pytest.raises(
        LlamathError, match=r"is no argument of a chat template|expected a list of JSON objects"
    ):
        ModelTemplate({"default": "x"}, "model", arguments=arguments)


def test_deeply_nested_messages_are_refused() -> None:
    nested: object = "x"
    for _ in range(100):
        nested = [nested]
    with pytest.raises(LlamathError, match="at most 64 levels deep"):
        JinjaTemplate("{{ messages }}", "model").render([{"role": "user", "content": nested}])
