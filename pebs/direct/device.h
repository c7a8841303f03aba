// The device file of the driver, or what stands in for it in tests.
#ifndef SKIDPROOF_PEBS_DIRECT_DEVICE_H_
#define SKIDPROOF_PEBS_DIRECT_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/expected.h"

namespace skidproof::direct {

class Device {
 public:
  virtual ~Device() = default;
  // An ioctl of skidproof_uapi.h: 0, or an errno.
  virtual int control(unsigned long request, void* argument) = 0;
  // A block's pages, readable and writable; nullptr where that fails.
  virtual std::byte* map(uint64_t offset, size_t bytes) = 0;
  virtual void unmap(std::byte* view, size_t bytes) = 0;

  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
};

// Opens /dev/skidproof and checks that this client and the driver speak the same language. Errors:
// kNotAvailable (no driver, or one of another version), kPermission, kIo.
Expected<std::shared_ptr<Device>> open_device();

}  // namespace skidproof::direct

#endif  // SKIDPROOF_PEBS_DIRECT_DEVICE_H_
