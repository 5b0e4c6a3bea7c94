// GET /v1/models and /v1/models/{id}.
#include "serve/routes.h"

namespace espalier::serve {

void openai_models(const Call& call) {
  nlohmann::ordered_json model = {{"id", call.desk.options.model_name},
                                  {"object", "model"},
                                  {"created", call.desk.options.created},
                                  {"owned_by", "espalier"},
                                  {"max_model_len", call.desk.max_context() + 1}};
  if (call.desk.has_encoder()) model["has_encoder"] = true;
  if (call.desk.options.find_passages) model["max_passages"] = call.desk.options.max_passages;
  if (!call.desk.options.beside.empty()) model["beside"] = call.desk.options.beside;
  const std::string prefix = "/v1/models/";
  if (call.request.path.starts_with(prefix)) {
    call.desk.check_model(call.request.path.substr(prefix.size()));
    return reply_json(call, model);
  }
  reply_json(call, {{"object", "list"}, {"data", nlohmann::ordered_json::array({model})}});
}

}  // namespace espalier::serve
