// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Cache.h"

#include "Environment.h"
#include "Error.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace fa::rt;

// An entry is a header and the value. Numbers are little-endian.
//   0  8  magic
//   8  4  version
//  12  4  zero
//  16 16  hash of the key: a file under another entry's name is not taken
//  32  8  length of the value
//  40 16  hash of the value
static constexpr char kMagic[9] = "FACACHE\n";
static constexpr uint32_t kVersion = 1;
static constexpr size_t kHeaderSize = 56;
/// Larger files are not ours.
static constexpr uint64_t kMaxSize = uint64_t(1) << 30;

static void append(std::string &to, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i)
    to += static_cast<char>(value >> (8 * i) & 255);
}

static void append(std::string &to, const Hash128 &hash) {
  unsigned char bytes[16];
  hash.write(bytes);
  to.append(reinterpret_cast<const char *>(bytes), sizeof(bytes));
}

static Hash128 hashOf(std::string_view bytes) {
  Hash128 hash;
  hash.add(bytes);
  return hash;
}

static std::string headerOf(std::string_view key, std::string_view value) {
  std::string header(kMagic, 8);
  append(header, kVersion, 4);
  append(header, 0, 4);
  append(header, hashOf(key));
  append(header, value.size(), 8);
  append(header, hashOf(value));
  return header;
}

namespace {
/// Closes a file descriptor.
class File {
public:
  explicit File(int fd) : fd(fd) {}
  ~File() { close(); }
  File(const File &) = delete;
  File &operator=(const File &) = delete;
  bool close() {
    int old = fd;
    fd = -1;
    return old < 0 || ::close(old) == 0;
  }
  int fd;
};
} // namespace

std::string cache::path(std::string_view key) {
  std::string directory = env::cacheDirectory();
  if (directory.empty())
    return directory;
  return directory + "/" + hashOf(key).hex() + ".fa";
}

/// Reads a regular file whole; false if that cannot be done. Not mapped: a
/// file that shrinks under a mapping kills the process.
static bool readFile(const std::string &path, std::string &contents) {
  // O_NONBLOCK: opening a FIFO that someone put there must not hang.
  File file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info;
  if (file.fd < 0 || fstat(file.fd, &info) != 0 || !S_ISREG(info.st_mode) ||
      info.st_size < 0 || static_cast<uint64_t>(info.st_size) > kMaxSize)
    return false;
  contents.resize(static_cast<size_t>(info.st_size));
  size_t done = 0;
  while (done < contents.size()) {
    ssize_t count = read(file.fd, &contents[done], contents.size() - done);
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return false;
    done += static_cast<size_t>(count);
  }
  return true;
}

bool cache::get(std::string_view key, std::string &value) {
  std::string file = path(key);
  std::string contents;
  if (file.empty() || !readFile(file, contents) ||
      contents.size() < kHeaderSize)
    return false;
  std::string_view body = std::string_view(contents).substr(kHeaderSize);
  // The header is a function of key and value: comparing it checks all of it.
  if (std::string_view(contents).substr(0, kHeaderSize) != headerOf(key, body))
    return false;
  value = std::string(body);
  return true;
}

/// mkdir -p.
static bool makeDirectories(const std::string &path) {
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    std::string prefix = path.substr(0, slash);
    if (mkdir(prefix.c_str(), 0700) != 0 && errno != EEXIST &&
        slash == std::string::npos)
      return false;
    if (slash == std::string::npos)
      return true;
  }
}

static bool writeAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t count = write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return false;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

/// A name that no other writer uses, in this process or another one. O_EXCL
/// turns the accident that is left (two hosts on one file system) into a
/// failure.
static std::string temporaryName(const std::string &path) {
  static std::atomic<unsigned> counter{0};
  struct timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return path + format(".%ld.%u.%09ld.tmp", static_cast<long>(getpid()),
                       counter++, static_cast<long>(now.tv_nsec));
}

bool cache::put(std::string_view key, std::string_view value,
                std::string &reason) {
  std::string directory = env::cacheDirectory();
  if (directory.empty())
    return true;
  std::string target = path(key);
  auto failed = [&](const char *what, const std::string &name) {
    reason = format("cannot %s %s: %s", what, name.c_str(), strerror(errno));
    return false;
  };
  if (value.size() > kMaxSize - kHeaderSize) {
    errno = EFBIG;
    return failed("write", target);
  }
  if (!makeDirectories(directory))
    return failed("make the directory", directory);

  std::string temporary = temporaryName(target);
  File file(
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (file.fd < 0)
    return failed("create", temporary);
  bool isWritten = writeAll(file.fd, headerOf(key, value)) &&
                   writeAll(file.fd, value) && file.close();
  if (isWritten && rename(temporary.c_str(), target.c_str()) == 0)
    return true;
  failed(isWritten ? "rename a file to" : "write", target);
  unlink(temporary.c_str());
  return false;
}

// Keys of the C API live apart from the runtime's own.
static std::string blobKey(const void *key, size_t size) {
  requireNonNull(key, "the key");
  return "blob:" + std::string(static_cast<const char *>(key), size);
}

fa_rt_status fa_rt_cache_get(const void *key, size_t key_size, void **data,
                             size_t *size) {
  return guarded([&] {
    requireNonNull(data, "data");
    requireNonNull(size, "size");
    std::string value;
    void *copy = nullptr;
    if (cache::get(blobKey(key, key_size), value)) {
      copy = std::malloc(value.size() + 1);
      if (!copy)
        throw std::bad_alloc();
      // The NUL of c_str comes along: text can be used as it is.
      std::memcpy(copy, value.c_str(), value.size() + 1);
    }
    *data = copy;
    *size = value.size();
  });
}

void fa_rt_cache_release(void *data) { std::free(data); }

fa_rt_status fa_rt_cache_put(const void *key, size_t key_size, const void *data,
                             size_t size) {
  return guarded([&] {
    if (size)
      requireNonNull(data, "data");
    std::string reason;
    std::string_view value(size ? static_cast<const char *>(data) : "", size);
    if (!cache::put(blobKey(key, key_size), value, reason))
      fail(FA_RT_IO_ERROR,
           "%s; set FA_CACHE_DIR to a directory that can be written, or "
           "FA_CACHE=0",
           reason.c_str());
  });
}

fa_rt_status fa_rt_cache_path(const void *key, size_t key_size, char *path,
                              size_t capacity, size_t *length) {
  return guarded([&] {
    requireNonNull(length, "length");
    std::string result = cache::path(blobKey(key, key_size));
    *length = result.size();
    if (!path || capacity <= result.size())
      fail(FA_RT_INVALID_ARGUMENT,
           "the path needs %zu bytes, the buffer has %zu; pass a larger one",
           result.size() + 1, path ? capacity : 0);
    std::memcpy(path, result.c_str(), result.size() + 1);
  });
}
