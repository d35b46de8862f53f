// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The on-disk cache.

#include "TestUtil.h"

#include <filesystem>
#include <fstream>
#include <random>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace fs = std::filesystem;

namespace {
class Cache : public RuntimeTest {
protected:
  void SetUp() override {
    RuntimeTest::SetUp();
    unsetenv("FA_CACHE");
    setenv("FA_CACHE_DIR", directory.path.c_str(), 1);
  }
  void TearDown() override {
    RuntimeTest::TearDown();
    unsetenv("FA_CACHE_DIR");
    setenv("FA_CACHE", "0", 1);
  }
  TempDirectory directory;
};
} // namespace

static fa_rt_status put(const std::string &key, const std::string &value) {
  return fa_rt_cache_put(key.data(), key.size(), value.data(), value.size());
}

/// True and the value on a hit.
static bool get(const std::string &key, std::string *value = nullptr) {
  void *data = nullptr;
  size_t size = 0;
  EXPECT_EQ(fa_rt_cache_get(key.data(), key.size(), &data, &size), FA_RT_OK)
      << fa_rt_last_error();
  if (!data)
    EXPECT_EQ(size, 0u);
  else if (value)
    value->assign(static_cast<char *>(data), size);
  fa_rt_cache_release(data);
  return data != nullptr;
}

static std::string entryPath(const std::string &key) {
  char path[4096];
  size_t length;
  EXPECT_EQ(
      fa_rt_cache_path(key.data(), key.size(), path, sizeof(path), &length),
      FA_RT_OK)
      << fa_rt_last_error();
  return std::string(path, length);
}

static std::string readFile(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

static void writeFile(const std::string &path, const std::string &bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

/// Loads the usual program with the cache; true if the code came from there.
static bool isLoadFromCache() {
  std::string image = attentionImage();
  fa_rt_program *program = nullptr;
  EXPECT_EQ(
      fa_rt_program_load(0, image.data(), image.size(), nullptr, &program),
      FA_RT_OK)
      << fa_rt_last_error();
  fa_rt_program_desc desc = {};
  fa_rt_program_info(program, &desc);
  EXPECT_EQ(
      fa_rt_program_launch(program, attentionArgs(1, 1, 1).data(), 5, nullptr),
      FA_RT_OK)
      << fa_rt_last_error();
  fa_rt_program_free(program);
  return desc.from_cache != 0;
}

/// The one entry in the directory.
static std::string onlyEntry(const std::string &directory) {
  std::string result;
  for (const auto &entry : fs::directory_iterator(directory)) {
    EXPECT_TRUE(result.empty()) << "more than one file";
    result = entry.path();
  }
  return result;
}

TEST_F(Cache, RoundTrip) {
  std::string key("k\0ey", 4), value("va\0lue", 6), got;
  EXPECT_FALSE(get(key));
  ASSERT_EQ(put(key, value), FA_RT_OK) << fa_rt_last_error();
  EXPECT_TRUE(get(key, &got));
  EXPECT_EQ(got, value);
  EXPECT_FALSE(get("k"));
  ASSERT_EQ(put(key, "other"), FA_RT_OK);
  EXPECT_TRUE(get(key, &got));
  EXPECT_EQ(got, "other");
}

TEST_F(Cache, EmptyValueIsAHit) {
  ASSERT_EQ(put("key", ""), FA_RT_OK);
  std::string got = "?";
  EXPECT_TRUE(get("key", &got));
  EXPECT_EQ(got, "");
}

TEST_F(Cache, NullPointers) {
  void *data;
  size_t size;
  EXPECT_EQ(fa_rt_cache_get(nullptr, 0, &data, &size), FA_RT_INVALID_ARGUMENT);
  EXPECT_EQ(fa_rt_cache_get("k", 1, nullptr, &size), FA_RT_INVALID_ARGUMENT);
  EXPECT_EQ(fa_rt_cache_put("k", 1, nullptr, 3), FA_RT_INVALID_ARGUMENT);
  char path[2];
  expectError(fa_rt_cache_path("k", 1, path, sizeof(path), &size),
              FA_RT_INVALID_ARGUMENT, {"the buffer has 2"});
  EXPECT_GT(size, directory.path.size());
}

TEST_F(Cache, Off) {
  setenv("FA_CACHE", "0", 1);
  EXPECT_EQ(put("key", "value"), FA_RT_OK);
  EXPECT_FALSE(get("key"));
  EXPECT_EQ(entryPath("key"), "");
  EXPECT_TRUE(fs::is_empty(directory.path));
}

TEST_F(Cache, WhereItIs) {
  unsetenv("FA_CACHE_DIR");
  std::string oldHome = getenv("HOME") ? getenv("HOME") : "";
  setenv("HOME", "/home/somebody", 1);
  setenv("XDG_CACHE_HOME", "/xdg", 1);
  EXPECT_EQ(fs::path(entryPath("k")).parent_path(), "/xdg/fa");
  setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(fs::path(entryPath("k")).parent_path(), "/home/somebody/.cache/fa");
  unsetenv("XDG_CACHE_HOME");
  unsetenv("HOME");
  EXPECT_EQ(entryPath("k"), "");
  EXPECT_EQ(put("k", "v"), FA_RT_OK);
  setenv("HOME", oldHome.c_str(), 1);
}

TEST_F(Cache, DirectoriesAreMadePrivate) {
  std::string path = directory.path + "/a/b";
  setenv("FA_CACHE_DIR", path.c_str(), 1);
  ASSERT_EQ(put("key", "value"), FA_RT_OK) << fa_rt_last_error();
  EXPECT_TRUE(get("key"));
  EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_all);
}

TEST_F(Cache, EveryDamagedByteIsAMiss) {
  std::string value = "some sixty bytes of a value, enough to damage in places";
  ASSERT_EQ(put("key", value), FA_RT_OK);
  std::string path = entryPath("key"), good = readFile(path);
  ASSERT_GT(good.size(), value.size());
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << i % 8));
    writeFile(path, bad);
    EXPECT_FALSE(get("key")) << "byte " << i;
  }
  writeFile(path, good);
  EXPECT_TRUE(get("key"));
}

TEST_F(Cache, EveryTruncationIsAMiss) {
  ASSERT_EQ(put("key", "value"), FA_RT_OK);
  std::string path = entryPath("key"), good = readFile(path);
  for (size_t size = 0; size < good.size(); ++size) {
    writeFile(path, good.substr(0, size));
    EXPECT_FALSE(get("key")) << size;
  }
  writeFile(path, good + "x");
  EXPECT_FALSE(get("key"));
  ASSERT_EQ(put("key", "value"), FA_RT_OK);
  EXPECT_TRUE(get("key"));
}

TEST_F(Cache, ForeignFilesAreMisses) {
  ASSERT_EQ(put("key", "value"), FA_RT_OK);
  ASSERT_EQ(put("other", "wrong"), FA_RT_OK);
  std::string path = entryPath("key");
  // The entry of another key.
  fs::copy_file(entryPath("other"), path, fs::copy_options::overwrite_existing);
  EXPECT_FALSE(get("key"));
  fs::remove(path);
  fs::create_directory(path);
  EXPECT_FALSE(get("key"));
  EXPECT_EQ(put("key", "value"), FA_RT_IO_ERROR);
  fs::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_FALSE(get("key"));
  EXPECT_EQ(put("key", "value"), FA_RT_OK);
  EXPECT_TRUE(get("key"));
}

TEST_F(Cache, DirectoryThatCannotBeWritten) {
  // A file in the directory's place: refused to root as well.
  std::string path = directory.path + "/file";
  writeFile(path, "");
  setenv("FA_CACHE_DIR", (path + "/sub").c_str(), 1);
  expectError(put("key", "value"), FA_RT_IO_ERROR,
              {"cannot make the directory", "FA_CACHE_DIR"});
  EXPECT_FALSE(get("key"));
  EXPECT_FALSE(isLoadFromCache());
  setenv("FA_CACHE_DIR", "/proc/self", 1);
  expectError(put("key", "value"), FA_RT_IO_ERROR, {"cannot create"});
  EXPECT_FALSE(isLoadFromCache());
}

TEST_F(Cache, NoTemporaryFilesAreLeft) {
  ASSERT_EQ(put("key", "value"), FA_RT_OK);
  EXPECT_EQ(onlyEntry(directory.path), entryPath("key"));
}

TEST_F(Cache, ProgramsAreCompiledOnce) {
  EXPECT_FALSE(isLoadFromCache());
  EXPECT_TRUE(isLoadFromCache());
  EXPECT_EQ(state().compilations, 1);
}

TEST_F(Cache, ProgramKeyHasDeviceAndDriver) {
  EXPECT_FALSE(isLoadFromCache());
  state().behaviour.minor = 6;
  EXPECT_FALSE(isLoadFromCache());
  state().behaviour.driverVersion = 12050;
  EXPECT_FALSE(isLoadFromCache());
  EXPECT_TRUE(isLoadFromCache());
}

TEST_F(Cache, ProgramOptionTurnsItOff) {
  EXPECT_FALSE(isLoadFromCache());
  load(attentionImage());
  EXPECT_EQ(state().compilations, 2);
}

TEST_F(Cache, DamagedProgramIsCompiledAnewAndRewritten) {
  EXPECT_FALSE(isLoadFromCache());
  std::string path = onlyEntry(directory.path), good = readFile(path);
  std::mt19937 random(1);
  for (int i = 0; i < 50; ++i) {
    std::string bad = good;
    size_t at = random() % bad.size();
    bad[at] = static_cast<char>(bad[at] + 1 + random() % 255);
    writeFile(path, bad);
    EXPECT_FALSE(isLoadFromCache());
    EXPECT_EQ(readFile(path), good);
  }
  EXPECT_TRUE(isLoadFromCache());
}

TEST_F(Cache, CachedCodeThatTheDriverRefusesIsCompiledAnew) {
  EXPECT_FALSE(isLoadFromCache());
  // The entry is sound, but this driver takes nothing but text.
  state().behaviour.rejectsCubins = true;
  state().behaviour.isLinkerBroken = true;
  EXPECT_FALSE(isLoadFromCache());
  state().behaviour = {};
  EXPECT_TRUE(isLoadFromCache());
}

/// Writes and reads one key until told to stop; false if a read gave anything
/// but a whole value.
static bool hammer(char letter, int rounds) {
  std::string value(20000 + size_t(letter), letter), got;
  for (int i = 0; i < rounds; ++i) {
    if (put("shared", value) != FA_RT_OK || !get("shared", &got))
      return false;
    if (got.size() != 20000 + size_t(got[0]) ||
        got.find_first_not_of(got[0]) != std::string::npos)
      return false;
  }
  return true;
}

TEST_F(Cache, ConcurrentThreads) {
  std::vector<std::thread> threads;
  for (char letter : {'a', 'b', 'c', 'd'})
    threads.emplace_back([=] { EXPECT_TRUE(hammer(letter, 50)); });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(onlyEntry(directory.path), entryPath("shared"));
}

TEST_F(Cache, ConcurrentProcesses) {
  std::vector<pid_t> children;
  for (char letter : {'a', 'b', 'c', 'd'}) {
    pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0)
      std::_Exit(hammer(letter, 50) ? 0 : 1);
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  EXPECT_EQ(onlyEntry(directory.path), entryPath("shared"));
}
