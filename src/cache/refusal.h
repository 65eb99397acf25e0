#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "lacuna/error.h"

namespace lacuna::rig {

// A call that must throw Error with all of these words.
inline void expect_refused(const std::function<void()>& call,
                           const std::vector<std::string>& words) {
  try {
    call();
    ADD_FAILURE() << "not refused: " << words.front();
  } catch (const Error& error) {
    for (const std::string& word : words) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos)
          << "'" << word << "' does not stand in: " << error.what();
    }
  }
}

}  // namespace lacuna::rig
