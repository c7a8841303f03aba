// What disturbs a measurement: preemption, migration, time stolen by the hypervisor.
#ifndef SKIDPROOF_HARNESS_RUN_NOISE_H_
#define SKIDPROOF_HARNESS_RUN_NOISE_H_

#include <cstdint>
#include <thread>

#include "pebs/machine.h"

namespace skidproof {

Noise operator+(const Noise& a, const Noise& b);
// Whether anything disturbed it at all.
bool quiet(const Noise& noise);

// Reads the kernel's own counts for the calling thread around a run. SMIs are not among them: MSR
// 34H (MSR_SMI_COUNT) needs ring 0, so Noise::smi stays 0 here.
class NoiseMeter {
 public:
  NoiseMeter();
  NoiseMeter(const NoiseMeter&) = delete;
  NoiseMeter& operator=(const NoiseMeter&) = delete;
  ~NoiseMeter();

  void begin();
  // Everything since begin(); switches since the last end() on this thread where that was less than 50 us before begin(), so
  // that short runs one after another cost one reading each. Stolen time is counted by Linux in ticks of 10 ms, and reading
  // it costs more than a short run, so it is read at most once in 20 ms: steal_s is then all that the CPU lost since the
  // reading before, charged to the run that sees it.
  Noise end();

 private:
  double stolen_seconds() const;  // of all runs on this CPU so far; 0 when unknown

  int stat_ = -1;  // /proc/stat
  uint64_t switches_ = 0;
  uint64_t switches_read_ns_ = 0;
  std::thread::id switches_of_;
  int cpu_ = -1;
  int stolen_cpu_ = -1;  // that the last reading of stolen time was of
  double stolen_ = 0;
  uint64_t stolen_read_ns_ = 0;
};

}  // namespace skidproof

#endif  // SKIDPROOF_HARNESS_RUN_NOISE_H_
