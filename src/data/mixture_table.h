// What a training set reads of each of its sources: samples, tokens and epochs, in every stage of the run.
//
//   for (const MixtureRow& row : mixture_rows(*sets.train)) use(row.stage, row.source, row.epochs_after);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace espalier::data {

class GptDataset;
struct DataSetOptions;

struct MixtureRow {
  int64_t stage = 0;                          // from 0 on
  int64_t first_sample = 0, num_samples = 0;  // of the run: those of the stage
  std::string source;                         // by its name in the set
  std::string prefix;
  double share = 0;                           // asked for
  int64_t samples_read = 0, tokens_read = 0;  // of the source in the stage; padding not counted
  double epochs = 0;                          // in the stage
  double epochs_after = 0;                    // from the beginning of the run to the end of the stage
};

// A row for each source of each stage.
std::vector<MixtureRow> mixture_rows(const GptDataset& dataset);

// What the training set of such options reads, without an order of samples being made: the sizes of the documents are
// read. Of best-fit packing epochs are those of samples without padding. Empty where no sample is asked for.
std::vector<MixtureRow> planned_mixture(const DataSetOptions& options);

// The same for people, a line for each row under a heading for each stage.
std::string mixture_table(const std::vector<MixtureRow>& rows);

}  // namespace espalier::data
