#include "curate/stage.h"

#include "base/format.h"
#include "data/input_stream.h"

namespace espalier::curate {

void Stage::process(Document&& document, size_t step, BlockResult& result) const {
  for (; step < num_steps(); ++step) {
    StepTally& tally = result.tallies[step];
    const std::string before = document.text;
    ++tally.num_in;
    tally.bytes_in += static_cast<int64_t>(before.size());
    const bool decides = decides_ != nullptr && step == 0;
    if (measures_ && !decides) {
      std::vector<Measure> measures;
      steps_[step - (decides_ != nullptr)]->measure(document, measures);
      tally.note_measures(measures);
    }
    Fate fate = decides ? decides_->decide(document) : steps_[step - (decides_ != nullptr)]->apply(document);
    if (fate.kind == Fate::Kind::kDropped) {
      tally.note_drop(document, before, fate.reason);
      result.languages.note(document, /*kept=*/false);
      result.fates.push_back(
          {document.number, first_step_ + static_cast<int>(step), std::move(fate.reason), fate.value, fate.threshold});
      return;
    }
    if (fate.kind == Fate::Kind::kSplit) {
      ESPALIER_CHECK(digests_ == nullptr, "run() refuses a pass after a step that splits");
      tally.note_change(document.number, before, fate.pieces.empty() ? "" : fate.pieces.front().text);
      for (Document& piece : fate.pieces) {
        ++tally.num_out;
        tally.bytes_out += static_cast<int64_t>(piece.text.size());
        process(std::move(piece), step + 1, result);
      }
      return;
    }
    if (document.text != before) tally.note_change(document.number, before, document.text);
    ++tally.num_out;
    tally.bytes_out += static_cast<int64_t>(document.text.size());
  }
  result.languages.note(document, /*kept=*/true);
  if (digests_ != nullptr) digests_->digest(document, result.digests);
  result.text_bytes += static_cast<int64_t>(document.text.size());
  result.documents.push_back(std::move(document));
}

BlockResult Stage::empty_result() const {
  BlockResult result;
  result.tallies.resize(num_steps());
  if (digests_ != nullptr) result.digests = Digests(static_cast<size_t>(digests_->num_parts()));
  return result;
}

BlockResult Stage::process(const std::vector<InputSource>& sources, const RawBlock& block) const {
  BlockResult result = empty_result();
  result.input_bytes = block.input_bytes;
  result.next_number = block.first_number + static_cast<int64_t>(block.records.size());
  result.input.num_records = static_cast<int64_t>(block.records.size());
  for (size_t index = 0; index < block.records.size(); ++index) {
    Document document;
    document.number = block.first_number + static_cast<int64_t>(index);
    std::string reason;
    const bool is_document = block.skipped_bytes == 0 && read_record(sources[block.source], block, index, document,
                                                                     reason, result.input.num_replaced);
    if (is_document) {
      ++result.input.num_documents;
      process(std::move(document), 0, result);
      continue;
    }
    if (block.skipped_bytes > 0)
      reason = concat("The record has ", format_count(block.skipped_bytes), " bytes, which is more than is read");
    result.fates.push_back({document.number, -1, reason, {}, {}});
    result.input.note_malformed(
        concat(data::shown_name(block.file), ":", block.first_line + static_cast<int64_t>(index), ": ", reason));
  }
  return result;
}

BlockResult Stage::process(std::vector<Document> documents, int64_t next_number) const {
  BlockResult result = empty_result();
  result.next_number = next_number;
  for (Document& document : documents) process(std::move(document), 0, result);
  return result;
}

}  // namespace espalier::curate
