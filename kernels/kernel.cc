// The register of kernels, their parameters, and the ISA words: everything that needs no assembler.
#include "kernels/kernel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

namespace skidproof {
namespace {

std::map<std::string, Kernel, std::less<>>& registry() {
  static std::map<std::string, Kernel, std::less<>> all;
  return all;
}

[[noreturn]] void die(const std::string& message) {
  fmt::print(stderr, "skidproof kernels: {}\n", message);
  std::abort();
}

const Parameter* find(std::span<const Parameter> declared, std::string_view name) {
  auto it = std::find_if(declared.begin(), declared.end(),
                         [&](const Parameter& p) { return p.name == name; });
  return it == declared.end() ? nullptr : &*it;
}

// "name (low…high)" or "name (a|b|c)".
std::string describe(const Parameter& parameter) {
  if (!parameter.words.empty()) {
    return fmt::format("{} ({})", parameter.name, fmt::join(parameter.words, "|"));
  }
  return fmt::format("{} ({}…{})", parameter.name, parameter.low, parameter.high);
}

std::string describe_all(std::span<const Parameter> declared) {
  if (declared.empty()) return "this kernel takes no parameters";
  std::vector<std::string> all;
  for (const Parameter& parameter : declared) all.push_back(describe(parameter));
  return fmt::format("its parameters are {}", fmt::join(all, ", "));
}

std::optional<uint64_t> parse_number(std::string_view text) {
  uint64_t scale = 1;
  if (!text.empty()) {
    switch (text.back()) {
      case 'K':
        scale = uint64_t{1} << 10;
        break;
      case 'M':
        scale = uint64_t{1} << 20;
        break;
      case 'G':
        scale = uint64_t{1} << 30;
        break;
      default:
        break;
    }
    if (scale != 1) text.remove_suffix(1);
  }
  int base = 10;
  if (text.starts_with("0x")) {
    base = 16;
    text.remove_prefix(2);
  }
  uint64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (value > UINT64_MAX / scale) return std::nullopt;
  return value * scale;
}

Expected<uint64_t> parse_value(const Parameter& parameter, std::string_view text) {
  if (!parameter.words.empty()) {
    auto it = std::find(parameter.words.begin(), parameter.words.end(), text);
    if (it == parameter.words.end()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("'{}' is not a value of parameter {}", text, describe(parameter)));
    }
    return static_cast<uint64_t>(it - parameter.words.begin());
  }
  std::optional<uint64_t> value = parse_number(text);
  if (!value || *value < parameter.low || *value > parameter.high) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is not a value of parameter {}", text, describe(parameter)),
                "numbers are decimal or 0x…, with an optional K, M or G");
  }
  return *value;
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

}  // namespace

Expected<Params> Params::parse(std::span<const Parameter> declared, std::string_view text) {
  Params params;
  params.declared_ = declared;
  while (!text.empty()) {
    std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    size_t equals = item.find('=');
    std::string_view name = item.substr(0, equals);
    const Parameter* parameter = find(declared, name);
    if (parameter == nullptr) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("no parameter '{}'", name),
                  describe_all(declared));
    }
    if (equals == std::string_view::npos) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("parameter '{}' has no value", name),
                  fmt::format("write {}=…; {}", name, describe(*parameter)));
    }
    uint64_t value = SKIDPROOF_TRY(parse_value(*parameter, item.substr(equals + 1)));
    if (!params.values_.emplace(parameter->name, value).second) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("parameter '{}' is given twice", name));
    }
  }
  for (const Parameter& parameter : declared) {
    params.values_.emplace(parameter.name, parameter.fallback);
  }
  return params;
}

uint64_t Params::operator[](std::string_view name) const {
  auto it = values_.find(name);
  if (it == values_.end()) die(fmt::format("parameter '{}' is not declared", name));
  return it->second;
}

const std::string& Params::word(std::string_view name) const {
  const Parameter* parameter = find(declared_, name);
  uint64_t index = (*this)[name];
  if (parameter == nullptr || index >= parameter->words.size()) {
    die(fmt::format("parameter '{}' has no words", name));
  }
  return parameter->words[index];
}

std::string Params::text() const {
  std::string out;
  for (const Parameter& parameter : declared_) {
    if (!out.empty()) out += ',';
    out += parameter.words.empty() ? fmt::format("{}={}", parameter.name, (*this)[parameter.name])
                                   : fmt::format("{}={}", parameter.name, word(parameter.name));
  }
  return out;
}

Expected<void> prepare_data(const Kernel& kernel, const Params& params, const Program& program,
                            std::span<std::byte> host, uint64_t seed) {
  if (host.size() < program.data_bytes) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} touches {} bytes of data, the arena has {}", program.id(),
                            program.data_bytes, host.size()),
                "allocate Program::data_bytes");
  }
  host = host.first(program.data_bytes);
  if (!host.empty()) std::memset(host.data(), 0, host.size());
  if (kernel.fill != nullptr) kernel.fill(params, host, program.data_address, seed);
  return {};
}

const std::map<std::string, Kernel, std::less<>>& kernels() { return registry(); }

Expected<const Kernel*> find_kernel(std::string_view name) {
  auto it = registry().find(name);
  if (it != registry().end()) return &it->second;
  std::vector<std::string> near;
  std::vector<std::string> all;
  for (const auto& [known, kernel] : registry()) {
    all.push_back(known);
    bool part = !name.empty() && known.find(name) != std::string::npos;
    if (part || edit_distance(name, known) <= 3) near.push_back(known);
  }
  return fail(ErrorCode::kInvalidArgument, fmt::format("no kernel '{}'", name),
              near.empty() ? fmt::format("the kernels are {}", fmt::join(all, ", "))
                           : fmt::format("did you mean {}?", fmt::join(near, ", ")));
}

const char* name_of(Isa isa) {
  switch (isa) {
    case Isa::kBaseline:
      return "x86-64";
    case Isa::kSse41:
      return "SSE4.1";
    case Isa::kAvx:
      return "AVX";
    case Isa::kAvx2:
      return "AVX2";
    case Isa::kBmi2:
      return "BMI2";
    case Isa::kAvx512:
      return "AVX-512";
    case Isa::kPopcnt:
      return "POPCNT";
    case Isa::kLzcnt:
      return "LZCNT";
    case Isa::kBmi1:
      return "BMI1";
    case Isa::kFma:
      return "FMA";
  }
  return "?";
}

// The compiler's run-time support reads CPUID and XGETBV: an AVX that the operating system does not
// save is no AVX.
bool host_supports(Isa isa) {
  switch (isa) {
    case Isa::kBaseline:
      return true;
    case Isa::kSse41:
      return __builtin_cpu_supports("sse4.1") != 0;
    case Isa::kAvx:
      return __builtin_cpu_supports("avx") != 0;
    case Isa::kAvx2:
      return __builtin_cpu_supports("avx2") != 0;
    case Isa::kBmi2:
      return __builtin_cpu_supports("bmi2") != 0;
    case Isa::kAvx512:
      return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512vl") != 0;
    case Isa::kPopcnt:
      return __builtin_cpu_supports("popcnt") != 0;
    case Isa::kLzcnt:
      return __builtin_cpu_supports("lzcnt") != 0;
    case Isa::kBmi1:
      return __builtin_cpu_supports("bmi") != 0;
    case Isa::kFma:
      return __builtin_cpu_supports("fma") != 0;
  }
  return false;
}

namespace internal {

// Runs before main; what it refuses is a mistake in a kernel's file, so it ends the program at
// once.
KernelRegistration operator+(KernelName name, Kernel kernel) {
  kernel.name = name.name;
  if (kernel.body == nullptr || kernel.per_iteration == nullptr) {
    die(fmt::format("kernel '{}' has no body or no per_iteration", kernel.name));
  }
  for (const Parameter& p : kernel.parameters) {
    bool words = !p.words.empty();
    if (words ? p.fallback >= p.words.size() : (p.fallback < p.low || p.fallback > p.high)) {
      die(fmt::format("kernel '{}': the default of {} is out of range", kernel.name, describe(p)));
    }
  }
  auto [it, inserted] = registry().emplace(kernel.name, std::move(kernel));
  if (!inserted) die(fmt::format("kernel '{}' is registered twice", it->first));
  return {};
}

}  // namespace internal
}  // namespace skidproof
