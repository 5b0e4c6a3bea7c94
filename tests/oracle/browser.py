"""What the tests in a real Chromium share: page_browser.py and playground_browser.py."""
import contextlib
import pathlib
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ESPALIER = str(ROOT / "build/bin/espalier")
TINY = ROOT / "tests/data/gpt2-tiny"
NAME = pathlib.Path(sys.argv[0]).stem


def fail(message):
    sys.exit(f"{NAME}: {message}")


def expect(condition, message):
    if not condition:
        fail(message)


def wait(page, condition, seconds=120):
    """Until the expression is true. Playwright's own wait_for_function wants eval, which the page's policy forbids."""
    deadline = time.monotonic() + seconds
    while not page.evaluate(f"Boolean({condition})"):
        if time.monotonic() > deadline:
            page.screenshot(path=ROOT / "build/page-failure.png")
            fail(f"waited {seconds} s in vain for {condition}; see build/page-failure.png")
        time.sleep(0.02)


def train(folder, rate, save_interval, positions=64):
    """A run of 12 steps."""
    words = f"""{ESPALIER} train gpt --num-layers 2 --hidden-size 48 --num-attention-heads 4 --seq-length 64
        --max-position-embeddings {positions} --micro-batch-size 2 --global-batch-size 4 --lr {rate} --lr-decay-style constant
        --split 100,0,0 --eval-iters 0 --num-threads 1 --train-iters 12 --save-interval {save_interval} --save {folder}
        --data-path {ROOT}/tests/data/owt-20_text_document --vocab-file {TINY}/vocab.json
        --merge-file {TINY}/merges.txt --tokenizer-type GPT2BPETokenizer""".split()
    subprocess.run(words, check=True, capture_output=True)


@contextlib.contextmanager
def served(*words, end):
    """The address that a server prints first; it is ended by the signal `end`, and must end well."""
    process = subprocess.Popen([ESPALIER, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield process.stdout.readline().strip()
    finally:
        process.send_signal(end)
        code = process.wait(20)
    expect(code == 0, "the server did not end well")


def watch(page):
    """What the page asks for, and the errors of its scripts, as they come."""
    asked, errors = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    return asked, errors


@contextlib.contextmanager
def chromium():
    """Debian's, headless; without it the test is skipped."""
    program = shutil.which("chromium")
    if program is None:
        print(f"{NAME}: skipped: Debian's package chromium is not installed")
        sys.exit(77)
    from playwright.sync_api import sync_playwright
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()
