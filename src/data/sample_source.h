// The samples of a set, whatever the kind of model: by number, as named arrays of whole numbers.
//
//   Sample sample;
//   source.read(17, sample);
//   for (size_t at = 0; at < source.fields().size(); ++at)
//     use(source.fields()[at].name, source.fields()[at].shape, sample.arrays[at]);
//
// A sample is a function of its number alone, so that every rank of every layout reads the same, in any order, and a
// run continues from a number. Immutable; any number of threads may read, each into a sample of its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/order_fingerprint.h"
#include "data/splits.h"

namespace espalier::data {

class TokenStore;

// An array that every sample of a source has.
struct SampleField {
  std::string name;            // upstream's: "text", "loss_mask"
  std::vector<int64_t> shape;  // of one sample; empty: a single number
  bool holds_ids = false;      // of the vocabulary, unchecked: whoever reads them for a model checks them
  bool operator==(const SampleField&) const = default;

  int64_t size() const {
    int64_t size = 1;
    for (const int64_t extent : shape) size *= extent;
    return size;
  }
};

// Tokens offset to offset + length - 1 of a sequence of a token file, which start at `at` in a sample (of T5: in its
// text before runs of it are taken out, SampleSource::shows_places).
struct SamplePiece {
  const TokenStore* store = nullptr;  // of the source
  int64_t sequence = 0, offset = 0, length = 0;
  int64_t at = 0;
  bool operator==(const SamplePiece&) const = default;
};

// A piece, and the sample of the set that holds it.
struct FoundPiece {
  int64_t number = 0;
  SamplePiece piece;
};

// A token file that the pieces of a set's samples are from.
struct TracedFile {
  const TokenStore* store = nullptr;
  int64_t source = 0;       // an index into source_names()
  std::string data_set;     // as --data-path names it; a data set of pairs has two files
  DocumentRange sequences;  // of the file, which the set reads
};

struct Sample {
  std::vector<std::vector<int64_t>> arrays;  // in the order of fields(), each in row-major order
  int64_t source = 0;                        // which data set of a blend it is from: an index into source_names()
};

class SampleSource {
 public:
  virtual ~SampleSource() = default;

  virtual const std::string& name() const = 0;  // "train" or the name of its group
  virtual int64_t size() const = 0;
  virtual const std::vector<SampleField>& fields() const = 0;
  // Replaces what `sample` holds by sample `number`, from 0 to size() - 1.
  virtual void read(int64_t number, Sample& sample) const = 0;
  virtual const std::vector<std::string>& source_names() const = 0;
  // For people: samples, epochs and documents of each data set, and what is left out.
  virtual std::string description() const = 0;
  // Of the token files, each as often as it is read from.
  virtual std::vector<std::string> prefixes() const = 0;
  // Looks at some places of every token file: an id below 0 or not below `vocab_size` is a UserError (kBadData).
  virtual void probe_ids(int64_t vocab_size) const = 0;
  // What decides which samples are read; `reading` says in which order (Sampler::description()).
  virtual OrderFingerprint fingerprint(const std::string& reading) const = 0;

  // The files of the pieces; empty for a set that does not say what its samples are made of.
  virtual std::vector<TracedFile> traced_files() const { return {}; }
  // What sample `number` is made of, in the order in which it appears there.
  virtual std::vector<SamplePiece> pieces(int64_t /*number*/) const { return {}; }
  // The other way round: each piece of these sequences of one of traced_files(), in the order of the samples. A pass
  // over what decides the order, and no look at the tokens.
  virtual std::vector<FoundPiece> find(const TracedFile& /*file*/, const DocumentRange& /*sequences*/) const {
    return {};
  }
  // Which data set of a blend a sample is from: Sample::source.
  virtual int64_t source_of(int64_t number) const {
    Sample sample;
    read(number, sample);
    return sample.source;
  }
  // SamplePiece::at is the place of the token in what the model reads.
  virtual bool shows_places() const { return true; }

  // Of one pass over all that the set is made of; 0: it does not say.
  virtual int64_t samples_per_epoch() const { return 0; }

  // False: a test set, for which no loss can be computed.
  virtual bool has_labels() const { return true; }

  // The index of a field in fields() and Sample::arrays.
  size_t field(const std::string& name) const {
    const auto found =
        std::find_if(fields().begin(), fields().end(), [&](const auto& one) { return one.name == name; });
    ESPALIER_CHECK(found != fields().end(), "samples of ", this->name(), " have no '", name, "'");
    return static_cast<size_t>(found - fields().begin());
  }
};

}  // namespace espalier::data
