#!/usr/bin/env python3
"""Chat templates as transformers renders them: writes tests/data/chat_templates/rendered.json.

    tests/oracle/run tests/oracle/chat_templates_oracle.py

Every template of tests/data/chat_templates over every conversation below, with and without the begin of an answer. The
date is that of NOW. What a template raises is kept by its text; of other failures only that there was one.
"""
import argparse
import datetime
import json
import pathlib
import random
import sys

import jinja2
import tokenizers
import transformers
from transformers.utils import chat_template_utils

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "data/chat_templates"
NOW = datetime.datetime(2023, 11, 14, 12, tzinfo=datetime.timezone.utc)

USER = {"role": "user", "content": "What is a trellis?"}
ANSWER = {"role": "assistant", "content": "A frame for plants."}
SYSTEM = {"role": "system", "content": "Be brief."}
CALL = {"type": "function", "id": "call12345", "function": {"name": "grow", "arguments": {"plant": "<pear> & 'fig'",
                                                                                          "count": 2, "rows": [1.5, None]}}}
CONVERSATIONS = {
    "question": [USER],
    "instructed": [SYSTEM, USER],
    "several turns": [SYSTEM, USER, ANSWER, {"role": "user", "content": "And an espalier?"}],
    "ends with an answer": [USER, ANSWER],
    "instructions alone": [SYSTEM],
    "blanks": [{"role": "system", "content": " \n be\tbrief \n"}, {"role": "user", "content": "\n\n a  b \r\n\r\n c \u00a0\n"},
               {"role": "assistant", "content": "  "}],
    "empty texts": [{"role": "user", "content": ""}, {"role": "assistant", "content": ""}],
    "any writing": [{"role": "user", "content": "Caf\u00e9 \u20ac5 \U0001f600 \u4f60\u597d \u0130\u00df \"q\" \\n \x07"}],
    "templates and markers inside": [{"role": "user", "content": "{{ 7*7 }} {% if %} {# x #} <|im_end|> </s> [INST] <b>&amp;"}],
    "two users": [USER, {"role": "user", "content": "Hello?"}],
    "answer first": [ANSWER, USER],
    "unknown role": [USER, {"role": "narrator", "content": "It rains."}],
    "thoughts": [USER, {"role": "assistant", "content": "<think>\nHm.\nWell.\n</think>\n\nA frame."},
                 {"role": "user", "content": "Sure?"}, {"role": "assistant", "content": "<think>\nYes\n</think>\nYes."}],
    "parts": [{"role": "user", "content": [{"type": "text", "text": "What is "}, {"type": "text", "text": " this?"}]}],
    "a tool": [USER, {"role": "assistant", "content": None, "tool_calls": [CALL]},
               {"role": "tool", "content": "{\"grown\": 2}"}, ANSWER],
    "two tools": [USER, {"role": "assistant", "content": "Both.", "tool_calls": [CALL, CALL]},
                  {"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}],
}
TOKENS = {"gemma": ("<bos>", "<eos>"), "gemma3": ("<bos>", "<eos>"), "chatml": (None, "<|im_end|>"),
          "qwen25": (None, "<|im_end|>"), "qwen3": (None, "<|im_end|>"), "llama3": ("<|begin_of_text|>", "<|eot_id|>"),
          "llama31": ("<|begin_of_text|>", "<|eot_id|>"), "llama32": ("<|begin_of_text|>", "<|eot_id|>")}


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


def rendered(tokenizer, messages, adds):
    try:
        return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=adds)
    except jinja2.exceptions.TemplateError as error:
        # Of raise_exception, and not of Jinja itself.
        return {"raised": error.message} if type(error) is jinja2.exceptions.TemplateError else {"raised": None}
    except (TypeError, IndexError, AttributeError):
        return {"raised": None}


def fresh_conversations(seed):
    random.seed(seed)
    texts = ["", " ", "Hi", "a\n", "\n\nb \u00a0", "\U0001f600 {{ x }}", "<think>\nq\n</think>\nw", "\t\"'\\", "<|im_end|>"]

    def message():
        role = random.choice(["user", "assistant", "user", "assistant", "system", "tool", "other"])
        text = "".join(random.choice(texts) for _ in range(random.randint(0, 3)))
        made = {"role": role, "content": [{"type": "text", "text": text}] if random.random() < 0.1 else text}
        if role == "assistant" and random.random() < 0.1:
            made["tool_calls"] = [CALL] * random.randint(1, 2)
        return made

    return {str(place): [message() for _ in range(random.randint(1, 7))] for place in range(60)}


def made_texts(conversations):
    chat_template_utils.datetime = Clock
    templates = {}
    for file in sorted(FOLDER.glob("*.jinja")):
        bos, eos = TOKENS.get(file.stem, ("<s>", "</s>"))
        model = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="a"))
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=model, bos_token=bos, eos_token=eos)
        tokenizer.chat_template = file.read_text()
        texts = {name: [rendered(tokenizer, messages, adds) for adds in (True, False)]
                 for name, messages in conversations.items()}
        templates[file.stem] = {"bos": bos, "eos": eos, "texts": texts}
    made = {"transformers": transformers.__version__, "jinja2": jinja2.__version__, "now": int(NOW.timestamp()),
            "conversations": conversations, "templates": templates}
    print(f"{len(templates)} templates, {len(templates) * len(conversations) * 2} texts")
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the committed texts")
    parser.add_argument("--fresh", nargs=2, metavar=("SEED", "DIR"), help="random conversations into DIR/chat_templates")
    arguments = parser.parse_args()
    if arguments.fresh:
        folder = pathlib.Path(arguments.fresh[1]) / "chat_templates"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "rendered.json").write_text(made_texts(fresh_conversations(int(arguments.fresh[0]))))
        return
    file, made = FOLDER / "rendered.json", made_texts(CONVERSATIONS)
    if not arguments.check:
        file.write_text(made)
    elif file.read_text() != made:
        sys.exit(f"{file}: other texts than transformers makes")


if __name__ == "__main__":
    main()
