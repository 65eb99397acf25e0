#pragma once

#include <cstdint>
#include <string_view>

namespace lacuna::config {

// How ggml stores numbers: `block` of them in `bytes`.
struct TensorType {
  std::uint32_t type;
  std::string_view name;
  std::int64_t block;
  std::int64_t bytes;
};

// ggml.h and ggml-common.h; types that were taken out of the format (4, 5, 31..33) are unknown.
constexpr TensorType kTensorTypes[] = {
    {0, "f32", 1, 4},         {1, "f16", 1, 2},         {2, "q4_0", 32, 18},
    {3, "q4_1", 32, 20},      {6, "q5_0", 32, 22},      {7, "q5_1", 32, 24},
    {8, "q8_0", 32, 34},      {9, "q8_1", 32, 36},      {10, "q2_k", 256, 84},
    {11, "q3_k", 256, 110},   {12, "q4_k", 256, 144},   {13, "q5_k", 256, 176},
    {14, "q6_k", 256, 210},   {15, "q8_k", 256, 292},   {16, "iq2_xxs", 256, 66},
    {17, "iq2_xs", 256, 74},  {18, "iq3_xxs", 256, 98}, {19, "iq1_s", 256, 50},
    {20, "iq4_nl", 32, 18},   {21, "iq3_s", 256, 110},  {22, "iq2_s", 256, 82},
    {23, "iq4_xs", 256, 136}, {24, "i8", 1, 1},         {25, "i16", 1, 2},
    {26, "i32", 1, 4},        {27, "i64", 1, 8},        {28, "f64", 1, 8},
    {29, "iq1_m", 256, 56},   {30, "bf16", 1, 2},       {34, "tq1_0", 256, 54},
    {35, "tq2_0", 256, 66},   {39, "mxfp4", 32, 17},    {40, "nvfp4", 64, 36}};

// The row of ggml's number, or null.
constexpr const TensorType* find_tensor_type(std::uint32_t type) {
  for (const TensorType& row : kTensorTypes) {
    if (row.type == type) return &row;
  }
  return nullptr;
}

}  // namespace lacuna::config
