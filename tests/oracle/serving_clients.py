#!/usr/bin/env python3
"""Stock clients against `espalier serve`, unpatched: openai 1, 2 and 3, lm-eval's local-completions (ids by the server's
own tokenizer, texts), local-chat-completions and gguf, Megatron's text_generation_cli.py, curl. What they get is compared
with `espalier eval --requests` and `espalier generate`, which answer without a server, to the last bit.

    tests/oracle/serving_clients.py [--environments DIR] [--megatron-cli FILE]

DIR is where the clients are installed, each version in an environment of its own (the network is needed once). FILE is
tools/text_generation_cli.py of a Megatron; without it that client is skipped. Needs build/bin/espalier.
"""
import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ESPALIER = str(ROOT / "build/bin/espalier")
TINY = ROOT / "tests/data/gpt2-tiny"
TOKENIZER = ["--vocab-file", str(TINY / "vocab.json"), "--merge-file", str(TINY / "merges.txt")]
SHAPE = ["--num-layers", "2", "--hidden-size", "48", "--num-attention-heads", "4", "--seq-length", "128",
         "--max-position-embeddings", "128", "--micro-batch-size", "4", "--global-batch-size", "8", "--lr", "5e-3",
         "--lr-decay-style", "constant", "--split", "100,0,0", "--eval-iters", "0", "--num-threads", "1",
         "--train-iters", "30", "--save-interval", "30", "--data-path", "owt_text_document", "--save", "run"]
CLIENTS = {"openai1": ["openai==1.109.1"], "openai2": ["openai==2.54.0"], "openai3": ["openai==3.54.0"],
           "lm-eval": ["-r", str(HERE / "requirements-serving.txt")]}
TEMPLATE = """{% if messages[0].role == 'system' %}
    {{ raise_exception('no system here') }}
{% endif %}
{% for message in messages %}
{{ message.role }}: {{ message.content }}
{% endfor %}
{% if add_generation_prompt %}
assistant:
{%- endif %}
"""
PAIRS = [("The president", " said that"), ("In the year 2016,", " the company"), ("x", " y z"),
         ("Caf\u00e9 \u20ac5 \U0001f600", " and more"), ("One\nTwo\n", "Three"), ("The president of the", " United States")]


def run(arguments, folder, **more):
    result = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, **more)
    if result.returncode:
        sys.exit(f"{' '.join(map(str, arguments))}: {result.returncode}\n{result.stdout}\n{result.stderr}")
    return result.stdout


def same(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}: got {got!r}, wanted {wanted!r}")


# ---- the clients, each in its own environment: serving_clients.py --client NAME URL FACTS

def client_openai(url, facts):
    import openai
    client = openai.OpenAI(base_url=url + "/v1", api_key="any", max_retries=0)
    model = client.models.list().data[0].id
    same("model", model, client.models.retrieve(model).id)
    prompt, text = facts["generate"]["prompt"], facts["generate"]["text"]
    number = len(facts["generate"]["generated_ids"])
    common = {"model": model, "prompt": prompt, "max_tokens": number, "temperature": 0}
    whole = client.completions.create(**common, logprobs=3)
    same("completion", whole.choices[0].text, text)
    same("log-probabilities", whole.choices[0].logprobs.token_logprobs, facts["generate"]["logprobs"])
    same("usage", whole.usage.completion_tokens, number)
    same("ids", client.completions.create(**{**common, "prompt": facts["generate"]["prompt_ids"]}).choices[0].text, text)
    pieces = list(client.completions.create(**common, stream=True, stream_options={"include_usage": True}))
    same("stream", "".join(p.choices[0].text for p in pieces if p.choices), text)
    same("usage of the stream", pieces[-1].usage.completion_tokens, number)
    several = client.completions.create(**{**common, "prompt": [prompt, "x"], "temperature": 1}, n=2, seed=7)
    same("indices", [choice.index for choice in several.choices], [0, 1, 2, 3])
    again = client.completions.create(**{**common, "prompt": [prompt, "x"], "temperature": 1}, n=2, seed=7)
    same("seed", [c.text for c in again.choices], [c.text for c in several.choices])
    echo = client.completions.create(**{**common, "max_tokens": 1}, echo=True, logprobs=1)
    same("first log-probability", echo.choices[0].logprobs.token_logprobs[0], None)
    same("echo", echo.choices[0].text.startswith(prompt), True)
    stop = text[len(text) // 2]
    cut = client.completions.create(**common, stop=[stop])
    same("stop", (cut.choices[0].text, cut.choices[0].finish_reason), (text[:text.index(stop)], "stop"))
    try:
        client.completions.create(**{**common, "model": "other"})
        sys.exit("an unknown model was taken")
    except openai.NotFoundError as error:
        same("code", error.code, "model_not_found")
    try:
        client.completions.create(**{**common, "max_tokens": 10 ** 6})
        sys.exit("a text beyond the model's length was taken")
    except openai.BadRequestError as error:
        same("code", error.code, "context_length_exceeded")
    messages = [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
    chat = client.chat.completions.create(model=model, messages=messages, max_tokens=5, temperature=0, logprobs=True,
                                          top_logprobs=2)
    same("role", chat.choices[0].message.role, "assistant")
    plain = client.completions.create(model=model, prompt="user: Hello\nassistant:", max_tokens=5, temperature=0)
    same("chat", (chat.choices[0].message.content, chat.usage), (plain.choices[0].text, plain.usage))
    try:
        client.chat.completions.create(model=model, messages=[{"role": "system", "content": "x"}])
        sys.exit("what the template raises was passed over")
    except openai.BadRequestError as error:
        same("what the template raises", error.body["message"], "no system here")
    same("scores", len(chat.choices[0].logprobs.content), chat.usage.completion_tokens)
    parts = list(client.chat.completions.create(model=model, messages=messages, max_tokens=5, temperature=0, stream=True))
    same("chat's stream", "".join(p.choices[0].delta.content or "" for p in parts), chat.choices[0].message.content)


def client_lm_eval(url, facts):
    import lm_eval.models  # noqa: F401 (registers the models)
    from lm_eval.api.instance import Instance
    from lm_eval.api.registry import get_model

    def ask(kind, arguments):
        return [Instance(request_type=kind, doc={}, arguments=a, idx=i) for i, a in enumerate(arguments)]

    wanted = [(s["loglikelihood"], s["is_greedy"]) for s in facts["scores"]]
    base = {"model": "run", "base_url": url + "/v1/completions", "max_length": 128, "max_gen_toks": 8}
    ways = {"ids": {"tokenizer_backend": "remote", "tokenized_requests": True},
            "ids, several at a time": {"tokenizer_backend": "remote", "tokenized_requests": True, "batch_size": 4},
            "ids, several requests at a time": {"tokenizer_backend": "remote", "tokenized_requests": True,
                                                "num_concurrent": 4}}
    for name, more in ways.items():
        model = get_model("local-completions")(**base, **more)
        same(f"local-completions, {name}", model.loglikelihood(ask("loglikelihood", PAIRS)), wanted)
        text = model.generate_until(ask("generate_until", [(facts["generate"]["prompt"], {"until": ["\n\n\n"],
                                                                                       "temperature": 0})]))[0]
        same(f"local-completions, text by {name}", facts["generate"]["text"].startswith(text) and text != "", True)
        rolling = model.loglikelihood_rolling(ask("loglikelihood_rolling", [(facts["long"],)]))
        same("rolling", len(rolling) == 1 and rolling[0] < 0, True)
    model = get_model("local-completions")(**base, tokenizer_backend="remote", tokenized_requests=False)
    text = model.generate_until(ask("generate_until", [(facts["generate"]["prompt"], {"until": ["\n\n\n"],
                                                                                   "temperature": 0})]))[0]
    same("local-completions, texts", facts["generate"]["text"].startswith(text) and text != "", True)
    # It leaves a context's last blank where it is; the others, and `espalier eval`, score it with the continuation.
    kept = [place for place, (context, _) in enumerate(PAIRS) if context == context.rstrip()]
    gguf = get_model("gguf")(base_url=url)
    same("gguf", gguf.loglikelihood(ask("loglikelihood", [PAIRS[place] for place in kept])),
         [wanted[place] for place in kept])
    from lm_eval.models.api_models import JsonChatStr
    chat = get_model("local-chat-completions")(model="run", base_url=url + "/v1/chat/completions", max_gen_toks=5)
    message = JsonChatStr(json.dumps([{"role": "user", "content": "Hello"}]))
    text = chat.generate_until(ask("generate_until", [(message, {"until": ["\n\n\n"], "temperature": 0})]))[0]
    same("local-chat-completions", facts["chat"].startswith(text) and text != "", True)


# ---- the server and what is compared with

def prepare(folder):
    run([ESPALIER, "preprocess", "--tokenizer-type", "GPT2BPETokenizer", "--append-eod", "--output-prefix", "owt",
         "--input", str(ROOT / "tests/data/owt-20.jsonl"), *TOKENIZER], folder)
    run([ESPALIER, "train", "gpt", *SHAPE, *TOKENIZER], folder)
    requests = "".join(json.dumps({"context": c, "continuation": t}) + "\n" for c, t in PAIRS)
    (folder / "requests.jsonl").write_text(requests)
    scores = run([ESPALIER, "eval", "--load", "run", "--requests", "requests.jsonl", "--num-threads", "1"], folder)
    generated = run([ESPALIER, "generate", "--load", "run", "--prompt", "The president", "--tokens-to-generate", "12",
                     "--greedy", "--json", "--num-threads", "1"], folder)
    answered = run([ESPALIER, "generate", "--load", "run", "--prompt", "user: Hello\nassistant:", "--tokens-to-generate",
                    "5", "--greedy", "--json", "--num-threads", "1"], folder)
    (folder / "chat.jinja").write_text(TEMPLATE)
    return {"scores": [json.loads(line) for line in scores.splitlines()], "generate": json.loads(generated),
            "long": "The president said that the company had more. " * 40, "chat": json.loads(answered)["text"]}


def environment(folder, name):
    python = folder / name / "bin/python"
    if not python.exists():
        run([sys.executable, "-m", "venv", str(folder / name)], ROOT)
        run([str(python), "-m", "pip", "install", "-q", *CLIENTS[name]], ROOT)
    return str(python)


def check_curl(url, facts):
    body = json.dumps({"prompt": facts["generate"]["prompt"], "max_tokens": 12, "temperature": 0})
    answer = json.loads(run(["curl", "-sS", url + "/v1/completions", "-d", body], ROOT))
    same("curl", answer["choices"][0]["text"], facts["generate"]["text"])


def check_megatron(url, cli, python, facts):
    words = f"{facts['generate']['prompt']}\n3\n{facts['generate']['prompt']}\n-1\n"
    # It asks on until its input ends, which is an EOFError there.
    result = subprocess.run([python, cli, url.removeprefix("http://")], input=words, capture_output=True, text=True)
    lines = result.stdout
    if "Megatron Response: " not in lines or facts["generate"]["prompt"] not in lines:
        sys.exit(f"Megatron's client: {result.stdout}\n{result.stderr}")
    same("Megatron's errors", "Error 400: tokens_to_generate must be an integer greater than or equal to 0" in lines, True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=pathlib.Path,
                        default=pathlib.Path.home() / ".cache/espalier/serving-clients")
    parser.add_argument("--megatron-cli", type=pathlib.Path)
    parser.add_argument("--client", nargs=3, metavar=("NAME", "URL", "FACTS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.client:
        name, url, facts = arguments.client
        client = client_lm_eval if name == "lm-eval" else client_openai
        client(url, json.loads(pathlib.Path(facts).read_text()))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        facts = prepare(folder)
        (folder / "facts.json").write_text(json.dumps(facts))
        server = subprocess.Popen([ESPALIER, "serve", "--load", "run", "--port", "0", "--num-threads", "1",
                                   "--chat-template", "chat.jinja"], cwd=folder,
                                  stdout=subprocess.PIPE, text=True)
        try:
            url = server.stdout.readline().strip()
            check_curl(url, facts)
            print("curl: equal")
            for client in CLIENTS:
                python = environment(arguments.environments, client)
                run([python, __file__, "--client", client, url, str(folder / "facts.json")], folder,
                    env={**os.environ, "OPENAI_API_KEY": ""})
                print(f"{client}: equal")
            if arguments.megatron_cli:
                check_megatron(url, str(arguments.megatron_cli), environment(arguments.environments, "lm-eval"), facts)
                print("Megatron's client: equal")
            else:
                print("Megatron's client: skipped, no --megatron-cli")
        finally:
            server.send_signal(signal.SIGTERM)
            same("exit code after SIGTERM", server.wait(timeout=30), 0)


if __name__ == "__main__":
    main()
