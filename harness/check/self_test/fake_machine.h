// A processor of two MSRs, for tests of the glue: it answers, and promises nothing.
#ifndef SKIDPROOF_HARNESS_CHECK_SELF_TEST_FAKE_MACHINE_H_
#define SKIDPROOF_HARNESS_CHECK_SELF_TEST_FAKE_MACHINE_H_

#include <map>
#include <memory>

#include "pebs/machine.h"

namespace skidproof::check {

class FakeMachine final : public Machine {
 public:
  // `bare`: without a PMU, and covered by no row of facts.
  explicit FakeMachine(bool bare = false) {
    identity_.name = "fake";
    identity_.provenance = Provenance::kModel;
    if (bare) return;
    identity_.pmu = true;
    identity_.microarch = *arch::find_microarch("sandy-bridge");
  }

  const Identity& identity() const override { return identity_; }
  CpuidResult cpuid(uint32_t, uint32_t) const override { return {}; }  // reports no extension
  Expected<uint64_t> rdmsr(uint32_t msr) override {
    if (msr == kAbsent) return fail(ErrorCode::kGeneralProtection, "#GP");
    if (msr == kUnreachable) return fail(ErrorCode::kIo, "no way to it");
    if (msr == kNotHere) return fail(ErrorCode::kNotAvailable, "no such thing here");
    return values_[msr];
  }
  Expected<void> wrmsr(uint32_t msr, uint64_t value) override {
    if (msr == kNoModel) identity_.provenance = Provenance::kVirtualLab;
    values_[msr] = value;
    return {};
  }
  Expected<Memory> allocate(const MemoryRequest&) override {
    return fail(ErrorCode::kNoMemory, "the fake machine has no memory");
  }
  Expected<RunLog> run(const Program&, const RunPlan&) override {
    if (values_.contains(kHangs)) return fail(ErrorCode::kTimeout, "it does not come back");
    RunLog log;
    if (values_.contains(kNoisy)) log.noise.smi = 1;
    return log;
  }

  static constexpr uint32_t kAbsent = 0xBAD;
  static constexpr uint32_t kUnreachable = 0xFAA;
  static constexpr uint32_t kNotHere = 0xFAB;
  static constexpr uint32_t kNoModel = 0xFAC;  // whoever writes it makes the machine no model …
  static constexpr uint32_t kNoisy = 0xFAD;    // … or one that SMIs disturb …
  static constexpr uint32_t kHangs = 0xFAE;    // … or whose programs do not end …
  static constexpr uint32_t kOffTape = 0xFAF;  // … or a replay that nobody recorded

  bool off_tape() const { return values_.contains(kOffTape); }

 private:
  Identity identity_;
  std::map<uint32_t, uint64_t> values_;
};

class FakeMachines final : public MachineSource {
 public:
  Expected<std::shared_ptr<Machine>> machine(const MachineRequest& request) override {
    last_ = std::make_shared<FakeMachine>(request.test.starts_with("Bare."));
    return last_;
  }
  Expected<void> given_up() override {
    if (last_ == nullptr) return {};
    const bool alone = last_.use_count() == 1;  // else the attempt has it still
    if (alone && !last_->off_tape()) return {};
    return fail(ErrorCode::kOffTape,
                alone ? "off the tape: call 2 of the test" : "asked too early");
  }

 private:
  std::shared_ptr<FakeMachine> last_;
};

}  // namespace skidproof::check

#endif  // SKIDPROOF_HARNESS_CHECK_SELF_TEST_FAKE_MACHINE_H_
