// The rows of `espalier train retro`: a GPT's, and those of retrieval.
#include "families/gpt/internal/gpt.h"
#include "families/retro/internal/retro.h"

namespace espalier::families {
namespace {

void add_retrieval_shape(OptionTable& table, RetroConfig& model) {
  const auto size = [&](const char* name, int64_t& target, double maximum, const char* help) -> Option& {
    return table.add(name, target, help).minimum(1).maximum(maximum).on_resume(ResumeRule::kRefused);
  };
  table
      .add("--retro-add-retriever", model.retrieves,
           "layers that attend to the neighbours of the chunks of a sample; without it the model is a GPT, as upstream")
      .common()
      .on_resume(ResumeRule::kRefused);
  size("--retro-encoder-layers", model.encoder_layers, 1e4, "layers of the encoder of the neighbours")
      .alias("--retro-encoder-num-layers");
  size("--retro-chunk-length", model.chunk_length, 1e6, "tokens of a chunk, of which a sample has a whole number")
      .alias("--retro-gpt-chunk-length");
}

void add_retrieval_data(OptionTable& table, RetroSettings& settings) {
  RetroConfig& model = settings.shape;
  table
      .add("--retro-workdir", settings.workdir,
           "folder of the chunks and their neighbours, which 'espalier retro build' makes with the flags of the run")
      .alias("--retro-project-dir")
      .value_name("DIR")
      .common()
      .on_resume(ResumeRule::kFree);
  table.add("--retro-num-neighbors", model.num_neighbors, "neighbours of a chunk that the model reads")
      .minimum(1)
      .maximum(1000);
  table
      .add("--retro-num-retrieved-chunks", model.num_retrieved_chunks,
           "chunks of a neighbour: the one that was found, and those after it in its document")
      .minimum(1)
      .maximum(1000);
  table
      .add("--retro-without-neighbors", settings.without_neighbors,
           "read samples without neighbours, so that attention to them adds nothing: shows what retrieval contributes")
      .on_resume(ResumeRule::kFree);
  table
      .add("--retro-cyclic-train-iters", settings.cyclic_train_iters,
           "with --dataloader-type cyclic: the training set has the samples of that many steps, and is read again and "
           "again; 0: those of the run")
      .minimum(0)
      .maximum(1e12);
  table.add_without_effect("--retro-return-doc-ids", OptionTable::Takes::kFlag,
                           "neighbours of the documents of a sample are always left out");
}

}  // namespace

namespace internal {

void add_retro_options(OptionTable& table, config::FamilyConfig& config, config::FamilyRows where) {
  RetroSettings& settings = config.as<RetroSettings>();
  add_gpt_options(table, settings.gpt, where);
  switch (where) {
    case config::FamilyRows::kShape: add_retrieval_shape(table, settings.shape); break;
    case config::FamilyRows::kRegularization:
      table
          .add("--retro-encoder-hidden-dropout", settings.shape.encoder_hidden_dropout,
               "dropout before residual additions of the encoder of the neighbours")
          .minimum(0);
      table
          .add("--retro-encoder-attention-dropout", settings.shape.encoder_attention_dropout,
               "dropout of attention probabilities inside of a neighbour")
          .minimum(0);
      break;
    case config::FamilyRows::kData: add_retrieval_data(table, settings); break;
    case config::FamilyRows::kSize:
    case config::FamilyRows::kInitialization: break;
  }
}

}  // namespace internal
}  // namespace espalier::families
