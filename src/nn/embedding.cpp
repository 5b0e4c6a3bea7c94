#include "nn/embedding.h"

#include "kernels/embedding.h"

namespace espalier::nn {

Embedding::Embedding(tensor::ParamSet& params, const std::string& name)
    : weight_(params.at(name + ".weight")), queue_(params.grad_queue()) {}

at::Tensor Embedding::forward(const at::Tensor& ids) const { return kernels::embedding(ids, weight_, queue_); }

void Embedding::visit(tensor::ParamVisitor& visitor) { visitor.param("weight", weight_); }

}  // namespace espalier::nn
