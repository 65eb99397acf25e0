#include "lacuna/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "lacuna/error.h"

namespace lacuna {
namespace {

namespace fs = std::filesystem;

template <typename Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// A folder of its own for each test.
class FileTest : public testing::Test {
 protected:
  FileTest() {
    std::string name = testing::TempDir() + "lacuna_file_XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~FileTest() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::string put(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }

  fs::path folder_;
};

using ReadFile = FileTest;
using WriteFile = FileTest;
using Writer = FileTest;
using Scratch = FileTest;
using Mapped = FileTest;

TEST_F(ReadFile, GivesAllBytes) {
  const std::string bytes("a\0b\n\xff", 5);
  EXPECT_EQ(read_file(put("x", bytes), 5), bytes);
  EXPECT_EQ(read_file(put("empty", ""), 0), "");
}

TEST_F(ReadFile, NamesAMissingFile) {
  EXPECT_EQ(message_of([&] { read_file(path("gone"), 1); }),
            "cannot open '" + path("gone") + "': No such file or directory");
}

TEST_F(ReadFile, RefusesAFolder) {
  EXPECT_EQ(message_of([&] { read_file(folder_.string(), 1); }),
            "'" + folder_.string() + "' is not a regular file");
}

TEST_F(ReadFile, RefusesADevice) {
  EXPECT_EQ(message_of([] { read_file("/dev/zero", 1); }), "'/dev/zero' is not a regular file");
}

TEST_F(ReadFile, RefusesMoreBytesThanAllowed) {
  const std::string file = put("x", "12345");
  EXPECT_EQ(message_of([&] { read_file(file, 4); }),
            "'" + file + "' has 5 bytes; allowed: up to 4");
}

TEST_F(WriteFile, WritesAllBytesAndLeavesNoOtherFile) {
  const std::string bytes("a\0b", 3);
  write_file(path("x"), bytes);
  EXPECT_EQ(read_file(path("x"), 3), bytes);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(WriteFile, ReplacesAnOlderFile) {
  write_file(put("x", "a longer text"), "new");
  EXPECT_EQ(read_file(path("x"), 3), "new");
}

TEST_F(WriteFile, NamesAFolderThatIsMissing) {
  const std::string message = message_of([&] { write_file(path("gone/x"), "text"); });
  EXPECT_EQ(message, "cannot open '" + path("gone/x") + "': No such file or directory");
}

TEST_F(WriteFile, NamesAFolderInItsPlaceAndLeavesNoOtherFile) {
  fs::create_directory(path("x"));
  EXPECT_EQ(message_of([&] { write_file(path("x"), "text"); }),
            "cannot write '" + path("x") + "': Is a directory");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(WriteFile, NamesAFileThatCannotTakeMoreBytes) {
  // The temporary file is beside the target, so a full device is met only through a link to it.
  const std::string target = path("x");
  const std::string temporary = target + ".tmp" + std::to_string(::getpid());
  fs::create_symlink("/dev/full", temporary);
  EXPECT_EQ(message_of([&] { write_file(target, "text"); }),
            "cannot write '" + target + "': No space left on device");
  EXPECT_FALSE(fs::exists(target));
}

TEST_F(WriteFile, LeavesALinkALinkAndReplacesWhatItNames) {
  const std::string file = put("real", "old");
  fs::create_symlink(file, path("link"));
  write_file(path("link"), "new");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(read_file(file, 3), "new");
}

TEST_F(WriteFile, WritesIntoWhatIsNoRegularFileAndNeverReplacesIt) {
  const std::string pipe = path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_TRUE(message_of([&] { write_file(pipe, "text"); }).starts_with("cannot open '" + pipe));
  EXPECT_TRUE(fs::is_fifo(pipe));  // nobody reads it
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  write_file(pipe, "text");
  char text[5] = {};
  EXPECT_EQ(::read(reader, text, 4), 4);
  EXPECT_STREQ(text, "text");
  EXPECT_TRUE(fs::is_fifo(pipe));
  ::close(reader);
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST_F(Writer, LeavesTheOldFileUntilItCommits) {
  const std::string file = put("x", "old");
  {
    FileWriter writer(file);
    writer.write(bytes_of("ne"));
    writer.write(bytes_of("w one"));
    EXPECT_EQ(read_file(file, 9), "old");
    writer.commit();
  }
  EXPECT_EQ(read_file(file, 9), "new one");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(Writer, LeavesNothingWithoutCommit) {
  const std::string file = put("x", "old");
  FileWriter(file).write(bytes_of("new"));
  EXPECT_EQ(read_file(file, 9), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(Writer, RefusesToReplaceADeviceOrAPipe) {
  const std::string pipe = path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(message_of([&] { FileWriter writer(pipe); }), "'" + pipe + "' is not a regular file");
  EXPECT_TRUE(fs::is_fifo(pipe));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(Scratch, HasNoNameAndKeepsBytesAtAnyPlace) {
  ScratchFile file(path("x"));
  EXPECT_TRUE(fs::is_empty(folder_));
  EXPECT_EQ(file.path(), path("x"));
  file.write(5, bytes_of("far"));
  file.write(0, bytes_of("near"));
  std::string all(8, '?');
  file.read(std::as_writable_bytes(std::span(all)), 0);
  EXPECT_EQ(all, std::string("near\0far", 8));
}

TEST_F(Scratch, KeepsItsBytesWhenTheyAreDroppedFromThePageCacheAndReadAhead) {
  ScratchFile file(path("x"));
  const std::string big(300000, 'b');
  file.write(0, bytes_of(big));
  file.drop_from_page_cache();
  file.read_ahead(0, 300000);
  std::string all(300000, '?');
  file.read(std::as_writable_bytes(std::span(all)), 0);
  EXPECT_EQ(all, big);
}

TEST_F(Scratch, SaysWhereItEnds) {
  ScratchFile file(path("x"));
  file.write(0, bytes_of("1234"));
  std::string text(6, '?');
  EXPECT_EQ(message_of([&] { file.read(std::as_writable_bytes(std::span(text)), 1); }),
            "'" + path("x") + "' ends at offset 4; 3 bytes more were expected");
}

TEST_F(Scratch, NeverTakesTheNameOfWhatIsThere) {
  const std::string file = put("x", "mine");
  EXPECT_EQ(message_of([&] { ScratchFile scratch(file); }),
            "cannot open '" + file + "': File exists");
  EXPECT_EQ(read_file(file, 9), "mine");
}

TEST_F(Mapped, GivesAllBytes) {
  const MappedFile file(put("x", "12345"));
  EXPECT_EQ(std::string(file.data(), file.data() + file.size()), "12345");
}

TEST_F(Mapped, AnEmptyFileHasNoBytes) {
  const MappedFile file(put("x", ""));
  EXPECT_EQ(file.size(), 0);
  EXPECT_EQ(file.data(), nullptr);
}

TEST_F(Mapped, AMovedOwnerKeepsTheBytes) {
  MappedFile first(put("x", "12345"));
  MappedFile second(std::move(first));
  EXPECT_EQ(second.size(), 5);
  MappedFile third(put("y", "ab"));
  third = std::move(second);
  EXPECT_EQ(std::string(third.data(), third.data() + third.size()), "12345");
}

TEST_F(Mapped, NamesAMissingFile) {
  EXPECT_EQ(message_of([&] { MappedFile file(path("gone")); }),
            "cannot open '" + path("gone") + "': No such file or directory");
}

TEST_F(Mapped, RefusesAFolder) {
  EXPECT_EQ(message_of([&] { MappedFile file(folder_.string()); }),
            "'" + folder_.string() + "' is not a regular file");
}

// Sets an environment variable, or removes it, and puts back what it was.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    if (const char* before = ::getenv(name); before != nullptr) before_ = before;
    set(value);
  }
  ~Environment() { set(before_ ? before_->c_str() : nullptr); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  void set(const char* value) {
    if (value != nullptr) {
      ::setenv(name_, value, 1);
    } else {
      ::unsetenv(name_);
    }
  }

  const char* name_;
  std::optional<std::string> before_;
};

TEST(DefaultCacheDir, FollowsTheCacheFolderOfTheUser) {
  const Environment cache("XDG_CACHE_HOME", "/cache");
  EXPECT_EQ(default_cache_dir(), "/cache/lacuna");
}

TEST(DefaultCacheDir, StandsInHomeWithoutOne) {
  const Environment home("HOME", "/someone");
  {
    const Environment cache("XDG_CACHE_HOME", nullptr);
    EXPECT_EQ(default_cache_dir(), "/someone/.cache/lacuna");
  }
  const Environment cache("XDG_CACHE_HOME", "");
  EXPECT_EQ(default_cache_dir(), "/someone/.cache/lacuna");
}

TEST(DefaultCacheDir, StandsInTheCurrentFolderWithoutHome) {
  const Environment home("HOME", nullptr);
  const Environment cache("XDG_CACHE_HOME", nullptr);
  EXPECT_EQ(default_cache_dir(), ".cache/lacuna");
}

}  // namespace
}  // namespace lacuna
