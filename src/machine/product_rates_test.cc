#include "lacuna/product_rates.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <vector>

#include "lacuna/file.h"
#include "machine/probe_dispatch.h"
#include "machine/stored_rates.h"

namespace lacuna {
namespace {

namespace fs = std::filesystem;

// Rates that no measurement gives: whole numbers.
std::vector<ProductRate> made_up_rates() {
  std::vector<ProductRate> rates;
  for (const ProbeKernel* kernel : supported_probe_kernels()) {
    rates.push_back({kernel->isa, kernel->product, 1e6 + static_cast<double>(rates.size())});
  }
  return rates;
}

void expect_of_this_machine(const std::vector<ProductRate>& rates) {
  const std::vector<const ProbeKernel*> kernels = supported_probe_kernels();
  ASSERT_EQ(rates.size(), kernels.size());
  for (std::size_t idx = 0; idx < rates.size(); ++idx) {
    EXPECT_EQ(rates[idx].isa, kernels[idx]->isa);
    EXPECT_EQ(rates[idx].product, kernels[idx]->product);
    EXPECT_TRUE(std::isfinite(rates[idx].flops_per_s));
    EXPECT_GT(rates[idx].flops_per_s, 0);
  }
}

// A cache folder of its own for each test.
class ProductRates : public testing::Test {
 protected:
  ProductRates() {
    std::string name = testing::TempDir() + "lacuna_rates_XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~ProductRates() override { fs::remove_all(folder_); }

  std::string path() const { return (folder_ / "cache" / "rates.json").string(); }
  std::string stored() const { return read_file(path(), 1 << 20); }
  void put(const std::string& text) const {
    fs::create_directories(folder_ / "cache");
    write_file(path(), text);
  }

  fs::path folder_;
};

TEST_F(ProductRates, HaveOneRowForEachInstructionSetOfThisMachine) {
  const std::vector<ProductRate> rates = measure_product_rates();
  expect_of_this_machine(rates);
  EXPECT_EQ(rates.back().isa, "portable");
  EXPECT_EQ(rates.back().product, "f32");
}

TEST_F(ProductRates, AreMeasuredOnceAndThenReadFromTheFile) {
  const std::vector<ProductRate> measured = load_or_measure_rates(path());
  expect_of_this_machine(measured);
  EXPECT_EQ(load_or_measure_rates(path()), measured);
  put(rates_to_json_text(rates_key(), made_up_rates()));
  EXPECT_EQ(load_or_measure_rates(path()), made_up_rates());
}

TEST_F(ProductRates, OfAnotherProcessorOrBuildAreMeasuredAgainAndReplaced) {
  for (RatesKey other : {RatesKey{"another CPU", rates_key().build},
                         RatesKey{rates_key().cpu, "lacuna 0.0.0, another compiler"}}) {
    put(rates_to_json_text(other, made_up_rates()));
    const std::vector<ProductRate> rates = load_or_measure_rates(path());
    expect_of_this_machine(rates);
    EXPECT_NE(rates, made_up_rates());
    EXPECT_EQ(stored(), rates_to_json_text(rates_key(), rates));
  }
}

TEST_F(ProductRates, OfAFileThatIsAnythingElseAreIgnoredAndReplaced) {
  const std::string good = rates_to_json_text(rates_key(), made_up_rates());
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t place = text.find(from);
    EXPECT_NE(place, std::string::npos) << from;
    return text.replace(place, from.size(), to);
  };
  const std::string hostile[] = {
      "",
      "{",
      "[]",
      "null",
      "\xff\xfe junk",
      std::string(30'000, '[') + std::string(30'000, ']'),
      std::string(100'000, ' ') + good,
      good.substr(0, good.size() / 2),
      changed("lacuna-product-rates", "lacuna-device"),
      changed("\"format_version\": 1", "\"format_version\": 2"),
      changed("\"format_version\": 1", "\"format_version\": \"1\""),
      changed("\"rates\"", "\"rate\""),
      changed("\"portable\"", "\"avx1024\""),
      changed("\"f32\"", "\"f64\""),
      changed("\"isa\": \"portable\"", "\"isa\": 1"),
      changed("1000000.0", "0"),
      changed("1000000.0", "-1000000.0"),
      changed("1000000.0", "1e300"),
      changed("1000000.0", "1e999"),
      changed("1000000.0", "\"1000000.0\""),
      rates_to_json_text(rates_key(), {}),
  };
  for (const std::string& text : hostile) {
    put(text);
    const std::vector<ProductRate> rates = load_or_measure_rates(path());
    expect_of_this_machine(rates);
    EXPECT_NE(rates, made_up_rates()) << text.substr(0, 400);
    EXPECT_EQ(stored(), rates_to_json_text(rates_key(), rates)) << text.substr(0, 400);
  }
}

TEST_F(ProductRates, AreThereWhereTheCacheCannotBeReadOrWritten) {
  put("a file where a folder should be");
  const std::string under_a_file = path() + "/rates.json";
  expect_of_this_machine(load_or_measure_rates(under_a_file));

  const std::string folder = (folder_ / "folder.json").string();
  fs::create_directory(folder);
  expect_of_this_machine(load_or_measure_rates(folder));

  const std::string pipe = (folder_ / "pipe.json").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_of_this_machine(load_or_measure_rates(pipe));

  expect_of_this_machine(load_or_measure_rates("/proc/no_such_folder/rates.json"));
  expect_of_this_machine(load_or_measure_rates(""));
}

TEST_F(ProductRates, OfAProcessAreTheSameForEveryThreadAndLieInTheCacheFolder) {
  ASSERT_EQ(::setenv("XDG_CACHE_HOME", folder_.c_str(), 1), 0);
  EXPECT_EQ(product_rates_path(), folder_.string() + "/lacuna/product_rates.json");
  std::vector<std::future<const std::vector<ProductRate>*>> threads;
  for (int idx = 0; idx < 4; ++idx) {
    threads.push_back(std::async(std::launch::async, [] { return &product_rates(); }));
  }
  for (auto& thread : threads) EXPECT_EQ(thread.get(), &product_rates());
  expect_of_this_machine(product_rates());
  EXPECT_EQ(read_file(product_rates_path(), 1 << 20),
            rates_to_json_text(rates_key(), product_rates()));
}

}  // namespace
}  // namespace lacuna
