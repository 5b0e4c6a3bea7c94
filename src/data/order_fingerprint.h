// What decides which samples a run reads, part by part of its blend, in a text that a checkpoint keeps.
//
//   const OrderFingerprint present = order_fingerprint(*sets.train, loader.order());
//   state.sample_order = to_text(present);
//   ... and when the run continues:
//   for (const std::string& line : order_changes(parse_order(saved.sample_order), present)) ...
//
// Two runs with equal fingerprints read the same samples at every place, but for token files of equal sizes whose ids
// differ at none of the places that are probed. Where the files lie does not count, and a longer run has the same
// fingerprint as long as every part has the same arrays. A mixture in stages is compared as far as the run has come.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/data_stages.h"
#include "data/index_array.h"
#include "data/splits.h"
#include "data/token_store.h"

namespace espalier::data {

class GptDataset;

struct OrderOfPart {
  std::string prefix;  // for people
  double weight = 1;   // in the blend that the run begins with, the sum being 1
  DocumentRange documents;
  int64_t num_samples_asked = 0, num_epochs = 0, num_samples = 0;  // for people: what the arrays are made for
  uint64_t sizes_hash = 0;                                         // of the documents of the range
  uint64_t arrays_hash = 0;                                        // of the arrays of the sample index or map
  uint64_t tokens_hash = 0;                                        // of the ids at the places of probe_tokens()
};

// What is mixed from one sample of the run on.
struct OrderOfStage {
  int64_t first_sample = 0;
  std::vector<size_t> parts;    // of OrderFingerprint::parts
  std::vector<double> weights;  // of each, the sum being 1
};

struct OrderFingerprint {
  int64_t sequence_length = 0;
  int64_t seed = 0;
  std::string reading;  // Sampler::description(), and what else decides how samples are made
  std::vector<OrderOfPart> parts;
  std::vector<OrderOfStage> stages;  // empty: one, of all parts
  std::vector<LengthStage> lengths;  // empty: of the sequence length throughout
};

// Of the ids at the places of probe_tokens().
uint64_t hash_of_tokens(const TokenStore& store, const DocumentRange& sequences);

// Of the arrays and their numbers of rows.
uint64_t hash_of_arrays(const std::vector<const IndexArray*>& arrays);

// Reads all index arrays and some pages of every token file.
OrderFingerprint order_fingerprint(const GptDataset& dataset, const std::string& reading);

// Lines of words and numbers; they survive to the bit.
std::string to_text(const OrderFingerprint& fingerprint);

// False for the 16 digits that checkpoints held before: the hash of some samples near the place of the checkpoint.
bool is_order_text(const std::string& text);

// Throws a UserError (kBadData) with the line that is not to_text()'s.
OrderFingerprint parse_order(const std::string& text);

// One line for each part that reads other samples now, with what differs; empty when all read the same. Stages that
// begin at sample `num_consumed` of the run or later have read nothing: they may have changed, gone or come. Nothing
// told: all are compared.
std::vector<std::string> order_changes(const OrderFingerprint& saved, const OrderFingerprint& present,
                                       std::optional<int64_t> num_consumed = {});

// One line for each part that holds other documents or ids now, whatever is read of it and in which order: of sets for
// evaluation, of which a longer run reads more.
std::vector<std::string> content_changes(const OrderFingerprint& saved, const OrderFingerprint& present);

}  // namespace espalier::data
