#!/usr/bin/env python3
"""The page of `espalier runs serve` and the file of `espalier runs report` in a real Chromium, as people use them: a run of a
million steps with a thousand planted spikes of one step each, and a run that the program trained.

    tests/oracle/page_browser.py [--steps N] [--pictures DIR]

Needs build/bin/espalier, Debian's package chromium (77, skipped, without it) and playwright (requirements-page.txt). What the
page shows is compared with what was planted, and with `data who --text`; no host but the server may be asked; times are
printed, never judged. Pictures go to DIR (build/page-pictures).
"""
import argparse
import json
import pathlib
import random
import signal
import subprocess
import tempfile
import time

from browser import ESPALIER, ROOT, chromium, expect, served, train, wait, watch

NUM_SPIKES, SPIKE = 1000, 50.0
PAGE_BYTES, REPORT_BYTES = 150_000, 2_000_000


def write_long_run(folder, steps):
    """`steps` records of 20 numbers; the loss is below 10 but for the spikes, whose steps are returned."""
    folder.mkdir(parents=True)
    generator = random.Random(7)
    spikes = set(generator.sample(range(1, steps + 1), min(NUM_SPIKES, steps // 10)))
    names = [f"metric_{i:02}" for i in range(17)]
    noise = [",".join(f'"{name}":{generator.random():.4f}' for name in names) for _ in range(997)]
    with open(folder / "metrics.jsonl", "w") as file:
        for step in range(1, steps + 1):
            loss = SPIKE + step % 40 if step in spikes else 2 + 8000 / (step + 1000)
            file.write(f'{{"step":{step},"consumed_tokens":{step * 100},"lm_loss":{loss:.4f},"grad_norm":1.5,'
                       f'"step_seconds":0.5,{noise[step % 997]}}}\n')
    (folder / "config.toml").write_text("[learning_rate]\nlr = 0.001\n")
    (folder / "events.jsonl").write_text('{"time":1.5,"event":"start","step":0,"detail":"<b>of</b> </script> steps"}\n')
    return sorted(spikes)


def pages_of(folder):
    return served("runs", "serve", str(folder), end=signal.SIGINT)


def check_spikes(page, spikes, where):
    """Each spike is in a column of pixels that reaches it."""
    drawn, first, to, left, right = page.evaluate("""() => {
        const chart = charts.get("lm_loss"), box = chart.place();
        return [chart.drawn, chart.first, chart.to, box.left, box.right]; }""")
    columns = {int(x): high for x, _, high in drawn}
    for step in spikes:
        x = left + (step - first) / max(1, to - first) * (right - left)
        near = max(columns.get(int(x) + shift, 0) for shift in (-2, -1, 0, 1))
        expect(near >= SPIKE, f"{where}: the spike of step {step} is not drawn at x = {x:.1f}")


def open_run(page, name):
    page.locator("#runs a", has_text=name).click()
    wait(page, f"document.querySelector('#run h2').textContent.includes('{name}') && "
                           "charts.size > 0 && [...charts.values()].every(it => it.drawn)")


def check_long(page, spikes, steps, pictures):
    open_run(page, "long")
    wait(page, "charts.has('lm_loss')")
    first = page.evaluate("window.lastDrawing")
    check_spikes(page, spikes, "the page")
    page.screenshot(path=pictures / "long-light.png")
    for step in random.Random(3).sample(spikes, 10):
        page.evaluate(f"zoom({max(1, step - 40)}, {min(steps, step + 40)})")
        wait(page, f"charts.get('lm_loss').to <= {step + 41}")
        peak = page.evaluate("Math.max(...charts.get('lm_loss').highest.filter(it => it !== null))")
        expect(peak >= SPIKE, f"step {step} is lost in a zoom")
    closer = page.evaluate("window.lastDrawing")
    page.evaluate("zoom(null)")
    wait(page, f"charts.get('lm_loss').to >= {steps}")
    return {"first chart of all, ms": first, "zoom, ms": closer}


def check_follow(page, folder, steps):
    """New records arrive without the rest being asked for again."""
    sizes = []
    page.on("response", lambda reply: sizes.append(len(reply.body())) if "api/new" in reply.url else None)
    with open(folder / "metrics.jsonl", "a") as file:
        file.write("".join(f'{{"step":{step},"lm_loss":77.5}}\n' for step in range(steps + 1, steps + 11)))
    wait(page, f"run.last_step === {steps + 10}")
    expect(page.evaluate("charts.get('lm_loss').highest.at(-1)") == 77.5, "the last record is not drawn")
    return {"tick, ms": page.evaluate("window.lastTick"), "bytes of a tick with 10 records": max(sizes)}


def check_log(page, folder):
    """The end of the run's log, then what is added to it."""
    page.locator("#log summary").click()
    wait(page, "document.querySelector('#log pre').textContent.length > 0")
    kept = (folder / "log.txt").read_text()
    expect(page.locator("#log pre").text_content() == kept, "the log on the page is not log.txt")
    with open(folder / "log.txt", "a") as file:
        file.write("<b>a line</b> that came later\n")
    wait(page, "document.querySelector('#log pre').textContent.endsWith('<b>a line</b> that came later\\n')", 10)
    expect(page.locator("#log pre").text_content() == kept + "<b>a line</b> that came later\n", "lines came twice")
    page.locator("#log summary").click()


LIVE_RUNS, LIVE_SECONDS = 50, 24


def check_live(browser, work):
    """Fifty runs that grow by a record a second: script of a second, in which the page asks once for new records, and every
    tenth time for the list."""
    runs = pathlib.Path(work) / "live"
    names = [f"metric_{i:02}" for i in range(17)]
    files = []

    def add(step):
        values = ",".join(f'"{name}":{step % 7}.5' for name in names)
        for file in files:
            file.write(f'{{"step":{step},"consumed_tokens":{step * 100},"lm_loss":2.5,"grad_norm":1.5,'
                       f'"step_seconds":1,{values}}}\n')
            file.flush()

    for number in range(LIVE_RUNS):
        (runs / f"run_{number:02}").mkdir(parents=True)
        files.append(open(runs / f"run_{number:02}" / "metrics.jsonl", "w"))
    for step in range(1, 501):
        add(step)
    with pages_of(runs) as url:
        page = browser.new_page(viewport={"width": 1300, "height": 900})
        page.goto(url)
        wait(page, "charts.size > 0 && [...charts.values()].every(it => it.drawn)")
        expect(page.locator("#runs tbody tr").count() == LIVE_RUNS, "not every run is listed")
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable")

        def script_ms():
            metrics = {it["name"]: it["value"] for it in session.send("Performance.getMetrics")["metrics"]}
            return 1000 * metrics["ScriptDuration"]

        seconds, before = [], script_ms()
        for second in range(LIVE_SECONDS):
            add(501 + second)
            page.wait_for_timeout(1000)
            now = script_ms()
            seconds.append(now - before)
            before = now
        expect(page.evaluate("run.last_step") >= 500 + LIVE_SECONDS - 2, "the page does not follow")
        page.close()
    return {f"{LIVE_RUNS} live runs: script of the median second, ms": sorted(seconds)[len(seconds) // 2],
            f"{LIVE_RUNS} live runs: script of the longest second, ms": max(seconds)}


def check_trained(page, folder, pictures):
    page.keyboard.press("/")
    page.keyboard.type("trained")
    expect(page.locator("#runs tbody tr").count() == 1, "the filter shows more than the run it names")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    expect(page.evaluate("document.activeElement.id").startswith("run-"), "j moves to no run")
    open_run(page, "trained")
    page.locator("#ranks summary").click()
    wait(page, "document.querySelector('#ranks div').textContent.includes('no launcher answers')")
    page.locator("#plan summary").click()
    wait(page, "document.querySelector('#plan img')?.naturalWidth > 100")
    check_log(page, folder)
    page.locator("#texts summary").click()
    page.locator("#text-step").fill("3")
    page.keyboard.press("Enter")
    who = subprocess.run([ESPALIER, "data", "who", "--run", str(folder), "--step", "3", "--text", "--json"],
                         check=True, capture_output=True, text=True).stdout
    wanted = [piece["text"] for line in who.splitlines() for piece in json.loads(line)["pieces"]]
    for _ in range(100):  # those of the newest step were shown before
        shown = page.locator("#texts pre").all_text_contents()
        if shown == wanted:
            break
        page.wait_for_timeout(100)
    expect(shown == wanted, f"texts of step 3: {shown[:1]} and not {wanted[:1]}")
    expect("as recorded" in page.locator("#texts > div > p").text_content(), "the texts are not proved")
    page.locator("#text-step").fill("99")
    page.keyboard.press("Enter")
    wait(page, "document.querySelector('#texts > div').textContent.includes('has 12 steps')")
    page.locator("#texts summary").scroll_into_view_if_needed()
    page.screenshot(path=pictures / "details.png", full_page=True)


def check_phone(browser, url, pictures):
    page = browser.new_page(viewport={"width": 390, "height": 844}, color_scheme="dark")
    page.goto(url)
    wait(page, "charts.size > 0")
    expect(page.evaluate("document.documentElement.scrollWidth") <= 390, "the page is wider than a phone")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    expect(max(map(int, dark[4:-1].split(","))) < 60, f"dark is {dark}")
    page.screenshot(path=pictures / "phone-dark.png")
    page.close()


def check_report(browser, folder, spikes, pictures):
    file = folder.parent / "report.html"
    subprocess.run([ESPALIER, "runs", "report", str(folder), "--output", str(file)], check=True, capture_output=True)
    expect(file.stat().st_size <= REPORT_BYTES, f"the report has {file.stat().st_size} bytes")
    page = browser.new_page()
    asked, errors = watch(page)
    page.goto(file.as_uri())
    open_run(page, "long")
    check_spikes(page, spikes, "the report")
    open_run(page, "trained")
    page.locator("#plan summary").click()
    wait(page, "document.querySelector('#plan img')?.naturalWidth > 100")
    expect(all(url.startswith(("file:", "data:")) for url in asked), f"the report asks {asked}")
    expect(not errors, f"the report's scripts fail: {errors}")
    page.screenshot(path=pictures / "report.png", full_page=True)
    page.close()
    return {"bytes of the report": file.stat().st_size}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--pictures", type=pathlib.Path, default=ROOT / "build/page-pictures")
    arguments = parser.parse_args()
    arguments.pictures.mkdir(parents=True, exist_ok=True)
    page_bytes = sum(file.stat().st_size for file in (ROOT / "src/web/page").iterdir())
    expect(page_bytes <= PAGE_BYTES, f"the page has {page_bytes} bytes")
    figures = {"bytes of the page": page_bytes}
    with tempfile.TemporaryDirectory() as work, chromium() as browser:
        runs = pathlib.Path(work) / "runs"
        spikes = write_long_run(runs / "long", arguments.steps)
        train(runs / "trained", rate="1e-3", save_interval=12)
        with pages_of(runs) as url:
            page = browser.new_page(viewport={"width": 1300, "height": 900})
            asked, errors = watch(page)
            start = time.monotonic()
            page.goto(url)
            wait(page, "charts.size > 0")
            figures["first page while the server reads the run, ms"] = 1000 * (time.monotonic() - start)
            page.goto("about:blank")
            start = time.monotonic()
            page.goto(url)
            wait(page, "charts.size > 0 && [...charts.values()].every(it => it.drawn)")
            figures["page and first chart from nothing, ms"] = 1000 * (time.monotonic() - start)
            figures |= check_long(page, spikes, arguments.steps, arguments.pictures)
            figures |= check_follow(page, runs / "long", arguments.steps)
            check_trained(page, runs / "trained", arguments.pictures)
            check_phone(browser, url, arguments.pictures)
            base = url.rsplit("/", 2)[0]
            expect(all(it.startswith(base) for it in asked), "the page asks other hosts")
            expect(not errors, f"the page's scripts fail: {errors}")
        figures |= check_live(browser, work)
        figures |= check_report(browser, runs, spikes, arguments.pictures)
    for name, value in figures.items():
        print(f"{name}: {value:,.0f}")
    print(f"page_browser: all {len(spikes)} spikes of {arguments.steps:,} steps are drawn; pictures in {arguments.pictures}")


if __name__ == "__main__":
    main()
