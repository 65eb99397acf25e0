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

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n\f\v";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin);
}

// What the template writes and what the messages do, one after another.
class ChatWriter {
 public:
  ChatWriter& mark(std::string_view text) {
    result_.text += text;
    return *this;
  }
  ChatWriter& message(std::string_view text) {
    const std::int64_t begin = std::ssize(result_.text);
    result_.text += text;
    result_.messages.push_back({begin, std::ssize(result_.text)});
    return *this;
  }
  ChatText take() { return std::move(result_); }

 private:
  ChatText result_;
};

ChatText gemma_text(std::span<const ChatMessage> messages) {
  ChatWriter writer;
  std::string before;
  bool users_turn = true;
  for (const ChatMessage& message : messages) {
    if (message.role == "system") {
      before = message.content + "\n\n";
      continue;
    }
    if ((message.role == "user") != users_turn) {
      throw Error(
          fmt::format("two messages follow each other, or the first is not the user's: "
                      "'{}'; allowed by Gemma: user and assistant in turn",
                      message.role));
    }
    writer.mark(fmt::format("<start_of_turn>{}\n", users_turn ? "user" : "model"));
    writer.message(std::exchange(before, "") + std::string(trimmed(message.content)));
    writer.mark("<end_of_turn>\n");
    users_turn = !users_turn;
  }
  if (!before.empty()) throw Error("a system message stands alone; allowed: before a user's");
  return writer.mark("<start_of_turn>model\n").take();
}

ChatText chatml_text(const ChatTemplate& chat, std::span<const ChatMessage> messages) {
  ChatWriter writer;
  const auto write = [&](std::string_view role, std::string_view content) {
    writer.mark(fmt::format("<|im_start|>{}\n", role)).message(content).mark("<|im_end|>\n");
  };
  const bool has_system = !messages.empty() && messages.front().role == "system";
  if (!chat.default_system.empty() && !has_system) write("system", chat.default_system);
  for (const ChatMessage& message : messages) write(message.role, message.content);
  return writer.mark("<|im_start|>assistant\n").take();
}

ChatText llama3_text(std::span<const ChatMessage> messages) {
  ChatWriter writer;
  for (const ChatMessage& message : messages) {
    writer.mark(fmt::format("<|start_header_id|>{}<|end_header_id|>\n\n", message.role));
    writer.message(trimmed(message.content)).mark("<|eot_id|>");
  }
  return writer.mark("<|start_header_id|>assistant<|end_header_id|>\n\n").take();
}

// The system message that a ChatML template writes by itself: a literal of it that goes from the
// mark of its beginning to that of its end. Its line end is one, or the two characters \\n.
std::string default_system(std::string_view text) {
  constexpr std::string_view kBegin = "<|im_start|>system";
  for (std::size_t at = text.find(kBegin); at != std::string_view::npos;
       at = text.find(kBegin, at)) {
    at += kBegin.size();
    std::string_view rest = text.substr(at);
    if (!rest.starts_with("\n") && !rest.starts_with("\\n")) continue;
    rest.remove_prefix(rest.front() == '\n' ? 1 : 2);
    rest = rest.substr(0, rest.find_first_of("'\""));
    const std::size_t end = rest.find("<|im_end|>");
    if (end == std::string_view::npos) continue;
    std::string found(rest.substr(0, end));
    for (std::size_t line = 0; (line = found.find("\\n", line)) != std::string::npos;) {
      found.replace(line, 2, "\n");
    }
    return found;
  }
  return "";
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

ChatTemplate chat_template(std::span<const std::uint8_t> bytes, const GgufHeader& header,
                           const std::string& name) {
  const GgufEntry* const entry = header.find("tokenizer.chat_template");
  if (entry == nullptr) {
    throw Error(name + " has no chat template (tokenizer.chat_template), so it is no chat model");
  }
  if (entry->is_array || entry->type != GgufType::kString) {
    throw Error(name + ": tokenizer.chat_template is no text; allowed: one text");
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
  const bool chatml = found->second == ChatFamily::kChatMl;
  return {found->second, chatml ? default_system(text) : ""};
}

ChatText chat_text(const ChatTemplate& chat, std::span<const ChatMessage> messages) {
  check(messages);
  switch (chat.family) {
    case ChatFamily::kChatMl:
      return chatml_text(chat, messages);
    case ChatFamily::kGemma:
      return gemma_text(messages);
    case ChatFamily::kLlama3:
      return llama3_text(messages);
  }
  return {};
}

}  // namespace lacuna
