#include "store/internal/pickle_globals.h"

#include <array>
#include <unordered_map>

#include "base/error.h"

namespace espalier::store {
namespace {

struct StorageType {
  DType dtype;
  const char* name;
};
constexpr std::array<StorageType, 10> kStorageTypes = {{{DType::kFloat32, "FloatStorage"},
                                                        {DType::kFloat16, "HalfStorage"},
                                                        {DType::kBFloat16, "BFloat16Storage"},
                                                        {DType::kFloat64, "DoubleStorage"},
                                                        {DType::kInt64, "LongStorage"},
                                                        {DType::kInt32, "IntStorage"},
                                                        {DType::kInt16, "ShortStorage"},
                                                        {DType::kInt8, "CharStorage"},
                                                        {DType::kUInt8, "ByteStorage"},
                                                        {DType::kBool, "BoolStorage"}}};

using Table = std::unordered_map<std::string, GlobalRole>;

void add_torch(Table& table) {
  for (const StorageType& type : kStorageTypes) table["torch." + std::string(type.name)] = GlobalRole::kStorageType;
  for (const char* name : {"float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8",
                           "bool", "uint16", "uint32", "uint64", "complex64", "complex128", "float8_e4m3fn",
                           "float8_e5m2", "Tensor", "nn.parameter.Parameter"})
    table["torch." + std::string(name)] = GlobalRole::kConstant;
  table["torch._utils._rebuild_tensor"] = GlobalRole::kRebuildTensor;
  table["torch._utils._rebuild_tensor_v2"] = GlobalRole::kRebuildTensor;
  table["torch._utils._rebuild_parameter"] = GlobalRole::kRebuildParameter;
  table["torch._utils._rebuild_parameter_with_state"] = GlobalRole::kRebuildParameter;
  table["torch._tensor._rebuild_from_type_v2"] = GlobalRole::kRebuildFromType;
  table["torch.Size"] = GlobalRole::kSize;
  table["torch.device"] = GlobalRole::kRecord;
  table["torch.serialization._get_layout"] = GlobalRole::kRecord;
}

void add_python(Table& table) {
  table["collections.OrderedDict"] = GlobalRole::kOrderedDict;
  table["collections.defaultdict"] = GlobalRole::kDefaultDict;
  table["collections.deque"] = GlobalRole::kList;
  table["builtins.dict"] = GlobalRole::kDict;
  table["builtins.list"] = GlobalRole::kList;
  table["builtins.tuple"] = GlobalRole::kTuple;
  table["builtins.set"] = GlobalRole::kSet;
  table["builtins.frozenset"] = GlobalRole::kSet;
  table["builtins.bytes"] = GlobalRole::kBytes;
  table["builtins.bytearray"] = GlobalRole::kBytes;
  table["_codecs.encode"] = GlobalRole::kEncode;
  for (const char* name : {"object", "int", "float", "bool", "str"})
    table["builtins." + std::string(name)] = GlobalRole::kConstant;
  for (const char* name : {"builtins.slice", "builtins.range", "argparse.Namespace", "types.SimpleNamespace",
                           "pathlib.PosixPath", "signal.Signals", "_io.BytesIO"})
    table[name] = GlobalRole::kRecord;
  table["builtins.getattr"] = GlobalRole::kMember;
  table["copyreg._reconstructor"] = GlobalRole::kReconstructObject;
}

void add_numpy(Table& table) {
  table["numpy.ndarray"] = GlobalRole::kConstant;
  table["numpy.dtype"] = GlobalRole::kRecord;
  table["numpy._core.multiarray._reconstruct"] = GlobalRole::kReconstructArray;
  table["numpy._core.multiarray.scalar"] = GlobalRole::kScalar;
  table["numpy._core.numeric._frombuffer"] = GlobalRole::kFromBuffer;
}

// Of Megatron-LM, Megatron-DeepSpeed, their forks, and DeepSpeed, in the places where versions had them.
void add_checkpoint_classes(Table& table) {
  for (const char* name :
       {"deepspeed.runtime.fp16.loss_scaler.LossScaler", "deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler",
        "deepspeed.runtime.zero.config.ZeroStageEnum", "deepspeed.runtime.zero.offload_config.OffloadDeviceEnum",
        "deepspeed.runtime.bf16_optimizer.fragment_address", "deepspeed.utils.tensor_fragment.fragment_address",
        "deepspeed.runtime.config.DtypeEnum", "megatron.fp16.loss_scaler.LossScaler",
        "megatron.fp16.loss_scaler.DynamicLossScaler", "megatron.core.enums.ModelType",
        "megatron.core.transformer.enums.AttnBackend", "megatron.core.rerun_state_machine.RerunMode",
        "megatron.core.rerun_state_machine.RerunState", "megatron.core.rerun_state_machine.RerunDiagnostic",
        "megatron.core.rerun_state_machine.RerunErrorInjector",
        "megatron.core.rerun_state_machine.RerunValidationStatus"})
    table[name] = GlobalRole::kRecord;
  for (const char* module : {"megatron.enums", "megatron.model.enums", "megatron.core.transformer.enums"})
    for (const char* name : {"PositionEmbeddingType", "AttnMaskType", "AttnType", "LayerType", "ModelType"})
      table[concat(module, ".", name)] = GlobalRole::kRecord;
}

const Table& table() {
  static const Table all = [] {
    Table made;
    add_torch(made);
    add_python(made);
    add_numpy(made);
    add_checkpoint_classes(made);
    return made;
  }();
  return all;
}

// Python 2 and protocol 2 say __builtin__ and copy_reg; numpy 1 has core for what numpy 2 calls _core.
std::string today(const std::string& module) {
  if (module == "__builtin__") return "builtins";
  if (module == "copy_reg") return "copyreg";
  if (module.starts_with("numpy.core.")) return "numpy._core." + module.substr(11);
  return module;
}

}  // namespace

std::optional<Global> find_global(const std::string& module, const std::string& name) {
  const std::string whole = today(module) + "." + name;
  const auto found = table().find(whole);
  if (found == table().end()) return std::nullopt;
  return Global{whole, found->second};
}

std::optional<GlobalRole> role_of_global(const std::string& name) {
  const auto found = table().find(name);
  return found == table().end() ? std::nullopt : std::optional(found->second);
}

std::optional<DType> storage_dtype(const std::string& name) {
  for (const StorageType& type : kStorageTypes)
    if (name == "torch." + std::string(type.name)) return type.dtype;
  return std::nullopt;
}

std::string storage_class_name(DType dtype) {
  for (const StorageType& type : kStorageTypes)
    if (type.dtype == dtype) return type.name;
  ESPALIER_CHECK(false, "dtype ", static_cast<int>(dtype));
}

}  // namespace espalier::store
