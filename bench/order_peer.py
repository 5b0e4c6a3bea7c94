"""How fast Megatron-DeepSpeed builds its index of the samples: order_peer.py SIZES SEQUENCE_LENGTH EPOCHS FOLDER

Upstream's own module and its compiled helper, as tests/oracle/megatron_data_oracle.py loads them (which says where the checkout
is looked for; exit code 77 without one). SIZES as for order_bench. Prints a JSON object: samples, and the seconds from the sizes
to its three arrays in FOLDER, mapped again. order_peer.py --look only loads upstream.
"""
import json
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/oracle"))

import numpy as np  # noqa: E402
from megatron_data_oracle import load_upstream  # noqa: E402


def main():
    if sys.argv[1:] == ["--look"]:
        load_upstream()
        return
    file, length, epochs, folder = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
    upstream = load_upstream()
    sizes = np.fromfile(file, np.int32)
    samples = int(epochs * int(sizes.sum(dtype=np.int64)) / length)
    start = time.perf_counter()
    _, _, order = upstream.gpt_dataset._build_index_mappings(
        "bench", os.path.join(folder, "index"), np.arange(len(sizes), dtype=np.int32), sizes, samples, length, 1234)
    print(json.dumps({"samples": len(order), "seconds": time.perf_counter() - start}))


main()
