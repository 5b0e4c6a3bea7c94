#!/usr/bin/env python3
"""Cuts the 160 samples of the training trace (megatron-oracle/model/train.json) out of owt_text_document.

Reads the index arrays that Megatron-DeepSpeed itself wrote (gpt_index/seq64_seed77_ns160), assembles samples as it
does, checks the SHA-256 of the first 2,000 against cases.json, and writes the first 160 as uint16.
    tests/oracle/make_train_samples.py FOLDER_OF_DATA tests/data/megatron-oracle/model/train_samples.npy
"""
import array, ast, hashlib, json, pathlib, struct, sys

data, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
oracle = data / "megatron-oracle/gpt_index"


def npy(path):
    raw = path.read_bytes()
    length = struct.unpack_from("<H", raw, 8)[0]
    header = ast.literal_eval(raw[10 : 10 + length].decode())
    code = {"<i4": "i", "<u4": "I"}[header["descr"]]
    return array.array(code, raw[10 + length :])


case = oracle / "seq64_seed77_ns160"
doc, sample, shuffle = (npy(case / f"train_{kind}_idx.npy") for kind in ("doc", "sample", "shuffle"))
index = (data / "owt_text_document.idx").read_bytes()
count = struct.unpack_from("<Q", index, 18)[0]
sizes = array.array("i", index[34 : 34 + 4 * count])
starts = [0]
for size in sizes:
    starts.append(starts[-1] + size)
tokens = array.array("H", (data / "owt_text_document.bin").read_bytes())


def assemble(number):
    at = shuffle[number]
    first, offset, last, end = sample[2 * at], sample[2 * at + 1], sample[2 * at + 2], sample[2 * at + 3]
    ids = array.array("H")
    for position in range(first, last + 1):
        document = doc[position]
        begin = starts[document] + (offset if position == first else 0)
        stop = starts[document] + end + 1 if position == last else starts[document + 1]
        ids += tokens[begin:stop]
    return ids


rows = [assemble(number) for number in range(2000)]
wanted = json.loads((oracle / "cases.json").read_text())[0]["sets"]["train"]["sha256_of_all_samples_int64"]
found = hashlib.sha256(b"".join(array.array("q", row).tobytes() for row in rows)).hexdigest()
assert found == wanted, (found, wanted)
body = b"".join(row.tobytes() for row in rows[:160])
text = "{'descr': '<u2', 'fortran_order': False, 'shape': (160, 65), }"
text += " " * (-(10 + len(text) + 1) % 64) + "\n"
out.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + body)
