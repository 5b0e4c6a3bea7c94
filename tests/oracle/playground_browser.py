#!/usr/bin/env python3
"""The playground of `espalier serve` in a real Chromium: by the keyboard alone one model, and two side by side; and passages
beside an answer.

    tests/oracle/playground_browser.py [--pictures DIR]

Needs build/bin/espalier, Debian's package chromium (77, skipped, without it) and playwright (requirements-page.txt). What is
shown is compared with what /v1/completions and /retrieve answer to a plain client; no host but the server may be asked. Pictures go to
DIR (build/page-pictures).
"""
import argparse
import contextlib
import functools
import json
import pathlib
import random
import signal
import subprocess
import tempfile
import urllib.request

import browser
from browser import ESPALIER, ROOT, chromium, expect, served, train, watch

PROMPT = "The president of the"


wait = functools.partial(browser.wait, seconds=60)


@contextlib.contextmanager
def playground(*options):
    with served("serve", "--port", "0", "--num-threads", "1", *options, end=signal.SIGTERM) as url:
        yield url + "/"


def post(url, fields):
    request = urllib.request.Request(url, json.dumps(fields).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)


def answer(url, prompt, tokens, **fields):
    """Text, tokens and log-probabilities that a plain client gets."""
    return post(url + "v1/completions",
                {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "logprobs": 5, **fields})["choices"][0]


def shown(page, panel):
    spans = page.locator("article").nth(panel).locator(".text > span")
    return spans.all_text_contents()[1:], [spans.nth(at).get_attribute("class") for at in range(1, spans.count())]


def level(logprob):
    return "p" + str(sum(logprob >= bound for bound in (-4.605170185988091, -2.3025850929940455, -0.6931471805599453,
                                                        -0.10536051565782628)))


def try_page(window, url, paths, tokens, picture):
    page = window.new_page(viewport={"width": 1300, "height": 900})
    asked, errors = watch(page)
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.goto(url)
    wait(page, f"document.querySelectorAll('article').length === {len(paths)}")
    page.keyboard.type(PROMPT)  # the prompt has the focus from the start
    for name, value in (("max_tokens", str(tokens)), ("temperature", "0")):
        for _ in range(12):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.id") == name:
                break
        expect(page.evaluate("document.activeElement.id") == name, f"Tab does not reach {name}")
        page.keyboard.press("Control+a")
        page.keyboard.type(value)
    page.keyboard.press("Control+Enter")
    done = "!document.querySelector('#run').disabled && document.querySelector('.text > span:nth-child(2)')"
    wait(page, done)
    texts = []
    for panel, path in enumerate(paths):
        wanted = answer(url + path, PROMPT, tokens)
        got, classes = shown(page, panel)
        texts.append("".join(got))
        expect(got == wanted["logprobs"]["tokens"], f"'{path}': {got} and not {wanted['logprobs']['tokens']}")
        levels = [level(value) for value in wanted["logprobs"]["token_logprobs"]]
        expect([it.split()[0] for it in classes] == levels, f"'{path}': colours {classes} and not {levels}")
    if len(paths) > 1:
        expect(texts[0] != texts[1], "the two models say the same; the comparison shows nothing")
        same = next(at for at in range(len(texts[0])) if texts[0][at] != texts[1][at])
        for panel in range(2):
            got, classes = shown(page, panel)
            marked = [at for at, it in enumerate(classes) if "differs" in it]
            expect(len(marked) == 1 and len("".join(got[: marked[0]])) <= same < len("".join(got[: marked[0] + 1])),
                   f"text {panel}: the first difference is at character {same}, marked are {marked} of {got}")
    for _ in range(30):  # to the last text
        if page.evaluate("document.activeElement === [...document.querySelectorAll('.text')].at(-1)"):
            break
        page.keyboard.press("Tab")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    rows = page.locator("article").last.locator(".token button")
    expect(rows.count() >= 5, "no alternatives are shown")
    page.screenshot(path=picture, full_page=True)
    got, _ = shown(page, len(paths) - 1)
    chosen = page.locator("article").last.locator(".token tr").nth(1)
    expect("key 2" in chosen.text_content(), "the second alternative has no key")
    other = answer(url + paths[-1], PROMPT + "".join(got[:2]), 1)["logprobs"]["top_logprobs"][0]
    second = sorted(other, key=other.get, reverse=True)[1]
    page.keyboard.press("2")
    wait(page, f"document.querySelector('#prompt').value.length > {len(PROMPT)}")
    expect(page.locator("#prompt").input_value() == PROMPT + "".join(got[:2]) + second,
           f"key 2 made the prompt {page.locator('#prompt').input_value()!r}")
    wait(page, done)
    for panel, path in enumerate(paths):  # every model continues the same
        wanted = answer(url + path, PROMPT + "".join(got[:2]) + second, tokens)["logprobs"]["tokens"]
        expect(shown(page, panel)[0] == wanted, f"'{path}' did not continue with the alternative")
    expect(all(it.startswith(url) or it.startswith("data:") for it in asked), f"the page asks {asked}")
    expect(not errors, f"the page's scripts fail: {errors}")
    page.set_viewport_size({"width": 390, "height": 844})
    expect(page.evaluate("document.documentElement.scrollWidth") <= 390, "the page is wider than a phone")
    page.close()


def make_index(work):
    """A retriever, hardly trained, and an index of 40 passages: the options that serve them."""
    draw, words = random.Random(5), "and arger aus brown adwjj ajvse apje don mask the der die das".split()
    with open(work / "texts.jsonl", "w") as texts, open(work / "evidence.tsv", "w") as evidence:
        evidence.write("id\ttext\ttitle\n")
        for number in range(40):
            topic = chr(97 + number % 26) + chr(97 + number // 26)
            text = " ".join(f"{topic.capitalize()} {' '.join(draw.choices(words, k=4))} {topic}." for _ in range(5))
            texts.write(json.dumps({"text": text, "title": topic}) + "\n")
            evidence.write(f"{100 + number}\t{text}\t{topic if number % 7 else ''}\n")
    bert = f"--tokenizer-type BertWordPieceLowerCase --vocab-file {ROOT}/tests/data/megatron_tokenizers/bert_lower/vocab.txt"
    for command in (
            f"preprocess --input {work}/texts.jsonl --json-keys text --split-sentences --output-prefix {work}/d {bert}",
            f"preprocess --input {work}/texts.jsonl --json-keys title --output-prefix {work}/d {bert}",
            f"""train ict {bert} --num-layers 1 --hidden-size 32 --num-attention-heads 2 --seq-length 40 --lr 3e-3
                --max-position-embeddings 40 --data-path {work}/d_text_sentence --titles-data-path {work}/d_title_document
                --split 100,0,0 --eval-iters 0 --micro-batch-size 16 --num-threads 1 --lr-decay-style constant
                --train-iters 20 --save-interval 20 --save {work}/ict""",
            f"index embed --load {work}/ict --evidence-data-path {work}/evidence.tsv --embedding-path {work}/index"):
        subprocess.run([ESPALIER, *command.split()], check=True, capture_output=True)
    return ("--retrieval-index", f"{work}/index", "--retrieval-model", f"{work}/ict", "--evidence-data-path",
            f"{work}/evidence.tsv")


def try_passages(window, url, tokens, picture):
    page = window.new_page(viewport={"width": 1300, "height": 900})
    asked, errors = watch(page)
    sent = []
    page.on("request", lambda it: it.method == "POST" and sent.append(json.loads(it.post_data).get("retrieve")))
    page.goto(url)
    page.locator("#k").wait_for()  # what belongs to passages is shown where there are some
    page.locator("#max_tokens").fill(str(tokens))
    page.locator("#temperature").fill("0")
    for question, count, prepends in (("aa and arger", 3, False), ("ba the ba", 2, True), ("ba the ba", 0, False)):
        page.locator("#prompt").fill(question)
        page.locator("#k").fill(str(count))
        page.locator("#prepend").set_checked(prepends)
        page.locator("#prompt").press("Control+Enter")
        wait(page, "!document.querySelector('#run').disabled && document.querySelector('.text > span:nth-child(2)')")
        found = post(url + "retrieve", {"query": question, "k": count})["passages"] if count else []
        wanted = [[(it["title"] or f"passage {it['id']}") + f"{it['score']:.3f}", it["text"]] for it in found]
        got = [[it.locator("h2").text_content(), it.locator("p").text_content()]
               for it in page.locator("#passages article").all()]
        expect(got == wanted, f"{question!r} shows the passages {got} and not {wanted}")
        expect(page.locator("#passages").is_visible() == bool(count), "passages are shown where none were asked for")
        fields = {"retrieve": {"k": count, "prepend": prepends}} if count else {}
        expect(sent[-1:] == [fields.get("retrieve")], f"the page asks for {sent[-1:]} and not for {fields}")
        tokens_of = answer(url, question, tokens, **fields)["logprobs"]["tokens"]
        got = shown(page, 0)[0]
        expect(got == tokens_of, f"{question!r} with {fields}: {got} and not {tokens_of}")
        if count == 3:
            page.screenshot(path=picture, full_page=True)
    expect(all(it.startswith(url) or it.startswith("data:") for it in asked), f"the page asks {asked}")
    expect(not errors, f"the page's scripts fail: {errors}")
    page.set_viewport_size({"width": 390, "height": 844})
    expect(page.evaluate("document.documentElement.scrollWidth") <= 390, "the page is wider than a phone")
    page.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=pathlib.Path, default=ROOT / "build/page-pictures")
    arguments = parser.parse_args()
    arguments.pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work, chromium() as window:
        run = pathlib.Path(work) / "run"
        train(run, rate="5e-3", save_interval=4)  # checkpoints after 4 and after 12 steps
        with playground("--load", str(run)) as url:
            try_page(window, url, [""], 12, arguments.pictures / "playground.png")
        with playground("--load", str(run), "--beside", str(run), "--beside-step", "4") as url:
            try_page(window, url, ["", "beside/"], 12, arguments.pictures / "playground-two.png")
        longer = pathlib.Path(work) / "longer"  # with room for passages before the prompt
        train(longer, rate="5e-3", save_interval=12, positions=768)
        with playground("--load", str(longer), *make_index(pathlib.Path(work))) as url:
            try_passages(window, url, 8, arguments.pictures / "playground-passages.png")
    print("playground_browser: one model, two, and passages beside an answer, as plain clients are answered; pictures in "
          f"{arguments.pictures}")


if __name__ == "__main__":
    main()
