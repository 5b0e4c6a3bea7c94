#!/usr/bin/env python3
"""The playground of `espalier serve` in a real Chromium, by the keyboard alone: one model, and two side by side.

    tests/oracle/playground_browser.py [--pictures DIR]

Needs build/bin/espalier, Debian's package chromium (77, skipped, without it) and playwright (requirements-page.txt). What is
shown is compared with what /v1/completions answers to a plain client; no host but the server may be asked. Pictures go to
DIR (build/page-pictures).
"""
import argparse
import contextlib
import functools
import json
import pathlib
import signal
import tempfile
import urllib.request

import browser
from browser import ROOT, chromium, expect, served, train, watch

PROMPT = "The president of the"


wait = functools.partial(browser.wait, seconds=60)


@contextlib.contextmanager
def playground(*options):
    with served("serve", "--port", "0", "--num-threads", "1", *options, end=signal.SIGTERM) as url:
        yield url + "/"


def answer(url, prompt, tokens):
    """Text, tokens and log-probabilities that a plain client gets."""
    body = json.dumps({"prompt": prompt, "max_tokens": tokens, "temperature": 0, "logprobs": 5}).encode()
    request = urllib.request.Request(url + "v1/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)["choices"][0]


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
    print(f"playground_browser: one model and two, as plain clients are answered; pictures in {arguments.pictures}")


if __name__ == "__main__":
    main()
