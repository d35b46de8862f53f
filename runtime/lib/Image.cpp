// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Image.h"

#include "Error.h"
#include "HeaderText.h"
#include "Tensor.h"

#include <algorithm>

using namespace fa::rt;

bool fa::rt::parseTarget(std::string_view text, Target &target) {
  if (text.substr(0, 3) != "sm_")
    return false;
  text.remove_prefix(3);
  target.suffix = 0;
  if (!text.empty() && (text.back() == 'a' || text.back() == 'f')) {
    target.suffix = text.back();
    text.remove_suffix(1);
  }
  int64_t number;
  if (!parseInteger(text, number) || number < 10 || number > 9999)
    return false;
  target.number = static_cast<int>(number);
  return true;
}

namespace {
constexpr std::string_view kPrefix = "//!fa.";

/// Reads line by line, then checks what needs the whole.
class HeaderParser {
public:
  ImageHeader parse(std::string_view text);

private:
  void parseLine(std::string_view directive, std::string_view rest);
  void parseProgram(std::string_view rest);
  void parseArg(std::string_view rest);
  void parseTemp(std::string_view rest);
  void parseSame(std::string_view rest);
  void parseRequire(std::string_view rest);
  void parseMap(std::string_view rest);
  void parseLaunch(std::string_view rest);
  void addTensor(const Fields &fields, TensorDecl decl);
  void parseArgShape(const Fields &fields, TensorDecl &decl);

  void check();
  void checkTensors();
  void checkMaps();
  void checkLaunches();
  void checkRef(DimRef ref, int limit, int line);
  void checkExpr(const Expr &expr, int limit, int line);
  HeaderLine lineAt(int number) const;

  std::string_view whole;
  HeaderLine line;
  bool sawProgram = false;
  /// By index; the line is 0 where no tensor was declared.
  std::vector<TensorDecl> tensors;
  ImageHeader header;
};
} // namespace

ImageHeader HeaderParser::parse(std::string_view text) {
  whole = text;
  while (!text.empty()) {
    std::string_view current = takeLine(text);
    line = {line.number + 1, current};
    if (current.substr(0, kPrefix.size()) != kPrefix) {
      // Other comments may stand between; anything else is the code.
      std::string_view trimmed = trim(current);
      if (trimmed.empty() || trimmed.substr(0, 2) == "//")
        continue;
      break;
    }
    current.remove_prefix(kPrefix.size());
    size_t end = current.find_first_of(" \t");
    std::string_view directive = current.substr(0, end);
    std::string_view rest =
        end == std::string_view::npos ? "" : current.substr(end);
    if (!sawProgram && directive != "program")
      line.fail("expected //!fa.program first");
    if (directive == "end") {
      check();
      return std::move(header);
    }
    parseLine(directive, rest);
  }
  if (!sawProgram)
    fail(FA_RT_BAD_IMAGE, "image has no //!fa.program line at its start; pass "
                          "the file that fa wrote, or its header text in the "
                          "load options");
  fail(FA_RT_BAD_IMAGE,
       "image line %d: the header has no //!fa.end line; the file may be cut "
       "off",
       line.number);
}

void HeaderParser::parseLine(std::string_view directive,
                             std::string_view rest) {
  if (directive == "program")
    return parseProgram(rest);
  if (directive == "arg")
    return parseArg(rest);
  if (directive == "temp")
    return parseTemp(rest);
  if (directive == "same")
    return parseSame(rest);
  if (directive == "require")
    return parseRequire(rest);
  if (directive == "map")
    return parseMap(rest);
  if (directive == "launch")
    return parseLaunch(rest);
  line.fail("unknown directive '" + std::string(directive) + "'");
}

void HeaderParser::parseProgram(std::string_view rest) {
  Fields fields(line, rest);
  if (sawProgram)
    line.fail("//!fa.program is given twice");
  sawProgram = true;
  int64_t version = fields.getInteger("version", 1, 1000000);
  // All of a newer image is suspect, even if each line of it looks familiar.
  if (version > FA_RT_IMAGE_VERSION)
    fail(FA_RT_BAD_IMAGE,
         "image line %d: the image is newer than the runtime: it has header "
         "version %lld, and fa runtime %s reads up to %d; update the runtime",
         line.number, static_cast<long long>(version), fa_rt_version(),
         FA_RT_IMAGE_VERSION);
  header.name = fields.getName("name");
  header.targetName = fields.getName("target");
  if (!parseTarget(header.targetName, header.target))
    line.fail("expected a target such as sm_80 or sm_90a, got '" +
              header.targetName + "'");
}

/// Whether a tensor is zeroed before the first kernel.
static bool parseZero(const Fields &fields) {
  return fields.has("zero") && fields.getInteger("zero", 0, 1) == 1;
}

void HeaderParser::parseArg(std::string_view rest) {
  Fields fields(line, rest);
  TensorDecl decl;
  decl.name = fields.getName("name");
  std::string_view role = fields.get("role");
  if (role == "in")
    decl.role = kRoleIn;
  else if (role == "out")
    decl.role = kRoleOut;
  else if (role == "inout")
    decl.role = kRoleIn | kRoleOut;
  else
    line.fail("expected role in, out or inout, got '" + std::string(role) +
              "'");
  decl.isZeroed = parseZero(fields);
  if (decl.isZeroed && decl.role != kRoleOut)
    line.fail("expected zero=1 on a result (role=out) or a temporary, got it "
              "on '" +
              decl.name + "', which is read");
  parseArgShape(fields, decl);
  addTensor(fields, std::move(decl));
}

void HeaderParser::parseArgShape(const Fields &fields, TensorDecl &decl) {
  std::string_view text = fields.get("shape");
  if (text == "scalar")
    text = "";
  std::vector<std::string_view> sizes = split(text, 'x');
  if (sizes.size() > FA_RT_MAX_RANK)
    line.fail(format("expected at most %d dimensions, got %zu", FA_RT_MAX_RANK,
                     sizes.size()));
  decl.rank = static_cast<int32_t>(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] == "?")
      decl.shape[i] = -1;
    else if (!parseInteger(sizes[i], decl.shape[i]))
      line.fail("expected sizes that are integers or '?', got '" +
                std::string(sizes[i]) + "'");
}

void HeaderParser::parseTemp(std::string_view rest) {
  Fields fields(line, rest);
  TensorDecl decl;
  decl.isTemp = true;
  decl.name = fields.has("name") ? fields.getName("name") : "temp";
  decl.isZeroed = parseZero(fields);
  std::string_view text = fields.get("shape");
  if (text == "scalar")
    text = "";
  for (std::string_view dim : split(text, ','))
    decl.dims.push_back(fields.parseExpr("shape", dim));
  if (decl.dims.size() > FA_RT_MAX_RANK)
    line.fail(format("expected at most %d dimensions, got %zu", FA_RT_MAX_RANK,
                     decl.dims.size()));
  decl.rank = static_cast<int32_t>(decl.dims.size());
  addTensor(fields, std::move(decl));
}

void HeaderParser::addTensor(const Fields &fields, TensorDecl decl) {
  size_t index =
      static_cast<size_t>(fields.getInteger("index", 0, kMaxTensors - 1));
  std::string type(fields.get("type"));
  decl.dtype = parseDType(type);
  if (!decl.dtype)
    line.fail("unknown type '" + type + "'");
  decl.line = line.number;
  if (index >= tensors.size())
    tensors.resize(index + 1);
  if (tensors[index].line)
    line.fail(format("index %zu was declared on line %d before", index,
                     tensors[index].line));
  tensors[index] = std::move(decl);
}

void HeaderParser::parseSame(std::string_view rest) {
  std::vector<std::string_view> conditions = splitBlanks(rest);
  if (conditions.empty())
    line.fail("expected aN.dK=aM.dL");
  for (std::string_view condition : conditions) {
    std::vector<std::string_view> sides = split(condition, '=');
    SameDims same;
    same.line = line.number;
    if (sides.size() != 2 || !parseRef(sides[0], 'd', same.lhs) ||
        !parseRef(sides[1], 'd', same.rhs))
      line.fail("expected aN.dK=aM.dL, got '" + std::string(condition) + "'");
    header.same.push_back(same);
  }
}

void HeaderParser::parseRequire(std::string_view rest) {
  std::vector<std::string_view> conditions = splitBlanks(rest);
  if (conditions.empty())
    line.fail("expected aN.sK=INT or aN.align=INT");
  for (std::string_view condition : conditions) {
    std::vector<std::string_view> sides = split(condition, '=');
    Requirement need;
    need.line = line.number;
    bool isValid = sides.size() == 2 && parseInteger(sides[1], need.value);
    if (isValid) {
      DimRef ref;
      // "aN.align" is read as a reference to dimension 0 of the same tensor.
      size_t dot = sides[0].find('.');
      if (parseRef(sides[0], 's', ref)) {
        need.kind = Requirement::Stride;
      } else if (dot != std::string_view::npos &&
                 sides[0].substr(dot) == ".align") {
        need.kind = Requirement::Align;
        isValid =
            need.value > 0 &&
            parseRef(std::string(sides[0].substr(0, dot)) + ".d0", 'd', ref);
      } else {
        isValid = false;
      }
      need.tensor = ref.tensor;
      need.dim = ref.dim;
    }
    if (!isValid)
      line.fail("expected aN.sK=INT or aN.align=INT, got '" +
                std::string(condition) + "'");
    header.requirements.push_back(need);
  }
}

void HeaderParser::parseMap(std::string_view rest) {
  Fields fields(line, rest);
  MapDecl map;
  map.line = line.number;
  map.tensor =
      static_cast<int>(fields.getInteger("tensor", 0, kMaxTensors - 1));
  map.dim = static_cast<int>(fields.getInteger("dim", 0, FA_RT_MAX_RANK - 1));
  map.rows = static_cast<int>(fields.getInteger("rows", 1, 256));
  if (fields.has("cols"))
    map.cols = static_cast<int>(fields.getInteger("cols", 32, 32));
  if (fields.getInteger("index", 0, kMaxMaps - 1) !=
      static_cast<int64_t>(header.maps.size()))
    line.fail(format("expected index=%zu: tensor maps are numbered in order",
                     header.maps.size()));
  header.maps.push_back(map);
}

void HeaderParser::parseLaunch(std::string_view rest) {
  Fields fields(line, rest);
  LaunchDecl launch;
  launch.line = line.number;
  launch.kernel = fields.getName("kernel");
  launch.block = static_cast<int>(fields.getInteger("block", 1, 1024));
  if (fields.has("smem"))
    launch.smem = static_cast<int>(fields.getInteger("smem", 0, 1 << 30));
  launch.grid = fields.getExpr("grid");
  for (std::string_view text : split(fields.get("args"), ',')) {
    int64_t index;
    if (!parseInteger(text, index) || index >= kMaxTensors)
      line.fail("expected indices of tensors in 'args', got '" +
                std::string(text) + "'");
    launch.args.push_back(static_cast<int>(index));
  }
  if (fields.has("waves"))
    launch.waves = static_cast<int>(fields.getInteger("waves", 1, 64));
  if (fields.has("least"))
    launch.least = static_cast<int>(fields.getInteger("least", 0, 1));
  if (fields.has("queue"))
    launch.hasQueue = fields.getInteger("queue", 0, 1) == 1;
  launch.prepares = fields.has("prepares");
  if (fields.has("maps"))
    for (std::string_view text : split(fields.get("maps"), ',')) {
      int64_t index;
      if (!parseInteger(text, index) || index < 0 ||
          index >= static_cast<int64_t>(header.maps.size()))
        line.fail("expected indices of tensor maps above in 'maps', got '" +
                  std::string(text) + "'");
      launch.maps.push_back(static_cast<int>(index));
    }
  if (launch.maps.size() > kMaxMaps)
    line.fail(format("expected at most %d tensor maps, got %zu", kMaxMaps,
                     launch.maps.size()));
  if (header.launches.size() == kMaxLaunches)
    line.fail(format("expected at most %d launches", kMaxLaunches));
  header.launches.push_back(std::move(launch));
}

HeaderLine HeaderParser::lineAt(int number) const {
  std::string_view text = whole, result;
  for (int i = 0; i < number; ++i)
    result = takeLine(text);
  return {number, result};
}

void HeaderParser::checkRef(DimRef ref, int limit, int number) {
  if (ref.tensor >= limit)
    lineAt(number).fail(
        format("tensor a%d is unknown here: expected an index below %d",
               ref.tensor, limit));
  const TensorDecl &decl = header.tensors[static_cast<size_t>(ref.tensor)];
  if (ref.dim >= decl.rank)
    lineAt(number).fail(format("a%d has rank %d, so dimension %d is unknown",
                               ref.tensor, decl.rank, ref.dim));
}

void HeaderParser::checkExpr(const Expr &expr, int limit, int number) {
  for (const Term &term : expr)
    if (!term.isConstant)
      checkRef(term.ref, limit, number);
}

void HeaderParser::checkTensors() {
  int count = static_cast<int>(tensors.size());
  for (int i = 0; i < count; ++i) {
    const TensorDecl &decl = tensors[static_cast<size_t>(i)];
    if (!decl.line)
      line.fail(format("no //!fa.arg or //!fa.temp has index %d", i));
    if (!decl.isTemp && i != header.numArgs)
      lineAt(decl.line).fail(format("argument %d comes after a temporary "
                                    "buffer; arguments have the first indices",
                                    i));
    if (!decl.isTemp)
      ++header.numArgs;
    header.zeroesResults |= !decl.isTemp && decl.isZeroed;
  }
  header.tensors = std::move(tensors);
  // A temporary buffer is sized from the arguments and the buffers before it.
  for (int i = header.numArgs; i < count; ++i)
    for (const Expr &dim : header.tensors[static_cast<size_t>(i)].dims)
      checkExpr(dim, i, header.tensors[static_cast<size_t>(i)].line);
}

/// A tensor map is of 16-bit floats or of f32, its box along a dimension but
/// the last.
void HeaderParser::checkMaps() {
  for (const MapDecl &map : header.maps) {
    checkRef({map.tensor, map.dim}, static_cast<int>(header.tensors.size()),
             map.line);
    const TensorDecl &decl = header.tensors[static_cast<size_t>(map.tensor)];
    if (decl.rank < 2 || decl.rank > 5 || map.dim + 1 >= decl.rank)
      lineAt(map.line).fail(
          format("expected a tensor of rank 2 to 5 and a dimension before its "
                 "last, got rank %d and dimension %d",
                 decl.rank, map.dim));
    if (decl.dtype != FA_RT_F16 && decl.dtype != FA_RT_BF16 &&
        decl.dtype != FA_RT_F32)
      lineAt(map.line).fail(
          std::string("expected a tensor of f16, bf16 or f32, "
                      "got ") +
          fa_rt_dtype_name(decl.dtype));
    if (map.cols && decl.dtype != FA_RT_F32)
      lineAt(map.line).fail(
          std::string("expected 'cols' with a tensor of f32 only, got ") +
          fa_rt_dtype_name(decl.dtype) + "; leave it out");
  }
}

void HeaderParser::checkLaunches() {
  int count = static_cast<int>(header.tensors.size());
  for (const LaunchDecl &launch : header.launches) {
    checkExpr(launch.grid, count, launch.line);
    int64_t bytes = 0;
    for (int index : launch.args) {
      if (index >= count)
        lineAt(launch.line)
            .fail(format("tensor %d in 'args' is not declared", index));
      TensorDecl &decl = header.tensors[static_cast<size_t>(index)];
      decl.isPrepared = decl.isPrepared || (launch.prepares && decl.isTemp);
      bytes += 8 * (1 + 2 * decl.rank);
    }
    if (launch.hasQueue)
      bytes += 16;
    if (!launch.maps.empty())
      bytes = (bytes + 63) / 64 * 64 +
              128 * static_cast<int64_t>(launch.maps.size());
    if (bytes > kMaxParamBytes)
      lineAt(launch.line)
          .fail(format("kernel parameters take %lld bytes, the limit is %d",
                       static_cast<long long>(bytes), kMaxParamBytes));
  }
}

void HeaderParser::check() {
  checkTensors();
  for (const SameDims &same : header.same) {
    checkRef(same.lhs, header.numArgs, same.line);
    checkRef(same.rhs, header.numArgs, same.line);
  }
  for (const Requirement &need : header.requirements) {
    if (need.kind == Requirement::Stride)
      checkRef({need.tensor, need.dim}, header.numArgs, need.line);
    else if (need.tensor >= header.numArgs)
      lineAt(need.line).fail(format("argument a%d is unknown", need.tensor));
  }
  if (header.launches.empty())
    line.fail("the program has no //!fa.launch line");
  checkMaps();
  checkLaunches();
}

ImageHeader fa::rt::parseHeader(std::string_view text) {
  return HeaderParser().parse(text);
}

/// Reads .version and .target of PTX text: both must come before any code.
static void parsePTXPreamble(std::string_view text, Image &image) {
  std::string target;
  while (!text.empty() && (image.ptxVersion == 0 || target.empty())) {
    std::vector<std::string_view> words = splitBlanks(takeLine(text));
    if (words.empty() || words[0].substr(0, 2) == "//")
      continue;
    if (words.size() >= 2 && words[0] == ".version") {
      size_t dot = words[1].find('.');
      int64_t major, minor;
      if (dot != std::string_view::npos &&
          parseInteger(words[1].substr(0, dot), major) &&
          parseInteger(words[1].substr(dot + 1), minor) && major < 1000 &&
          minor < 10)
        image.ptxVersion = static_cast<int>(major * 10 + minor);
    } else if (words.size() >= 2 && words[0] == ".target") {
      target = std::string(words[1].substr(0, words[1].find(',')));
    } else {
      break;
    }
  }
  if (image.ptxVersion == 0 || target.empty())
    fail(FA_RT_BAD_IMAGE,
         "image has no PTX after its header: expected a .version and a "
         ".target line; the file may be cut off");
  if (target != image.header.targetName)
    fail(FA_RT_BAD_IMAGE,
         "image is inconsistent: its header says target=%s and its PTX says "
         ".target %s; compile it anew",
         image.header.targetName.c_str(), target.substr(0, 32).c_str());
}

int fa::rt::countParameters(std::string_view ptx, std::string_view kernel) {
  constexpr std::string_view kEntry = ".entry", kParam = ".param",
                             kBlanks = " \t\r\n";
  for (size_t at = ptx.find(kEntry); at != std::string_view::npos;
       at = ptx.find(kEntry, at + 1)) {
    std::string_view rest = ptx.substr(at + kEntry.size());
    rest.remove_prefix(std::min(rest.find_first_not_of(kBlanks), rest.size()));
    if (rest.substr(0, kernel.size()) != kernel)
      continue;
    rest.remove_prefix(kernel.size());
    size_t next = rest.find_first_not_of(kBlanks);
    // A longer name, or a kernel without a list of parameters.
    if (next == std::string_view::npos || (next == 0 && rest[0] != '('))
      continue;
    if (rest[next] != '(')
      return 0;
    std::string_view list = rest.substr(next, rest.find(')', next) - next);
    int count = 0;
    for (size_t p = list.find(kParam); p != std::string_view::npos;
         p = list.find(kParam, p + 1))
      ++count;
    return count;
  }
  return -1;
}

Image fa::rt::parseImage(std::string_view bytes, const char *header) {
  Image image;
  bool isELF = bytes.substr(0, 4) == "\x7f"
                                     "ELF";
  if (isELF && !header)
    fail(FA_RT_BAD_IMAGE, "image is a cubin without a header; pass the header "
                          "text in the load options");
  if (!isELF) {
    while (!bytes.empty() && bytes.back() == '\0')
      bytes.remove_suffix(1);
    if (bytes.find('\0') != std::string_view::npos)
      fail(FA_RT_BAD_IMAGE,
           "image is neither PTX text (it has a NUL at byte %zu) nor a cubin",
           bytes.find('\0'));
  }
  image.header = parseHeader(header ? std::string_view(header) : bytes);
  image.isPTX = !isELF;
  image.code = std::string(bytes);
  if (image.isPTX)
    parsePTXPreamble(bytes, image);
  return image;
}

fa_rt_status fa_rt_image_verify(const void *image, size_t size,
                                const char *header) {
  return guarded([&] {
    requireNonNull(image, "the image");
    parseImage({static_cast<const char *>(image), size}, header);
  });
}
