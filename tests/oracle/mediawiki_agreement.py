#!/usr/bin/env python3
"""Compares what `espalier curate step --format mediawiki` keeps of pages with mwparserfromhell, word by word.

    python=$(tests/oracle/install)
    $python tests/oracle/mediawiki_agreement.py build/bin/espalier [--pages 1000] [--seed 1]

The pages are put together from a seed of marks that both read alike; references and tables are taken out of
mwparserfromhell's tree first, since its strip_code keeps their text. The dump is read plain and as multistream bzip2.
Prints the pages that differ; fails if there is one.
"""
import argparse
import bz2
import html
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import mwparserfromhell

WORDS = "river château Straße мост 東京 it's bridge 42 north, old. (stone) valley".split()


def words(rng, most=4):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, most)))


def template(rng, depth=0):
    inner = template(rng, depth + 1) if depth < 4 and rng.random() < 0.5 else f"[[{words(rng)}]]"
    return "{{" + words(rng) + f"|a={inner}|\n b = {words(rng)}" + "}}"


def inline(rng):
    kind = rng.randrange(11)
    text = words(rng)
    return [text, f"''{text}''", f"'''{text}'''", f"[[{text}]]", f"[[{words(rng)}|''{text}'' end]]",
            f"[https://a.org/x?y=1 {text}]", "word" + template(rng), f"word<ref name=\"x\">{text} {template(rng)}</ref>",
            "word<ref name=x/>", f"<!-- {text} [[ {{{{ -->", f"&lt;{words(rng, 1)}&gt;&nbsp;&amp; <small>{text}</small>"][kind]


def paragraph(rng):
    return " ".join(inline(rng) for _ in range(rng.randint(1, 8))) + "\n\n"


def table(rng):
    inner = "\n{|\n| " + words(rng) + "\n|}\n" if rng.random() < 0.3 else words(rng)
    return "\n{| class=\"wikitable\"\n! " + words(rng) + "\n|-\n| " + template(rng) + " || " + inner + "\n|}\n\n"


def section(rng):
    level = "=" * rng.randint(2, 4)
    return f"\n{level} {words(rng)} {level}\n"


def source_of_page(rng):
    parts = rng.choices([paragraph, table, section], [6, 1, 2], k=rng.randint(1, 10))
    return "word " + "".join(part(rng) for part in parts)


def expected_words(source):
    code = mwparserfromhell.parse(source)
    for tag in code.filter_tags(matches=lambda node: str(node.tag) in ("ref", "table")):
        try:
            code.remove(tag)
        except ValueError:  # it was inside of one that is out already
            pass
    return code.strip_code().split()


def xml_page(number, source):
    return (f"  <page>\n    <title>Page {number}</title>\n    <ns>0</ns>\n    <id>{number}</id>\n    <revision>\n"
            f"      <id>1</id>\n      <model>wikitext</model>\n      <text xml:space=\"preserve\">"
            f"{html.escape(source)}</text>\n    </revision>\n  </page>\n")


def read_dump(program, path):
    output = path.with_suffix(".jsonl")
    subprocess.run([program, "curate", "step", "length", "--format", "mediawiki", "--input", path, "--output", output],
                   check=True, stdout=subprocess.DEVNULL)
    return [json.loads(line) for line in open(output)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--pages", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    sources = [source_of_page(rng) for _ in range(arguments.pages)]
    streams = ["<mediawiki>\n  <siteinfo/>\n", *map(xml_page, range(len(sources)), sources), "</mediawiki>\n"]
    with tempfile.TemporaryDirectory() as name:
        plain, multistream = pathlib.Path(name) / "a.xml", pathlib.Path(name) / "b.bz2"
        plain.write_text("".join(streams))
        multistream.write_bytes(b"".join(bz2.compress(stream.encode()) for stream in streams))
        ours = read_dump(arguments.program, plain)
        if ours != read_dump(arguments.program, multistream):
            sys.exit("the dump gives other documents as multistream bzip2 than plain")
    if [document["id"] for document in ours] != [str(number) for number in range(len(sources))]:
        sys.exit(f"{len(sources)} pages in, {len(ours)} out, or others")
    num_different = 0
    for source, document in zip(sources, ours):
        theirs = expected_words(source)
        if document["text"].split() != theirs:
            num_different += 1
            if num_different <= 5:
                print(f"{source!r}\n  mwparserfromhell {theirs}\n  espalier         {document['text'].split()}")
    print(f"equal: {len(sources) - num_different} of {len(sources)} pages")
    return 1 if num_different else 0


sys.exit(main())
