#include "lacuna/provenance.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lacuna/file.h"

namespace lacuna {
namespace {

std::string of_text(const std::string& text) {
  return sha256(std::vector<std::uint8_t>(text.begin(), text.end()));
}

// The examples of FIPS 180-2, appendix B, and of no bytes at all.
TEST(Provenance, HashesAsTheStandardSays) {
  EXPECT_EQ(of_text(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(of_text("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(of_text("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(of_text(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Provenance, FindsTheVersionOfJustThePackage) {
  const std::string path = testing::TempDir() + "provenance_status";
  write_file(path,
             "Package: base\nStatus: install ok installed\nVersion: 1\n\n"
             "Package: none\nDescription: without one\n\n"
             "Package: base-files\nArchitecture: amd64\nVersion: 12.4+deb12u11\n\n");
  EXPECT_EQ(package_version("base-files", path), "12.4+deb12u11");
  EXPECT_EQ(package_version("base", path), "1");
  EXPECT_EQ(package_version("none", path), std::nullopt);
  EXPECT_EQ(package_version("files", path), std::nullopt);
  EXPECT_EQ(package_version("base", path + ".missing"), std::nullopt);
}

}  // namespace
}  // namespace lacuna
