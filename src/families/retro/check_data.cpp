// Checks a Retro's data before any rank is started.
#include "base/format.h"
#include "families/gpt/internal/gpt.h"
#include "families/retro/internal/retro.h"
#include "retrieval/neighbors.h"

namespace espalier::families::internal {

void check_retro_data(const config::RunConfig& run, const text::Tokenizer* tokenizer, const data::DataPlan& plan,
                      Problems& problems) {
  check_gpt_data(retro_row_rules(run), run.data.sequence_length, tokenizer, plan, problems);
  if (!reads_neighbors(run)) return;
  const RetroSettings& settings = run.model.as<RetroSettings>();
  if (settings.workdir.empty()) return;  // already reported
  try {
    const retrieval::ChunkDatabase chunks(settings.workdir);
    if (chunks.chunk_length() != settings.shape.chunk_length)
      problems.add("--retro-chunk-length ", settings.shape.chunk_length, ": the chunks of '", settings.workdir,
                   "' have ", chunks.chunk_length(), " tokens; use that, or rebuild them");
    if (tokenizer != nullptr && tokenizer->eod() != std::optional<int32_t>(chunks.end_of_document()))
      problems.add("'", settings.workdir, "' was made with a tokenizer whose documents end with id ",
                   chunks.end_of_document(), "; give the tokenizer that made the data");
    const retrieval::NeighborFile neighbors(retrieval::neighbor_folder(settings.workdir, "train", "train"));
    if (neighbors.num_saved() < settings.shape.num_neighbors)
      problems.add("--retro-num-neighbors ", settings.shape.num_neighbors, ": the chunks of '", settings.workdir,
                   "' have ", neighbors.num_saved(), " neighbours each; use ", neighbors.num_saved(), " or fewer");
  } catch (const UserError& error) {
    problems.add(error.what());
  }
}

}  // namespace espalier::families::internal
