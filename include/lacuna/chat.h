#pragma once

#include <span>
#include <string>
#include <string_view>

#include "lacuna/gguf.h"

namespace lacuna {

// Families of chat templates, told by the marks that a file's own template writes.
enum class ChatFamily { kChatMl, kGemma, kLlama3 };
std::string_view to_string(ChatFamily family);

struct ChatMessage {
  std::string role;  // system, user, assistant
  std::string content;
};

// The family of the file's `tokenizer.chat_template`. Throws Error naming the file where it has
// none, or one of another family: no template is run here.
ChatFamily chat_family(std::span<const std::uint8_t> bytes, const GgufHeader& header,
                       const std::string& name);

// The messages as the family writes them, and the beginning of the assistant's answer. To be
// encoded with parse_special. Without the mark of beginning of text, which encode() adds. Throws
// Error for an unknown role, and for a system message that is not the first.
//
// Gemma has no system role: its text stands before the first user's.
std::string chat_text(ChatFamily family, std::span<const ChatMessage> messages);

}  // namespace lacuna
