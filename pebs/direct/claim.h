// The claim of a processor: what the driver answers, and its refusals in words.
#ifndef SKIDPROOF_PEBS_DIRECT_CLAIM_H_
#define SKIDPROOF_PEBS_DIRECT_CLAIM_H_

#include <cstdint>
#include <functional>
#include <string>

#include "base/expected.h"
#include "pebs/direct/device.h"
#include "pebs/direct/driver/skidproof_uapi.h"

namespace skidproof::direct {

// Who holds what a claim was refused for, as far as the caller can find out: "nmi_watchdog is on". Empty
// where nobody is found.
using WhoHolds = std::function<std::string(const skidproof_claim& claim)>;

// What keeps the processor from being claimed, and what mends it. kNotAvailable, kPermission; kIo with
// the errno where the driver gave no reason.
Error words_of(const skidproof_claim& claim, int error, const WhoHolds& who = {});

// The same of a refusal that is foreseen, not answered.
Error words_of(skidproof_refusal refusal, uint64_t detail = 0, int cpu = 0);

// For what the module refuses to load at all.
enum class LoadRefusal : uint8_t { kXenPv, kFred };
Error words_of(LoadRefusal refusal);

// No other CPU is online, and no counter free, to bound the time with interrupts off.
Error words_of_no_bound(const std::string& what);

// Claims the CPU through this file, until release(). The error is the refusal in words.
Expected<skidproof_claim> claim(Device& device, int cpu, const WhoHolds& who = {});
void release(Device& device);

}  // namespace skidproof::direct

#endif  // SKIDPROOF_PEBS_DIRECT_CLAIM_H_
