#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "lacuna/error.h"

namespace lacuna::rig {

// Of the Error that a call throws; "no error" where it throws none.
inline std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// A call that must throw Error with all of these words.
inline void expect_refused(const std::function<void()>& call,
                           const std::vector<std::string>& words) {
  const std::string message = message_of(call);
  EXPECT_NE(message, "no error");
  for (const std::string& word : words) {
    EXPECT_NE(message.find(word), std::string::npos)
        << "'" << word << "' does not stand in: " << message;
  }
}

}  // namespace lacuna::rig
