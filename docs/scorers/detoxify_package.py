#!/usr/bin/env python3
"""A scorer (docs/detoxify.md) by the Python package Detoxify: a model on this machine, no service.

    pip install detoxify
    espalier detoxify score --input F --scorer 'python3 docs/scorers/detoxify_package.py' --answer-seconds 600

DETOXIFY_MODEL (original, unbiased, multilingual; original unless set) and DETOXIFY_DEVICE (cpu, cuda) choose. Its attributes
are the package's own, among them toxicity; numbers of different models, and Perspective API's, are not to be compared.
"""
import json
import os
import sys

from detoxify import Detoxify

model = Detoxify(os.environ.get("DETOXIFY_MODEL", "original"), device=os.environ.get("DETOXIFY_DEVICE", "cpu"))
for line in sys.stdin:
    asked = json.loads(line)
    score = {name: float(value) for name, value in model.predict(asked["text"]).items()}
    print(json.dumps({"id": asked["id"], "score": score}), flush=True)
