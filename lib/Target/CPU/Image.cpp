// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Image.h"

#include "fa/Target/CPU/Program.h"

#include "llvm/Config/llvm-config.h"
#include "llvm/Support/DataExtractor.h"
#include "llvm/Support/EndianStream.h"
#include "llvm/Support/xxhash.h"

using namespace fa;
using namespace fa::cpu;

// An image is a header and a body. Numbers are little-endian; a string is its
// length, 8 bytes, and its characters.
//   0  8  magic, which ends with the format's version
//   8  8  hash of the body
static constexpr llvm::StringLiteral kMagic = "FA CPU 1";
static constexpr size_t kHeaderSize = 16;

static llvm::Error makeError(const llvm::Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

llvm::Expected<std::string> cpu::hostName() {
  auto machine = hostMachine();
  if (!machine)
    return machine.takeError();
  return ("LLVM " LLVM_VERSION_STRING " " + machine->getTargetTriple().str() +
          " " + machine->getCPU() + " " + machine->getFeatures().getString());
}

namespace {
class Writer {
public:
  explicit Writer(llvm::raw_ostream &os) : os(os) {}
  void number(uint64_t value) {
    llvm::support::endian::write(os, value, llvm::endianness::little);
  }
  void string(llvm::StringRef text) {
    number(text.size());
    os << text;
  }
  void signatures(llvm::ArrayRef<Signature> all) {
    number(all.size());
    for (const Signature &s : all) {
      string(s.name);
      number(static_cast<uint64_t>(s.dtype));
      number(s.shape.size());
      for (int64_t size : s.shape)
        number(size);
    }
  }

private:
  llvm::raw_ostream &os;
};

/// Reads the values of a Writer. After the bytes' end all values are empty, and
/// the cursor has the error.
class Reader {
public:
  explicit Reader(llvm::StringRef bytes)
      : data(bytes, /*IsLittleEndian=*/true, /*AddressSize=*/8), cursor(0) {}
  uint64_t number() { return data.getU64(cursor); }
  std::string string() { return data.getBytes(cursor, number()).str(); }
  std::vector<Signature> signatures() {
    std::vector<Signature> all;
    for (uint64_t count = number(); cursor && count; --count) {
      Signature s;
      s.name = string();
      s.dtype = static_cast<DType>(number());
      for (uint64_t rank = number(); cursor && rank; --rank)
        s.shape.push_back(static_cast<int64_t>(number()));
      all.push_back(std::move(s));
    }
    return all;
  }
  llvm::Error takeError() { return cursor.takeError(); }

private:
  llvm::DataExtractor data;
  llvm::DataExtractor::Cursor cursor;
};
} // namespace

llvm::Expected<std::string> Image::write() const {
  llvm::Expected<std::string> host = hostName();
  if (!host)
    return host.takeError();
  std::string body;
  llvm::raw_string_ostream os(body);
  Writer writer(os);
  writer.string(*host);
  writer.string(text);
  writer.string(function);
  writer.number(vectorBits);
  writer.number(optimize);
  writer.signatures(inputs);
  writer.signatures(results);
  writer.number(code.hasShapes);
  writer.string(code.object);
  std::string bytes = kMagic.str();
  llvm::raw_string_ostream header(bytes);
  Writer(header).number(llvm::xxh3_64bits(body));
  return bytes + body;
}

llvm::Expected<Image> Image::read(llvm::StringRef bytes) {
  if (bytes.size() < kHeaderSize || !bytes.starts_with(kMagic))
    return makeError("expected an image of a CPU kernel, which begins with '" +
                     kMagic + "'; compile the kernel anew");
  Reader header(bytes.slice(kMagic.size(), kHeaderSize));
  uint64_t hash = header.number();
  llvm::cantFail(header.takeError());
  llvm::StringRef body = bytes.drop_front(kHeaderSize);
  if (hash != llvm::xxh3_64bits(body))
    return makeError("the image of the CPU kernel is damaged: its hash differs "
                     "from its header's; compile the kernel anew");
  llvm::Expected<std::string> host = hostName();
  if (!host)
    return host.takeError();
  Reader reader(body);
  std::string made = reader.string();
  Image image;
  image.text = reader.string();
  image.function = reader.string();
  image.vectorBits = static_cast<unsigned>(reader.number());
  image.optimize = static_cast<unsigned>(reader.number());
  image.inputs = reader.signatures();
  image.results = reader.signatures();
  image.code.hasShapes = reader.number() != 0;
  image.code.object = reader.string();
  if (llvm::Error error = reader.takeError())
    return makeError("the image of the CPU kernel is damaged: " +
                     llvm::toString(std::move(error)) +
                     "; compile the kernel anew");
  if (made != *host)
    return makeError("expected an image for this machine, " + *host +
                     ", got one for " + made + "; compile the kernel here");
  return image;
}
