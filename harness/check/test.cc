// The base of every suite's tests: machine, programs, evidence, and how a test ends.
#include <fmt/core.h>

#include <deque>
#include <exception>
#include <filesystem>
#include <optional>
#include <utility>

#include "harness/check/check.h"
#include "harness/check/counting_machine.h"
#include "harness/check/outcome.h"

namespace skidproof::check {
namespace {

// Thrown by need(): the outcome already says why.
struct StopTest {};

// Records a failure of the harness, for our rows and for GoogleTest.
void harness_error(const char* file, int line, const std::string& message) {
  const std::string name = std::filesystem::path(file).filename().string();
  outcome().errors.push_back(fmt::format("{}:{}: {}", name, line, message));
  ADD_FAILURE_AT(file, line) << kHarnessPrefix << message;
}

bool reports(const Machine& machine, Isa isa) {
  const auto one = machine.cpuid(1, 0);
  const auto seven = machine.cpuid(7, 0);
  const bool os_saves_ymm = (one.ecx >> 27 & 1) != 0;  // OSXSAVE
  switch (isa) {
    case Isa::kBaseline:
      return true;
    case Isa::kSse41:
      return (one.ecx >> 19 & 1) != 0;
    case Isa::kAvx:
      return os_saves_ymm && (one.ecx >> 28 & 1) != 0;
    case Isa::kAvx2:
      return os_saves_ymm && (seven.ebx >> 5 & 1) != 0;
    case Isa::kBmi2:
      return (seven.ebx >> 8 & 1) != 0;
  }
  return false;
}

// A loop and its frame fit; unrolled kernels ask again with what they turned out to need.
constexpr size_t kFirstCodeBytes = 64 << 10;

}  // namespace

struct Test::State {
  std::shared_ptr<CountingMachine> machine;
  std::optional<Random> random;
  std::deque<Program> programs;
  std::vector<Memory> memory;
};

void Test::SetUp() {
  outcome() = {};
  outcome().began = true;
  state_ = std::make_shared<State>();
}

void Test::TestBody() {
  try {
    run_body();
  } catch (const StopTest&) {
  } catch (const SkipTest& skip) {
    internal::skip(skip.category, skip.reason);
    GTEST_SKIP() << skip.reason;
  } catch (const std::exception& exception) {
    harness_error(info_->file, info_->line,
                  fmt::format("uncaught exception: {}", exception.what()));
  } catch (...) {
    harness_error(info_->file, info_->line, "uncaught exception of an unknown type");
  }
}

void Test::run_body() {
  if (stop_requested()) throw stop_reason();
  MachineSource* source = environment().machines;
  if (source == nullptr) {
    stop({ErrorCode::kInternal, "no machine was set for this run", {}}, "", info_->file,
         info_->line);
  }
  state_->machine = std::make_shared<CountingMachine>(
      need(source->machine(seed()), "machine", info_->file, info_->line));
  const Identity& who = state_->machine->identity();
  if (!who.pmu) {
    throw SkipTest{SkipCategory::kNoPmu,
                   fmt::format("{}: the performance monitoring MSRs do not answer", who.name)};
  }
  if (who.microarch == nullptr) {
    throw SkipTest{
        SkipCategory::kNotOnThisMicroarch,
        fmt::format("no row of facts covers family {} model {:#x}", who.family, who.model)};
  }
  const bool architectural = who.microarch->architectural_perfmon();
  if (info_->registers != Registers::kEither &&
      architectural != (info_->registers == Registers::kArchitectural)) {
    throw SkipTest{SkipCategory::kNotOnThisMicroarch,
                   architectural ? "events are selected by IA32_PERFEVTSELx here"
                                 : "events are selected by ESCRs and CCCRs here"};
  }
  body();
}

// A test that held without having done anything held nothing.
void Test::TearDown() {
  const Outcome& now = outcome();
  if (HasFailure() || now.skip) {
    // Said already.
  } else if (IsSkipped()) {
    harness_error(info_->file, info_->line, "skipped without a category: use SKIDPROOF_REQUIRE");
  } else if (now.executed == 0 || now.comparisons == 0) {
    harness_error(info_->file, info_->line,
                  fmt::format("vacuous: {} executed operations, {} comparisons; a pass needs both",
                              now.executed, now.comparisons));
  }
  state_.reset();
}

Machine& Test::machine() { return *state_->machine; }

const arch::Microarch& Test::uarch() { return *state_->machine->identity().microarch; }

uint64_t Test::seed() const { return derive_seed(environment().seed, info_->id().c_str()); }

Random& Test::random() {
  if (!state_->random) state_->random.emplace(derive_seed(seed(), "random"));
  return *state_->random;
}

const Program& Test::program(std::string_view kernel_name, std::string_view parameters, Mode mode) {
  const Kernel& kernel = *need(find_kernel(kernel_name), "kernel", info_->file, info_->line);
  const Params params =
      need(Params::parse(kernel.parameters, parameters), "parameters", info_->file, info_->line);
  if (kernel.needs != nullptr) {
    for (Isa isa : kernel.needs(params)) {
      if (reports(machine(), isa)) continue;
      throw SkipTest{SkipCategory::kIsaMissing,
                     fmt::format("{} needs {}", kernel_name, name_of(isa))};
    }
  }

  Placement placement{.seed = derive_seed(seed(), kernel.name.c_str()), .mode = mode};
  const bool below_4g = mode != Mode::kLong;
  const size_t data_bytes = kernel.data_bytes == nullptr ? 0 : kernel.data_bytes(params);
  if (data_bytes != 0) {
    const MemoryRequest request{.bytes = data_bytes, .use = MemoryUse::kData, .below_4g = below_4g};
    Memory data = need(machine().allocate(request), "data", info_->file, info_->line);
    placement.data_address = data.address;
    if (kernel.fill != nullptr) {
      kernel.fill(params, data.host.first(request.bytes), data.address, placement.seed);
    }
    state_->memory.push_back(std::move(data));
  }

  size_t bytes = kFirstCodeBytes;
  while (true) {
    const MemoryRequest request{.bytes = bytes, .use = MemoryUse::kCode, .below_4g = below_4g};
    Memory code = need(machine().allocate(request), "code", info_->file, info_->line);
    placement.code_address = code.address;
    Program program =
        need(generate(kernel, params, placement), "generation", info_->file, info_->line);
    bytes = program.code.size();
    if (bytes > code.host.size()) continue;
    state_->memory.push_back(std::move(code));
    return state_->programs.emplace_back(std::move(program));
  }
}

void Test::evidence(std::string_view key, const nlohmann::json& value) {
  results::Json& all = outcome().evidence;
  if (all.contains(std::string(key))) {
    stop({ErrorCode::kInternal, fmt::format("the evidence `{}` is given twice", key), {}},
         "evidence", info_->file, info_->line);
  }
  all[std::string(key)] = results::Json(value);
}

void Test::histogram(std::string_view key, std::string_view unit,
                     const std::map<int64_t, uint64_t>& bins,
                     const std::vector<int64_t>& expected) {
  results::Json item = results::Histogram{.name = std::string(key),
                                          .unit = std::string(unit),
                                          .bins = {bins.begin(), bins.end()},
                                          .expected = expected};
  evidence(key, nlohmann::json(item));
}

void Test::stop(const Error& error, const char* what, const char* file, int line) {
  const std::string subject = *what == '\0' ? std::string() : fmt::format("{}: ", what);
  // What this machine does not have is neither its failure nor ours. A model has everything that a test
  // asks of it; where it has not, the test shall ask first.
  if (error.code == ErrorCode::kNotAvailable && !HasFailure() &&
      machine().identity().provenance != Provenance::kModel) {
    throw SkipTest{SkipCategory::kMachineLimit, subject + error.message};
  }
  harness_error(file, line, subject + error.text());
  throw StopTest{};
}

namespace internal {

void count_comparison() { ++outcome().comparisons; }

void skip(results::SkipCategory category, const std::string& reason) {
  outcome().skip = category;
  outcome().skip_reason = reason;
}

}  // namespace internal
}  // namespace skidproof::check
