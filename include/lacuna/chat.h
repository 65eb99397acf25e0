#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lacuna/gguf.h"
#include "lacuna/ranges.h"

namespace lacuna {

// Families of chat templates, told by the marks that a file's own template writes.
enum class ChatFamily { kChatMl, kGemma, kLlama3 };
std::string_view to_string(ChatFamily family);

struct ChatMessage {
  std::string role;  // system, user, assistant
  std::string content;
};

// What is known of a template: none is run here.
struct ChatTemplate {
  ChatFamily family = ChatFamily::kChatMl;
  std::string default_system;  // of a ChatML chat that begins with no system message; "": none
};

// Of the file's `tokenizer.chat_template`. Throws Error naming the file where it has none, or one
// of another family.
ChatTemplate chat_template(std::span<const std::uint8_t> bytes, const GgufHeader& header,
                           const std::string& name);

// A chat as a text, and the bytes of it that its messages wrote: EncodeOptions::plain, so that only
// the template's own marks become special tokens, whatever a user wrote.
struct ChatText {
  std::string text;
  std::vector<Range> messages;
};

// The messages as the family writes them, and the beginning of the assistant's answer. To be
// encoded with parse_special. Without the mark of beginning of text, which encode() adds. Throws
// Error for an unknown role, and for a system message that is not the first.
//
// Gemma and Llama 3 take the white space off both ends of a message, as their templates do. Gemma
// has no system role: its text stands before the first user's, and its turns alternate, the user's
// first. Llama 3.1's lines about dates are not written.
ChatText chat_text(const ChatTemplate& chat, std::span<const ChatMessage> messages);

}  // namespace lacuna
