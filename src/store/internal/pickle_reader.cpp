#include "store/internal/pickle_reader.h"

#include <bit>
#include <utility>

namespace espalier::store {
namespace {

using Kind = TorchValue::Kind;
using Node = TorchNodes::Node;

// A value takes some 100 bytes here and as little as one in the file.
constexpr uint64_t kMostValues = 1 << 24;

// The steps, by Python's names (pickletools).
enum Step : uint8_t {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kDup = '2',
  kNone = 'N',
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kBinFloat = 'G',
  kBinString = 'T',
  kShortBinString = 'U',
  kBinUnicode = 'X',
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kBinBytes8 = 0x8e,
  kByteArray8 = 0x96,
  kEmptyList = ']',
  kAppend = 'a',
  kAppends = 'e',
  kList = 'l',
  kEmptyTuple = ')',
  kTuple = 't',
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kEmptyDict = '}',
  kDict = 'd',
  kSetItem = 's',
  kSetItems = 'u',
  kEmptySet = 0x8f,
  kAddItems = 0x90,
  kFrozenSet = 0x91,
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kMemoize = 0x94,
  kGlobal = 'c',
  kStackGlobal = 0x93,
  kReduce = 'R',
  kBuild = 'b',
  kNewObj = 0x81,
  kNewObjEx = 0x92,
  kBinPersId = 'Q',
  kProto = 0x80,
  kFrame = 0x95,
};

}  // namespace

TorchValue PickleReader::read() {
  step_position_ = input_.position();
  if (input_.byte() != kProto) refuse_file("expected the start of a pickle of protocol 2 to 5, found another byte");
  const uint8_t protocol = input_.byte();
  if (protocol < 2 || protocol > 5) refuse_file("expected a pickle of protocol 2 to 5, found ", int{protocol});
  for (;;) {
    step_position_ = input_.position();
    const uint8_t step = input_.byte();
    if (step == kStop) break;
    if (step == kFrame) {
      input_.number<uint64_t>();  // how far one may read ahead
      continue;
    }
    if (take_constant(step) || take_number(step) || take_text(step) || take_container(step) || take_memo(step) ||
        take_object(step))
      continue;
    refuse_file("expected a step of a pickle as torch.save writes it, found byte ", int{step});
  }
  TorchValue root = pop();
  if (!stack_.empty() || !marks_.empty())
    refuse_file("expected one value at the end of the pickle, found ", stack_.size() + 1);
  memo_.clear();
  return root;
}

bool PickleReader::take_constant(uint8_t step) {
  switch (step) {
    case kNone: push(TorchValue()); return true;
    case kNewTrue: push(TorchValue::boolean(true)); return true;
    case kNewFalse: push(TorchValue::boolean(false)); return true;
    case kMark: marks_.push_back(stack_.size()); return true;
    case kPop:
      // Python takes away a mark that is on top.
      if (!marks_.empty() && marks_.back() == stack_.size())
        marks_.pop_back();
      else
        pop();
      return true;
    case kPopMark: pop_to_mark(); return true;
    case kDup: push(top()); return true;
    default: return false;
  }
}

bool PickleReader::take_number(uint8_t step) {
  switch (step) {
    case kBinInt: push(TorchValue::integer(input_.number<int32_t>())); return true;
    case kBinInt1: push(TorchValue::integer(input_.byte())); return true;
    case kBinInt2: push(TorchValue::integer(input_.number<uint16_t>())); return true;
    case kLong1: push(long_integer(input_.byte())); return true;
    case kLong4: push(long_integer(input_.number<uint32_t>())); return true;
    case kBinFloat:
      push(TorchValue::real(std::bit_cast<double>(__builtin_bswap64(input_.number<uint64_t>()))));
      return true;
    default: return false;
  }
}

TorchValue PickleReader::long_integer(uint32_t size) {
  if (size > 8) refuse_file("expected an int of at most 64 bits, found one of ", size, " bytes");
  const std::string bytes = input_.text(size);
  uint64_t value = size > 0 && (bytes.back() & 0x80) != 0 ? ~uint64_t{0} : 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return TorchValue::integer(static_cast<int64_t>(value));
}

bool PickleReader::take_text(uint8_t step) {
  const auto push_text = [&](Kind kind, uint64_t size) {
    push(nodes_.make(kind, input_.text(size)));
    return true;
  };
  switch (step) {
    case kShortBinUnicode:
    case kShortBinString: return push_text(Kind::kString, input_.byte());
    case kBinUnicode:
    case kBinString: return push_text(Kind::kString, input_.number<uint32_t>());
    case kBinUnicode8: return push_text(Kind::kString, input_.number<uint64_t>());
    case kShortBinBytes: return push_text(Kind::kBytes, input_.byte());
    case kBinBytes: return push_text(Kind::kBytes, input_.number<uint32_t>());
    case kBinBytes8:
    case kByteArray8: return push_text(Kind::kBytes, input_.number<uint64_t>());
    default: return false;
  }
}

bool PickleReader::take_container(uint8_t step) {
  switch (step) {
    case kEmptyList: push(nodes_.make(Kind::kList, TorchItems())); return true;
    case kEmptyTuple: push(nodes_.make(Kind::kTuple, TorchItems())); return true;
    case kEmptyDict: push(nodes_.make(Kind::kDict, TorchPairs())); return true;
    case kEmptySet: push(nodes_.make(Kind::kSet, TorchItems())); return true;
    case kList: push(nodes_.make(Kind::kList, pop_to_mark())); return true;
    case kTuple: push(nodes_.make(Kind::kTuple, pop_to_mark())); return true;
    case kFrozenSet: push(nodes_.make(Kind::kSet, pop_to_mark())); return true;
    case kTuple1: push(nodes_.make(Kind::kTuple, pop_last(1))); return true;
    case kTuple2: push(nodes_.make(Kind::kTuple, pop_last(2))); return true;
    case kTuple3: push(nodes_.make(Kind::kTuple, pop_last(3))); return true;
    case kDict: {
      const TorchItems items = pop_to_mark();
      push(nodes_.make(Kind::kDict, TorchPairs()));
      set_items(top(), items);
      return true;
    }
    case kAppend:
    case kAppends:
    case kAddItems: {
      TorchItems items = step == kAppend ? pop_last(1) : pop_to_mark();
      append(top(), std::move(items));
      return true;
    }
    case kSetItem:
    case kSetItems: {
      const TorchItems items = step == kSetItem ? pop_last(2) : pop_to_mark();
      set_items(top(), items);
      return true;
    }
    default: return false;
  }
}

bool PickleReader::take_memo(uint8_t step) {
  const auto get = [&](uint64_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) refuse_file("expected a value that was kept before, found number ", key);
    push(found->second);
    return true;
  };
  const auto put = [&](uint64_t key) {
    memo_[key] = top();
    return true;
  };
  switch (step) {
    case kBinGet: return get(input_.byte());
    case kLongBinGet: return get(input_.number<uint32_t>());
    case kBinPut: return put(input_.byte());
    case kLongBinPut: return put(input_.number<uint32_t>());
    case kMemoize: return put(memo_.size());
    default: return false;
  }
}

bool PickleReader::take_object(uint8_t step) {
  switch (step) {
    case kGlobal: {
      const std::string module = input_.line();
      push(objects_.global(module, input_.line()));
      return true;
    }
    case kStackGlobal: {
      const TorchItems names = pop_last(2);
      if (!names[0].is_string() || !names[1].is_string())
        refuse_file("expected the names of a global, found ", names[0].describe(), " and ", names[1].describe());
      push(objects_.global(names[0].as_string(""), names[1].as_string("")));
      return true;
    }
    case kReduce:
    case kNewObj: {
      const TorchItems parts = pop_last(2);
      push(step == kReduce ? objects_.call(parts[0], parts[1]) : objects_.new_object(parts[0], parts[1]));
      return true;
    }
    case kNewObjEx: {
      const TorchItems parts = pop_last(3);
      if (!parts[2].is_dict() || !parts[2].pairs().empty())
        refuse_file("expected no named arguments of an object, found ", parts[2].describe());
      push(objects_.new_object(parts[0], parts[1]));
      return true;
    }
    case kBuild: {
      const TorchItems state = pop_last(1);
      objects_.set_state(top(), state[0]);
      return true;
    }
    case kBinPersId: push(objects_.storage(pop())); return true;
    default: return false;
  }
}

void PickleReader::push(TorchValue value) {
  if (++pushed_ > kMostValues) refuse_file("expected at most ", kMostValues, " values, found more");
  stack_.push_back(std::move(value));
}

TorchValue& PickleReader::top() {
  const size_t floor = marks_.empty() ? 0 : marks_.back();
  if (stack_.size() <= floor) refuse_file("expected a value before this step of the pickle, found none");
  return stack_.back();
}

TorchValue PickleReader::pop() {
  TorchValue value = top();
  stack_.pop_back();
  return value;
}

TorchItems PickleReader::pop_last(size_t count) {
  const size_t floor = marks_.empty() ? 0 : marks_.back();
  if (stack_.size() < floor + count)
    refuse_file("expected ", count, " values before this step of the pickle, found ", stack_.size() - floor);
  TorchItems items(stack_.end() - static_cast<int64_t>(count), stack_.end());
  stack_.resize(stack_.size() - count);
  return items;
}

TorchItems PickleReader::pop_to_mark() {
  if (marks_.empty()) refuse_file("expected a mark before this step of the pickle, found none");
  TorchItems items = pop_last(stack_.size() - marks_.back());
  marks_.pop_back();
  return items;
}

void PickleReader::append(const TorchValue& target, TorchItems items) {
  if (target.kind() != Kind::kList && target.kind() != Kind::kSet)
    refuse_file("expected a list to append to, found ", target.describe());
  auto& all = std::get<TorchItems>(TorchNodes::node_of(target)->content);
  all.insert(all.end(), std::make_move_iterator(items.begin()), std::make_move_iterator(items.end()));
}

void PickleReader::set_items(const TorchValue& target, const TorchItems& keys_and_values) {
  if (target.kind() != Kind::kDict) refuse_file("expected a dict to fill, found ", target.describe());
  if (keys_and_values.size() % 2 != 0)
    refuse_file("expected keys and values of a dict, found ", keys_and_values.size());
  auto& pairs = std::get<TorchPairs>(TorchNodes::node_of(target)->content);
  for (size_t i = 0; i < keys_and_values.size(); i += 2) pairs.emplace_back(keys_and_values[i], keys_and_values[i + 1]);
}

}  // namespace espalier::store
