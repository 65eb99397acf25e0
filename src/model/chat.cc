#include "lacuna/chat.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "lacuna/error.h"

namespace lacuna {
namespace {

// What only the templates of a family write.
constexpr std::array<std::pair<std::string_view, ChatFamily>, 3> kMarks = {{
    {"<|im_start|>", ChatFamily::kChatMl},
    {"<start_of_turn>", ChatFamily::kGemma},
    {"<|start_header_id|>", ChatFamily::kLlama3},
}};

void check(std::span<const ChatMessage> messages) {
  for (const ChatMessage& message : messages) {
    const bool system = message.role == "system";
    if (!system && message.role != "user" && message.role != "assistant") {
      throw Error(fmt::format("role is '{}'; allowed: system, user, assistant", message.role));
    }
    if (system && &message != messages.data()) {
      throw Error("a system message is not the first; allowed: one, before all others");
    }
  }
}

std::string gemma_text(std::span<const ChatMessage> messages) {
  std::string text;
  std::string before;
  for (const ChatMessage& message : messages) {
    if (message.role == "system") {
      before = message.content + "\n\n";
      continue;
    }
    const std::string_view role = message.role == "user" ? "user" : "model";
    text += fmt::format("<start_of_turn>{}\n{}{}<end_of_turn>\n", role, std::exchange(before, ""),
                        message.content);
  }
  return text + "<start_of_turn>model\n";
}

}  // namespace

std::string_view to_string(ChatFamily family) {
  switch (family) {
    case ChatFamily::kChatMl:
      return "chatml";
    case ChatFamily::kGemma:
      return "gemma";
    case ChatFamily::kLlama3:
      return "llama3";
  }
  return "";
}

ChatFamily chat_family(std::span<const std::uint8_t> bytes, const GgufHeader& header,
                       const std::string& name) {
  const GgufEntry* const entry = header.find("tokenizer.chat_template");
  if (entry == nullptr) {
    throw Error(name + " has no chat template (tokenizer.chat_template), so it is no chat model");
  }
  const std::string_view text = gguf_texts(bytes, *entry).front();
  const std::pair<std::string_view, ChatFamily>* found = nullptr;
  for (const auto& mark : kMarks) {
    if (text.find(mark.first) == std::string_view::npos) continue;
    if (found != nullptr) {
      throw Error(
          fmt::format("{}: tokenizer.chat_template has {} and {}; allowed: marks of one "
                      "family",
                      name, found->first, mark.first));
    }
    found = &mark;
  }
  if (found == nullptr) {
    throw Error(name +
                ": tokenizer.chat_template is of no known family; known: those that write "
                "<|im_start|>, <start_of_turn> or <|start_header_id|>");
  }
  return found->second;
}

std::string chat_text(ChatFamily family, std::span<const ChatMessage> messages) {
  check(messages);
  if (family == ChatFamily::kGemma) return gemma_text(messages);
  const bool chatml = family == ChatFamily::kChatMl;
  std::string text;
  for (const ChatMessage& message : messages) {
    text += chatml ? fmt::format("<|im_start|>{}\n{}<|im_end|>\n", message.role, message.content)
                   : fmt::format("<|start_header_id|>{}<|end_header_id|>\n\n{}<|eot_id|>",
                                 message.role, message.content);
  }
  return text +
         (chatml ? "<|im_start|>assistant\n" : "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

}  // namespace lacuna
