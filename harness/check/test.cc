// The base of every suite's tests: machine, programs, evidence, attempts, and how a test ends.
#include <fmt/core.h>
#include <gtest/gtest-spi.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <filesystem>
#include <optional>
#include <utility>

#include "harness/check/calibrating.h"
#include "harness/check/check.h"
#include "harness/check/counting_machine.h"
#include "harness/check/explanation.h"
#include "harness/check/ladder.h"
#include "harness/check/outcome.h"
#include "harness/check/trial.h"
#include "pebs/capabilities.h"

namespace skidproof::check {
namespace {

using results::Status;

// Thrown by need(): the outcome already says why.
struct StopTest {};

std::string with_place(const char* file, int line, const std::string& message) {
  if (file == nullptr) return "?: " + message;
  return fmt::format("{}:{}: {}", std::filesystem::path(file).filename().string(), line, message);
}

// A failure of the harness.
void harness_error(const char* file, int line, const std::string& message) {
  outcome().errors.push_back(with_place(file, line, message));
}

bool has_failed(const ::testing::TestPartResultArray& parts) {
  for (int i = 0; i < parts.size(); ++i) {
    if (parts.GetTestPartResult(i).failed()) return true;
  }
  return false;
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
    case Isa::kAvx512:
      return os_saves_ymm && (seven.ebx >> 16 & 1) != 0 && (seven.ebx >> 31 & 1) != 0;
    case Isa::kPopcnt:
      return (one.ecx >> 23 & 1) != 0;
    case Isa::kLzcnt:
      return (machine.cpuid(0x8000'0001, 0).ecx >> 5 & 1) != 0;
    case Isa::kBmi1:
      return (seven.ebx >> 3 & 1) != 0;
    case Isa::kFma:
      return os_saves_ymm && (one.ecx >> 12 & 1) != 0;
  }
  return false;
}

// Makes attempts, by their numbers, until there is a verdict.
template <typename Attempt>
Outcome verdict_of(bool rates, Attempt attempt) {
  Trial trial(rates);
  for (unsigned number = 0; trial.wants_another(); ++number) {
    if (number > 0 && stop_requested()) {
      trial.stop(stop_reason().reason);
      break;
    }
    attempt(number);
    trial.take(std::move(outcome()));
  }
  return trial.verdict();
}

// The row as the machine enumerates itself; as it stands where no table has the record format that it reports, which
// every session refuses. Not counted as something that a test did.
std::optional<arch::Microarch> enumerated_row(Machine& machine) {
  const Identity& who = machine.identity();
  if (!who.pmu || who.microarch == nullptr) return std::nullopt;
  const Expected<arch::Microarch> found = as_enumerated(*who.microarch, capabilities_of(machine));
  return found ? *found : *who.microarch;
}

// A loop and its frame fit; unrolled kernels ask again with what they turned out to need.
constexpr size_t kFirstCodeBytes = 64 << 10;

}  // namespace

struct Test::State {
  std::shared_ptr<CountingMachine> machine;
  std::optional<arch::Microarch> uarch;
  std::optional<Random> random;
  struct Placed {
    Program program;
    const Kernel* kernel = nullptr;
    Params params;
    Memory code, data;
  };
  std::deque<Placed> programs;
  ::testing::TestPartResultArray parts;  // what GoogleTest was told during this attempt
};

namespace {

// The verdict on a test: attempts, each with an object of its own, until there is one.
Outcome judged(const TestInfo& info, bool rates) {
  return verdict_of(rates, [&info](unsigned number) {
    const std::unique_ptr<Test> test(info.make());
    test->bind(&info);
    test->attempt(number);
  });
}

// What becomes of a test that an erratum names. The machine is asked for it by another name, so that a tape keeps it
// apart from the test of that name.
Status status_of_signature(const TestInfo& info) {
  const Ladder* ladder = environment().ladder;
  if (ladder != nullptr && ladder->broken_below(info.stage)) return Status::kSkip;
  Outcome under_way = std::move(outcome());
  TestInfo asked = info;
  asked.suite = "signature:" + info.suite;
  const Status status = judged(asked, false).status;
  outcome() = std::move(under_way);
  return status;
}

}  // namespace

void judge(const TestInfo& test) {
  Environment& shared = environment();
  outcome() = {};
  outcome().began = true;
  if (auto broken =
          shared.ladder == nullptr ? std::nullopt : shared.ladder->broken_below(test.stage)) {
    internal::skip(SkipCategory::kGroundBroken, *broken);
    outcome().status = Status::kSkip;
    outcome().reason = *broken;
    return;
  }
  outcome() = judged(test, shared.rates);
  if (shared.errata) {
    if (shared.signatures == nullptr) shared.signatures = std::make_shared<Signatures>();
    explain_by_errata(test.id(), outcome(), *shared.signatures, status_of_signature);
  }
  const Outcome& now = outcome();
  if (now.status == Status::kPass || now.status == Status::kXpass) {
    outcome().evidence["compared"] = now.compared.json();
  }
}

// GoogleTest hears of it only when the attempts were judged.
void Test::attempt(unsigned number) {
  attempt_ = number;
  outcome() = {};
  outcome().began = true;
  state_ = std::make_shared<State>();
  ::testing::TestPartResultArray& parts = state_->parts;
  {
    ::testing::ScopedFakeTestPartResultReporter intercept(
        ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &parts);
    guarded_body();
  }
  Outcome& now = outcome();
  bool skipped = false;
  for (int i = 0; i < parts.size(); ++i) {
    const ::testing::TestPartResult& part = parts.GetTestPartResult(i);
    skipped |= part.skipped();
    if (part.failed()) {
      now.failures.push_back(with_place(part.file_name(), part.line_number(), part.message()));
    }
  }
  const bool settled = !now.failures.empty() || !now.errors.empty();
  if (!settled && now.skip && !now.access_failed.empty()) {
    harness_error(
        info_->file, info_->line,
        fmt::format("skipped ({}) after an access failed: {}", now.skip_reason, now.access_failed));
  } else if (!settled && !now.skip && skipped) {
    harness_error(info_->file, info_->line, "skipped without a category: use SKIDPROOF_REQUIRE");
  } else if (!settled && !now.skip &&
             (now.executed == 0 || (now.comparisons == 0 && !now.observed))) {
    // A test that held without having done anything held nothing.
    harness_error(info_->file, info_->line,
                  fmt::format("vacuous: {} executed operations, {} comparisons; a pass needs both",
                              now.executed, now.comparisons));
  }
  give_machine_back();
}

// A tape says only now whether the attempt asked all that it holds. What an attempt found that went off
// the tape, it found on no machine.
void Test::give_machine_back() {
  state_.reset();
  MachineSource* source = environment().machines;
  auto held = source == nullptr ? Expected<void>() : source->given_up();
  if (held) return;
  outcome().off_tape = held.error().text();
  outcome().failures.clear();
  outcome().errors = {held.error().text()};
}

void Test::guarded_body() {
  try {
    run_body();
  } catch (const StopTest&) {
  } catch (const SkipTest& skip) {
    internal::skip(skip.category, skip.reason);
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
  auto given = source->machine({.seed = seed(),
                                .test = info_->id(),
                                .repetition = environment().repetition,
                                .attempt = attempt_});
  if (!given && given.error().code == ErrorCode::kNotRecorded) {
    throw SkipTest{SkipCategory::kNotOnTape, given.error().message};
  }
  std::shared_ptr<Machine> machine = need(std::move(given), "machine", info_->file, info_->line);
  state_->uarch = enumerated_row(*machine);
  state_->machine = std::make_shared<CountingMachine>(std::move(machine));
  const Identity& who = state_->machine->identity();
  outcome().part = {.family = who.family,
                    .model = who.model,
                    .stepping = who.stepping,
                    .microcode = who.microcode};
  if (info_->registers == Registers::kNone) {
    body();
    return;
  }
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

Machine& Test::machine() { return *state_->machine; }

const calibrate::Figure& Test::calibrated(calibrate::Quantity quantity) {
  Environment& shared = environment();
  if (shared.calibration == nullptr) {
    shared.calibration =
        std::make_shared<calibrate::Calibration>(calibration_of(*shared.machines, shared.seed));
  }
  const calibrate::Figure& figure = (*shared.calibration)[quantity];
  if (figure.lost) {
    throw SkipTest{SkipCategory::kMachineLimit,
                   fmt::format("{}: {}", calibrate::name_of(quantity), figure.reason)};
  }
  return figure;
}

const arch::Microarch& Test::uarch() { return *state_->uarch; }

const arch::Microarch& Test::row() { return *state_->machine->identity().microarch; }

uint64_t Test::seed() const {
  const uint64_t first = derive_seed(environment().seed, info_->id().c_str());
  if (attempt_ == 0) return first;
  return derive_seed(first, fmt::format("attempt {}", attempt_).c_str());
}

Random& Test::random() {
  if (!state_->random) state_->random.emplace(derive_seed(seed(), "random"));
  return *state_->random;
}

MachineShape Test::shape() { return filled(environment().shape, told_shape(machine())); }

std::string Test::in_bytes(std::string_view parameters) {
  std::string text(parameters);
  for (size_t at = text.find('@'); at != std::string::npos; at = text.find('@', at)) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string name = text.substr(at + 1, end - at - 1);
    const auto* wanted =
        std::find_if(kFootprints.begin(), kFootprints.end(),
                     [&](Footprint footprint) { return name_of(footprint) == name; });
    if (wanted == kFootprints.end()) {
      stop({ErrorCode::kInternal, fmt::format("there is no working set '{}'", name), {}},
           "parameters", info_->file, info_->line);
    }
    const MachineShape known = filled(shape(), shape_of_row(row()));
    const auto bytes = bytes_of(*wanted, known);
    if (!bytes) {
      throw SkipTest{SkipCategory::kMachineLimit,
                     fmt::format("no working set lies {} here ({})", name, text_of(known))};
    }
    text.replace(at, end - at, std::to_string(*bytes));
  }
  return text;
}

const Program& Test::program(std::string_view kernel_name, std::string_view parameters, Mode mode) {
  const Kernel& kernel = *need(find_kernel(kernel_name), "kernel", info_->file, info_->line);
  const Params params = need(Params::parse(kernel.parameters, in_bytes(parameters)), "parameters",
                             info_->file, info_->line);
  if (kernel.needs != nullptr) {
    for (Isa isa : kernel.needs(params)) {
      if (reports(machine(), isa)) continue;
      throw SkipTest{SkipCategory::kIsaMissing,
                     fmt::format("{} needs {}", kernel_name, name_of(isa))};
    }
  }

  Placement placement{.seed = derive_seed(seed(), kernel.name.c_str()), .mode = mode};
  const bool below_4g = mode != Mode::kLong;
  Memory data;
  const size_t data_bytes = kernel.data_bytes == nullptr ? 0 : kernel.data_bytes(params);
  if (data_bytes != 0) {
    const MemoryRequest request{.bytes = data_bytes, .use = MemoryUse::kData, .below_4g = below_4g};
    data = need(machine().allocate(request), "data", info_->file, info_->line);
    placement.data_address = data.address;
    if (kernel.fill != nullptr) {
      kernel.fill(params, data.host.first(request.bytes), data.address, placement.seed);
    }
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
    state_->programs.push_back({.program = std::move(program),
                                .kernel = &kernel,
                                .params = params,
                                .code = std::move(code),
                                .data = std::move(data)});
    return state_->programs.back().program;
  }
}

void Test::refill(const Program& program, uint64_t seed) {
  for (const State::Placed& placed : state_->programs) {
    if (&placed.program != &program) continue;
    need(prepare_data(*placed.kernel, placed.params, placed.program, placed.data.host, seed),
         "data", info_->file, info_->line);
    return;
  }
  stop({ErrorCode::kInternal, fmt::format("{} is no program of this test", program.id()), {}},
       "data", info_->file, info_->line);
}

void Test::evidence(std::string_view key, const results::Json& value) {
  results::Json& all = outcome().evidence;
  if (all.contains(std::string(key))) {
    stop({ErrorCode::kInternal, fmt::format("the evidence `{}` is given twice", key), {}},
         "evidence", info_->file, info_->line);
  }
  all[std::string(key)] = value;
}

void Test::observe(std::string_view what, const results::Json& seen) {
  results::Json& all = outcome().evidence["observed"];
  if (all.contains(std::string(what))) {
    stop({ErrorCode::kInternal, fmt::format("`{}` is observed twice", what), {}}, "evidence",
         info_->file, info_->line);
  }
  all[std::string(what)] = seen;
  outcome().observed = true;
}

void Test::histogram(std::string_view key, std::string_view unit,
                     const std::map<int64_t, uint64_t>& bins,
                     const std::vector<int64_t>& expected) {
  results::Json item = results::Histogram{.name = std::string(key),
                                          .unit = std::string(unit),
                                          .bins = {bins.begin(), bins.end()},
                                          .expected = expected};
  evidence(key, results::Json(item));
}

void Test::stop(const Error& error, const char* what, const char* file, int line) {
  const std::string subject = *what == '\0' ? std::string() : fmt::format("{}: ", what);
  // What this machine does not have is neither its failure nor ours, where it says so before it does
  // anything. A model has everything that a test asks of it; where it has not, the test shall ask first.
  if (error.code == ErrorCode::kNotAvailable && state_->machine != nullptr &&
      outcome().access_failed.empty() && !has_failed(state_->parts) &&
      machine().identity().provenance != Provenance::kModel) {
    throw SkipTest{SkipCategory::kMachineLimit, subject + error.message};
  }
  // Nor is memory that is not free.
  if (error.code == ErrorCode::kNoMemory && outcome().access_failed.empty() &&
      state_->machine != nullptr && !has_failed(state_->parts) &&
      machine().identity().provenance != Provenance::kModel) {
    throw SkipTest{SkipCategory::kNoResource, subject + error.message};
  }
  harness_error(file, line, subject + error.text());
  throw StopTest{};
}

namespace internal {

Comparisons& comparing() {
  ++outcome().comparisons;
  return outcome().compared;
}

void skip(results::SkipCategory category, const std::string& reason) {
  outcome().skip = category;
  outcome().skip_reason = reason;
}

}  // namespace internal
}  // namespace skidproof::check
