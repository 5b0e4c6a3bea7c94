#!/usr/bin/env python3
"""Records, and what Python's json.loads makes of them: tests/data/json_records.jsonl.

Usage: tests/oracle/json_records.py [--seed N] > tests/data/json_records.jsonl

One object per line: "record", and either "text" (the value of the key "text", with U+FFFD for a lone surrogate and
"lone": true), or "says" and "char" of the JSONDecodeError, or "raises" for a record without a text that is a string.
Needs Python 3.11 or 3.12 (3.13 words some errors differently) and nothing else.
"""
import argparse
import json
import random
import re
import sys

SEEDS = [
    '{"text": "plain"}',
    '{"meta": {"text": "inner", "n": [1, -2.5e+3, true, false, null]}, "text": "a\\u00e9\\n\\"b\\" \\\\ \\/"}',
    '{"text": "pair \\ud83d\\ude00 raw \U0001f600 \u00e9\u4e2d"}',
    '{"text": "lone \\ude00 low"}',
    '{"text": "high \\ud83d then \\u0041, \\ud83d\\ud83d\\ude00, \\uD83D"}',
    '{"te\\u0078t": "escaped key", "x": {}}',
    '{"text": 1, "text": "last wins"}',
    '{"text": "first", "text": [1]}',
    '{"n": NaN, "i": Infinity, "m": -Infinity, "e": 1E400, "z": -0, "f": 0.0e-0, "text": "numbers"}',
    '{"": "", "text": ""}',
    ' \t\r\n{ "text" : "blanks" , "a" : [ ] , "b" : { } } \n',
    '["text"]', '"text"', 'null', '17', 'NaN', '{}', '[]', '',
    '{"a": [[[{"b": [{}]}]]], "text": "nested"}',
    '{"text": "\\b\\f\\n\\r\\t\\u0000\u007f\u2028"}',
    '{"body": "no such key"}',
    '{"text": "x", "a": 01}', '{"text": "x", "a": 1.}', '{"text": "x", "a": -}', '{"text": "x", "a": +1}',
    '{"text": "x", "a": 1e}', '{"text": "x", "a": -NaN}', '{"text": "x", "a": -Infinit}', '{"text": "x",}',
    '{"text": "x" "y"}', '{"text" "x"}', '{"text":}', '{"text": "x"', '{"text": "x', '{"text": "x\\', '{"text',
    '{"text": "x\\u12"}', '{"text": "x\\u123g"}', '{"text": "x\\u1234', '{"text": "x\\ud83d\\u12g4"}', '{"a": [1, ]}',
    '{"a": [1 2]}', '{"a": [', '{', '{"a"', '{"a":', '{"a": tru}', "{'text': 'x'}", '{"text": "x"} {"text": "y"}',
    '\ufeff{"text": "byte order mark"}', '\u00a0{"text": "x"}', '{"text": "tab\there"}', '{"text": "nul\0"}', '{"text": "x"}\0',
    '{"text": "x"}\u2028',
]
ALPHABET = list('{}[]:,"\\/ \t\nu0123456789abfnrtdeEDNI+-.x\u0000\u001f\u007f\u00e9\u2028\U0001f600') + [
    '"text"', '\\u', '\\ud83d', '\\ude00', 'null', 'Infinity', '1e5', '""']


def mutate(record, draw):
    characters = list(record)
    for _ in range(draw.randint(1, 3)):
        at = draw.randint(0, len(characters))
        action = draw.random()
        if action < 0.4:
            characters[at:at] = [draw.choice(ALPHABET)]
        elif action < 0.7:
            del characters[at:at + draw.randint(1, 3)]
        elif action < 0.9 and at < len(characters):
            characters[at] = draw.choice(ALPHABET)
        else:
            del characters[at:]
    return ''.join(characters)


def valid(draw):
    """A record whose text mixes raw characters and escapes; surrogates come in pairs, alone and the wrong way round."""
    pieces = ['\\n', '\\"', '\\\\', '\\/', '\\u0041', '\\u00E9', '\\u4e2d', '\\ud83d', '\\ude00', '\\udbff', '\\udc00', 'a', ' ',
              'some longer plain text', '\u00e9', '\u4e2d', '\U0001f600', '\u007f']
    if draw.random() < 0.6:
        pieces = [piece for piece in pieces if not re.match(r'\\ud[8-f]', piece)]
    text = ''.join(draw.choice(pieces) for _ in range(draw.randint(0, 12)))
    others = ['"x": ' + draw.choice(['1', '-0.5e-7', '[[], {}]', '"\\ud800"', 'NaN', 'null', '{"text": 5}'])]
    fields = draw.sample(['"text": "' + text + '"'] + others, 2)
    return '{' + ', '.join(fields) + '}'


def verdict(record):
    try:
        value = json.loads(record)
    except json.JSONDecodeError as error:
        says = re.sub(r'Unexpected UTF-8 BOM.*', 'Unexpected byte order mark', error.msg)
        return {'says': says, 'char': error.pos}
    try:
        text = value['text']
        if not isinstance(text, str):
            raise TypeError
    except (KeyError, TypeError) as error:
        return {'raises': type(error).__name__}
    lone = re.search('[\ud800-\udfff]', text) is not None
    result = {'text': re.sub('[\ud800-\udfff]', '\ufffd', text)}
    return {**result, 'lone': True} if lone else result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--mutations', type=int, default=900)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    records = SEEDS + [mutate(draw.choice(SEEDS), draw) for _ in range(options.mutations)]
    records += [valid(draw) for _ in range(options.mutations // 3)]
    for record in dict.fromkeys(records):
        sys.stdout.write(json.dumps({'record': record, **verdict(record)}) + '\n')


if __name__ == '__main__':
    main()
