"""Models' own chat templates (chat: jinja), beside apply_chat_template() of transformers: drawn conversations give the
same tokens and the same mask, or are refused by both.

The templates here are ours; each does what those of the families do that fine-tuning.md lists it for: thoughts that go
from earlier turns and tools of ChatML, today's date and a header for each role, brackets and turns that must
alternate, a role of another name and a system message inside the first turn, macros and channels, no end mark, what
was said before in a namespace. Those of TRL and other packages, and in $DLOADER_CHAT_TEMPLATES, are rendered, too.
"""

import importlib.util
import io
import json
import os
import pathlib
import random
import re
import sys
import tempfile
import unittest

import numpy
from dloaderd import Loader, explain

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from dltest import QUICK, main  # noqa: E402

ROWS = 25 if QUICK else 100
MARKS = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|head|>", "<|/head|>", "<|eot|>", "[INST]", "[/INST]", "<turn>",
         "</turn>", "<|start|>", "<|end|>", "<|message|>", "<|user|>", "<|assistant|>", "<|system|>", "<tools>"]

# What Llama 3 splits texts by.
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")

# BEGIN and END stand around what the model writes.
TEMPLATES = {
    "chatml": r"""
{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages and messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{%- endif %}
    {%- for tool in tools %}{{- '<tools>' ~ (tool | tojson) ~ '\n' }}{%- endfor %}
    {{- '<|im_end|>\n' }}
{%- elif messages and messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(last=messages | length - 1) %}
{%- for message in messages[::-1] %}
    {%- if message.role == 'user' and not message.content.startswith('<tools>') %}
        {%- set ns.last = messages | length - 1 - loop.index0 %}
        {%- break %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>\n' }}
    {%- elif message.role == 'assistant' %}
        {%- set thought = '' %}
        {%- if message.reasoning_content is string %}
            {%- set thought = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thought = content.split('</think>')[0].split('<think>')[-1].strip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\n' }}BEGIN
        {%- if loop.index0 > ns.last and (loop.last or thought) %}
            {{- '<think>\n' + thought + '\n</think>\n\n' }}
        {%- endif %}
        {{- content }}
        {%- for call in message.tool_calls or [] %}
            {%- if call.function %}{%- set call = call.function %}{%- endif %}
            {{- '\n{"name": "' ~ call.name ~ '", "arguments": ' }}
            {{- call.arguments if call.arguments is string else call.arguments | tojson }}
            {{- '}' }}
        {%- endfor %}
        {{- '<|im_end|>' }}END{{- '\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user\n<tools>' + content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}
{%- endif %}
""",
    "headers": r"""
{{- bos_token }}
{%- set date = strftime_now("%d %b %Y") if strftime_now is defined else "26 Jul 2024" %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] | trim %}{%- set messages = messages[1:] %}
{%- else %}
    {%- set system = "" %}
{%- endif %}
{{- "<|head|>system<|/head|>\n\nToday Date: " + date + "\n\n" + system + "<|eot|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|head|>' + message['role'] + '<|/head|>\n\n' }}
        {%- if message.role == 'assistant' %}BEGIN{{- message['content'] | trim + '<|eot|>' }}END
        {%- else %}{{- message['content'] | trim + '<|eot|>' }}{%- endif %}
    {%- elif 'tool_calls' in message %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|head|>assistant<|/head|>\n\n' }}BEGIN{{- '{"name": "' + call.name + '", ' }}
        {{- '"parameters": ' }}{{- call.arguments | tojson }}{{- "}<|eot|>" }}END
    {%- else %}
        {{- "<|head|>ipython<|/head|>\n\n" }}{{- message.content | tojson }}{{- "<|eot|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|head|>assistant<|/head|>\n\n' }}{%- endif %}
""",
    "brackets": r"""
{%- if messages[0]["role"] == "system" %}
    {%- set system = messages[0]["content"] %}{%- set rest = messages[1:] %}
{%- else %}{%- set rest = messages %}{%- endif %}
{%- set users = rest | selectattr("role", "equalto", "user") | list %}
{{- bos_token }}
{%- for message in rest %}
    {%- if message["role"] == "user" %}
        {{- "[INST] " }}{%- if loop.last and system is defined %}{{- system + "\n\n" }}{%- endif %}
        {%- if tools is not none and message == users[-1] %}{{- "<tools>" + (tools | tojson) }}{%- endif %}
        {{- message["content"] + "[/INST]" }}
    {%- elif message["role"] == "assistant" and message.tool_calls is not defined %}
        BEGIN{{- " " + message["content"] | trim + eos_token }}END
    {%- elif message.tool_calls is defined %}
        BEGIN{%- for call in message.tool_calls %}{%- set out = call.function | tojson %}{{- out[:-1] }}{{- '}' }}
        {%- endfor %}{{- eos_token }}END
    {%- elif message["role"] == "tool" %}{{- "<tools>" ~ message.content ~ "\n" }}
    {%- else %}{{- raise_exception("Only user and assistant roles are supported!") }}
    {%- endif %}
{%- endfor %}
""",
    "turns": """{{ bos_token }}{% if messages[0]['role'] == 'system' %}
{%- set first = messages[0]['content'] + '\n\n' %}{% set rest = messages[1:] %}
{%- else %}{% set first = "" %}{% set rest = messages %}{% endif %}
{%- for message in rest %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif %}
    {%- set role = "model" if message['role'] == 'assistant' else message['role'] %}
    {{- '<turn>' + role + '\\n' + (first if loop.first else "") }}
    {%- if role == "model" %}BEGIN{{ message['content'] | trim }}{{ '</turn>' }}END{{ '\\n' }}
    {%- else %}{{ message['content'] | trim }}{{ '</turn>\\n' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<turn>model\\n' }}{% endif %}""",
    "channels": r"""
{%- macro type_of(spec, deep=0) -%}
    {%- if spec.type == "array" -%}{{- type_of(spec['items'], deep + 1) }}[]
    {%- elif spec.enum -%}{{- spec.enum | map('string') | join(" | ") -}}
    {%- elif spec.properties is mapping -%}{
        {%- for name, inner in spec.properties.items() -%}
            {{- name }}{% if name not in (spec.required or []) %}?{% endif %}: {{ type_of(inner, deep + 1) }}
            {%- if not loop.last %}, {% endif -%}
        {%- endfor -%} }
    {%- else -%}{{- spec.type | default("any") -}}{%- endif -%}
{%- endmacro -%}
{%- set said = namespace(n=0) -%}
<|start|>system<|message|>Current date: {{ strftime_now("%Y-%m-%d") }}
{%- for tool in tools or [] %}{{ "\n" + tool.function.name }}({{ type_of(tool.function.parameters) }}){% endfor -%}
<|end|>
{%- for message in messages -%}
    {%- set said.n = said.n + 1 -%}
    {%- if message.role == 'assistant' -%}
        {{- "<|start|>assistant" }}BEGIN
        {%- if "reasoning_content" in message and loop.last -%}
            {{- "<|message|>analysis " + message.reasoning_content + "<|end|><|start|>assistant" }}
        {%- endif -%}
        {{- "<|message|>" ~ (message.content | default("", true)) ~ "<|end|>" }}END
    {%- elif message.role == 'tool' -%}
        {{- "<|start|>functions." + (message.name | default("f" ~ said.n)) + "<|message|>" + message.content | tojson }}
        {{- "<|end|>" }}
    {%- else -%}
        {{- "<|start|>" + message.role + "<|message|>" + message.content + "<|end|>" }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}
""",
    "endless": r"""<s>
{%- macro visible(content) -%}
    {%- if content is string -%}{{- content }}
    {%- elif content is iterable and content is not mapping -%}
        {%- for item in content -%}{{- item.text if item is mapping and item.type == 'text' }}{%- endfor -%}
    {%- endif -%}
{%- endmacro -%}
{% for m in messages %}
{%- if m.role == 'assistant' -%}
<|assistant|>BEGIN{% set content = visible(m.content) %}
{{- '\n' + content.strip() if content.strip() }}END
{%- elif m.role == 'user' -%}<|user|>
{{ visible(m.content) }}
{%- else -%}<|system|>
{{ visible(m.content) }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}
""",
    "marks": r"""
{%- set ns = namespace(system='', first=true, tool=false, called=false) -%}
{%- for message in messages -%}
    {%- if message['role'] == 'system' -%}
        {%- set ns.system = ns.system + ('' if ns.first else '\n\n') + (message['content'] or '') -%}
        {%- set ns.first = false -%}
    {%- endif -%}
{%- endfor -%}
{{- bos_token }}{{ ns.system }}
{%- for tool in tools or [] %}
    {{- '\n## ' + tool['function']['name'] + '\n' + (tool | tojson(ensure_ascii=False)) }}
{%- endfor -%}
{%- for message in messages -%}
    {%- if message['role'] == 'user' -%}
        {%- set ns.tool = false -%}{{- '<|user|>' + message['content'] }}
    {%- elif message['role'] == 'assistant' and message.get('tool_calls') -%}
        {%- set ns.tool = true -%}{{- '<|assistant|>' }}BEGIN{{- message['content'] if message['content'] is not none }}
        {%- for call in message['tool_calls'] -%}
            {{- ('' if loop.first else '\n') + call['type'] + '<|message|>' + call['function']['name'] }}
            {{- '\n```json\n' }}
            {{- call['function']['arguments'] | tojson(indent=2) + '\n```' -}}
        {%- endfor -%}
        {{- '</s>' }}END
    {%- elif message['role'] == 'assistant' -%}
        {{- '<|end|>' if ns.tool else '<|assistant|>' }}{%- set ns.tool = false -%}
        {%- set content = message['content'] -%}
        {%- if content is string and '</think>' in content -%}
            {%- set content = content.split('</think>')[-1] -%}
        {%- endif -%}
        BEGIN{{- (content if content is string else content | map(attribute='text') | join('')) + '</s>' }}END
    {%- elif message['role'] == 'tool' -%}
        {{- ('' if ns.tool and not ns.called else '\n') + '<tools>' + message['content'] -}}
        {%- set ns.called = true -%}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt and not ns.tool -%}
    {{- '<|assistant|>' }}{%- if thinking -%}<think>{%- else -%}</think>{%- endif -%}
{%- endif -%}
""",
    "default": r"""
{%- if messages[0]['role'] != 'system' %}
    {{- '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or message.role == "system"
           or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\n' }}
        {%- if message.role == 'assistant' %}BEGIN{{- message.content + '<|im_end|>' }}END
        {%- else %}{{- message.content + '<|im_end|>' }}{%- endif %}{{- '\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role + '\n' }}BEGIN
        {%- if message.content %}{{- message.content }}{%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}{%- set tool_call = tool_call.function %}{%- endif %}
            {{- '\n{"name": "' + tool_call.name + '", "arguments": ' + (tool_call.arguments | tojson) + '}' }}
        {%- endfor %}
        {{- '<|im_end|>' }}END{{- '\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\n<tools>' + message.content }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}
""",
    "parts": r"""
{%- set seen = namespace(images=0, first=true) %}
{%- macro part(item) %}
    {%- if item.type == 'image' or 'image' in item or 'image_url' in item %}
        {%- set seen.images = seen.images + 1 %}
        {%- if add_vision_id %}{{- 'Picture ' ~ seen.images ~ ': ' }}{%- endif %}{{- '<|start|><|message|><|end|>' }}
    {%- elif item['type'] == 'video' or 'video' in item %}{{- '<|start|>video<|end|>' }}
    {%- elif 'text' in item %}{{- item['text'] | trim }}{%- endif %}
{%- endmacro %}
{%- for message in messages %}
    {%- if message.content is not string and message.role == 'system' and
           message.content | selectattr('type', 'equalto', 'image') | list %}
        {{- raise_exception('Prompting with images is incompatible with system messages.') }}
    {%- endif %}
    {{- '<|head|>' + (message.role | capitalize) + ':' }}
    {%- if message.role == 'user' and (message.content is string or message.content[0].type == 'text') %}
        {{- ' ' }}
    {%- endif %}
    {%- if message.role == 'assistant' %}BEGIN
        {%- if message.content is string %}{{- message.content }}
        {%- else %}{%- for item in message.content %}{{- part(item) }}{%- endfor %}{%- endif %}{{- '<|eot|>' }}END
    {%- elif message.content is string %}{{- message.content + '<|eot|>' }}
    {%- else %}
        {%- for item in message.content %}{{- part(item) }}{%- endfor %}{{- '<|eot|>' }}
    {%- endif %}{{- '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|head|>Assistant:' }}{%- endif %}
""",
    "lines": r"{% for message in messages %}{% if message['role'] == 'system' and message['content'] %}"
             r"{{ '<|system|>\n' + message['content'] + '<|end|>\n' }}{% elif message['role'] == 'user' %}"
             r"{{ '<|user|>\n' + message['content'] + '<|end|>\n' }}{% elif message['role'] == 'assistant' %}"
             r"{{ '<|assistant|>\n' }}BEGIN{{ message['content'] + '<|end|>' }}END{{ '\n' }}{% endif %}{% endfor %}"
             r"{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}",
}
TOOLS = [{"type": "function", "function": {
    "name": "weather", "description": "It's \"here\" <or> there & ä.",
    "parameters": {"type": "object", "required": ["city"], "properties": {
        "city": {"type": "string"}, "days": {"type": "integer", "enum": [1, 2]},
        "deep": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}}}}}}]
WORDS = ["", " ", "Hi", "  two words ", "line\nline\n", "\n\nbegins late", "日本語 🙂", "a'b\"c\\d", "\u00a0x\u2003",
         "<think>so</think>\n\nyes", "{{ x }} {% y %}", "\ttab", "1. x\n\n2. y", "it's 12345", "<|im_end|> inside"]


def has(module):
    return importlib.util.find_spec(module) is not None


def in_parts(rng, talk):
    """The same with images and videos between the texts, as vision models' templates take them."""
    pictures = [{"type": "image"}, {"type": "image", "image": "cat.png"}, {"type": "image_url", "image_url": "x"},
                {"type": "video"}, {"type": "image", "url": "http://x/y.jpg"}]
    for message in talk:
        if rng.random() < 0.8 and isinstance(message["content"], str):
            parts = [{"type": "text", "text": message["content"]}]
            if message["role"] != "system" or rng.random() < 0.1:
                parts += rng.choices(pictures, k=rng.randrange(3))
                if rng.random() < 0.3:
                    parts.append({"type": "text", "text": rng.choice(WORDS)})
                rng.shuffle(parts)
            message["content"] = parts
    return talk


def conversation(rng, extras=True):
    talk = [{"role": "system", "content": rng.choice(WORDS)}] if rng.random() < 0.5 else []
    for _ in range(rng.randrange(1, 4)):
        talk.append({"role": "user", "content": rng.choice(WORDS)})
        kind = rng.random() if extras else 1
        if kind < 0.25:
            arguments = {"city": rng.choice(WORDS), "days": rng.choice([1, 2.5, True, None, [1, "x"], {}])}
            call = {"type": "function", "function": {"name": "weather", "arguments": arguments}}
            talk.append({"role": "assistant", "content": rng.choice([None, "I look."]), "tool_calls": [call]})
            talk.append({"role": "tool", "name": "weather", "content": rng.choice(WORDS)})
        answer = {"role": "assistant", "content": rng.choice(WORDS)}
        if 0.25 < kind < 0.4:
            answer["thinking"] = rng.choice(WORDS)
        if 0.4 < kind < 0.5:
            answer["content"] = [{"type": "text", "text": rng.choice(WORDS)}, {"type": "text", "text": "more"}]
        talk.append(answer)
    return talk


class Case(unittest.TestCase):
    VOCABULARY = 900

    def setUp(self):
        import tokenizers
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        made = tokenizers.Tokenizer(tokenizers.models.BPE())
        made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
            tokenizers.pre_tokenizers.Split(tokenizers.Regex(SPLIT), "isolated"),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        made.train_from_iterator(WORDS * 9 + list(TEMPLATES.values()) + ["\n\n", "assistant\n\n"] * 9,
                                 tokenizers.trainers.BpeTrainer(
            vocab_size=self.VOCABULARY, special_tokens=MARKS, show_progress=False,
            initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
        made.save(str(self.folder / "tokenizer.json"))
        self.made = made

    def theirs(self):
        import transformers
        return transformers.PreTrainedTokenizerFast(tokenizer_object=self.made, bos_token="<s>", eos_token="</s>")

    def save(self, template, beside=True):
        """As save_pretrained() writes them: the template in its own file, or with the tokens."""
        config = {"bos_token": {"content": "<s>", "special": True}, "eos_token": "</s>", "add_bos_token": True}
        if beside:
            (self.folder / "chat_template.jinja").write_text(template)
        else:
            config["chat_template"] = template
        (self.folder / "tokenizer_config.json").write_text(json.dumps(config))
        return str(self.folder / ("chat_template.jinja" if beside else "tokenizer_config.json"))

    def spec(self, rows, workers=0, **dataset):
        with open(self.folder / "rows.jsonl", "w") as out:
            out.writelines(json.dumps(row) + "\n" for row in rows)
        keys = {"kind": "text", "paths": str(self.folder / "rows.jsonl"), "field": "messages", "chat": "jinja",
                "tokenizer": "huggingface", "model": str(self.folder / "tokenizer.json"),
                "chat_args": {"strftime_now": self.today()}, **dataset}
        return {"dataset": keys, "batch": {"size": None}, "workers": {"count": workers}, "seed": 1}

    @staticmethod
    def today():
        import datetime
        return str(datetime.date.today())

    def samples(self, rows, workers=0, **dataset):
        with Loader(self.spec(rows, workers, **dataset), as_="numpy") as loader:
            return [{key: numpy.array(leaf) for key, leaf in sample.items()} for sample in loader]

    def expect(self, rows, template, ours, *, masks=True, **keys):
        """Samples that apply_chat_template() gives, from the template with generation blocks."""
        tokenizer = self.theirs()
        for row, sample in zip(rows, ours, strict=True):
            want = tokenizer.apply_chat_template(row["messages"], tools=row.get("tools"), chat_template=template,
                                                 tokenize=True, return_dict=True,
                                                 return_assistant_tokens_mask=masks, **keys)
            self.assertEqual(sample["tokens"].tolist(), want["input_ids"], row)
            if masks:
                self.assertEqual(sample["loss_mask"].tolist(), list(map(bool, want["assistant_masks"])), row)

    def split(self, rows, template, **keys):
        """Those that the template takes, and those that it refuses."""
        taken, refused = [], []
        for row in rows:
            try:
                self.theirs().apply_chat_template(row["messages"], tools=row.get("tools"), chat_template=template,
                                                  tokenize=False, **keys)
                taken.append(row)
            except Exception:  # Jinja's own, TypeError, ...
                refused.append(row)
        return taken, refused

    @staticmethod
    def with_blocks(name):
        return TEMPLATES[name].replace("BEGIN", "{%- generation %}").replace("END", "{%- endgeneration %}")

    @staticmethod
    def without_blocks(name):
        return TEMPLATES[name].replace("BEGIN", "").replace("END", "")

    def rows(self, name, parts=False):
        rng = random.Random(name)
        rows = [{"messages": conversation(rng), **({"tools": TOOLS} if rng.random() < 0.3 else {})}
                for _ in range(ROWS)]
        if parts or name == "parts":
            rows = [{"messages": in_parts(rng, row["messages"])} for row in rows]
        return rows


@unittest.skipUnless(has("tokenizers") and has("transformers"), "tokenizers and transformers are not installed")
class Templates(Case):
    def test_with_generation_blocks(self):
        for i, name in enumerate(TEMPLATES):
            with self.subTest(name):
                template = self.with_blocks(name)
                rows, refused = self.split(self.rows(name), template)
                self.assertGreater(len(rows), ROWS // 8)
                path = self.save(template, beside=i % 2 == 0)
                ours = self.samples(rows, chat_template=path, tools="tools")
                self.expect(rows, template, ours)
                self.assertTrue(any(sample["loss_mask"].any() for sample in ours))
                for row in refused[:3]:
                    with self.assertRaises(RuntimeError):
                        self.samples([row], chat_template=path, tools="tools")

    def test_generation_prompt_and_arguments(self):
        for name in TEMPLATES:
            with self.subTest(name):
                template = self.with_blocks(name)
                rows, _ = self.split(self.rows(name), template)
                path = self.save(template)
                args = {"strftime_now": self.today(), "enable_thinking": False}
                ours = self.samples(rows, chat_template=path, tools="tools", chat_end="prompt", chat_args=args)
                self.expect(rows, template, ours, add_generation_prompt=True, enable_thinking=False)

    def test_continued(self):
        for name in TEMPLATES:
            with self.subTest(name):
                template = self.without_blocks(name)
                rows, _ = self.split(self.rows(name), template, continue_final_message=True)
                ours = self.samples(rows, chat_template=self.save(template), tools="tools", chat_end="continue")
                self.expect(rows, template, ours, masks=False, continue_final_message=True)


def templates_of_packages():
    """Paths by names: of models' templates that packages here have files of."""
    folders = [pathlib.Path(one) for one in os.environ.get("DLOADER_CHAT_TEMPLATES", "").split(":") if one]
    for package, inside in ("trl", "chat_templates"), ("vllm", "transformers_utils/chat_templates"):
        if has(package):
            folders.append(pathlib.Path(importlib.util.find_spec(package).origin).parent / inside)
    return {f"{folder.name}/{path.name}": path for folder in folders for path in sorted(folder.glob("*.jinja"))}


@unittest.skipUnless(has("tokenizers") and has("transformers"), "tokenizers and transformers are not installed")
class Shipped(Case):
    """Models' templates as packages have them. Their marks are no special tokens here: each byte is a token, so that
    none lies across the bounds of what the model writes.
    """
    VOCABULARY = 256 + len(MARKS)

    def test_of_packages(self):
        found = templates_of_packages()
        if not found:
            self.skipTest("no package with templates is installed, and $DLOADER_CHAT_TEMPLATES is not set")
        refused = {}
        for name, path in found.items():
            with self.subTest(name):
                template = path.read_text(encoding="utf-8")
                rows, _ = self.split(self.rows(name, parts="image" in template)[:25], template)
                try:
                    ours = self.samples(rows, chat_template=self.save(template), tools="tools")
                except (RuntimeError, OSError) as e:
                    if "is not supported" not in str(e) and "mask" not in str(e):
                        raise
                    refused[name] = str(e)
                    continue
                self.expect(rows, template, ours, masks=re.search(r"\{%[-+]?\s*generation\b", template))
        for name, why in refused.items():
            with self.subTest(f"{name} by jinja2"):
                template = found[name].read_text(encoding="utf-8")
                rows, _ = self.split(self.rows(name, parts="image" in template)[:25], template)
                ours = self.samples(rows, 1, chat_template=self.save(template), tools="tools")
                self.expect(rows, template, ours, masks=re.search(r"\{%[-+]?\s*generation\b", template))
            print(f"# {name}: {why}")
        print(f"# {len(found) - len(refused)} of {len(found)} templates are rendered in C")
        self.assertLessEqual(len(refused), len(found) // 4)


@unittest.skipUnless(has("tokenizers") and has("transformers"), "tokenizers and transformers are not installed")
class ByPython(Case):
    """By jinja2, in workers that a Python host forks."""

    def test_what_c_lacks(self):
        """A filter, or what only a value shows: the loader turns to Python by itself, and says so."""
        for extra, lacks in [("{{ messages[0].content | string | wordcount }}", "the filter wordcount"),
                             ("{{ messages[0].role | upper }}{{ (messages[-1].content | string).upper() }}",
                              "upper of what is not ASCII")]:
            with self.subTest(lacks):
                template = extra + self.with_blocks("endless")
                path, rows = self.save(template), self.rows("endless")
                rows, _ = self.split(rows, template)
                self.expect(rows, template, self.samples(rows, 2, chat_template=path, tools="tools"))
                with Loader(self.spec(rows, 1, chat_template=path), as_="numpy") as loader:
                    told = io.StringIO()
                    explain(loader, told)
                self.assertRegex(told.getvalue(), rf"conversations +Python +.*, by jinja2 .*{lacks}")

    def test_as_c_renders(self):
        """With blocks and without, with a prompt, continued: as transformers, and as C."""
        for name in TEMPLATES:
            with self.subTest(name):
                template = self.with_blocks(name)
                rows, _ = self.split(self.rows(name)[:25], template)
                path = self.save(template)
                ours = self.samples(rows, 1, chat="jinja2", chat_template=path, tools="tools")
                self.expect(rows, template, ours)
                plain = [{"messages": conversation(random.Random(i), extras=False)} for i in range(9)]
                plain, _ = self.split(plain, template)
                path = self.save(self.without_blocks(name))
                for end in "turn", "prompt":
                    keys = {"chat_template": path, "chat_end": end}
                    try:
                        masks = self.samples(plain, 1, chat="jinja2", **keys)
                    except Exception as error:  # noqa: BLE001
                        self.assertIn("add generation blocks to it", str(error))
                        continue
                    for sample, native in zip(masks, self.samples(plain, **keys), strict=True):
                        self.assertEqual(sample["tokens"].tolist(), native["tokens"].tolist())
                        self.assertEqual(sample["loss_mask"].tolist(), native["loss_mask"].tolist())

    def test_refusals(self):
        rows = [{"messages": [{"role": "user", "content": "x"}]}]
        for text, workers, words in [
                ("{{ x | urlise }}", 1, "No filter named 'urlise'"),
                ("{{ x | wordcount }}", 0, "renders it by jinja2 in Python"),
                ("{{ raise_exception('no such role') }}{{ '' | wordcount }}", 1, "no such role"),
                ("{{ messages.__class__ }}{{ messages.append(1) }}{{ '' | wordcount }}", 1, "unsafe"),
                ("{{ strftime_now('%Y') }}{{ '' | wordcount }}", 1, "chat_args: {strftime_now: YYYY-MM-DD}")]:
            with self.subTest(text), self.assertRaisesRegex(Exception, re.escape(words)):
                self.samples(rows, workers, chat_template=self.save(text), chat_args={})


class Documented(unittest.TestCase):
    def test_the_table(self):
        """Each template here is that of a row of the page, and the other way round."""
        page = pathlib.Path(__file__).parents[2] / "client/docs/fine-tuning.md"
        rows = re.findall(r"(?m)^\| .* \| `([a-z]+)` \|$", page.read_text(encoding="utf-8"))
        self.assertEqual(sorted(rows), sorted(TEMPLATES))


@unittest.skipUnless(has("tokenizers") and has("transformers"), "tokenizers and transformers are not installed")
class Masks(Case):
    """What transformers has no counterpart of, or where its mask is empty."""

    def test_without_generation_blocks(self):
        """The mask is what the blocks would have said, where messages are plain."""
        for name in TEMPLATES:
            with self.subTest(name):
                rng = random.Random(name)
                rows, _ = self.split([{"messages": conversation(rng, extras=False)} for _ in range(ROWS)],
                                     self.with_blocks(name))
                ours = self.samples(rows, chat_template=self.save(self.without_blocks(name)))
                self.expect(rows, self.with_blocks(name), ours)

    def test_last(self):
        template = self.with_blocks("turns")
        rows, _ = self.split(self.rows("turns"), template)
        path = self.save(template)
        for all_of, last in zip(self.samples(rows, chat_template=path),
                                self.samples(rows, chat_template=path, loss="last"), strict=True):
            self.assertEqual(last["loss_mask"].tolist(), self.last_run(all_of["loss_mask"].tolist()))

    def test_pairs_and_prompts(self):
        """Chosen and rejected answers to a prompt, in one sample; texts are messages, too. No loss is of the prompt."""
        template = self.with_blocks("chatml")
        path, rows = self.save(template), []
        rng = random.Random(4)
        for i in range(ROWS):
            prompt = conversation(rng, extras=False)[:-1]
            chosen, rejected = ([{"role": "assistant", "content": rng.choice(WORDS)}] for _ in range(2))
            if i % 3 == 0:  # as texts
                prompt = prompt[-1:]
                rows.append({"prompt": prompt[0]["content"], "messages": chosen[0]["content"],
                             "rejected": rejected[0]["content"], "talk": (prompt, chosen, rejected)})
            else:
                rows.append({"prompt": prompt, "messages": chosen, "rejected": rejected,
                             "talk": (prompt, chosen, rejected)})
        ours = self.samples(rows, chat_template=path, prompt="prompt", second="rejected")
        self.assertEqual(list(ours[0]), ["tokens", "loss_mask", "rejected", "rejected_loss_mask"])
        for sample, (prompt, *answers) in zip(ours, (row["talk"] for row in rows), strict=True):
            for answer, tokens, mask in zip(answers, ("tokens", "rejected"), ("loss_mask", "rejected_loss_mask")):
                one = {"tokens": sample[tokens], "loss_mask": sample[mask]}
                self.expect([{"messages": prompt + answer}], template, [one], masks=False)
                self.assertEqual(one["loss_mask"].tolist(), self.mask_of_last(prompt + answer, template))

    def mask_of_last(self, talk, template):
        """The mask of the last of a conversation's answers."""
        mask = self.theirs().apply_chat_template(talk, chat_template=template, tokenize=True, return_dict=True,
                                                 return_assistant_tokens_mask=True)["assistant_masks"]
        return self.last_run(list(map(bool, mask)))

    @staticmethod
    def last_run(mask):
        """The last of the runs of a mask alone."""
        end = begin = len(mask) - mask[::-1].index(True)
        while begin and mask[begin - 1]:
            begin -= 1
        return [begin <= i < end for i in range(len(mask))]

    def test_cut(self):
        """Whole turns go, the fewest; the system's message stays."""
        template, rng = self.with_blocks("headers"), random.Random(6)
        path = self.save(template)
        rows = [{"messages": [{"role": "system", "content": "s"}] + [
            {"role": role, "content": " ".join(rng.choices(["a", "b", "12"], k=rng.randrange(1, 9)))}
            for _ in range(rng.randrange(1, 9)) for role in ("user", "assistant")]} for _ in range(ROWS)]
        tokenizer = self.theirs()

        def length(talk):
            return len(tokenizer.apply_chat_template(talk, chat_template=template)["input_ids"])

        for cut in ("oldest", "newest"):
            wanted = []
            for row in rows:
                talk = row["messages"]
                while len(talk) > 3 and length(talk) > 90:
                    talk = talk[:1] + talk[3:] if cut == "oldest" else talk[:-2]
                wanted.append({"messages": talk})
            self.assertTrue(any(want != row for want, row in zip(wanted, rows)))
            ours = self.samples(rows, chat_template=path, cut=cut, max_length=90)
            self.expect(wanted, template, ours)
        cut = self.samples(rows, chat_template=path, max_length=60)
        self.assertEqual(max(len(sample["tokens"]) for sample in cut), 60)

    def test_kinds(self):
        """Columns of Parquet files as lines of JSON: messages with tools, and pairs."""
        if not has("pyarrow"):
            self.skipTest("pyarrow is not installed")
        import pyarrow
        import pyarrow.parquet
        template = self.with_blocks("chatml")
        path, rng = self.save(template), random.Random(9)
        rows = [{"messages": conversation(rng, extras=False), "tools": json.dumps(TOOLS)} for _ in range(ROWS)]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), self.folder / "rows.parquet")
        ours = self.samples(rows, chat_template=path, tools="tools")
        columns = self.samples(rows, chat_template=path, tools="tools", kind="parquet",
                               paths=str(self.folder / "rows.parquet"))
        self.expect([{**row, "tools": TOOLS} for row in rows], template, ours)
        self.compare(ours, columns)

    def test_nulls_of_columns(self):
        """What a message has not is null in its column, and absent for the template."""
        if not has("pyarrow"):
            self.skipTest("pyarrow is not installed")
        import pyarrow
        import pyarrow.parquet
        call = [{"type": "function", "function": {"name": "weather", "arguments": {"city": "x", "days": 3}}}]
        question = {"role": "user", "content": "q"}
        rows = [{"messages": [question, {"role": "assistant", "content": "", "tool_calls": call},
                              {"role": "tool", "content": "r"},
                              {"role": "assistant", "content": "a", "thinking": "t"}]},
                {"messages": [question, {"role": "assistant", "content": "<think>so</think>\n\nyes"}]}]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), self.folder / "rows.parquet")
        for name in ("chatml", "headers"):
            path = self.save(self.with_blocks(name))
            ours = self.samples(rows, chat_template=path)
            self.expect(rows, self.with_blocks(name), ours)
            self.compare(ours, self.samples(rows, chat_template=path, kind="parquet", nulls=0,
                                            paths=str(self.folder / "rows.parquet")))

    def test_nulls_of_parts(self):
        """Nor has each part of a message all fields of its column."""
        if not has("pyarrow"):
            self.skipTest("pyarrow is not installed")
        import pyarrow
        import pyarrow.parquet
        rows = [{"messages": [{"role": "user", "content": [{"type": "image", "image": "cat.png"},
                                                           {"type": "text", "text": text}]},
                              {"role": "assistant", "content": [{"type": "text", "text": "a"}]}]}
                for text in ("q", "")]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), self.folder / "rows.parquet")
        path = self.save(self.with_blocks("parts"))
        ours = self.samples(rows, chat_template=path)
        self.expect(rows, self.with_blocks("parts"), ours)
        self.compare(ours, self.samples(rows, chat_template=path, kind="parquet", nulls=0,
                                        paths=str(self.folder / "rows.parquet")))

    def compare(self, ours, columns):
        for line, column in zip(ours, columns, strict=True):
            self.assertEqual(list(column), ["tokens", "loss_mask"])
            self.assertEqual(line["tokens"].tolist(), column["tokens"].tolist())
            self.assertEqual(line["loss_mask"].tolist(), column["loss_mask"].tolist())

    def test_refusals(self):
        rows = [{"messages": [{"role": "user", "content": "x"}]}]
        for name, text, words in [
                ("chat_template.jinja", "{% if x %}", "line 1: a block has no"),
                ("chat_template.jinja", "{{ x | urlize }}", "the filter urlize is not supported; a daemon of your own"),
                ("tokenizer_config.json", "{}", "has no chat_template; name the file that has it"),
                ("chat_template.jinja", "{{ strftime_now('%Y') }}", "chat_args: {strftime_now: YYYY-MM-DD}"),
                ("chat_template.jinja", "{{ raise_exception('no such role') }}", "no such role"),
                ("tokenizer_config.json", "{", "is not JSON")]:
            with self.subTest(text), self.assertRaisesRegex(Exception, re.escape(words)):
                (self.folder / name).write_text(text)
                self.samples(rows, chat_template=str(self.folder / name), chat_args={"enable_thinking": True})

if __name__ == "__main__":
    main()
