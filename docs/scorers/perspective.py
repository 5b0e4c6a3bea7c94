#!/usr/bin/env python3
"""A scorer (docs/detoxify.md) that asks Perspective API. Needs Python 3.8 and nothing else.

    PERSPECTIVE_API_KEY=... espalier detoxify score --input F --scorer 'python3 docs/scorers/perspective.py' --workers 8

Attributes and languages are those of Megatron-DeepSpeed's script. Quotas and faults of the service are waited for; where it
refuses a text (a language that it does not know), the score is null, and stderr says why.
"""
import json
import os
import sys
import time
import urllib.error
import urllib.request

ATTRIBUTES = ("toxicity", "severe_toxicity", "sexually_explicit", "threat", "profanity", "identity_attack")
ADDRESS = os.environ.get("PERSPECTIVE_API_URL", "https://commentanalyzer.googleapis.com/v1alpha1/comments:analyze")
LONGEST_WAIT_SECONDS = 60


def scores(text, key):
    body = {
        "comment": {"text": text},
        "requestedAttributes": {name.upper(): {} for name in ATTRIBUTES},
        "spanAnnotations": False,
        "languages": ["en"],
    }
    request = urllib.request.Request(ADDRESS, json.dumps(body).encode(), {"Content-Type": "application/json", "X-Goog-Api-Key": key})
    with urllib.request.urlopen(request, timeout=30) as answer:
        found = json.load(answer)["attributeScores"]
    return {name: found[name.upper()]["summaryScore"]["value"] for name in ATTRIBUTES}


def patient_scores(text, key):
    wait = 1
    while True:
        try:
            return scores(text, key)
        except urllib.error.HTTPError as error:
            if error.code == 400:  # of this text
                sys.stderr.write(f"Perspective API: no score: {error.read(300).decode(errors='replace')}\n")
                return None
            if error.code in (401, 403):
                sys.exit(f"Perspective API: {error}: is PERSPECTIVE_API_KEY right?")
            sys.stderr.write(f"Perspective API: {error}, again in {wait} s\n")
        except OSError as error:
            sys.stderr.write(f"Perspective API: {error}, again in {wait} s\n")
        time.sleep(wait)
        wait = min(2 * wait, LONGEST_WAIT_SECONDS)


def main():
    key = os.environ.get("PERSPECTIVE_API_KEY") or sys.exit("PERSPECTIVE_API_KEY is not set")
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps({"id": asked["id"], "score": patient_scores(asked["text"], key)}), flush=True)


main()
