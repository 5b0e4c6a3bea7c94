// Removes stretches of text that occurred before (curate/dedup/repeats.h).
#include "curate/dedup/dedup.h"
#include "curate/dedup/document_nodes.h"
#include "curate/dedup/repeats.h"
#include "text/python_text.h"

namespace espalier::curate {
namespace {

struct TextPlace {
  uint64_t node, begin;
};

class SubstringsPass : public Pass {
 public:
  SubstringsPass(int64_t window, const PassSpace& space)
      : path_(space.folder / "text-places"),
        nodes_(space.folder),
        writer_(path_),
        repeats_(space.folder, window, space.memory_bytes) {}

  std::string digest(const Document& document) const override {
    return DocumentNodes::start_digest(document) + document.text;
  }
  void add(int64_t number, std::string_view digest) override {
    const uint64_t node = nodes_.add(number, digest);
    writer_->add({node, repeats_.add(digest)});
  }
  void finish() override {
    nodes_.finish();
    writer_->close();
    writer_.reset();
    places_ = SortedRecords<TextPlace>(path_);
    repeats_.finish();
  }
  Fate decide(Document& document) const override {
    const TextPlace& place = places_.of(nodes_.find(document).front()).front();
    const std::vector<ByteRange> ranges = repeats_.of(place.begin, document.text.size());
    if (ranges.empty()) return Fate::kept();
    std::string rest = without_ranges(document.text, ranges);
    if (text::python::strip(rest).empty())
      return Fate::dropped("only_duplicates", static_cast<double>(document.text.size() - rest.size()));
    document.text = std::move(rest);
    return Fate::kept();
  }
  // Not the number of shards: facts do not depend on memory.
  nlohmann::ordered_json facts() const override {
    return {{"bytes", repeats_.num_bytes()}, {"repeated_bytes", repeats_.num_repeated()}};
  }

 private:
  std::filesystem::path path_;
  DocumentNodes nodes_;
  std::optional<RecordWriter<TextPlace>> writer_;
  SortedRecords<TextPlace> places_;
  Repeats repeats_;
};

class SubstringsMaker : public StepMaker {
 public:
  void add_rows(OptionTable& table) override {
    table.add("--least-bytes", window_, "bytes that must occur before to be cut out")
        .minimum(8)
        .maximum(int64_t{1} << 20);
  }
  std::unique_ptr<Pass> make_pass(const PassSpace& space) const override {
    return std::make_unique<SubstringsPass>(window_, space);
  }

 private:
  int64_t window_ = 100;
};

}  // namespace

std::unique_ptr<StepMaker> substrings_maker() { return std::make_unique<SubstringsMaker>(); }

}  // namespace espalier::curate
