#!/usr/bin/env python3
"""Small files of torch.save, and what stands in them as JSON; and our files as torch reads them.

    tests/oracle/torch_files_oracle.py                     writes tests/data/torch_files again
    tests/oracle/torch_files_oracle.py --check             makes them elsewhere and compares what stands in them
    tests/oracle/torch_files_oracle.py --fresh SEED DIR    lets espalier_store_test write the same trees into
                                                           DIR/torch_files, and reads them with torch.load

Both formats, all types, shared storages, views, the classes of checkpoints (as modules of this process that have their
names), and files that must be refused. The JSON says of each value what Python holds, so it does not depend on how a
reader works.
"""
import argparse
import collections
import dataclasses
import enum
import json
import os
import pathlib
import pickle
import struct
import subprocess
import sys
import tempfile
import types
import zipfile

import numpy
import torch

ROOT = pathlib.Path(__file__).parent.parent.parent
COMMITTED = ROOT / "tests" / "data" / "torch_files"
FOLDER = COMMITTED
DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "F64": torch.float64, "I64": torch.int64,
          "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def module_class(name, made):
    """Makes `made` look like the class `name` ("deepspeed.runtime...") to pickle."""
    module_name, class_name = name.rsplit(".", 1)
    for end in range(1, module_name.count(".") + 2):
        part = ".".join(module_name.split(".")[:end])
        sys.modules.setdefault(part, types.ModuleType(part))
    made.__module__, made.__name__, made.__qualname__ = module_name, class_name, class_name
    setattr(sys.modules[module_name], class_name, made)
    return made


class LossScaler:
    pass


class Unknown:
    pass


@dataclasses.dataclass
class FragmentAddress:
    numel: int
    start: int


DynamicLossScaler = module_class("deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler", LossScaler)
ZeroStage = module_class("deepspeed.runtime.zero.config.ZeroStageEnum", enum.IntEnum("ZeroStageEnum", "optimizer gradients"))
PositionEmbedding = module_class("megatron.enums.PositionEmbeddingType", enum.Enum("PositionEmbeddingType", "rotary alibi"))
# Python 3.11 saves members by name, the others by value.
ZeroStage.__reduce_ex__ = lambda self, protocol: (type(self), (self._value_,))
Fragment = module_class("deepspeed.utils.tensor_fragment.fragment_address", FragmentAddress)
UnknownClass = module_class("somebody.model.Net", Unknown)


def described(value):
    if value is None or isinstance(value, (str, numpy.bool_, bool)):
        return bool(value) if isinstance(value, numpy.bool_) else value
    if isinstance(value, enum.Enum):
        name = f"{type(value).__module__}.{type(value).__name__}"
        by_value = value.__reduce_ex__(2)[0] is type(value)
        return {"record": name, "arguments": [value.value], "state": None} if by_value else {"global": f"{name}.{value.name}"}
    if isinstance(value, (float, numpy.floating)):
        return {"float": struct.pack(">d", value).hex()}
    if isinstance(value, (int, numpy.integer)):
        return int(value)
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": bytes(value).hex()}
    if isinstance(value, torch.Size):
        return {"tuple": [described(item) for item in value], "class": "torch.Size"}
    if isinstance(value, tuple):
        return {"tuple": [described(item) for item in value], "class": ""}
    if isinstance(value, (list, collections.deque)):
        return [described(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return {"set": sorted(described(item) for item in value)}
    if isinstance(value, dict):
        name = "collections.OrderedDict" if isinstance(value, collections.OrderedDict) else ""
        return {"dict": [[described(key), described(item)] for key, item in value.items()], "class": name}
    if isinstance(value, torch.Tensor):
        packed = value.detach().contiguous().reshape(-1)
        content = packed.view(torch.uint8) if packed.numel() else torch.empty(0, dtype=torch.uint8)
        return {"tensor": NAMES[value.dtype], "shape": list(value.shape), "hex": content.numpy().tobytes().hex()}
    if isinstance(value, numpy.ndarray):
        return {"array": value.dtype.str, "shape": list(value.shape), "hex": value.tobytes().hex()}
    if isinstance(value, torch.dtype):
        return {"global": str(value)}
    if isinstance(value, torch.device):
        arguments = [value.type] if value.index is None else [value.type, value.index]
        return {"record": "torch.device", "arguments": arguments, "state": None}
    if isinstance(value, slice):
        return {"record": "builtins.slice", "arguments": [value.start, value.stop, value.step], "state": None}
    if isinstance(value, type):
        return {"global": f"{value.__module__}.{value.__name__}"}
    return {"record": f"{type(value).__module__}.{type(value).__name__}", "arguments": [],
            "state": described(dict(vars(value)))}


def all_types():
    generator = torch.Generator().manual_seed(1)
    tensors = {}
    for name, dtype in DTYPES.items():
        for size in (0, 1, 7, 33):
            random = torch.randint(0, 256, (size * torch.empty(0, dtype=dtype).element_size(),), generator=generator)
            bytes_of = (random % 2 if dtype == torch.bool else random).to(torch.uint8)
            tensors[f"{name}_{size}"] = bytes_of.view(dtype) if size else torch.empty(0, dtype=dtype)
        tensors[f"{name}_scalar"] = tensors[f"{name}_7"][3].clone()
    return tensors


def views():
    base = torch.arange(7 * 33, dtype=torch.float32).reshape(7, 33)
    cube = torch.arange(3 * 7 * 33, dtype=torch.int16).reshape(3, 7, 33)
    return {"base": base, "same": base, "transposed": base.t(), "rows": base[2:5], "columns": base[:, 5:9],
            "every_third": base[::3, ::2], "last": base[6, 32], "expanded": base[1:2].expand(7, 33),
            "repeated": base[:, :1].expand(7, 33), "none": base[3:3], "windows": base.reshape(-1).unfold(0, 7, 3),
            "cube": cube, "permuted": cube.permute(2, 0, 1), "middle": cube[:, 3], "sparse_column": cube[:, :, 32]}


def objects():
    numpy.random.seed(1)
    state_dict = collections.OrderedDict(weight=torch.arange(7.0))
    state_dict._metadata = collections.OrderedDict({"": {"version": 1}})
    scaler = DynamicLossScaler()
    scaler.cur_scale, scaler.hysteresis = 65536.0, 2
    parameter = torch.nn.Parameter(torch.arange(3.0))
    parameter.tensor_model_parallel = True
    marked = torch.arange(5)
    marked.shared = True
    return {
        "none": None, "true": True, "false": False, "ints": [0, 255, 256, 65535, 65536, -1, 2**31 - 1, -2**31, 2**63 - 1,
                                                             -2**63, 2**40], "floats": (0.1, -1e300, float("inf")),
        "text": "caf\u00e9 \u4f60 \U0001f600", "long": "x" * 300, "bytes": bytes(range(256)), "no_bytes": b"",
        "bytearray": bytearray(b"ab\xff"), "set": {3, 1, 2}, "frozen": frozenset([1]), "empty": [[], (), {}],
        (1, "a"): "tuple key", 3: "int key", 2.5: "float key", None: "none key",
        "ordered": collections.OrderedDict([("b", 1), ("a", 2)]), "default": collections.defaultdict(dict, {"x": {}}),
        "deque": collections.deque([1, 2], maxlen=5), "size": torch.Size([7, 33]), "dtype": torch.bfloat16,
        "device": torch.device("cuda:1"), "cpu": torch.device("cpu"), "slice": slice(1, None, 2), "type": float,
        "numpy_rng": numpy.random.get_state(), "array": numpy.arange(6, dtype=numpy.float32).reshape(2, 3),
        "no_array": numpy.zeros((0, 3), numpy.int64), "numpy_int": numpy.int64(-4), "numpy_float": numpy.float64(0.1),
        "numpy_half": numpy.float16(-0.333), "numpy_bool": numpy.bool_(True), "numpy_byte": numpy.uint8(200),
        "python_rng": (3, tuple(range(2**32 - 7, 2**32)), None),
        "namespace": argparse.Namespace(num_layers=4, position=PositionEmbedding.alibi, params_dtype=torch.bfloat16),
        "simple": types.SimpleNamespace(a=1), "scaler": scaler, "stage": ZeroStage.gradients,
        "slices": collections.OrderedDict({"3.weight": Fragment(numel=33, start=7)}),
        "parameter": torch.nn.Parameter(torch.arange(3.0)), "own_parameter": parameter, "marked": marked,
        "state_dict": state_dict, "rng": torch.arange(33, dtype=torch.uint8),
    }


class Runs:
    def __reduce__(self):
        return (os.system, ("touch torch_file_ran_this",))


def rewritten(source, target, change, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", compression) as new:
        for info in old.infolist():
            if (content := change(info.filename, old.read(info))) is not None:
                new.writestr(info.filename, content)


def refused():
    torch.save({"a": Runs()}, FOLDER / "refused_os_system.pt")
    torch.save({"a": UnknownClass()}, FOLDER / "refused_class.pt")
    torch.save({"a": 2**63}, FOLDER / "refused_int.pt")
    torch.save({"a": torch.zeros(3, dtype=torch.complex64)}, FOLDER / "refused_complex.pt")
    torch.save({"a": torch.eye(3).to_sparse()}, FOLDER / "refused_sparse.pt")
    loop = [1]
    loop.append(loop)
    torch.save(loop, FOLDER / "refused_loop.pt")
    deep = []
    for _ in range(150):
        deep = [deep]
    torch.save(deep, FOLDER / "refused_deep.pt")
    whole = FOLDER / "small.pt"
    rewritten(whole, FOLDER / "refused_compressed.pt", lambda name, content: content, zipfile.ZIP_DEFLATED)
    rewritten(whole, FOLDER / "refused_big_endian.pt", lambda name, content: b"big" if "byteorder" in name else content)
    rewritten(whole, FOLDER / "refused_no_storage.pt", lambda name, content: None if "/data/" in name else content)
    rewritten(whole, FOLDER / "refused_short_storage.pt",
              lambda name, content: content[:-4] if "/data/" in name else content)
    with open(FOLDER / "refused_old_os_system.pt", "wb") as file:
        for value in (0x1950a86a20f9469cfc6c, 1001, {"little_endian": True}, Runs(), []):
            pickle.dump(value, file, protocol=2)


def write_files():
    FOLDER.mkdir(parents=True, exist_ok=True)
    expected = {}
    small = {"weight": torch.arange(7.0), "step": 3}
    for name, value in {"small": small, "types": all_types(), "views": views(), "objects": objects()}.items():
        expected[name] = described(value)
        torch.save(value, FOLDER / f"{name}.pt")
        torch.save(value, FOLDER / f"{name}_old.pt", _use_new_zipfile_serialization=False)
    torch.save(objects(), FOLDER / "objects_protocol3.pt", pickle_protocol=3)
    torch.save(objects(), FOLDER / "objects_protocol5.pt", pickle_protocol=5)
    refused()
    (FOLDER / "expected.json").write_text(json.dumps(expected, separators=(",", ":")) + "\n")


def check_rewritten(folder):
    """The files that espalier_store_test rewrote: a whole zip file each, with the values of the original."""
    folder.mkdir(parents=True)
    subprocess.run([ROOT / "build" / "bin" / "espalier_store_test", "--gtest_filter=TorchFileWriter.*", "--gtest_brief=1"],
                   env={**os.environ, "ESPALIER_WRITTEN_TORCH_FILES": str(folder)}, cwd=ROOT, check=True)
    expected = json.loads((COMMITTED / "expected.json").read_text())
    different = []
    for name, value in expected.items():
        with zipfile.ZipFile(folder / f"{name}.pt") as archive:
            assert archive.testzip() is None, name
        # What the classes of others are is up to them, so only values and tensors are for weights_only.
        found = described(torch.load(folder / f"{name}.pt", weights_only=name != "objects"))
        different += [f"{name}: {old} became {new}" for old, new in zip(value["dict"], found["dict"]) if old != new]
        different += [name] if len(value["dict"]) != len(found["dict"]) else []
    shared = torch.load(folder / "views.pt", weights_only=True)
    if shared["base"].data_ptr() != shared["same"].data_ptr():
        different.append("views: a tensor that stood there twice is no longer shared")
    print("\n".join(different) if different else f"{len(expected)} files as before")
    sys.exit(1 if different else 0)


def main():
    global FOLDER
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--fresh", nargs=2, metavar=("SEED", "DIR"))
    arguments = parser.parse_args()
    if arguments.fresh:
        check_rewritten(pathlib.Path(arguments.fresh[1]) / "torch_files")
    elif arguments.check:
        with tempfile.TemporaryDirectory() as folder:
            FOLDER = pathlib.Path(folder)
            write_files()
            same = (FOLDER / "expected.json").read_bytes() == (COMMITTED / "expected.json").read_bytes()
        print("values as committed" if same else "different: expected.json")
        sys.exit(0 if same else 1)
    else:
        write_files()


if __name__ == "__main__":
    main()
