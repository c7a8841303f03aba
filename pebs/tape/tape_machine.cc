#include "pebs/tape/tape_machine.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <optional>
#include <utility>

#include "pebs/tape/bytes.h"
#include "pebs/tape/difference.h"
#include "pebs/tape/event.h"
#include "pebs/tape/watched_memory.h"

namespace skidproof::tape {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;

constexpr char kAdvice[] =
    "a tape answers what was asked when it was recorded, and nothing else: replay it with the "
    "skidproof that recorded it, or record another one";

// Zeroed memory with a guard page on both sides.
Expected<Memory> host_memory(size_t bytes) {
  const size_t pages = (bytes + kPage - 1) / kPage * kPage;
  void* const at =
      ::mmap(nullptr, pages + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) {
    return fail(ErrorCode::kNoMemory, fmt::format("no memory for a block of {} bytes", bytes));
  }
  auto* const first = static_cast<std::byte*>(at) + kPage;
  std::shared_ptr<void> keep(at, [pages](void* all) { ::munmap(all, pages + 2 * kPage); });
  if (::mprotect(first, pages, PROT_READ | PROT_WRITE) != 0) {
    return fail(ErrorCode::kNoMemory, fmt::format("no memory for a block of {} bytes", bytes));
  }
  Memory memory;
  memory.host = {first, bytes};
  memory.keep = std::move(keep);
  return memory;
}

// No machine gives more than was asked for in whole huge pages, or blocks that begin within a page.
bool plausible(const Placed& placed, const MemoryRequest& request) {
  if ((placed.address | placed.physical) % kPage != 0) return false;
  return placed.bytes >= request.bytes && placed.bytes - request.bytes <= kHugePage;
}

}  // namespace

// Where on the tape the test is.
class TapeMachine::Replay {
 public:
  Replay(std::vector<std::byte> content, const Identity& usual)
      : content_(std::move(content)), left_(content_), identity_(usual) {}

  Expected<void> begin(uint64_t seed);
  const Identity& identity() const { return identity_; }
  template <typename T>
  Expected<T> ask(Call call, const Encoder& question, Look look, Bytes program = {});
  Expected<Memory> allocate(const MemoryRequest& request);
  Expected<RunLog> run(const Program& program, const RunPlan& plan);
  Expected<void> wrmsr(const MsrWrite& write);
  Look now() const { return left_recording_.now(); }
  Expected<void> finished();

 private:
  // The next call on the tape, if that is what is asked now.
  Expected<Event> next(Call call, Bytes question, Look look, Bytes program);
  Expected<void> check(const Event& event, Call call, Bytes question, Look look, Bytes program);
  bool change(Bytes changes);
  tl::unexpected<Error> off(const std::string& difference);
  tl::unexpected<Error> damaged();

  const std::vector<std::byte> content_;
  Decoder left_;
  Identity identity_;
  Programs programs_;
  WatchedMemory memory_;
  LeftRecording left_recording_;
  uint64_t calls_ = 0, runs_ = 0;
  bool in_run_ = false;  // the call under way is one
  std::optional<Error> wrong_;
};

Expected<void> TapeMachine::Replay::begin(uint64_t seed) {
  const SectionHead head = decode_head(left_);
  if (!left_.good()) return damaged();
  if (head.has_identity) identity_ = head.identity;
  if (head.seed == seed) return {};
  return fail(
      ErrorCode::kOffTape,
      fmt::format("off the tape: the machine was asked for with the seed {} on the tape and "
                  "is asked for with {} now",
                  head.seed, seed),
      kAdvice);
}

tl::unexpected<Error> TapeMachine::Replay::off(const std::string& difference) {
  const std::string place = in_run_ ? fmt::format("run {} of the test", runs_)
                                    : fmt::format("call {} of the test", calls_);
  wrong_ =
      Error{ErrorCode::kOffTape, fmt::format("off the tape: {}: {}", place, difference), kAdvice};
  return tl::make_unexpected(*wrong_);
}

tl::unexpected<Error> TapeMachine::Replay::damaged() {
  wrong_ =
      Error{ErrorCode::kIo,
            fmt::format("what the tape holds of the test cannot be understood at call {}", calls_),
            "the program that wrote it differs from this one, or the tape is broken"};
  return tl::make_unexpected(*wrong_);
}

Expected<Event> TapeMachine::Replay::next(Call call, Bytes question, Look look, Bytes program) {
  if (wrong_) return tl::make_unexpected(*wrong_);
  ++calls_;
  in_run_ = call == Call::kRun;
  if (in_run_) ++runs_;
  if (left_.at_end()) return off(in_words(call, question) + " now, and the tape has ended");
  const Event event = take_event(left_);
  if (!left_.good()) return damaged();
  SKIDPROOF_CHECK(check(event, call, question, look, program));
  return event;
}

Expected<void> TapeMachine::Replay::check(const Event& event, Call call, Bytes question, Look look,
                                          Bytes program) {
  const std::string now = in_words(call, question), then = in_words(event.call, event.question);
  if (event.call != call || now != then) {
    return off(fmt::format("{} now, and the tape goes on with {}", now, then));
  }
  if (call == Call::kRun) {
    const uint64_t number = Decoder(event.question).number();
    const bool fresh = number == programs_.size();
    if (fresh == event.program.empty() || number > programs_.size()) return damaged();
    if (fresh) programs_.add(event.program);
    const Bytes recorded = programs_[number];
    if (!same(recorded, program)) return off(program_difference(recorded, program));
  }
  if (!same(event.question, question)) return off(difference(call, event.question, question));
  if (call == Call::kAllocate) return {};
  Encoder before;
  encode_question(before, memory_, memory_.look(look));
  if (same(event.before, before.bytes())) return {};
  return off(memory_difference(event.before, before.bytes(), memory_));
}

bool TapeMachine::Replay::change(Bytes changes) {
  Decoder in(changes);
  for (const Change& change : decode_changes(in)) {
    if (!memory_.apply(change)) return false;
  }
  return in.good() && in.at_end();
}

template <typename T>
Expected<T> TapeMachine::Replay::ask(Call call, const Encoder& question, Look look, Bytes program) {
  const Event event = SKIDPROOF_TRY(next(call, question.bytes(), look, program));
  Decoder in(event.answer);
  Expected<T> answer = decode_answer<T>(in);
  if (!in.good() || !in.at_end() || !change(event.after)) return damaged();
  return answer;
}

Expected<void> TapeMachine::Replay::wrmsr(const MsrWrite& write) {
  Encoder question;
  encode(question, write);
  auto done = ask<void>(Call::kWriteMsr, question, left_recording_.around(write));
  left_recording_.wrote(write);
  return done;
}

Expected<Memory> TapeMachine::Replay::allocate(const MemoryRequest& request) {
  Encoder question;
  encode(question, request);
  const Event event = SKIDPROOF_TRY(next(Call::kAllocate, question.bytes(), Look::kNowhere, {}));
  Decoder in(event.answer);
  const Expected<Placed> placed = decode_answer<Placed>(in);
  if (!in.good() || !in.at_end()) return damaged();
  if (!placed) return tl::make_unexpected(placed.error());
  if (!plausible(*placed, request)) return damaged();
  Memory memory = SKIDPROOF_TRY(host_memory(static_cast<size_t>(placed->bytes)));
  memory.address = placed->address;
  memory.physical = placed->physical;
  memory.huge_pages = placed->huge_pages;
  memory = memory_.add(std::move(memory), request.use);
  if (!change(event.after)) return damaged();
  return memory;
}

Expected<RunLog> TapeMachine::Replay::run(const Program& program, const RunPlan& plan) {
  Encoder definition, question;
  encode(definition, program);
  encode(question, programs_.number_of(definition.bytes()));  // an Errand
  encode(question, plan);
  auto log = ask<RunLog>(Call::kRun, question, Look::kEverywhere, definition.bytes());
  left_recording_.ran(plan);
  return log;
}

Expected<void> TapeMachine::Replay::finished() {
  if (wrong_) return tl::make_unexpected(*wrong_);
  if (left_.at_end()) return {};
  const Event event = take_event(left_);
  if (!left_.good()) return damaged();
  in_run_ = false;
  ++calls_;
  return off("the test ended, and the tape goes on with " + in_words(event.call, event.question));
}

TapeMachine::TapeMachine(std::unique_ptr<Replay> replay) : replay_(std::move(replay)) {}
TapeMachine::~TapeMachine() = default;

Expected<std::shared_ptr<TapeMachine>> TapeMachine::create(std::vector<std::byte> content,
                                                           const Identity& usual, uint64_t seed) {
  auto replay = std::make_unique<Replay>(std::move(content), usual);
  SKIDPROOF_CHECK(replay->begin(seed));
  return std::shared_ptr<TapeMachine>(new TapeMachine(std::move(replay)));
}

const Identity& TapeMachine::identity() const { return replay_->identity(); }

Machine::CpuidResult TapeMachine::cpuid(uint32_t leaf, uint32_t subleaf) const {
  Encoder question;
  encode(question, Leaf{leaf, subleaf});
  return replay_->ask<CpuidResult>(Call::kCpuid, question, Look::kNowhere).value_or(CpuidResult{});
}

Expected<uint64_t> TapeMachine::rdmsr(uint32_t msr) {
  Encoder question;
  encode(question, MsrRead{msr});
  return replay_->ask<uint64_t>(Call::kReadMsr, question, replay_->now());
}

Expected<void> TapeMachine::wrmsr(uint32_t msr, uint64_t value) {
  return replay_->wrmsr({msr, value});
}

Expected<uint64_t> TapeMachine::rdpmc(const CounterRead& read) {
  Encoder question;
  encode(question, read);
  return replay_->ask<uint64_t>(Call::kReadCounter, question, replay_->now());
}

Expected<Memory> TapeMachine::allocate(const MemoryRequest& request) {
  return replay_->allocate(request);
}

Expected<RunLog> TapeMachine::run(const Program& program, const RunPlan& plan) {
  return replay_->run(program, plan);
}

Expected<void> TapeMachine::finished() { return replay_->finished(); }

}  // namespace skidproof::tape
