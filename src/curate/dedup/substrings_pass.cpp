// Removes stretches of text that occurred before (curate/dedup/repeats.h).
#include "curate/dedup/dedup.h"
#include "curate/dedup/pass_facts.h"
#include "curate/dedup/repeats.h"
#include "text/python_text.h"

namespace espalier::curate {
namespace {

struct TextPlace {
  uint64_t node, begin;
};

constexpr const char* kPlaces = "text-places";

class SubstringsPart : public PassPart {
 public:
  SubstringsPart(int64_t window, const PassSpace& space)
      : folder_(space.folder), writer_(space.folder / kPlaces), repeats_(space.folder, window, space.memory_bytes) {}

  void add(int64_t number, std::string_view digest) override {
    writer_.add({static_cast<uint64_t>(number), repeats_.add(digest)});
  }
  void finish() override {
    writer_.close();
    repeats_.finish();
    // Not the number of shards: facts do not depend on memory.
    write_facts(folder_, {{"bytes", repeats_.num_bytes()}, {"repeated_bytes", repeats_.num_repeated()}});
  }

 private:
  std::filesystem::path folder_;
  RecordWriter<TextPlace> writer_;
  Repeats repeats_;
};

class SubstringsPass : public Pass {
 public:
  explicit SubstringsPass(int64_t window) : window_(window) {}

  void digest(const Document& document, Digests& digests) const override {
    digests.add(0, document.number, document.text);
  }
  std::unique_ptr<PassPart> make_part(int64_t, const PassSpace& space) const override {
    return std::make_unique<SubstringsPart>(window_, space);
  }
  void open(const std::filesystem::path& folder) override {
    places_ = SortedRecords<TextPlace>(folder / kPlaces);
    ranges_ = RepeatedRanges(folder);
    facts_ = read_facts(folder);
  }
  Fate decide(Document& document) const override {
    const TextPlace& place = places_.of(static_cast<uint64_t>(document.number)).front();
    const std::vector<ByteRange> ranges = ranges_.of(place.begin, document.text.size());
    if (ranges.empty()) return Fate::kept();
    std::string rest = without_ranges(document.text, ranges);
    if (text::python::strip(rest).empty())
      return Fate::dropped("only_duplicates", static_cast<double>(document.text.size() - rest.size()));
    document.text = std::move(rest);
    return Fate::kept();
  }
  nlohmann::ordered_json facts() const override { return facts_; }

 private:
  int64_t window_;
  SortedRecords<TextPlace> places_;
  RepeatedRanges ranges_;
  nlohmann::ordered_json facts_;
};

class SubstringsMaker : public StepMaker {
 public:
  void add_rows(OptionTable& table) override {
    table.add("--least-bytes", window_, "bytes that must occur before to be cut out")
        .minimum(8)
        .maximum(int64_t{1} << 20);
  }
  std::unique_ptr<Pass> make_pass() const override { return std::make_unique<SubstringsPass>(window_); }

 private:
  int64_t window_ = 100;
};

}  // namespace

std::unique_ptr<StepMaker> substrings_maker() { return std::make_unique<SubstringsMaker>(); }

}  // namespace espalier::curate
