#include "store/internal/pickle_writer.h"

#include <bit>
#include <limits>
#include <unordered_map>

#include "base/error.h"
#include "store/internal/pickle_globals.h"
#include "store/internal/torch_nodes.h"

namespace espalier::store {
namespace {

using Kind = TorchValue::Kind;

class Writer {
 public:
  void write(const TorchValue& value) {
    switch (value.kind()) {
      case Kind::kNone: out_ += 'N'; return;
      case Kind::kBool: out_ += value.as_bool("") ? '\x88' : '\x89'; return;
      case Kind::kInt: return integer(value.as_int(""));
      case Kind::kFloat: return real(value.as_float(""));
      case Kind::kString: return text(value.as_string(""));
      case Kind::kBytes: return bytes(value.bytes());
      case Kind::kList: return list(value.items());
      case Kind::kTuple: return tuple_or_size(value);
      case Kind::kSet: return set(value.items());
      case Kind::kDict: return dict(value);
      case Kind::kTensor: return tensor(value);
      case Kind::kArray: return array(value.array());
      case Kind::kGlobal: return global(value.class_name());
      case Kind::kRecord: return record(value);
    }
  }

  Pickled finish() && { return {"\x80\x02" + out_ + ".", std::move(tensors_)}; }

 private:
  void little_endian(int num_bytes, uint64_t number) {
    for (int byte = 0; byte < num_bytes; ++byte) out_ += static_cast<char>(number >> (8 * byte));
  }

  void integer(int64_t number) {
    const auto bits = static_cast<uint64_t>(number);
    if (0 <= number && number <= 0xff) {
      out_ += 'K', little_endian(1, bits);
    } else if (0 <= number && number <= 0xffff) {
      out_ += 'M', little_endian(2, bits);
    } else if (std::numeric_limits<int32_t>::min() <= number && number <= std::numeric_limits<int32_t>::max()) {
      out_ += 'J', little_endian(4, bits);
    } else {
      out_ += "\x8a\x08", little_endian(8, bits);
    }
  }

  void real(double number) {
    out_ += 'G';
    little_endian(8, __builtin_bswap64(std::bit_cast<uint64_t>(number)));
  }

  void text(const std::string& utf8) {
    ESPALIER_CHECK(utf8.size() <= std::numeric_limits<uint32_t>::max(), utf8.size());
    out_ += 'X';
    little_endian(4, utf8.size());
    out_ += utf8;
  }

  // Protocol 2 has no bytes: they are the latin1 encoding of a text.
  void bytes(const std::string& content) {
    std::string utf8;
    for (const char character : content) {
      const auto byte = static_cast<uint8_t>(character);
      if (byte < 0x80)
        utf8 += character;
      else
        utf8 += {static_cast<char>(0xc0 | byte >> 6), static_cast<char>(0x80 | (byte & 0x3f))};
    }
    global("_codecs.encode");
    text(utf8);
    text("latin1");
    out_ += "\x86R";
  }

  void items(const TorchItems& all, char end) {
    if (all.empty()) return;
    out_ += '(';
    for (const TorchValue& item : all) write(item);
    out_ += end;
  }

  void list(const TorchItems& all) {
    out_ += ']';
    items(all, 'e');
  }

  void tuple(const TorchItems& all) {
    if (all.empty())
      out_ += ')';
    else
      items(all, 't');
  }

  void tuple_or_size(const TorchValue& value) {
    if (value.class_name().empty()) return tuple(value.items());
    global(value.class_name());
    tuple(value.items());
    out_ += "\x85R";
  }

  void set(const TorchItems& all) {
    global("builtins.set");
    list(all);
    out_ += "\x85R";
  }

  void dict(const TorchValue& value) {
    if (value.class_name().empty()) {
      out_ += '}';
    } else {
      global(value.class_name());
      out_ += ")R";
    }
    if (value.pairs().empty()) return;
    out_ += '(';
    for (const auto& [key, item] : value.pairs()) write(key), write(item);
    out_ += 'u';
  }

  void counts(const std::vector<int64_t>& all) {
    if (all.empty()) {
      out_ += ')';
      return;
    }
    out_ += '(';
    for (const int64_t count : all) integer(count);
    out_ += 't';
  }

  void tensor(const TorchValue& value) {
    const auto [place, fresh] = numbers_.try_emplace(TorchNodes::node_of(value), tensors_.size());
    if (fresh) tensors_.push_back(value);
    const TensorSource source = value.source();
    global("torch._utils._rebuild_tensor_v2");
    out_ += "((";
    text("storage");
    global("torch." + storage_class_name(source.dtype));
    text(std::to_string(place->second));
    text("cpu");
    integer(num_elements(source.shape));
    out_ += "tQ";
    integer(0);
    counts(source.shape);
    counts(contiguous_strides(source.shape));
    out_ += '\x89';  // requires no gradient
    global("collections.OrderedDict");
    out_ += ")RtR";
  }

  void array(const NumpyArray& array) {
    ESPALIER_CHECK(array.dtype.size() == 3, array.dtype);
    global("numpy._core.multiarray._reconstruct");
    out_ += '(';
    global("numpy.ndarray");
    counts({0});
    bytes("b");
    out_ += "tR(";
    integer(1);
    counts(array.shape);
    global("numpy.dtype");
    out_ += '(';
    text(array.dtype.substr(1));
    out_ += "\x89\x88tR(";
    integer(3);
    text(array.dtype.substr(0, 1));
    out_ += "NNN";
    integer(-1), integer(-1), integer(0);
    out_ += "tb\x89";  // not in Fortran's order
    bytes(array.data);
    out_ += "tb";
  }

  void record(const TorchValue& value) {
    global(value.class_name());
    tuple(value.items());
    if (value.state().is_none()) {
      out_ += 'R';
      return;
    }
    out_ += '\x81';  // an object that its class does not initialise
    write(value.state());
    out_ += 'b';
  }

  // The names that old Pythons and numpys have too, which new ones know.
  void global(const std::string& name) {
    std::string module = name.substr(0, name.rfind('.'));
    const std::string own = name.substr(name.rfind('.') + 1);
    if (is_record_class(module)) {  // a member of an enum
      global("builtins.getattr");
      global(module);
      text(own);
      out_ += "\x86R";
      return;
    }
    ESPALIER_CHECK(find_global(module, own).has_value(), name);
    if (module == "builtins") module = "__builtin__";
    if (module.starts_with("numpy._core.")) module = "numpy.core." + module.substr(12);
    out_ += "c" + module + "\n" + own + "\n";
  }

  std::string out_;
  std::vector<TorchValue> tensors_;
  std::unordered_map<const void*, size_t> numbers_;
};

}  // namespace

Pickled pickle(const TorchValue& root) {
  Writer writer;
  writer.write(root);
  return std::move(writer).finish();
}

}  // namespace espalier::store
