#include "apps/engine/neighbors.h"

#include <filesystem>

#include "base/format.h"
#include "base/log.h"
#include "families/retro/config.h"
#include "infer/read_neighbors.h"
#include "retrieval/trained_index.h"

namespace espalier {
namespace {

void check_database(const retrieval::ChunkDatabase& chunks, const infer::LoadedModel& loaded,
                    const models::NeighborShape& shape, const std::string& workdir) {
  if (chunks.chunk_length() != shape.chunk_length)
    throw UserError(concat("the chunks of '", workdir, "' have ", chunks.chunk_length(), " tokens, those of the model ",
                           shape.chunk_length, "; give the --retro-workdir of a run with that --retro-chunk-length"),
                    ExitCode::kBadData);
  if (loaded.tokenizer->eod() != std::optional<int32_t>(chunks.end_of_document()))
    throw UserError(concat("'", workdir, "' was built with a tokenizer whose documents end with id ",
                           chunks.end_of_document(), "; the model's is another"),
                    ExitCode::kBadData);
}

std::string workdir_of(const infer::LoadedModel& loaded, const NeighborOptions& options) {
  if (!options.workdir.empty()) return options.workdir;
  const std::string& of_run = loaded.config.model.as<families::RetroSettings>().workdir;
  if (!of_run.empty() && std::filesystem::exists(std::filesystem::path(of_run) / "chunks.json")) return of_run;
  throw UserError(concat("this model reads neighbours, and ",
                         of_run.empty() ? "its run names no folder of them"
                                        : concat("there are no chunks in '", of_run, "', which it was trained with"),
                         ": give --retro-workdir DIR of 'espalier retro build', or --retro-without-neighbors"),
                  ExitCode::kUsage);
}

}  // namespace

bool reads_neighbors(const infer::LoadedModel& loaded) {
  return loaded.model != nullptr && loaded.model->neighbor_reader() != nullptr &&
         !loaded.config.model.as<families::RetroSettings>().without_neighbors;
}

NeighborSource neighbor_source(const infer::LoadedModel& loaded, const NeighborOptions& options,
                               const std::string& load, int threads) {
  const models::NeighborReader* const reader = loaded.model != nullptr ? loaded.model->neighbor_reader() : nullptr;
  if (reader == nullptr) {
    if (!options.workdir.empty() || options.without)
      throw UserError(
          concat(options.workdir.empty() ? "--retro-without-neighbors" : "--retro-workdir",
                 " is for a Retro with --retro-add-retriever; ", load, " holds a ", loaded.config.family->display,
                 loaded.config.family == &families::retro_family() ? " without it" : ""),
          ExitCode::kUsage);
    return {};
  }
  if (options.without || (options.workdir.empty() && !reads_neighbors(loaded))) {
    log_info("without neighbours, as the GPT with these weights");
    return {};
  }
  if (!loaded.device.is_cpu())
    throw UserError(
        "this model reads neighbours, which is done on the CPU: give --device cpu, or --retro-without-neighbors",
        ExitCode::kUsage);
  const std::string workdir = workdir_of(loaded, options);
  const models::NeighborShape shape = reader->neighbor_shape();
  // How far a search is says nothing of how far the caller is, who shows that.
  const auto search = std::make_shared<const retrieval::ChunkSearch>(
      workdir, retrieval::SearchPlan{.count = shape.num_neighbors, .threads = threads, .on_progress = [](double) {}});
  check_database(search->chunks(), loaded, shape, workdir);
  log_info("with ", format_counted(shape.num_neighbors, "neighbour"), " of each chunk, from '", workdir, "'",
           search->trained() != nullptr ? concat(", found by ", search->trained()->name()) : "");
  return {infer::neighbors_of(search, shape), search->origin()};
}

}  // namespace espalier
