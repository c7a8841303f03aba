#include "pebs/tape/recording_machine.h"

#include <utility>

#include "pebs/tape/event.h"
#include "pebs/tape/watched_memory.h"

namespace skidproof::tape {

struct RecordingMachine::State {
  SectionKey key;
  Encoder content;
  Programs programs;
  WatchedMemory memory;
  LeftRecording left_recording;

  // Asks, with a look at memory before and after it.
  template <typename Ask>
  auto record(Call call, const Encoder& question, Bytes program, Look look, Ask ask) {
    Encoder before, answered, after;
    encode_question(before, memory, memory.look(look));
    auto answer = ask();
    encode_answer(answered, answer);
    encode_changes(after, memory.look(look));
    put_event(content, {.call = call,
                        .question = question.bytes(),
                        .program = program,
                        .before = before.bytes(),
                        .answer = answered.bytes(),
                        .after = after.bytes()});
    return answer;
  }
};

RecordingMachine::RecordingMachine(std::shared_ptr<Machine> machine, SectionKey key, uint64_t seed,
                                   const Identity& usual)
    : machine_(std::move(machine)), state_(std::make_unique<State>()) {
  state_->key = std::move(key);
  Encoder expected, found;
  encode(expected, usual);
  encode(found, identity());
  const bool differs = !same(expected.bytes(), found.bytes());
  encode_head(state_->content,
              {.seed = seed, .has_identity = differs, .identity = machine_->identity()});
}

RecordingMachine::~RecordingMachine() = default;

Section RecordingMachine::take_section() {
  return {.key = state_->key, .content = state_->content.take()};
}

Machine::CpuidResult RecordingMachine::cpuid(uint32_t leaf, uint32_t subleaf) const {
  Encoder question;
  encode(question, Leaf{leaf, subleaf});
  const auto ask = [&]() -> Expected<CpuidResult> { return machine_->cpuid(leaf, subleaf); };
  return *state_->record(Call::kCpuid, question, {}, Look::kNowhere, ask);
}

Expected<uint64_t> RecordingMachine::rdmsr(uint32_t msr) {
  Encoder question;
  encode(question, MsrRead{msr});
  return state_->record(Call::kReadMsr, question, {}, state_->left_recording.now(),
                        [&] { return machine_->rdmsr(msr); });
}

Expected<void> RecordingMachine::wrmsr(uint32_t msr, uint64_t value) {
  const MsrWrite write{msr, value};
  Encoder question;
  encode(question, write);
  auto answer = state_->record(Call::kWriteMsr, question, {}, state_->left_recording.around(write),
                               [&] { return machine_->wrmsr(msr, value); });
  state_->left_recording.wrote(write);
  return answer;
}

Expected<uint64_t> RecordingMachine::rdpmc(const CounterRead& read) {
  Encoder question;
  encode(question, read);
  return state_->record(Call::kReadCounter, question, {}, state_->left_recording.now(),
                        [&] { return machine_->rdpmc(read); });
}

Expected<Memory> RecordingMachine::allocate(const MemoryRequest& request) {
  Encoder question, answered, after;
  encode(question, request);
  Expected<Memory> memory = machine_->allocate(request);
  Expected<Placed> placed = memory.map([](const Memory& m) {
    return Placed{.address = m.address,
                  .physical = m.physical,
                  .bytes = m.host.size(),
                  .huge_pages = m.huge_pages};
  });
  encode_answer(answered, placed);
  if (memory) {
    memory = state_->memory.add(*std::move(memory), request.use);
    encode_changes(after, state_->memory.look_into(state_->memory.blocks() - 1));
  } else {
    encode_changes(after, {});
  }
  put_event(state_->content, {.call = Call::kAllocate,
                              .question = question.bytes(),
                              .program = {},
                              .before = {},
                              .answer = answered.bytes(),
                              .after = after.bytes()});
  return memory;
}

Expected<RunLog> RecordingMachine::run(const Program& program, const RunPlan& plan) {
  Encoder definition, question;
  encode(definition, program);
  const size_t number = state_->programs.number_of(definition.bytes());
  const bool fresh = number == state_->programs.size();
  encode(question, number);  // an Errand
  encode(question, plan);
  auto answer = state_->record(Call::kRun, question, fresh ? definition.bytes() : Bytes(),
                               Look::kEverywhere, [&] { return machine_->run(program, plan); });
  if (fresh) state_->programs.add(definition.bytes());
  state_->left_recording.ran(plan);
  return answer;
}

}  // namespace skidproof::tape
