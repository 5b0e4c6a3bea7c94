#!/usr/bin/env python3
"""What Hugging Face's tokenizers makes of awkward texts: expected values for src/text.

    pip install tokenizers==0.23.3
    tests/oracle/tokenizers_oracle.py                     writes tests/data/tokenizers again (byte for byte)
    tests/oracle/tokenizers_oracle.py --check             makes them elsewhere and compares with the committed ones
    tests/oracle/tokenizers_oracle.py --fresh SEED DIR    writes new random cases of the same kinds into DIR/tokenizers;
                                                          espalier_text_test reads them when ESPALIER_FRESH_ORACLES=DIR

A folder per tokenizer: tokenizer.json (trained here on the texts themselves, so it is small), expected.json with the
ids of every text of ../texts.json, the text that they decode to where it differs, and the same without special tokens.
scores.json next to them is about the numbers of a tokenizer.json.
"""
import argparse
import collections
import itertools
import json
import pathlib
import random
import sys
import tempfile

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

BLOOM = " ?[^(\\s|[.,!?…。，、।۔،])]+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")

FIXED = [
    "", " ", "  ", "a", "\n", "\r\n\r\n", "\t\tx", "Hello, world!  a(b)c|d[e]f", "don't DON'T I'LL we'Ve 'S 'ſ ’s x's'd're",
    "The quick brown fox jumps over the lazy dog. 1234567 3.14 ½ ² ① 12,345",
    "Grüße aus Köln: Straße, Fußgängerübergänge, Ärger\u0308 u\u0308ber", "ça va? L’été, l'hiver; où êtes-vous… «oui»",
    "Съешь же ещё этих мягких французских булок, да выпей чаю. Ёлка №5", "我能吞下玻璃而不伤身体。你好，世界！三点一四、〇一二三",
    "いろはにほへと ちりぬるを、わかよたれそ。カタカナ ｶﾀｶﾅ １２３", "키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다.",
    "أبجد هوز حطي كلمن، سعفص؟ قرشت ثخذ ضظغ ١٢٣ ۱۲۳۔", "मैं काँच खा सकता हूँ। मुझे उससे कोई चोट नहीं पहुंचती १२३॥", "வணக்கம் உலகம் ௧௨௩",
    "ฉันกินกระจกได้ แต่มันไม่ทำให้ฉันเจ็บ ๑๒๓", "אני יכול לאכול זכוכית וזה לא מזיק לי", "Ξεσκεπάζω την ψυχοφθόρα ΟΔΥΣΣΕΑΣ ΑΣ σας",
    "ქართული ენა და Հայերեն լեզու", "😀😃👨‍👩‍👧‍👦🇩🇪🏳️‍🌈👍🏽 ☺️ text 🤷‍♀️", "a\u0300\u0301\u0327b \u0301 e\u0323\u0307 \u1e69 s\u0323\u0307",
    "\u0000\u0001\u001c\u001d\u007f\u0080\u0085\u00a0\u00ad", "a\u2028b\u2029c\u200bd\u200ce\u200df\u2060g\ufeffh\u180ei",
    " \u00a0 \u3000 \u2003x \u205f\u202fy\u1680z", "one\n\ntwo\r\n  three \t\n \n four\n", "   leading and trailing   ",
    "camelCaseHTTPServer_snake_case-kebab/path\\x <a href=\"u\">t</a> {k: [1, 2]} && x += 3; // c",
    "\ufb01ﬁ\ufb03 ﷺ ㍿ Ⅷ ⅷ K Å Ω ſ ẞ ß İ ı", "\uac00\u1100\u1161\u11a8 \u0958 \u2126 \U0001d400\U0001f100",
    "\U00011de0\U00016ff4\ua7ce\U0001df00\U000323af\U000e0100\U0010fffd\ue000", "<|endoftext|>x<s>y</s> <pad>\u0000 [MASK]  z <mask>!",
    "a" * 70, "ab" * 300, " " * 40 + "x" + "\n" * 30, "".join(chr(c) for c in range(256)),
    "0" * 25 + " " + "१" * 7, "!!!???...,,,  (|) ()", "\u0bcd\u0bcd x\u0301\u0301", "ΑΣ. ΑΣΑ ΑΣ' İstanbul ǅ ǆ Ǆ",
]
ALPHABETS = [
    "abcdefghij'stremdvl ", " \t\n\r\u00a0\u3000\u2003\u2028\u0085", "0123456789.,½²①१٣", "ABCÀÉßæøđıİſKÅ", "абвгдеёжЁЙ",
    "一二三四五六七八你好，。、", "ひらカナ゛゜ｶﾞ", "أبجدهوَُِّ،؛؟٠١", "कखगािीुं्।॥०१", "กขคงจัิีึ่้๊", "가각힣각", "αβγΣσςΆάΐ",
    "\u0300\u0301\u0323\u0327\u0334\u0345\u05b0\u0653\u093c\u3099", "😀👍🏽\u200d\ufe0f🇩🇪\U000e0062", "()[]{}|!?.,;:-_'\"<>/\\#$%&*+=@^`~",
    "<s></s><pad>[MASK]<|endoftext|>", "\u0000\u0001\u001f\u007f\u0080\u009f\u00ad\u200b\u2060\ufeff\ufffd\uffff",
]


def random_code(rng):
    while True:
        kind = rng.random()
        code = rng.randrange(0x80) if kind < 0.2 else rng.randrange(0x3000) if kind < 0.7 else rng.randrange(0x110000)
        if not 0xD800 <= code < 0xE000:
            return chr(code)


def random_text(rng):
    kind = rng.randrange(6)
    if kind == 0:  # any code points
        return "".join(random_code(rng) for _ in range(rng.randrange(1, 60)))
    if kind == 1:  # repaired bytes
        return bytes(rng.randrange(256) for _ in range(rng.randrange(1, 60))).decode("utf-8", errors="replace")
    if kind == 2:  # near others in the same block
        base = rng.choice([0, 0x80, 0x300, 0x590, 0x900, 0x1100, 0x1E00, 0x2000, 0x3000, 0xA720, 0xAC00, 0xFB00, 0x10D00,
                           0x11300, 0x16D00, 0x1D400, 0x1F300])
        return "".join(rng.choice([chr(base + rng.randrange(256)), " ", rng.choice(ALPHABETS[0])])
                       for _ in range(rng.randrange(1, 60))).encode("utf-8", "ignore").decode()
    pieces = []
    for _ in range(rng.randrange(1, 12)):
        alphabet = rng.choice(ALPHABETS)
        pieces.append("".join(rng.choice(alphabet) for _ in range(rng.randrange(1, 10))))
        if rng.random() < 0.4:
            pieces.append(rng.choice([" ", "  ", "\n", ""]))
    return "".join(pieces)


def texts(rng, count):
    return FIXED + [random_text(rng) for _ in range(count)]


def trained(corpus, rng, model=None, normalizer=None, pre_tokenizer=None, byte_level=True, special=("<s>", "</s>", "<pad>"),
            size=380, alphabet_size=None, **trainer):
    tokenizer = Tokenizer(model or models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    alphabet = pre_tokenizers.ByteLevel.alphabet() if byte_level else []
    # Trained on a shuffled part, so that some characters of the rest are unknown where that is possible.
    sample = rng.sample(corpus, len(corpus) * 2 // 3)
    if alphabet_size:  # the trainer's own limit_alphabet breaks ties by a random hash
        counts = collections.Counter("".join(sample))
        common = set(sorted(counts, key=lambda code: (-counts[code], code))[:alphabet_size])
        sample = ["".join(code for code in text if code in common) for text in sample]
    tokenizer.train_from_iterator(sample, trainers.BpeTrainer(vocab_size=size, special_tokens=list(special), show_progress=False,
                                                              initial_alphabet=sorted(alphabet), **trainer))
    return tokenizer


def edited(tokenizer, **model):
    """The same with fields of the model changed in the file."""
    content = json.loads(tokenizer.to_str())
    content["model"].update(model)
    return Tokenizer.from_str(json.dumps(content))


def with_affixes(tokenizer, prefix, suffix):
    """The same merges inside a word, at its begin and at its end, where pieces have other names.

    The trainer could do this, but numbers such pieces in the order of a hash that is new in every run.
    """
    content = json.loads(tokenizer.to_str())
    model = content["model"]
    special = [token["content"] for token in content["added_tokens"]]
    pieces = [piece for piece in model["vocab"] if piece not in special]
    names = special + pieces + [prefix + piece + suffix for piece in pieces]
    merges = []
    for left, right in model["merges"]:
        if prefix:
            merges += [[left, prefix + right], [prefix + left, prefix + right]]
        else:
            merges += [[left, right], [left, right + suffix]]
    model |= {"vocab": {name: number for number, name in enumerate(names)}, "merges": merges,
              "continuing_subword_prefix": prefix or None, "end_of_word_suffix": suffix or None}
    return Tokenizer.from_str(json.dumps(content))


def byte_level_split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), behavior, invert),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def byte_level_variants(corpus, rng):
    def byte_level(**rest):
        tokenizer = trained(corpus, rng, **rest)
        tokenizer.decoder = decoders.ByteLevel()
        return tokenizer

    yield "gpt2", byte_level(pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=False), special=["<|endoftext|>"])
    roberta = byte_level(pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=True))
    roberta.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    roberta.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    yield "roberta", roberta
    bloom = byte_level(pre_tokenizer=byte_level_split(BLOOM), special=["<unk>", "<s>", "</s>", "<pad>"])
    bloom.post_processor = processors.ByteLevel(trim_offsets=False)
    yield "bloom", bloom
    llama3 = edited(byte_level(pre_tokenizer=byte_level_split(LLAMA3)), ignore_merges=True)
    llama3.post_processor = processors.Sequence([
        processors.ByteLevel(), processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", 0)])])
    yield "llama3", llama3
    yield "qwen2", byte_level(pre_tokenizer=byte_level_split(QWEN2), normalizer=normalizers.NFC())
    yield "o200k", byte_level(pre_tokenizer=byte_level_split(O200K))
    yield "digits_bytes", byte_level(pre_tokenizer=pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=True)]))
    yield "no_cut", byte_level(pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    yield "byte_normalizer", byte_level(normalizer=normalizers.Sequence([normalizers.NFKC(), normalizers.ByteLevel()]))
    few = trained(corpus, rng, byte_level=False, pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=False))
    few.decoder = decoders.ByteLevel()
    yield "bytes_missing", few
    for behavior in ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]:
        for invert in [False, True]:
            yield f"split_{behavior}{'_invert' if invert else ''}", byte_level(
                pre_tokenizer=byte_level_split(r"[\s\p{P}&&[^'_]]|\p{Nd}+|\bthe\b|(?<=x)y?", behavior, invert), size=280)


def character_variants(corpus, rng):
    llama2 = trained(corpus, rng, byte_level=False, model=models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True),
                     special=["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)], size=500,
                     normalizer=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]))
    content = json.loads(llama2.to_str())
    content["added_tokens"] = content["added_tokens"][:3]
    llama2 = Tokenizer.from_str(json.dumps(content))
    llama2.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                        decoders.Strip(" ", 1, 0)])
    llama2.post_processor = processors.TemplateProcessing("<s> $A </s>", "<s> $A </s> $B", [("<s>", 1), ("</s>", 2)])
    yield "llama2", llama2
    for scheme in ["always", "first", "never"]:
        metaspace = trained(corpus, rng, byte_level=False, model=models.BPE(unk_token="<unk>"), special=["<unk>", "<s>", "</s>"],
                            size=500, alphabet_size=150,
                            pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme=scheme, split=scheme != "never"))
        metaspace.decoder = decoders.Metaspace(prepend_scheme=scheme)
        yield f"metaspace_{scheme}", metaspace
    words = trained(corpus, rng, byte_level=False, model=models.BPE(unk_token="[UNK]", fuse_unk=True),
                    special=["[UNK]", "[MASK]"], size=240, alphabet_size=120,
                    normalizer=normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents(),
                                                     normalizers.Strip()]),
                    pre_tokenizer=pre_tokenizers.BertPreTokenizer())
    words = with_affixes(words, "##", "")
    words.decoder = decoders.WordPiece(prefix="##")
    words.post_processor = processors.BertProcessing(("[MASK]", 1), ("[UNK]", 0))
    yield "words_prefix", words
    suffix = trained(corpus, rng, byte_level=False, model=models.BPE(unk_token="<unk>"), special=["<unk>"], size=240,
                     alphabet_size=120,
                     normalizer=normalizers.NFKD(),
                     pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation(
                         behavior="contiguous"), pre_tokenizers.Digits(individual_digits=False)]))
    suffix = with_affixes(suffix, "", "</w>")
    suffix.decoder = decoders.BPEDecoder(suffix="</w>")
    yield "words_suffix", suffix
    plain = trained(corpus, rng, byte_level=False, special=["<s>"], size=500, alphabet_size=100,
                    normalizer=normalizers.Sequence([normalizers.Strip(right=False), normalizers.Replace(Regex(r"\s+"), " "),
                                                     normalizers.Replace("l", "")]),
                    pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.CharDelimiterSplit("e"),
                                                           pre_tokenizers.WhitespaceSplit(),
                                                           pre_tokenizers.FixedLength(length=7)]))
    yield "no_decoder", plain
    ctc = trained(corpus, rng, byte_level=False, special=["<pad>"], size=300, alphabet_size=80,
                  pre_tokenizer=pre_tokenizers.Split(" ", "removed"))
    ctc.decoder = decoders.Sequence([decoders.CTC(pad_token="<pad>", word_delimiter_token="|"), decoders.Replace(Regex("[aeiou]+"), "_")])
    yield "ctc", ctc


def added_variants(corpus, rng):
    def base(**rest):
        tokenizer = trained(corpus, rng, pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=False), special=["<s>"],
                            size=280, **rest)
        tokenizer.decoder = decoders.ByteLevel()
        return tokenizer

    tokens = [AddedToken("<pad>", lstrip=True), AddedToken("[MASK]", rstrip=True), AddedToken("the", single_word=True),
              AddedToken("</s>", special=True, lstrip=True, rstrip=True), AddedToken("ab"), AddedToken("aba", normalized=False),
              AddedToken("ÄRGER"), AddedToken("Ü", normalized=False), AddedToken("<|endoftext|>", special=True, single_word=True),
              AddedToken("ſ", single_word=True, normalized=False), AddedToken(" x"), AddedToken("好，世")]
    plain = base()
    plain.add_tokens(tokens)
    yield "added", plain
    lower = base(normalizer=normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]))
    lower.add_tokens(tokens)
    yield "added_lowercase", lower


def variants(corpus, seed):
    for make in [byte_level_variants, character_variants, added_variants]:
        yield from make(corpus, random.Random(seed))


def dump(content, path):
    path.write_text(json.dumps(content, ensure_ascii=True, separators=(",", ":")) + "\n")


def write_cases(folder, seed, count):
    folder.mkdir(parents=True, exist_ok=True)
    corpus = texts(random.Random(seed), count)
    dump(corpus, folder / "texts.json")
    write_scores(folder, seed, count)
    for name, tokenizer in variants(corpus, seed):
        (folder / name).mkdir(exist_ok=True)
        dump(json.loads(tokenizer.to_str()), folder / name / "tokenizer.json")
        tokenizer = Tokenizer.from_file(str(folder / name / "tokenizer.json"))
        expected = []
        for text in corpus:
            ids = tokenizer.encode(text).ids
            # BPEDecoder of no pieces is a panic in Rust.
            whole = tokenizer.decode(ids, skip_special_tokens=False) if ids else ""
            shorn = tokenizer.decode(ids, skip_special_tokens=True) if any(i > 3 for i in ids) else None
            expected.append({"ids": ids} | ({"text": whole} if whole != text else {})
                            | ({"without_special": shorn} if shorn is not None and shorn != whole else {}))
        dump(expected, folder / name / "expected.json")


def number_text(rng):
    digits = "".join(rng.choice("0123456789") for _ in range(rng.choice([1, 5, 15, 16, 17, 17, 18, 19, 20, 21, 25, 40])))
    text = rng.choice(["", "-"]) + (digits.lstrip("0") or "0")
    if rng.random() < 0.3:
        text += "." + "".join(rng.choice("0123456789") for _ in range(rng.choice([1, 3, 15, 18, 30])))
    elif rng.random() < 0.7:
        text = rng.choice(["", "-"]) + f"{rng.randrange(20)}.{digits}"
    if rng.random() < 0.3:
        text += rng.choice("eE") + rng.choice(["+", "-", "-", ""]) + str(rng.choice([0, 1, 7, 22, 23, 200, 250]))
    return text


FIXED_NUMBERS = ["0", "-0", "0.0", "-0.0", "1", "-9223372036854775808", "-9223372036854775809", "18446744073709551615",
                 "18446744073709551616", "18446744073709551616.3", "184467440737095516150", "0.18446744073709551616",
                 "1.7976931348623157e308", "2.2250738585072014e-308", "4.9e-324", "123e-400", "0e999", "1e-99999999999",
                 "0." + "0" * 330 + "7", "-0.10000000000000001", "-15.275492379532281", "-9.908701741838819"]


def write_scores(folder, seed, count):
    """Scores of a Unigram model, which serde_json reads with another rounding; and the ids of texts where two ways to cut a
    word have about the same score, so that the rounding decides."""
    rng = random.Random(seed)
    texts = FIXED_NUMBERS + [number_text(rng) for _ in range(10 * count)]
    numbers = [(f"p{place}", text) for place, text in enumerate(texts)]
    words, pieces = [], [("<unk>", "-100")]
    # Ideographs and what follows them, without the surrogates.
    letters = (chr(code) for code in itertools.count(0x4E00) if not 0xD800 <= code < 0xE000)
    for _ in range(10 * count):
        one, two, three = next(letters), next(letters), next(letters)
        left, right, first = (-rng.uniform(1, 12) for _ in range(3))
        pieces += [(piece, json.dumps(score)) for piece, score in
                   [(one + two, left), (three, right), (one, first), (two + three, left + right - first)]]
        words.append(one + two + three)

    def load(vocabulary):
        vocabulary = ",".join(f"[{json.dumps(piece)},{score}]" for piece, score in vocabulary)
        text = f'{{"version":"1.0","added_tokens":[],"model":{{"type":"Unigram","unk_id":0,"vocab":[{vocabulary}]}}}}'
        return text, Tokenizer.from_str(text)

    text, tokenizer = load(pieces)
    values = [value for _, value in json.loads(load(numbers)[1].to_str())["model"]["vocab"]]
    dump({"numbers": [[text, float(value).hex()] for text, value in zip(texts, values)], "tokenizer": text,
          "text": "".join(words), "ids": tokenizer.encode("".join(words)).ids}, folder / "scores.json")


def files_of(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.json")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--fresh", nargs=2, metavar=("SEED", "DIR"))
    arguments = parser.parse_args()
    assert tokenizers.__version__ == "0.23.3", tokenizers.__version__
    committed, seed, count = pathlib.Path(__file__).parent.parent / "data" / "tokenizers", 20231123, 24
    if arguments.fresh:
        write_cases(pathlib.Path(arguments.fresh[1]) / "tokenizers", int(arguments.fresh[0]), 1500)
    elif arguments.check:
        with tempfile.TemporaryDirectory() as folder:
            write_cases(pathlib.Path(folder), seed, count)
            made, old = files_of(pathlib.Path(folder)), files_of(committed)
        different = sorted(str(path) for path in made.keys() | old.keys() if made.get(path) != old.get(path))
        print("different: " + ", ".join(different) if different else f"{len(old)} files as committed")
        sys.exit(1 if different else 0)
    else:
        write_cases(committed, seed, count)


if __name__ == "__main__":
    main()
