#!/usr/bin/env python3
"""What Megatron's tokenizers make of awkward texts: SentencePiece, BERT's WordPiece and tiktoken.

    pip install sentencepiece==0.2.3 tiktoken==0.14.0 tokenizers==0.23.3
    tests/oracle/megatron_tokenizers_oracle.py                     writes tests/data/megatron_tokenizers again
    tests/oracle/megatron_tokenizers_oracle.py --check             makes them elsewhere and compares
    tests/oracle/megatron_tokenizers_oracle.py --fresh SEED DIR    writes new random cases into DIR/megatron_tokenizers;
                                                                   espalier_text_test reads them when
                                                                   ESPALIER_FRESH_ORACLES=DIR

A folder per tokenizer: options.json (Megatron's options), the files they name, and expected.json with the ids of every
text of texts.json (those of ../tokenizers where there is none) and the text that they decode to where it differs.

Vocabularies are trained here on the texts themselves. sentencepiece and tiktoken are called; Megatron's wrappers around
them and its WordPiece are written out below, after megatron/tokenizer of Megatron-DeepSpeed. With MEGATRON_TOKENIZER
naming that folder of a clone, its own WordPiece is called instead.
"""
import argparse
import base64
import collections
import importlib.util
import io
import json
import os
import pathlib
import random
import re
import sys
import tempfile
import unicodedata

import sentencepiece
import tiktoken
import tokenizers

from tokenizers_oracle import LLAMA3, dump, texts

CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
          r"|\s+(?!\S)|\s")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
NVIDIA_V1 = r"[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
NVIDIA_V2 = O200K.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace("{1,3}", "")

# Rules of a character map: to another, to several, to none, to a blank, from several, from what begins another rule.
RULES = [("A", "a"), ("B", "b"), ("\u00df", "ss"), ("\ufb01", "fi"), ("\ufb03", "ffi"), ("a\u0300", "\u00e0"),
         ("a\u0300\u0301", "\u00e1"), ("\u00a0", " "), ("\u3000", " "), ("\t", " "), ("\n", " "), ("\u200b", ""),
         ("\u0001", ""), ("\u2026", "..."), ("\u210c", "H"), ("\u01c5", "D "), ("..", "\u2025"), ("\u00bd", "1\u20442"),
         ("\ufffd", " "), ("\u0e33", "\u0e4d\u0e32"), ("\U0001d400", "A"), ("  ", " x ")]


# ---------------------------------------------------------------- SentencePiece

def train_sentencepiece(folder, corpus, rules=None, **options):
    model = io.BytesIO()
    if rules:
        table = pathlib.Path(tempfile.mkdtemp()) / "rules.tsv"
        table.write_text("".join(f"{' '.join(f'{ord(c):X}' for c in old)}\t{' '.join(f'{ord(c):X}' for c in new)}\n"
                                 for old, new in rules))
        options["normalization_rule_tsv"] = str(table)
    settings = {"vocab_size": 340, "hard_vocab_limit": False, "num_threads": 1, "minloglevel": 2,
                "character_coverage": 0.98} | options
    # Not all texts, so that some characters of the others are unknown.
    sentences = [text for text in corpus[::2] if text.strip() and "\0" not in text]
    try:
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(sentences), model_writer=model, **settings)
    except RuntimeError as error:  # fresh texts may have more characters than pieces are asked for
        needed = re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error))
        if needed is None:
            raise
        settings["vocab_size"] = int(needed[1]) + 300
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(sentences), model_writer=model, **settings)
    content = without_path(model.getvalue(), options.get("normalization_rule_tsv"))
    (folder / "spm.model").write_bytes(content)
    return sentencepiece.SentencePieceProcessor(model_proto=content)


def without_path(content, path):
    """The path of the rules stands in the model; here it would be another each time."""
    return content if path is None else content.replace(path.encode(), b"x" * len(path))


class Gpt:
    def __init__(self, processor):
        self.processor = processor

    def encode(self, text):
        return self.processor.encode_as_ids(text)

    def decode(self, ids):
        return self.processor.decode_ids(ids)


class Llama2(Gpt):
    def encode(self, text):
        return [self.processor.bos_id()] + super().encode(text)


class Special(Gpt):
    """SentencePieceTokenizer: tokens of its own are taken out of the text first."""

    def __init__(self, processor, extra_ids):
        super().__init__(processor)
        self.vocabulary = {processor.id_to_piece(number): number for number in range(len(processor))}
        self.tokens = {}
        named = [(processor.pad_id(), "<PAD>"), (processor.bos_id(), "<BOS>"), (processor.eos_id(), "<EOS>")]
        for token in (["<CLS>", "<SEP>", "<EOD>", "<MASK>"]
                      + [processor.id_to_piece(number) if number >= 0 else otherwise for number, otherwise in named]
                      + [f"<extra_id_{number}>" for number in range(extra_ids)]):
            self.tokens[token] = self.vocabulary.setdefault(token, len(self.vocabulary))

    def encode(self, text):
        places = [(text.find(token), order, token) for order, token in enumerate(self.tokens) if token in text]
        if not places:
            return super().encode(text)
        place, _, token = min(places)
        return super().encode(text[:place]) + [self.tokens[token]] + self.encode(text[place + len(token):])

    def decode(self, ids):
        text, between, names = "", [], {number: token for token, number in self.tokens.items()}
        for number in ids:
            if number in names:
                text += super().decode(between) + " " + names[number] + " "
                between = []
            else:
                between.append(number)
        return text + super().decode(between)


def sentencepiece_cases(corpus, full):
    def case(name, kind, wrapper, extra_ids=0, **options):
        def make(folder):
            processor = train_sentencepiece(folder, corpus, model_type=kind, **options)
            if wrapper == "SentencePieceTokenizer":
                return Special(processor, extra_ids)
            return Llama2(processor) if wrapper == "Llama2Tokenizer" else Gpt(processor)
        given = {"vocab_extra_ids": extra_ids} if extra_ids else {}
        return name, {"tokenizer_type": wrapper, "tokenizer_model": "spm.model"} | given, make

    llama2 = {"normalization_rule_name": "identity", "byte_fallback": True, "remove_extra_whitespaces": False,
              "split_digits": True, "vocab_size": 640}
    named = {"user_defined_symbols": ["<sep>", "the", "\u2581x", "abab", "\u3002"], "control_symbols": ["<ctl>", "a"],
             "pad_id": 3}
    yield case("unigram", "unigram", "GPTSentencePieceTokenizer", rules=RULES)
    yield case("unigram_bytes", "unigram", "Llama2Tokenizer", **llama2)
    yield case("unigram_named", "unigram", "SentencePieceTokenizer", 3, rules=RULES, **named)
    yield case("unigram_across", "unigram", "GPTSentencePieceTokenizer", normalization_rule_name="identity",
               split_by_whitespace=False, remove_extra_whitespaces=False, add_dummy_prefix=False)
    yield case("unigram_suffix", "unigram", "SentencePieceTokenizer", rules=RULES, treat_whitespace_as_suffix=True)
    yield case("bpe_llama2", "bpe", "Llama2Tokenizer", allow_whitespace_only_pieces=True, **llama2)
    yield case("bpe_named", "bpe", "SentencePieceTokenizer", rules=RULES, **named)
    yield case("bpe", "bpe", "GPTSentencePieceTokenizer", rules=RULES, max_sentencepiece_length=4)
    yield case("char", "char", "GPTSentencePieceTokenizer", rules=RULES)
    yield case("word", "word", "GPTSentencePieceTokenizer", normalization_rule_name="identity", vocab_size=200)
    if full:  # models with whole tables of characters
        for kind in ["unigram", "bpe"]:
            for rule in ["nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf"]:
                yield case(f"{kind}_{rule}", kind, "GPTSentencePieceTokenizer", normalization_rule_name=rule,
                           vocab_size=1500)


# ---------------------------------------------------------------- WordPiece

def is_punctuation(letter):
    return letter in "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~" or unicodedata.category(letter).startswith("P")


def is_ideograph(letter):
    code = ord(letter)
    return any(low <= code <= high for low, high in [
        (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
        (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)])


class WordPiece:
    def __init__(self, file, lowercase):
        self.pieces = {line.strip(): number for number, line in enumerate(file.read_text(encoding="utf-8").splitlines())}
        self.lowercase = lowercase

    def words(self, text):
        spaced = ""
        for letter in text:
            category = unicodedata.category(letter)
            if letter in "\t\n\r" or category == "Zs":
                spaced += " "
            elif letter not in "\0\ufffd" and category not in ("Cc", "Cf"):
                spaced += f" {letter} " if is_ideograph(letter) else letter
        for word in spaced.split():
            if self.lowercase:
                word = "".join(letter for letter in unicodedata.normalize("NFD", word.lower())
                               if unicodedata.category(letter) != "Mn")
            yield from "".join(f" {letter} " if is_punctuation(letter) else letter for letter in word).split()

    def pieces_of(self, word):
        found, start = [], 0
        while start < len(word) and len(word) <= 200:
            prefix = "##" if start else ""
            ends = [end for end in range(len(word), start, -1) if prefix + word[start:end] in self.pieces]
            if not ends:
                return ["[UNK]"]
            found.append(prefix + word[start:ends[0]])
            start = ends[0]
        return found or ["[UNK]"]

    def tokenize(self, text):
        return [piece for word in self.words(text) for piece in self.pieces_of(word)]

    def join(self, pieces):
        text = " ".join(pieces).replace(" ##", "").strip()
        for mark in [" .", " ?", " !", " ,"]:
            text = text.replace(mark, mark[1:])
        text = text.replace(" ' ", "'")
        for ending in [" n't", " 'm", " 's", " 've", " 're"]:
            text = text.replace(ending, ending[1:])
        return text


def megatron_word_piece(file, lowercase):
    folder = os.environ.get("MEGATRON_TOKENIZER")
    if not folder:
        return WordPiece(file, lowercase)
    spec = importlib.util.spec_from_file_location("bert_tokenization", f"{folder}/bert_tokenization.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = module.FullTokenizer(str(file), do_lower_case=lowercase)
    found.pieces, found.join = found.vocab, found.convert_tokens_to_string
    return found


class Bert:
    def __init__(self, file, lowercase, extra_ids):
        self.model = megatron_word_piece(file, lowercase)
        self.vocabulary = dict(self.model.pieces)
        for piece in ["[BOS]", "[EOS]"] + [f"<extra_id_{number}>" for number in range(extra_ids)]:
            self.vocabulary.setdefault(piece, len(self.vocabulary))
        self.names = {number: piece for piece, number in self.vocabulary.items()}

    def encode(self, text):
        return [self.vocabulary[piece] for piece in self.model.tokenize(text)]

    def decode(self, ids):
        return self.model.join([self.names[number] for number in ids])


def bert_cases(corpus):
    def case(name, lowercase, extra_ids):
        def make(folder):
            splitter = WordPiece.__new__(WordPiece)
            splitter.lowercase = lowercase
            words = collections.Counter(word for text in corpus for word in splitter.words(text))
            letters = collections.Counter(letter for word in words for letter in word)
            common = [letter for letter, count in sorted(letters.items(), key=lambda item: (-item[1], item[0])) if count > 2]
            pairs = collections.Counter(word[place:place + 2] for word in words for place in range(1, len(word) - 1))
            pieces = (["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + common[:220]
                      + ["##" + letter for letter in common[:200]]
                      + ["##" + pair for pair, _ in sorted(pairs.items(), key=lambda item: (-item[1], item[0]))[:40]]
                      + [word for word, count in sorted(words.items(), key=lambda item: (-item[1], item[0]))
                         if len(word) > 1][:60])
            (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(pieces)) + "\n", encoding="utf-8")
            return Bert(folder / "vocab.txt", lowercase, extra_ids)
        kind = "BertWordPieceLowerCase" if lowercase else "BertWordPieceCase"
        given = {"vocab_extra_ids": extra_ids} if extra_ids else {}
        return name, {"tokenizer_type": kind, "vocab_file": "vocab.txt"} | given, make

    yield case("bert_lower", True, 0)
    yield case("bert_cased", False, 4)


# ---------------------------------------------------------------- tiktoken

class Tiktoken:
    def __init__(self, pattern, ranks, special):
        self.encoding = tiktoken.Encoding("test", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)

    def encode(self, text):
        return self.encoding.encode_ordinary(text)

    def decode(self, ids):
        return self.encoding.decode(ids)


def trained_ranks(corpus, pattern, size):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated"),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(corpus, tokenizers.trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=sorted(alphabet), show_progress=False))
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    byte_of = {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}
    pieces = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    merged = [bytes(byte_of[letter] for letter in piece) for piece, _ in pieces if len(piece) > 1]
    return {token: rank for rank, token in enumerate([bytes([byte]) for byte in range(256)] + merged)}


def tiktoken_cases(corpus):
    def lines(name, file, pattern, options, special):
        def make(folder):
            ranks = trained_ranks(corpus, LLAMA3, 420)
            (folder / file).write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items()))
            return Tiktoken(pattern, ranks, special)
        return name, {"tokenizer_type": "TikTokenizer", "tokenizer_model": file} | options, make

    def listed(name, pattern, named, num_special, size):
        def make(folder):
            ranks = trained_ranks(corpus, LLAMA3, size - num_special + 7)
            dump([{"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": token.decode(errors="replace")}
                  for token, rank in ranks.items()], folder / "vocab.json")
            ids = {token: rank + num_special for token, rank in ranks.items() if rank < size - num_special}
            special = ["<unk>", "<s>", "</s>"] + [f"<SPECIAL_{number}>" for number in range(3, num_special)]
            return Tiktoken(pattern, ids, {token: number for number, token in enumerate(special)})
        return name, {"tokenizer_type": "TikTokenizer", "tokenizer_model": "vocab.json", "tiktoken_pattern": named,
                      "tiktoken_num_special_tokens": num_special, "vocab_size": size}, make

    yield lines("tiktoken_cl100k", "cl100k_base.tiktoken", CL100K, {}, {"<|endoftext|>": 100257, "<|endofprompt|>": 100276})
    yield lines("tiktoken_o200k", "ranks.tiktoken", O200K, {"tiktoken_pattern": "o200k_base"}, {"<|endoftext|>": 199999})
    yield lines("tiktoken_own", "ranks.tiktoken", r"\p{L}+|\d",
                {"tiktoken_pattern": r"\p{L}+|\d", "tiktoken_special_tokens": ["<x>", "</s>"]}, {"<x>": 420, "</s>": 421})
    yield listed("tiktoken_v1", NVIDIA_V1, "v1", 5, 400)
    yield listed("tiktoken_v2", NVIDIA_V2, "v2", 3, 410)


# ---------------------------------------------------------------- tokenizer.json

class HuggingFace:
    def __init__(self, content, folder, extra_ids):
        dump(content, folder / "tokenizer.json")
        self.tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.add_special_tokens([tokenizers.AddedToken(f"<extra_id_{number}>", special=True, normalized=False)
                                           for number in range(extra_ids)])

    def encode(self, text):
        return self.tokenizer.encode(text).ids

    def decode(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=False) if ids else ""


def special_token(number, content):
    return {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": True}


def around(number, content):
    """[content] text [content]"""
    piece = {"SpecialToken": {"id": content, "type_id": 0}}
    return {"type": "TemplateProcessing", "single": [piece, {"Sequence": {"id": "A", "type_id": 0}}, piece], "pair": [],
            "special_tokens": {content: {"id": content, "ids": [number], "tokens": [content]}}}


def word_piece_json(corpus, folder, normalizer, pre_tokenizer, longest):
    bert_case = next(make for name, _, make in bert_cases(corpus) if name == "bert_lower")
    pieces = bert_case(folder).model.pieces
    (folder / "vocab.txt").unlink()
    return {"version": "1.0", "added_tokens": [special_token(pieces[name], name) for name in ["[PAD]", "[UNK]", "[CLS]"]],
            "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": around(pieces["[CLS]"], "[CLS]"),
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                      "max_input_chars_per_word": longest, "vocab": pieces}}


def unigram_json(corpus, folder, normalizer, pre_tokenizer, decoder, **options):
    from sentencepiece import sentencepiece_model_pb2
    train_sentencepiece(folder, corpus, model_type="unigram", **options)
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString((folder / "spm.model").read_bytes())
    (folder / "spm.model").unlink()
    if normalizer == "Precompiled":
        blob = base64.b64encode(model.normalizer_spec.precompiled_charsmap).decode()
        normalizer = {"type": "Precompiled", "precompiled_charsmap": blob}
    return {"version": "1.0", "added_tokens": [special_token(number, model.pieces[number].piece) for number in range(3)],
            "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "decoder": decoder,
            "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": model.trainer_spec.byte_fallback,
                      "vocab": [[piece.piece, piece.score] for piece in model.pieces]}}


def hugging_face_cases(corpus, full):
    def bert(clean, ideographs, accents, lower):
        return {"type": "BertNormalizer", "clean_text": clean, "handle_chinese_chars": ideographs, "strip_accents": accents,
                "lowercase": lower}

    def case(name, make_json, *arguments, extra_ids=0, **options):
        def make(folder):
            return HuggingFace(make_json(corpus, folder, *arguments, **options), folder, extra_ids)
        given = {"vocab_extra_ids": extra_ids} if extra_ids else {}
        return name, {"tokenizer_type": "PretrainedFromHF", "tokenizer_name_or_path": "tokenizer.json"} | given, make

    def whole_words(corpus, folder):
        words = [word for text in corpus[::3] for word in text.split()]
        return {"version": "1.0", "pre_tokenizer": {"type": "Whitespace"}, "model": {
            "type": "WordLevel", "unk_token": "?", "vocab": {word: number for number, word in
                                                              enumerate(dict.fromkeys(["?"] + words))}}}

    metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    nmt = {"type": "Sequence", "normalizers": [
        {"type": "Nmt"}, {"type": "NFKC"}, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]}
    bytes_decoder = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]}
    bert_cut = {"type": "BertPreTokenizer"}
    yield case("hf_bert", word_piece_json, bert(True, True, None, True), bert_cut, 100, extra_ids=2)
    yield case("hf_bert_cased", word_piece_json, bert(True, True, None, False), bert_cut, 12)
    yield case("hf_bert_parts", word_piece_json, bert(False, False, True, False), {"type": "Whitespace"}, 100)
    yield case("hf_unigram", unigram_json, "Precompiled", metaspace, metaspace, rules=RULES)
    yield case("hf_unigram_bytes", unigram_json, nmt, dict(metaspace, split=False), bytes_decoder, vocab_size=640,
               byte_fallback=True, normalization_rule_name="identity")
    yield case("hf_words", whole_words)
    if full:
        yield case("hf_unigram_nmt_nfkc", unigram_json, "Precompiled", metaspace, metaspace,
                   normalization_rule_name="nmt_nfkc", vocab_size=1500)


def write_cases(root, seed, count, full):
    root.mkdir(parents=True, exist_ok=True)
    corpus = texts(random.Random(seed), count)
    if full:
        dump(corpus, root / "texts.json")
    cases = [*sentencepiece_cases(corpus, full), *bert_cases(corpus), *tiktoken_cases(corpus),
             *hugging_face_cases(corpus, full)]
    for name, options, make in cases:
        folder = root / name
        folder.mkdir(exist_ok=True)
        tokenizer = make(folder)
        expected = []
        for text in corpus:
            ids = tokenizer.encode(text)
            decoded = tokenizer.decode(ids)
            expected.append({"ids": ids} | ({"text": decoded} if decoded != text else {}))
        dump(options, folder / "options.json")
        dump(expected, folder / "expected.json")


def files_of(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--fresh", nargs=2, metavar=("SEED", "DIR"))
    arguments = parser.parse_args()
    assert sentencepiece.__version__ == "0.2.3", sentencepiece.__version__
    assert unicodedata.unidata_version == "14.0.0", "Python 3.11 is needed"
    committed = pathlib.Path(__file__).parent.parent / "data" / "megatron_tokenizers"
    seed, count = 20231123, 24  # of tests/data/tokenizers/texts.json
    if arguments.fresh:
        write_cases(pathlib.Path(arguments.fresh[1]) / "megatron_tokenizers", int(arguments.fresh[0]), 1500, full=True)
    elif arguments.check:
        with tempfile.TemporaryDirectory() as folder:
            write_cases(pathlib.Path(folder), seed, count, full=False)
            made, old = files_of(pathlib.Path(folder)), files_of(committed)
        different = sorted(str(path) for path in made.keys() | old.keys() if made.get(path) != old.get(path))
        print("different: " + ", ".join(different) if different else f"{len(old)} files as committed")
        sys.exit(1 if different else 0)
    else:
        write_cases(committed, seed, count, full=False)


if __name__ == "__main__":
    main()
