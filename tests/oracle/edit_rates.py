"""Prints the edits that sacrebleu counts in 40 pairs of texts; src/eval/edit_rate_test.cpp makes the same pairs and holds
the numbers.

    $(tests/oracle/install) tests/oracle/edit_rates.py
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(sys.executable).parent.parent / "lm_eval-0.4"))
import sacrebleu  # noqa: E402

state = 7


def draw(count):
    global state
    state = (state * 1103515245 + 12345) % 2**31
    return (state >> 8) % count


def words(count, kinds):
    return [chr(ord("a") + draw(kinds)) for _ in range(count)]


def pair(case):
    reference = words(1 + draw(90 if case % 10 == 0 else 30), 3 + draw(20))
    kind = draw(3)
    if kind == 0:
        return words(draw(40), 3 + draw(20)), reference
    text = list(reference)
    for _ in range(1 + draw(4)):  # runs are moved
        first, length = draw(len(text)), 1 + draw(6)
        run = text[first : first + length]
        del text[first : first + length]
        target = draw(len(text) + 1)
        text[target:target] = run
    if kind == 2:
        for _ in range(draw(4)):
            text[draw(len(text))] = "Z"
    return text, reference


metric = sacrebleu.TER()
edits = []
for case in range(40):
    text, reference = pair(case)
    edits.append(metric.sentence_score(" ".join(text), [" ".join(reference)]).num_edits)
print(edits)
