#!/usr/bin/env python3
"""What Hugging Face's tokenizers learns from text: expected values for src/text/bpe_trainer.

    pip install tokenizers==0.23.3
    tests/oracle/bpe_training_oracle.py                     writes tests/data/bpe_training again (byte for byte)
    tests/oracle/bpe_training_oracle.py --check             makes them again and compares with the committed ones
    tests/oracle/bpe_training_oracle.py --fresh SEED DIR    writes new random cases of the same kinds into
                                                            DIR/bpe_training; espalier_text_test reads them when
                                                            ESPALIER_FRESH_ORACLES=DIR

cases.json is a list of {"name", "documents", "vocab_size", "min_frequency", "special_tokens", "rule", "files"}: what
was trained on what, and what tokenizers then wrote, by file name: whole for one case of each rule, else only the pieces
by id and the merges, as "pieces" and "merges".
"""
import argparse
import json
import pathlib
import random
import sys
import tempfile

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

PATTERNS = {
    "gpt2": None,
    "bloom": " ?[^(\\s|[.,!?…。，、।۔،])]+",
}
EOD = "<|endoftext|>"

# Written for this file, in eleven languages.
SENTENCES = [
    "The river rose in the night, and in the morning the lower street was a canal. The baker rowed to his shop.",
    "There isn't a map that shows it; they've looked, we'll look, I'd wager she's found 3 of 17 by 2024-01-05.",
    "Der Fluss stieg in der Nacht, und am Morgen war die untere Straße ein Kanal. Der Bäcker ruderte zu seinem Laden.",
    "La rivière est montée pendant la nuit ; au matin, la rue basse était un canal. Le boulanger ramait jusqu'à sa boutique.",
    "El río subió por la noche, y por la mañana la calle baja era un canal. ¿Quién remaba? El panadero, ¡claro!",
    "Река поднялась ночью, и утром нижняя улица стала каналом. Пекарь плыл на лодке в свою лавку.",
    "河水在夜里上涨，早晨下街变成了运河。面包师划船去他的店，邻居划船去买面包。",
    "川は夜のうちに増水し、朝には下の通りが運河になっていた。パン屋は舟で店へ向かった。",
    "강물이 밤새 불어나 아침에는 아랫길이 운하가 되었다. 빵집 주인은 배를 저어 가게로 갔다.",
    "ارتفع النهر في الليل، وفي الصباح صار الشارع السفلي قناة. جدّف الخباز إلى دكانه.",
    "रात में नदी चढ़ गई, और सुबह निचली गली एक नहर थी। नानबाई नाव से अपनी दुकान गया।",
    "for (int i = 0; i < n; ++i) {\n\tsum += values[i];  // all of them\n}\n\n\nreturn sum;\r\n",
    "😀😀 👍🏽 ½ ² x\u0301y\u0301 naïve café   two  blanks\tand a tab \n\n end   ",
]
CORPUS = [" ".join(SENTENCES[i] for i in (0, 1, 2, 0)), SENTENCES[3] + "\n" + SENTENCES[4], SENTENCES[5], *SENTENCES[6:11],
          SENTENCES[11] * 2, SENTENCES[12], "the the the then there them these theme", ""]


def case(name, documents, vocab_size, min_frequency=2, special_tokens=(EOD,), rule="gpt2", whole=False):
    return dict(name=name, documents=documents, vocab_size=vocab_size, min_frequency=min_frequency,
                special_tokens=list(special_tokens), rule=rule, whole=whole)


def fixed_cases():
    return [
        case("gpt2", CORPUS, 420, whole=True),
        case("bloom", CORPUS, 500, 3, ["<unk>", "<s>", "</s>", "<pad>"], "bloom", whole=True),
        case("every_pair", CORPUS, 100000, 0, []),
        case("pairs_of_four", CORPUS, 30000, 4, [EOD, "<mask>", EOD, "é \"\\\n\x7f\u2028"]),
        case("no_document", [], 300),
        case("empty_documents", ["", ""], 300),
        case("one_byte", ["a"], 300, 0),
        case("one_character", ["é"], 300, 0),
        case("one_word", ["banana"], 300, 0),
        case("one_word_twice", ["banana banana"], 300, 2),
        case("vocabulary_of_the_bytes", ["aaaa aaaa"], 256, 0, []),
        case("vocabulary_too_small", ["aaaa aaaa"], 10, 0),
        case("one_merge", ["ab ab ab"], 258, 0),
        case("ties", ["dc ba fe hg ab cd ef gh bb aa cc"], 300, 0),
        case("equal_symbols", ["aa aaa aaaa aaaaa aaaaaaaa", "a" * 100], 300, 0),
        case("overlaps", ["ababa babab abaab aababb abababababab"], 320, 0),
        case("special_tokens_are_pieces", ["the theme of the thesis then", "abc abcd bcd bc ab"], 300, 0,
             ["Ġthe", "th", "a", "bc", "abc", "he"]),
        case("words_in_words", ["abcx", "bcabc ab abc", "xabc xbc abcabc", "bc bc", "xabcy abcy ybc yab"], 400, 0, []),
    ]


def random_cases(seed):
    """Small alphabets, so many ties and runs of one letter, and special tokens that are pieces."""
    draw = random.Random(seed)
    cases = []
    for number in range(60):
        letters = draw.choice(["ab", "abc", "abcdé", "the nd", "aб中 "])
        documents = ["".join(draw.choice(letters + draw.choice([" ", ""])) for _ in range(draw.randint(0, 200)))
                     for _ in range(draw.randint(1, 12))]
        special = ["".join(draw.choice(letters).replace(" ", "Ġ") for _ in range(draw.randint(1, 4)))
                   for _ in range(draw.randint(0, 12))]
        cases.append(case(f"random_{seed}_{number}", documents, draw.choice([260, 300, 400, 2000]), draw.choice([0, 0, 2, 5]),
                          special, draw.choice(["gpt2", "bloom"])))
    for number in range(6):
        words = " ".join(CORPUS).split(" ")
        documents = [" ".join(draw.choice(words) for _ in range(draw.randint(1, 300))) for _ in range(10)]
        cases.append(case(f"random_text_{seed}_{number}", documents, draw.choice([300, 1000, 50000]), draw.choice([0, 2, 9]),
                          [EOD], draw.choice(["gpt2", "bloom"])))
    return cases


def trained(settings):
    tokenizer = Tokenizer(models.BPE())
    use_regex = settings["rule"] == "gpt2"
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    if not use_regex:
        split = pre_tokenizers.Split(Regex(PATTERNS[settings["rule"]]), behavior="isolated", invert=False)
        byte_level = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.pre_tokenizer = byte_level
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=True, trim_offsets=False, use_regex=use_regex)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=settings["vocab_size"], min_frequency=settings["min_frequency"],
                                  special_tokens=settings["special_tokens"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(settings["documents"], trainer)
    return tokenizer


def with_answer(settings):
    settings = dict(settings)
    tokenizer = trained(settings)
    whole = settings.pop("whole")
    text = tokenizer.to_str(pretty=True)
    if whole:
        with tempfile.TemporaryDirectory() as folder:
            tokenizer.model.save(folder)
            files = {name: (pathlib.Path(folder) / name).read_text() for name in ("vocab.json", "merges.txt")}
        settings["files"] = {"tokenizer.json": text, **(files if settings["rule"] == "gpt2" else {})}
    model = json.loads(text)["model"]
    # The 256 bytes and the special tokens come first, in an order that the whole files show.
    settings["pieces"] = sorted(model["vocab"], key=model["vocab"].get)
    settings["merges"] = [" ".join(merge) for merge in model["merges"]]
    return settings


def text_of(cases):
    return "[\n" + ",\n".join(json.dumps(with_answer(settings), ensure_ascii=False) for settings in cases) + "\n]\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--fresh", nargs=2, metavar=("SEED", "DIR"))
    options = parser.parse_args()
    root = pathlib.Path(options.fresh[1] if options.fresh else pathlib.Path(__file__).resolve().parents[1] / "data")
    text = text_of(random_cases(int(options.fresh[0])) if options.fresh else fixed_cases() + random_cases(1)[:8])
    file = root / "bpe_training" / "cases.json"
    if options.check:
        equal = text == file.read_text()
        print(f"{file.name}: {'as committed' if equal else 'different'}")
        sys.exit(0 if equal else 1)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


if __name__ == "__main__":
    main()
