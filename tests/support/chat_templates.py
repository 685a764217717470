"""Chat templates written for the tests, with the constructs of published ones: each is named after what it does."""

from __future__ import annotations

HEADERS_WITH_DATES = """{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- if messages[0]['content'] is string %}
        {%- set system_text = messages[0]['content'] | trim %}
    {%- else %}
        {%- set system_text = messages[0]['content'][0]['text'] | trim %}
    {%- endif %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_text = "" %}
{%- endif %}
{{- "<|head|>system<|/head|>\\n\\n" }}
{%- if tools is not none %}{{- "Environment: shell\\n" }}{% endif %}
{{- "Today: " + date_string + "\\n\\n" }}
{{- system_text }}
{{- "<|end|>" }}
{%- if tools is not none %}
    {%- if messages | length != 0 %}
        {%- set first = messages[0]['content'] %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("There is no user message for the tools!") }}
    {%- endif %}
    {{- '<|head|>user<|/head|>\\n\\n' -}}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
    {{- first if first is string else first | tojson }}{{ "<|end|>" }}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|head|>' + message['role'] + '<|/head|>\\n\\n' }}
        {%- if message['content'] is string %}
            {{- message['content'] | trim }}
        {%- else %}
            {%- for part in message['content'] %}
                {%- if part['type'] == 'image' %}{{- '<|image|>' }}
                {%- elif part['type'] == 'text' %}{{- part['text'] }}
                {%- endif %}
            {%- endfor %}
        {%- endif %}
        {{- '<|end|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls | length == 1 %}
            {{- raise_exception("One tool call at a time") }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|head|>assistant<|/head|>\\n\\n{"name": "' + call.name + '", "parameters": ' }}
        {{- call.arguments | tojson }}{{- "}<|end|>" }}
    {%- else %}
        {{- "<|head|>ipython<|/head|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}{{- message.content | tojson }}
        {%- else %}{{- message.content }}{%- endif %}
        {{- "<|end|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|head|>assistant<|/head|>\\n\\n' }}{%- endif %}
"""

TURNS_WITH_THINKING = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}{{- "\\n" }}{{- tool | tojson }}{%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0].role == 'system' %}{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}{%- endif %}
{%- endif %}
{%- set ns = namespace(multi_step=true, last_query=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step and message.role == "user" and message.content is string
           and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step = false %}
        {%- set ns.last_query = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}{%- set content = message.content %}{%- else %}{%- set content = '' %}{%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query and (loop.last or (not loop.last and reasoning)) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}{{- '\\n' }}{%- endif %}
                {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
                {{- '<tool_call>\\n{"name": "' }}{{- tool_call.name }}{{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}{{- tool_call.arguments }}{%- else %}{{- tool_call.arguments | tojson }}{%- endif %}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' }}{{- content }}{{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}"""

BRACKETS_THAT_ALTERNATE = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, roles must alternate user/assistant/user/assistant/...") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[TOOLS][" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}{{- '"' + key + '": "' + val + '"' }}
                    {%- else %}{{- '"' + key + '": ' + val|tojson }}{%- endif %}
                    {%- if not loop.last %}{{- ", " }}{%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" }}{%- endif %}
            {%- endfor %}
            {{- "[/TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}{{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}{{- "[INST] " + message["content"] + "[/INST]" }}{%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS][" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function | tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id | length != 9 %}
                {{- raise_exception("Tool call IDs should be alphanumeric strings with length 9!") }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" + eos_token }}{%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}{{- " " + message["content"] | trim + eos_token }}
    {%- elif message["role"] in ("tool", "tool_results") %}
        {%- if message.content is defined and message.content.content is defined %}{%- set content = message.content.content %}
        {%- else %}{%- set content = message.content %}{%- endif %}
        {{- '[TOOL_RESULTS]{"content": ' + content|string + ", " }}
        {{- '"call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}{{- raise_exception("Only user and assistant roles are supported!") }}
    {%- endif %}
{%- endfor %}
"""

TURNS_OF_A_MODEL = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '\n\n' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}{%- set role = "model" -%}{%- else -%}{%- set role = message['role'] -%}{%- endif -%}
    {{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}{{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}{{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>
' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model
'}}
{%- endif -%}
"""

FLAGS_IN_A_NAMESPACE = """{% if not thinking is defined %}{% set thinking = false %}{% endif %}
{%- set ns = namespace(is_first=false, is_tool=false, system='', after_user=false) -%}
{%- for message in messages %}{%- if message['role'] == 'system' %}
{%- set ns.system = ns.system ~ ('\\n\\n' if ns.system else '') ~ message['content'] %}{%- endif %}{%- endfor %}
{{- bos_token }}{{ ns.system }}
{%- for message in messages %}
    {%- if message['role'] == 'user' %}
        {%- set ns.is_tool = false -%}{%- set ns.after_user = true -%}
        {{- '<|User|>' ~ message['content'] }}
    {%- endif %}
    {%- if message['role'] == 'assistant' and message['tool_calls'] is defined and message['tool_calls'] is not none %}
        {%- if ns.after_user %}{{- '<|Assistant|></think>' }}{%- endif %}
        {%- set ns.after_user = false %}{%- set ns.is_first = false %}
        {%- for tool in message['tool_calls'] %}
            {%- set arguments = tool['function']['arguments'] %}
            {%- set arguments = arguments if arguments is string else arguments|tojson %}
            {%- if not ns.is_first %}
                {{- (message['content'] or '') + '<|calls|><|call|>' + tool['function']['name'] + '<|sep|>' + arguments + '<|/call|>' }}
                {%- set ns.is_first = true -%}
            {%- else %}{{- '<|call|>' + tool['function']['name'] + '<|sep|>' + arguments + '<|/call|>' }}{%- endif %}
        {%- endfor %}
        {{- '<|/calls|><|eos|>' }}
    {%- elif message['role'] == 'assistant' %}
        {%- if ns.after_user %}
            {{- '<|Assistant|>' }}
            {%- if message['prefix'] is defined and message['prefix'] and thinking %}{{ '<think>' }}{% else %}{{ '</think>' }}{% endif %}
        {%- endif %}
        {%- set ns.after_user = false %}
        {%- set content = message['content'] -%}
        {%- if '</think>' in content %}{%- set content = content.split('</think>', 1)[1] -%}{%- endif %}
        {{- content + '<|eos|>' }}
    {%- elif message['role'] == 'tool' %}{{- '<|out|>' ~ message['content'] ~ '<|/out|>' }}
    {%- endif %}
{%- endfor -%}
{%- if add_generation_prompt and ns.after_user and not ns.is_tool %}{{- '<|Assistant|>' + ('<think>' if thinking else '</think>') }}{% endif %}"""

MACROS_OF_TYPES = """{%- macro type_of(spec, depth=0) -%}
    {%- if spec.type == "array" -%}
        {%- if spec["items"] -%}{{ type_of(spec["items"], depth + 1) }}[]{%- else -%}any[]{%- endif -%}
    {%- elif spec.type is defined and spec.type is iterable and spec.type is not string and spec.type is not mapping -%}
        {{- spec.type | join(" | ") -}}
    {%- elif spec.enum -%}{{ '"' + spec.enum|join('" | "') + '"' }}
    {%- elif spec.type == "object" -%}
        {%- if spec.properties -%}
            {{- "{\\n" }}
            {%- for name, value in spec.properties.items() -%}
                {{- "  " * (depth + 1) }}{{ name -}}
                {%- if name not in (spec.required or []) -%}{{- "?" }}{%- endif -%}
                {{- ": " }}{{ type_of(value, depth + 1) }}
                {%- if not loop.last -%}{{- ", " }}{%- endif -%}{{- "\\n" }}
            {%- endfor -%}
            {{- "  " * depth }}{{- "}" }}
        {%- else -%}object{%- endif -%}
    {%- else -%}{{ spec.type }}{%- if spec.default is defined %} = {{ spec.default | tojson }}{% endif -%}
    {%- endif -%}
{%- endmacro -%}
{%- macro box(title, width=3) -%}{{ "=" * width }} {{ title | upper }} {{ caller(title) }} {{ "=" * width }}{%- endmacro -%}
{%- macro all_of() -%}{{ varargs | join(",") }};{% for k, v in kwargs|dictsort %}{{ k }}={{ v }}.{% endfor %}{%- endmacro -%}
{{- "<|start|>system<|message|>Reasoning: " + (reasoning_effort or "medium") + "<|end|>" }}
{%- if tools %}{{- "namespace functions {\\n" }}
    {%- for tool in tools %}
        {%- set tool = tool.function -%}
        {{- "// " + tool.description + "\\ntype " + tool.name + " = (_: " + type_of(tool.parameters) + ") => any;\\n" }}
    {%- endfor %}{{- "}\\n" }}
{%- endif %}
{%- call(x) box("tools", width=2) -%}<{{ x }}:{{ tools | length if tools else 0 }}>{%- endcall -%}
{{- all_of(1, "b", z=1, y=none) }}
{%- filter upper | replace("X", "x") %}loud x{{ 1 }}{% endfilter %}
{%- set ns = namespace(last_tool=none) %}
{%- for message in messages -%}
    {%- if message.role == "assistant" and "tool_calls" in message and message.tool_calls -%}
        {%- set call = message.tool_calls[0].function %}
        {%- if message.thinking and message.content %}{{- raise_exception("both") }}{%- endif %}
        {{- "<|start|>assistant<|channel|>commentary to=functions." + call.name + "<|message|>" }}{{ call.arguments|tojson }}{{- "<|call|>" }}
        {%- set ns.last_tool = call.name %}
    {%- elif message.role == "assistant" -%}
        {%- if loop.last and not add_generation_prompt %}
            {%- if "thinking" in message %}{{- "<|start|>assistant<|channel|>analysis<|message|>" + message.thinking + "<|end|>" }}{%- endif %}
            {{- "<|start|>assistant<|channel|>final<|message|>" ~ message.content ~ "<|return|>" }}
        {%- else %}{{- "<|start|>assistant<|channel|>final<|message|>" ~ message.content ~ "<|end|>" }}
            {%- set ns.last_tool = none %}{%- endif %}
    {%- elif message.role == "tool" -%}
        {%- if ns.last_tool is none %}{{- raise_exception("Message has tool role, but there was no previous assistant message") }}{%- endif %}
        {{- "<|start|>functions." + ns.last_tool }}{{- "<|channel|>commentary<|message|>" + message.content|tojson + "<|end|>" }}
    {%- else -%}{{- "<|start|>" + message.role + "<|message|>" ~ message.content ~ "<|end|>" }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}"""

GENERATION_AND_LOOP_CONTROLS = """{% for message in messages %}
  {%- if message.role == 'developer' %}{% continue %}{% endif %}
  {%- if loop.index > 4 %}{% break %}{% endif %}
<|{{ message.role }}|>
  {%- if message.role == 'assistant' %}
    {%- generation %}{% set inner = 1 %}{{ message.content }}{{ eos_token }}{% endgeneration %}
  {%- else %}
{{ message.content }}
  {%- endif %}
{{ loop.cycle('odd', 'even') }} {{ loop.revindex }} {{ loop.previtem.role if loop.previtem is defined else '-' }}
{{- loop.nextitem.role if loop.nextitem is defined }} {{ loop.changed(message.role) }} {{ inner is defined }}
{% else %}
nothing
{% endfor %}
{% set text %}  A block of {{ messages | length }}
{% endset %}
{% set loud | trim | upper %} quiet {% endset %}
[{{ text }}|{{ loud }}]
{% with a = 1, b = messages | length %}{{ a + b }}{% set a = 5 %}{{ a }}{% endwith %}{{ a is defined }}
{% for row in [[1, [2, [3]]], [4, []]] recursive %}{{ row[0] }}{% if row[1] %}({{ loop([row[1]]) }}){% endif %}{{ loop.depth }}{% endfor %}
{% set first, second = messages | map(attribute='role') | list | batch(2, '-') | first %}{{ first }}/{{ second }}
{#- a comment -#}
{% raw %}{{ raw }}{% endraw %}
  {% if add_generation_prompt %}
<|assistant|>
{% endif %}"""

TOOLS_AS_PYTHON = """{%- macro python_type(spec) %}
{%- set names = {"string": "str", "number": "float", "integer": "int", "boolean": "bool"} %}
{%- if names[spec.type] is defined %}{{- names[spec.type] }}
{%- elif spec.type == "array" %}{{- "list[" + python_type(spec.items) + "]" }}
{%- elif spec.type == "object" %}{{- "dict" }}
{%- elif spec.type is iterable %}{{- "Union[" }}
    {%- for t in spec.type %}{{- python_type({"type": t}) }}{%- if not loop.last %}{{- "," }}{%- endif %}{%- endfor %}{{- "]" }}
{%- else %}{{- "Any" }}{%- endif %}
{%- endmacro %}
{%- for tool in tools or [] %}
    {%- set f = tool.function %}
    {{- f.name + "(" }}
    {%- for name, field in f.parameters.properties|items %}
        {{- name + ": " + python_type(field) }}{{ ", " if not loop.last }}
    {%- endfor %}
    {{- ") -> " + (f.return | default({"type": "None"})).type + "\\n" }}
    {{- f.parameters.required | default([]) | sort | join(", ") }};{{ f.parameters.properties | dictsort | map('first') | join(' ') }}
    {{- f.parameters | tojson(separators=(',', ':'), sort_keys=true) }}{{ f | tojson(ensure_ascii=true) | length }}
{%- endfor %}
{{- (tools or []) | map(attribute='function.name') | map('upper') | join(',') }}
{{- (tools or []) | rejectattr('function.return', 'defined') | map(attribute='function') | map(attribute='name') | list }}
{%- for d in documents or [] %}{{ "\\nDocument: %d %s\\n%s" | format(loop.index0, d.title, d.text) | indent(2) }}{% endfor %}
{%- for m in messages %}{{ "\\n{}: {!r}".format(m.role, m.content) }}{% endfor %}
{%- if add_generation_prompt %}{{ "\\n%s:" % "assistant" }}{% endif %}"""

SAFE_TEXT = """{%- for m in messages %}{{- m.role + ': ' + (m.content | tojson | safe) }}{{ (m.content | string | safe) ~ '<' }}
{%- if m.tool_calls %}{{ m.tool_calls[0].function.arguments | tojson | safe }}{% endif %}
{{ end | default('</e>') }}{%- endfor %}"""

TEMPLATES = {
    name.lower(): text
    for name, text in list(globals().items())
    if name.isupper() and isinstance(text, str)
}
"""Name → template."""
