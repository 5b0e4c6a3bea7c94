#!/usr/bin/env python3
"""Plants known defects in Debian's documentation in ten languages, makes a training mix of it, counts what was caught.

    tests/planted_mix.py [PROGRAM] [--seed N] [--keep DIR]     PROGRAM: build/bin/espalier

Debian's packages with the FAQ in ten languages, and pages in an eleventh, are downloaded by apt-get (6 MB; nothing is
installed). Their pages become JSONL, HTML, WARC and a MediaWiki dump, with the defects of the table that is printed:

    planted   how many (duplicates are of the documents above them, everything else has a document of its own)
    found     how many of them the recipe dealt with: dropped for the right reason, masked, cut out or repaired
    false     what it dealt with though it had no such defect. Of duplicates: those with less than 0.4 of
              their runs of 5 words in common with what they were held against. Gopher's rules for repetition
              drop a few of Debian's own texts.

Exit code 1 where something planted was not found. Python 3.9 and later, nothing but its own library.
"""

import argparse
import bz2
import gzip
import html
import html.parser
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unicodedata

LANGUAGES = ["en", "de", "fr", "it", "ja", "ko", "nl", "pt", "ru", "zh-cn"]
OTHER = "maint-guide-vi"  # Vietnamese, which the recipe does not keep
ROOT = pathlib.Path(__file__).resolve().parents[1]
RECIPE = """
[output]
folder = "{folder}/mix"
by = "language"
tokenizer = "{root}/tests/data/gpt2-tiny/vocab.json"
{sources}
[[step]]
name = "urls"
domains = "{folder}/domains.txt"
[[step]]
name = "ftfy"
normalization = "NFC"
[[step]]
name = "length"
least = 100
[[step]]
name = "language"
keep = ["en", "de", "fr", "it", "ja", "ko", "nl", "pt", "ru", "zh"]
[[step]]
name = "exact"
[[step]]
name = "minhash"
[[step]]
name = "gopher"
least_words = 0
least_mean_length = 0
most_mean_length = 1e9
most_symbols = 1e9
least_alphabetic = 0
least_stop_words = 0
[[step]]
name = "pii"
[[step]]
name = "ngrams"
against = ["quiz={folder}/quiz.jsonl"]
"""


class Paragraphs(html.parser.HTMLParser):
    """The text of the <p> elements of a page."""

    def __init__(self):
        super().__init__()
        self.texts, self.depth = [], 0

    def handle_starttag(self, tag, attributes):
        if tag == "p":
            self.depth, self.texts = 1, self.texts + [""]

    def handle_endtag(self, tag):
        if tag == "p":
            self.depth = 0

    def handle_data(self, data):
        if self.depth:
            self.texts[-1] += data


def paragraphs_of(page):
    parser = Paragraphs()
    parser.feed(page)
    texts = [" ".join(text.split()) for text in parser.texts]
    return [text for text in texts if len(text) > 40]


def debian_pages(folder):
    """{language: [page]} of the packages, in the order of their names."""
    packages = ["debian-faq" + ("" if language == "en" else "-" + language) for language in LANGUAGES] + [OTHER]
    try:
        subprocess.run(["apt-get", "download", "-q", *packages], cwd=folder, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        sys.exit("tests/planted_mix.py needs Debian's apt-get and dpkg")
    except subprocess.CalledProcessError as error:
        sys.exit(f"apt-get could not download {' '.join(packages)}: {error.stderr.strip()}")
    pages = {}
    for language, package in zip(LANGUAGES + ["vi"], packages):
        subprocess.run(["dpkg", "-x", str(next(folder.glob(package + "_*.deb"))), str(folder / language)], check=True)
        files = sorted(
            path for path in (folder / language).rglob("*.html*") if path.is_file() and "index" not in path.name
        )
        pages[language] = [
            (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8").read() for path in files
        ]
    return pages


def plain(text):
    """What is compared where repairs may change blanks, widths, quotation marks: letters and digits alone."""
    return "".join(c for c in unicodedata.normalize("NFKC", text) if c.isalnum())


def same(output, original):
    """Whether a text is the original, masks of personal data aside."""
    parts = [re.escape(plain(part)) for part in re.split(r"PI:(?:KEY|EMAIL|USER|IP_ADDRESS)", output)]
    return re.fullmatch(".*".join(parts), plain(original)) is not None


def runs(text):
    words = text.split()
    return {tuple(words[at : at + 5]) for at in range(max(1, len(words) - 4))}


def jaccard(a, b):
    return len(runs(a) & runs(b)) / max(1, len(runs(a) | runs(b)))


class Corpus:
    """Documents of the JSONL file, with their defects."""

    def __init__(self, rng):
        self.rng, self.lines, self.documents, self.planted = rng, [], [], {}

    def add(self, text, kind=None, **rest):
        document = {"id": len(self.lines), "text": text, **rest}
        self.lines.append(json.dumps(document, ensure_ascii=self.rng.random() < 0.5))
        self.documents.append(document)
        if kind:
            self.planted.setdefault(kind, []).append(document["id"])
        return document["id"]

    def add_broken(self, line):
        self.lines.append(line)
        self.documents.append(None)
        self.planted.setdefault("record that is no JSON", []).append(len(self.lines) - 1)


ADDRESSES = ["{n}.planted@example{n}.org", "203.0.{n}.77", "sk-live-{n}Qw8xZt5Rb2Ln7Vc4Mk9Pd3Hs6"]
QUIZ = (
    "The harbour master of the old northern town keeps {n} brass clocks in the tower and winds every one of them by "
    "hand each {day} before the first ferry leaves for the islands"
).split()


def build(corpus, texts, rng):
    """Fills the corpus; returns the evaluation's texts, the personal data, and broken ids with their originals."""
    quiz = [
        " ".join(QUIZ).format(n=n * 7 + 3, day=day)
        for n, day in enumerate(
            ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday", "evening"]
        )
    ]
    pii, broken = [], {}
    # Documents of their own for what would be a near duplicate beside the original.
    western = [
        (language, text)
        for language in ("en", "de", "fr", "it", "nl", "pt", "ru")
        for text in texts[language]
        if len(text) > 900
    ]
    rng.shuffle(western)
    english = set().union(*map(runs, texts["en"]))  # which some pages of other languages are in part
    accented = [
        (language, text)
        for language, text in western
        if language != "en"
        and len(plain(text.encode("ascii", "ignore").decode())) < len(plain(text))
        and len(runs(text) & english) < 0.1 * len(runs(text))
    ]
    taken = {"mojibake": accented[:40]}
    others = [one for one in western if one not in taken["mojibake"]]
    taken["pii"], taken["quiz"], taken["url"] = others[:30], others[30:54], others[54:79]
    gone = {text for group in taken.values() for _, text in group}
    for language, documents in texts.items():
        for text in documents:
            if text not in gone:
                corpus.add(text, "document in another language" if language == "vi" else None, lang=language)
    clean = [d for d in corpus.documents if d["lang"] != "vi" and len(d["text"]) > 600]
    for document in rng.sample(clean, 40):
        corpus.add(document["text"], "exact duplicate", lang=document["lang"])
    for document in rng.sample([d for d in clean if len(d["text"].split()) > 150], 40):
        words = document["text"].split(" ")
        words[rng.randrange(20, len(words) - 20)] = "Zwischenwort"
        corpus.add(" ".join(words), "near duplicate", lang=document["lang"])
    for n, (language, text) in enumerate(taken["pii"]):
        pii.append(ADDRESSES[n % 3].format(n=n + 10))
        corpus.add(text + " " + pii[-1] + " .", "personal data", lang=language)
    for n, (language, text) in enumerate(taken["quiz"]):
        middle = text.rfind(" ", 0, len(text) // 2) + 1
        corpus.add(text[:middle] + quiz[n % 8] + ". " + text[middle:], "text of an evaluation", lang=language)
    for n, (language, text) in enumerate(taken["mojibake"]):
        data = text.encode("utf-8")
        if n % 2:  # Windows-1252 as browsers have it: what it lacks is Latin-1's
            wrong = "".join(
                bytes([b]).decode("cp1252") if b not in (0x81, 0x8D, 0x8F, 0x90, 0x9D) else chr(b) for b in data
            )
        else:
            wrong = data.decode("latin-1")
        broken[corpus.add(wrong, "mojibake", lang=language)] = text
    lines = rng.sample([d for d in clean if d["lang"] in ("en", "de", "fr", "it", "nl", "pt")], 25)
    for n in range(25):
        corpus.add(f"Too short, {n}.", "short document", lang="en")
        line = lines[n]["text"][:80]
        corpus.add("\n".join([line] * 30), "repeated line", lang="en")
        language, text = taken["url"][n]
        corpus.add(text, "URL of a listed domain", lang=language, url=f"http://ads.bad-{n % 5}.example/p/{n}")
        corpus.add_broken(rng.choice(['{"text": "unfinished', "not JSON at all", '{"text": 17}', '["text"]']))
    return quiz, pii, broken


def wiki_page(title, namespace, number, text):
    return (
        f"<page><title>{title}</title><ns>{namespace}</ns><id>{number}</id><revision><id>{number}</id>"
        f"<model>wikitext</model><format>text/x-wiki</format><text>{html.escape(text)}</text></revision></page>"
    )


def write_pages(folder, pages, rng):
    """HTML files, a WARC and a dump, each with what must not come through; returns these strings and the titles."""
    page_folder = folder / "pages"
    page_folder.mkdir()
    warc, dump, n = b"", [], 0
    for language, list_of in pages.items():
        for page in list_of:
            n += 1
            menu = f'<nav><a href="/">Menu planted-menu-{n}</a> <a href="/x">Next</a></nav>'
            body = re.sub(r"(<body[^>]*>)", lambda m: m.group(1) + menu, page, count=1)
            body = body.replace("</body>", f"<footer>planted-footer-{n}</footer></body>")
            if n % 3 == 0:
                (page_folder / f"{n:04d}.html").write_text(body, encoding="utf-8")
            elif n % 3 == 1:
                http = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n" + body.encode()
                warc += (
                    f"WARC/1.0\r\nWARC-Type: response\r\n"
                    f"WARC-Record-ID: <urn:uuid:00000000-0000-0000-0000-{n:012d}>\r\n"
                    f"WARC-Target-URI: http://www.debian.org/{n}\r\nWARC-Date: 2026-01-01T00:00:00Z\r\n"
                    f"Content-Type: application/http; msgtype=response\r\nContent-Length: {len(http)}\r\n\r\n"
                ).encode()
                warc += http + b"\r\n\r\n"
            else:
                text = "\n\n".join(paragraphs_of(page)).translate(str.maketrans("[]{}", "()()"))
                text = (
                    f"{{{{box|planted-template-{n}}}}}\n{text}<ref>planted-reference-{n}</ref>\n"
                    f"[[File:a.png|planted-file-{n}]]"
                )
                dump.append(wiki_page(f"Page {n}", 0, n, text))
                dump.append(wiki_page(f"Talk:Page {n}", 1, n + 9000, f"planted-talk-{n} {'word ' * 60}"))
    with gzip.open(folder / "pages.warc.gz", "wb") as file:
        file.write(warc)
    with bz2.open(folder / "wiki.xml.bz2", "wt", encoding="utf-8") as file:
        file.write(
            "<mediawiki><siteinfo><namespaces><namespace key=\"0\" /><namespace key=\"1\">Talk</namespace>"
            "</namespaces></siteinfo>" + "\n".join(dump) + "</mediawiki>"
        )
    return n


def fates(program, mix, file, count):
    """Why each line of the file went, or "" where it stayed."""
    found = []
    for line in range(1, count + 1):
        said = subprocess.run(
            [program, "curate", "why", mix, "--document", f"{file}:{line}"], check=True, capture_output=True, text=True
        ).stdout
        found.append("" if "stayed: line" in said else said.strip())
    return found


def table_of(corpus, why, mix, quiz, pii, broken, report):
    by_id = {d["id"]: d for d in mix if "id" in d}
    everything = "\n".join(d["text"] for d in mix)
    reasons = {
        "exact duplicate": ("exact",),
        "near duplicate": ("minhash", "exact"),
        "short document": ("length",),
        "repeated line": ("gopher", "language"),  # of some, cld2 cannot tell the language
        "document in another language": ("language",),
        "URL of a listed domain": ("urls",),
        "record that is no JSON": ("was not a document",),
    }
    rows = []
    defective = set().union(*corpus.planted.values())
    for kind, words in reasons.items():
        planted = set(corpus.planted[kind])
        right = lambda number: any(word in why[number] for word in words)
        wrong = [n for n in range(len(why)) if n not in defective and right(n)]
        if kind.endswith("duplicate"):  # the one that it was held against is named: are they alike?
            other = lambda n: int(re.search(r"against (\d+)", why[n]).group(1))
            wrong = [n for n in wrong if jaccard(corpus.documents[n]["text"], corpus.documents[other(n)]["text"]) < 0.4]
        rows.append((kind, len(planted), sum(right(n) for n in planted), len(wrong)))
    rows.append(("personal data", len(pii), sum(secret not in everything for secret in pii), None))
    planted = corpus.planted["text of an evaluation"]
    runs = {" ".join(q.lower().split()[at : at + 13]) for q in quiz for at in range(len(q.split()) - 12)}
    caught = [
        n
        for n in planted
        if not any(run in " ".join(by_id.get(n, {"text": ""})["text"].lower().split()) for run in runs)
    ]
    pieces = {}
    for document in mix:
        if "id" in document:
            pieces.setdefault(document["id"], []).append(document["text"])
    # Documents that came through and should have come through as they were.
    whole = [
        d for d in corpus.documents if d and d["id"] in pieces and d["id"] not in broken and d["id"] not in planted
    ]
    cut = [d for d in whole if len(pieces[d["id"]]) > 1 or len(plain(pieces[d["id"]][0])) < len(plain(d["text"])) - 300]
    rows.append(("text of an evaluation", len(planted), len(caught), len(cut)))
    repaired = [n for n, text in broken.items() if n in pieces and same(pieces[n][0], text)]
    changed = [d for d in whole if d not in cut and not same(pieces[d["id"]][0], d["text"])]
    rows.append(("mojibake", len(broken), len(repaired), len(changed)))
    markers = [
        ("menu, footer of a page", r"planted-(?:menu|footer)-\d+"),
        ("template, note, talk page of a wiki", r"planted-(?:template|reference|file|talk)-\d+"),
    ]
    for kind, pattern in markers:
        rows.append((kind, report[kind], report[kind] - len(set(re.findall(pattern, everything))), None))
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", nargs="?", default=str(ROOT / "build/bin/espalier"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for all of it, which is to be empty")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.keep or pathlib.Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "packages").mkdir()
        pages = debian_pages(folder / "packages")
        # Every second page of each language as text, six paragraphs a document; the others as pages.
        texts = {}
        for language, list_of in pages.items():
            paragraphs = [paragraph for page in list_of[::2] for paragraph in paragraphs_of(page)]
            texts[language] = ["\n".join(paragraphs[at : at + 6]) for at in range(0, len(paragraphs) - 5, 6)]
            if language == "vi":
                texts[language] = texts[language][:20]
        corpus = Corpus(rng)
        quiz, pii, broken = build(corpus, texts, rng)
        with gzip.open(folder / "texts.jsonl.gz", "wt", encoding="utf-8") as file:
            file.write("\n".join(corpus.lines) + "\n")
        num_pages = write_pages(folder, {language: pages[language][1::2] for language in LANGUAGES}, rng)
        (folder / "quiz.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in quiz))
        (folder / "domains.txt").write_text("".join(f"bad-{n}.example\n" for n in range(5)))
        sources = [
            ("texts", "texts.jsonl.gz", "jsonl"),
            ("pages", "pages", "html"),
            ("warc", "pages.warc.gz", "warc"),
            ("wiki", "wiki.xml.bz2", "mediawiki"),
        ]
        sections = "".join(
            f'[[source]]\nname = "{name}"\nfiles = ["{folder}/{file}"]\nformat = "{kind}"\n'
            f'metadata = {{ licence = "GPL-2+" }}\n'
            for name, file, kind in sources
        )
        (folder / "recipe.toml").write_text(RECIPE.format(folder=folder, root=ROOT, sources=sections))
        subprocess.run([arguments.program, "curate", str(folder / "recipe.toml")], check=True)
        mix = [
            json.loads(line)
            for path in sorted((folder / "mix").glob("*.jsonl"))
            for line in open(path, encoding="utf-8")
        ]
        why = fates(arguments.program, str(folder / "mix"), str(folder / "texts.jsonl.gz"), len(corpus.lines))
        wiki = num_pages // 3 + (num_pages % 3 == 2)
        counts = {"menu, footer of a page": 2 * (num_pages - wiki), "template, note, talk page of a wiki": 4 * wiki}
        rows = table_of(corpus, why, mix, quiz, pii, broken, counts)
        print(f"{'':38}{'planted':>9}{'found':>9}{'false':>9}")
        for kind, planted, found, false in rows:
            print(f"{kind:38}{planted:9}{found:9}{'-' if false is None else false:>9}")
        languages = sorted({d.get("language") for d in mix})
        print(f"{len(mix)} documents in {len(languages)} languages: {', '.join(languages)}")
        sys.exit(any(found < planted for _, planted, found, _ in rows) or len(languages) != len(LANGUAGES))


if __name__ == "__main__":
    main()
