#!/usr/bin/env python3
"""Compares `espalier curate step ftfy` with ftfy on broken lines of ten languages, made from a seed.

    python=$(tests/oracle/install)
    $python tests/oracle/ftfy_agreement.py build/bin/espalier [--lines 100000] [--seed 1]
    $python tests/oracle/ftfy_agreement.py --write tests/data/golden-use/ftfy.jsonl      # the cases of curate's tests

Prints how many lines are equal by kind of damage, and the first that differ; fails under 99.9 %.
"""
import argparse
import collections
import html
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import ftfy

SENTENCES = {
    "en": "The café’s “daily” menu costs £5 – naïve guests don’t mind… it’s the cook’s day off.",
    "fr": "Voilà l’été où l’on mange à la plage : ça coûte 3 € à côté du château, près de l’île « bleue ».",
    "de": "Die Straße führt über die Brücke; „größere“ Häuser stehen nördlich, für Äpfel und Öl zahlt man 10 €.",
    "es": "¿Dónde está el niño? ¡Mañana comerá jamón y piñas en la acción más rápida de España!",
    "pt": "Não há coração às nove; a lição começou àquela hora, e três irmãos vão à praia.",
    "pl": "Zażółć gęślą jaźń – łódź płynie przez źródło, a śnieg „leży” na wsi.",
    "cs": "Příliš žluťoučký kůň úpěl ďábelské ódy, řekl šéf na náměstí v březnu.",
    "ru": "Съешь же ещё этих мягких французских булок — «да» выпей чаю № 5, ответил он.",
    "el": "Η γρήγορη αλεπού πηδάει πάνω από το τεμπέλικο σκυλί· «ναι», είπε ο Ώριμος.",
    "ja": "今日はとても良い天気ですね。「散歩」に行きましょう、カフェで１２３円のコーヒーを。",
    "ar": "هذا نص عربي قصير، فيه كلمات كثيرة؛ هل ترى ذلك؟ نعم ١٢٣.",
    "emoji": "nice 👍🏽 day 😀 and ♥ – ☃ “ok” ½ × 2² ° §5 ™ ©",
}
PAGES = ["latin-1", "sloppy-windows-1252", "sloppy-windows-1251", "sloppy-windows-1250", "sloppy-windows-1253",
         "sloppy-windows-1254", "sloppy-windows-1257", "iso-8859-2", "macroman", "cp437"]


def misread(text, page):
    return text.encode("utf-8", "replace").decode(page, "replace")


def phrase(rng):
    words = SENTENCES[rng.choice(list(SENTENCES))].split(" ")
    first = rng.randrange(len(words))
    return " ".join(words[first:first + rng.randint(1, 8)])


def whole(rng):
    return misread(phrase(rng), rng.choice(PAGES))


def twice(rng):
    return misread(misread(phrase(rng), rng.choice(PAGES)), rng.choice(PAGES))


def in_part(rng):
    parts = [phrase(rng) for _ in range(3)]
    parts[rng.randrange(3)] = misread(rng.choice(parts), rng.choice(PAGES))
    return " ".join(parts)


def lossy(rng):
    return phrase(rng).encode().decode(rng.choice(["cp1252", "cp1251", "cp1250", "cp1253"]), "replace")


def lost_a0(rng):
    return misread(phrase(rng) + " à l'Î à propos à ", rng.choice(PAGES)).replace("\xa0", " ")


def surrogates(rng):
    text = "".join(rng.choice("😀👍aé") for _ in range(5))
    data = b"".join(chr(unit).encode("utf-8", "surrogatepass") for char in text
                    for unit in ([ord(char)] if ord(char) < 0x10000 else
                                 [0xD7C0 + (ord(char) >> 10), 0xDC00 + (ord(char) & 0x3FF)]))
    return data.decode(rng.choice(PAGES[:3])) + rng.choice(["", "\x00", " ok"])


def references(rng):
    text = html.escape(phrase(rng)).encode("ascii", "xmlcharrefreplace").decode()
    names = ["&EACUTE;", "&eacute;", "&amp;amp;", "&#x80;", "&#128;", "&#0;", "&#xD800;", "&#59;", "&lt;b&gt;",
             "&nTILDE;", "&#1114112;", "&hellip;", "&SZLIG;", "&NotEqualTilde;", "&#xFDD0;", "&#12ab;", "&#x;",
             "&CounterClockwiseContourIntegral;", "&nbsp;", "&#99999999999999999999;", "&amp", "<i>"]
    return text + " " + "".join(rng.choice(names) for _ in range(3))


def glitches(rng):
    parts = ["\x1b[36;44mblue\x1b[0m", "ﬁﬂ ﬃ Ǆ ŉ ſt ﬆ", "ＬＯＵＤ　ｱｶﾞ ￦", "‘a’ “b” ‛c‟ ʼ", "a\r\nb\rc\u2028d\u2029e\x85f",
             "\x00\x07\x0b\x0c\x7f", "\ufeffbom", "\u206a\ufff9\ufffc", "e\u0301 n\u0303 a\u0323\u0302", "\u212b\u2126", "\x93q\x94",
             "가 \u1100\u1161", "\u200fx", phrase(rng)]
    return "".join(rng.choice(parts) for _ in range(rng.randint(1, 4)))


def soup(rng):
    chars = "az AZ09.!?ÂÃÎÐØÙàâãœŒ€£§©®°´·»«“”‘’…–—™†‡\xa0\xad\x80\x9d\ufffdВГРСв ЂвЂΒΓΞΟβ√≈‚Äìåð¾½²³┐═█ŠšŸžąćłōűđ\n"
    return "".join(rng.choice(chars) for _ in range(rng.randint(1, 30)))


def untouched(rng):
    return phrase(rng) + " " + phrase(rng)


KINDS = [whole, twice, in_part, lossy, lost_a0, surrogates, references, glitches, soup, untouched]


def cases(num_lines, seed):
    rng = random.Random(seed)
    for index in range(num_lines):
        kind = KINDS[index % len(KINDS)]
        text = kind(rng)
        if rng.random() < 0.2:
            text += "\n" + rng.choice(KINDS)(rng)
        yield kind.__name__, text


def compare(program, num_lines, seed):
    kinds, texts = zip(*cases(num_lines, seed))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with open(folder / "in.jsonl", "w") as file:
            for text in texts:
                file.write(json.dumps({"text": text}) + "\n")
        subprocess.run([program, "curate", "step", "ftfy", "--input", folder / "in.jsonl", "--output",
                        folder / "out.jsonl"], check=True, stdout=subprocess.DEVNULL)
        ours = [json.loads(line)["text"] for line in open(folder / "out.jsonl")]
    if len(ours) != num_lines:
        sys.exit(f"{num_lines} lines in, {len(ours)} out")
    equal, all_lines, shown = collections.Counter(), collections.Counter(), 0
    for kind, text, our in zip(kinds, texts, ours):
        theirs = ftfy.fix_text(text)
        all_lines[kind] += 1
        equal[kind] += our == theirs
        if our != theirs and shown < 20:
            shown += 1
            print(f"{kind}: {text!r}\n  ftfy     {theirs!r}\n  espalier {our!r}")
    for kind in all_lines:
        print(f"{kind:12} {equal[kind]} of {all_lines[kind]}")
    share = sum(equal.values()) / num_lines
    print(f"equal: {sum(equal.values())} of {num_lines} ({100 * share:.4f} %)")
    return 0 if share >= 0.999 else 1


parser = argparse.ArgumentParser()
parser.add_argument("program", nargs="?")
parser.add_argument("--lines", type=int, default=100000)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--write")
arguments = parser.parse_args()
if arguments.write:
    with open(arguments.write, "w") as file:
        for kind, text in cases(400, 7):
            file.write(json.dumps({"kind": kind, "text": text, "fixed": ftfy.fix_text(text)}) + "\n")
else:
    sys.exit(compare(arguments.program, arguments.lines, arguments.seed))
