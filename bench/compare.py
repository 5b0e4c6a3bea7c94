"""Two result files of bench/run.py side by side, and tables as Markdown."""

# What is not a measurement, or is the raw material of one.
SKIPPED = {"seconds_per_step", "date", "commit", "load_before", "threads", "steps"}


def leaves(value, path=""):
    """(path, number) of every figure. Rows of a list are named by their texts and whole numbers, so that they meet the rows
    of another run whatever the order."""
    if isinstance(value, dict):
        for key, part in value.items():
            if key not in SKIPPED:
                yield from leaves(part, f"{path} {key}".strip())
    elif isinstance(value, list):
        for row in value:
            if isinstance(row, dict):
                name = " ".join(str(part) for part in row.values() if isinstance(part, (str, int)))
                figures = {key: part for key, part in row.items() if isinstance(part, float)}
                yield from leaves(figures, f"{path} {name}".strip())
    elif isinstance(value, float):
        yield path, value


def compare(old, new):
    """Lines of a table: what, then, now, now / then."""
    before = dict(leaves(old))
    rows = [(path, before[path], value) for path, value in leaves(new) if path in before]
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


def cell(value):
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def markdown(results):
    """Every part of the results as a Markdown table."""
    lines = ["# " + ", ".join(f"{key} {value}" for key, value in results["machine"].items()), ""]
    for part, values in results.items():
        if part in ("machine", "left_out"):
            continue
        rows = values if isinstance(values, list) else values.get("rows") if isinstance(values, dict) else None
        lines += [f"## {part}", ""]
        if rows:
            columns = [key for key in rows[0] if not isinstance(rows[0][key], (list, dict))]
            lines += ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
            lines += ["| " + " | ".join(cell(row.get(key, "")) for key in columns) + " |" for row in rows]
        elif isinstance(values, dict):
            lines += ["| | |", "|---|---|"] + [f"| {path} | {value:.4g} |" for path, value in leaves(values)]
        else:
            lines += ["```", str(values).strip(), "```"]
        lines.append("")
    if results.get("left_out"):
        lines += ["Left out: " + ", ".join(results["left_out"]) + "."]
    return "\n".join(lines) + "\n"
