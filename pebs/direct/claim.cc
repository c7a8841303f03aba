#include "pebs/direct/claim.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

namespace skidproof::direct {
namespace {

// Without who is behind it.
Error plain_words(const skidproof_claim& claim, int error) {
  const auto not_available = [](std::string message, std::string advice) {
    return Error{ErrorCode::kNotAvailable, std::move(message), std::move(advice)};
  };
  switch (claim.refusal) {
    case SKIDPROOF_NOT_INTEL:
      return not_available("PEBS is Intel's, and this processor is not",
                           "use a machine with an Intel processor");
    case SKIDPROOF_NO_PERFMON:
      return not_available(
          fmt::format(
              "CPUID.0AH:EAX is {:#x}: no architectural performance monitoring of version 2",
              claim.detail),
          "enable performance monitoring in the firmware, or in the hypervisor");
    case SKIDPROOF_NO_DEBUG_STORE:
      return not_available("CPUID.01H:EDX[21] reports no debug store, so no PEBS",
                           "run on bare metal, or on a hypervisor that offers PEBS to its guests");
    case SKIDPROOF_NO_DTES64:
      return not_available("CPUID.01H:ECX[2] reports no 64-bit debug store",
                           "use a processor from Core 2 on");
    case SKIDPROOF_NO_PDCM:
      return not_available("CPUID.01H:ECX[15] reports no IA32_PERF_CAPABILITIES",
                           "use a processor from Core 2 on");
    case SKIDPROOF_PERFMON_OFF:
      return not_available(
          fmt::format("IA32_MISC_ENABLE is {:#x}: bit 7, performance monitoring, is clear",
                      claim.detail),
          "enable performance monitoring in the firmware");
    case SKIDPROOF_PEBS_OFF:
      return not_available(
          fmt::format("IA32_MISC_ENABLE is {:#x}: bit 12 says that PEBS is unavailable",
                      claim.detail),
          "run on bare metal, with PEBS enabled in the firmware");
    case SKIDPROOF_COUNTER_DEAD:
      return not_available(
          fmt::format("IA32_PMC0 does not keep what is written to it (it read {:#x}): the "
                      "hypervisor only pretends to have counters",
                      claim.detail),
          "let the hypervisor pass the PMU through (KVM: -cpu host,pmu=on), or use bare metal");
    case SKIDPROOF_COUNTERS_HELD:
      return not_available(
          fmt::format("MSR {:#x} is held by the NMI watchdog, by perf or by another driver",
                      claim.detail),
          "sysctl kernel.nmi_watchdog=0, and end what uses perf (fuser, `perf` in ps)");
    case SKIDPROOF_CPU_OFFLINE:
      return not_available(fmt::format("CPU {} is offline or does not exist", claim.cpu),
                           fmt::format("echo 1 > /sys/devices/system/cpu/cpu{}/online", claim.cpu));
    case SKIDPROOF_CPU_OWNED:
      return not_available(
          fmt::format("CPU {} is claimed by process {}", claim.cpu, claim.detail),
          fmt::format("wait for it, end it (kill {}), or use another CPU", claim.detail));
    case SKIDPROOF_FILE_OWNS:
      return not_available(
          fmt::format("CPU {} was claimed through this file already", claim.detail), "");
    case SKIDPROOF_LOCKED_DOWN:
      return {ErrorCode::kPermission, "the kernel is locked down and refuses MSR access",
              "turn Secure Boot off in the firmware, or boot without lockdown="};
    case SKIDPROOF_NO_RAW_IO:
      return {ErrorCode::kPermission, "this process lacks CAP_SYS_RAWIO or CAP_SYS_ADMIN",
              "run as root (sudo skidproof ...)"};
    case SKIDPROOF_SUSPENDING:
      return not_available("the computer is about to suspend", "try again when it is awake");
    case SKIDPROOF_NO_MSR:
      return not_available(fmt::format("MSR {:#x} does not answer", claim.detail),
                           "run on bare metal, or on a hypervisor that offers PEBS to its guests");
    case SKIDPROOF_TRACES:
      return not_available(
          fmt::format("Intel PT traces on CPU {} and shares its interrupt with the counters",
                      claim.cpu),
          "end what records intel_pt events, then try again");
    case SKIDPROOF_VIRTUALIZES:
      return not_available(
          fmt::format("KVM or another hypervisor uses CPU {} (CR4.VMXE is set) and may load the "
                      "counters' registers for its guests",
                      claim.cpu),
          "end its guests, then: modprobe -r kvm_intel");
    default:
      return {ErrorCode::kIo,
              fmt::format("cannot claim CPU {}: {}", claim.cpu, std::strerror(error)), ""};
  }
}

}  // namespace

Error words_of(const skidproof_claim& claim, int error, const WhoHolds& who) {
  Error words = plain_words(claim, error);
  if (who == nullptr) return words;
  if (const std::string holder = who(claim); !holder.empty()) words.message += "; " + holder;
  return words;
}

Error words_of(skidproof_refusal refusal, uint64_t detail, int cpu) {
  skidproof_claim claim{};
  claim.cpu = static_cast<uint32_t>(cpu);
  claim.refusal = refusal;
  claim.detail = detail;
  return plain_words(claim, 0);
}

Error words_of(LoadRefusal refusal) {
  if (refusal == LoadRefusal::kXenPv) {
    return {ErrorCode::kNotAvailable,
            "this kernel is a guest of Xen PV, whose IDT is Xen's: the driver does not load",
            "boot the kernel natively, or on a hypervisor that offers PEBS to its guests"};
  }
  return {ErrorCode::kNotAvailable,
          "the kernel uses FRED, with which there is no IDT: the driver does not load",
          "boot with fred=off"};
}

Error words_of_no_bound(const std::string& what) {
  return {
      ErrorCode::kNotAvailable,
      fmt::format("cannot {}: no other CPU is online and unclaimed, and no counter is free, to "
                  "bound the time "
                  "with interrupts off",
                  what),
      "bring another CPU online, or load the driver with unbounded=1 where a hang does no harm"};
}

Expected<skidproof_claim> claim(Device& device, int cpu, const WhoHolds& who) {
  skidproof_claim claim{};
  claim.abi = SKIDPROOF_ABI;
  claim.cpu = static_cast<uint32_t>(cpu);
  if (const int error = device.control(SKIDPROOF_IOC_CLAIM, &claim); error != 0) {
    return tl::make_unexpected(words_of(claim, error, who));
  }
  return claim;
}

void release(Device& device) { device.control(SKIDPROOF_IOC_RELEASE, nullptr); }

}  // namespace skidproof::direct
