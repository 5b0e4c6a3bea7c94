"""Result files of bench/run.py: two side by side, one added to another, and tables as Markdown."""
import statistics

# What is not a measurement, or is the raw material of one.
SKIPPED = {"date", "commit", "load_before", "threads", "rounds", "machine", "left_out"}
# What of a row is said about it, and not what it is about.
SAID = {"note", "parameters"}


def name_of(row):
    """Rows of a list are named by their texts and whole numbers, so that they meet the rows of another run whatever the order."""
    return " ".join(str(value) for key, value in row.items() if isinstance(value, (str, int)) and key not in SAID)


def leaves(value, path=""):
    """(path, number) of every figure."""
    if isinstance(value, dict):
        for key, part in value.items():
            if key not in SKIPPED:
                yield from leaves(part, f"{path} {key}".strip())
    elif isinstance(value, list):
        for row in value:
            if isinstance(row, dict):
                figures = {key: part for key, part in row.items() if isinstance(part, float)}
                yield from leaves(figures, f"{path} {name_of(row)}".strip())
    elif isinstance(value, float):
        yield path.replace(" rows ", " "), value


def compare(old, new):
    """Lines of a table: what, then, now, now / then."""
    before = dict(leaves(old["parts"]))
    rows = [(path, before[path], value) for path, value in leaves(new["parts"]) if path in before]
    if not rows:
        return ["no figure is in both files"]
    width = max(len(path) for path, _, _ in rows)
    lines = [f"{'':<{width}}{'then':>12}{'now':>12}{'ratio':>8}"]
    for path, then, now in rows:
        ratio = f"{now / then:.2f}" if then else ""
        lines.append(f"{path:<{width}}{then:>12.4g}{now:>12.4g}{ratio:>8}")
    same = {key for key in ("cpu", "cores") if old["machine"].get(key) == new["machine"].get(key)}
    if same != {"cpu", "cores"}:
        lines.append("the two files come from different machines: the ratios compare those as well")
    return lines


def joined(old, new):
    """A row of all rounds of two, where it has the seconds of its steps."""
    if "seconds_per_step" not in old or not isinstance(new.get("seconds_per_step"), list):
        return new
    seconds = old["seconds_per_step"] + new["seconds_per_step"]
    speed = statistics.median(new["seconds_per_step"]) / statistics.median(seconds)
    return new | {"seconds_per_step": seconds, "seconds_of_steps": old["seconds_of_steps"] + new["seconds_of_steps"],
                  "tokens_per_s": new["tokens_per_s"] * speed, "model_tflops": new["model_tflops"] * speed,
                  "spread": max(seconds) / min(seconds) - 1}


def merged(old, new, join=False):
    """What `new` measured, and of `old` the parts and rows that it did not. `join`: rows of training that both have get the rounds of
    both."""
    if not old:
        return new
    parts = dict(old["parts"])
    for name, part in new["parts"].items():
        kept = parts.get(name, {})
        if isinstance(part.get("rows"), list):
            measured = {name_of(row) for row in part["rows"]}
            if join:
                earlier = {name_of(row): row for row in kept.get("rows", [])}
                part = part | {"rows": [joined(earlier.get(name_of(row), {}), row) for row in part["rows"]]}
            part = kept | part | {"rows": [row for row in kept.get("rows", []) if name_of(row) not in measured] + part["rows"]}
            part |= {"models": kept["models"] | part["models"]} if "models" in part and "models" in kept else {}
        parts[name] = part
    return new | {"parts": parts}


def cell(value):
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def markdown(results):
    """Every part of the results as a Markdown table."""
    lines = ["# " + ", ".join(f"{key} {value}" for key, value in results["machine"].items()), ""]
    for part, values in results["parts"].items():
        lines += [f"## {part}", ""]
        if rows := values.get("rows"):
            columns = [key for key in rows[0] if not isinstance(rows[0][key], (list, dict))]
            lines += ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
            lines += ["| " + " | ".join(cell(row.get(key, "")) for key in columns) + " |" for row in rows] + [""]
        others = list(leaves({key: value for key, value in values.items() if key != "rows"}))
        if others:
            lines += ["| | |", "|---|---|"] + [f"| {path} | {value:.4g} |" for path, value in others] + [""]
        lines += [f"{values[key].strip()}\n" for key in ("table", "documents", "measured") if key in values]
    if results["left_out"]:
        lines += ["Left out: " + "; ".join(results["left_out"]) + "."]
    return "\n".join(lines) + "\n"
