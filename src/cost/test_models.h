#pragma once

#include <cstdint>
#include <string>

#include "lacuna/layer_table.h"
#include "lacuna/policy.h"
#include "lacuna/shape.h"

// Small models for this folder's tests.
namespace lacuna {

inline LayerShape heads(int num_q_heads, int num_kv_heads, std::int64_t head_dim) {
  LayerShape shape;
  shape.num_q_heads = num_q_heads;
  shape.num_kv_heads = num_kv_heads;
  shape.head_dim = head_dim;
  shape.v_head_dim = head_dim;
  return shape;
}

struct Model {
  LayerTable table;
  ModelShape shape;
};

inline Model model(const std::string& layers, int num_layers, const LayerShape& shape) {
  return {parse_layers(layers, num_layers, true), uniform_shape(num_layers, shape)};
}

inline Held held_of(const std::string& policy, const Model& model, std::int64_t length,
                    const std::string& dtype = "bf16", std::int64_t max_length = 0) {
  return held(parse_policy(policy), model.table, model.shape,
              {length, max_length, kv_dtype(dtype)});
}

inline std::int64_t bytes_of(const std::string& policy, const Model& model, std::int64_t length,
                             const std::string& dtype = "bf16", std::int64_t max_length = 0) {
  return to_int64(held_of(policy, model, length, dtype, max_length).bytes.value(), "held bytes");
}

}  // namespace lacuna
