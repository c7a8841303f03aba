#include "pebs/direct/device.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "pebs/direct/driver/skidproof_uapi.h"

namespace skidproof::direct {
namespace {

class File final : public Device {
 public:
  explicit File(int file) : file_(file) {}
  ~File() override { ::close(file_); }

  int control(unsigned long request, void* argument) override {
    int result = 0;
    do {
      result = ::ioctl(file_, request, argument);
    } while (result < 0 && errno == EINTR);
    return result < 0 ? errno : 0;
  }

  std::byte* map(uint64_t offset, size_t bytes) override {
    void* view = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_,
                        static_cast<off_t>(offset));
    return view == MAP_FAILED ? nullptr : static_cast<std::byte*>(view);
  }

  void unmap(std::byte* view, size_t bytes) override { ::munmap(view, bytes); }

 private:
  const int file_;
};

}  // namespace

Expected<std::shared_ptr<Device>> open_device() {
  const int file = ::open(SKIDPROOF_DEVICE, O_RDWR | O_CLOEXEC);
  if (file < 0 && (errno == ENOENT || errno == ENXIO || errno == ENODEV)) {
    return fail(ErrorCode::kNotAvailable,
                "there is no " SKIDPROOF_DEVICE ": the driver is not loaded", "modprobe skidproof");
  }
  if (file < 0 && (errno == EPERM || errno == EACCES)) {
    return fail(ErrorCode::kPermission,
                "this process may not open " SKIDPROOF_DEVICE
                ", which needs CAP_SYS_RAWIO and "
                "CAP_SYS_ADMIN, and a kernel that is not locked down",
                "run as root (sudo skidproof ...)");
  }
  if (file < 0) {
    return fail(ErrorCode::kIo,
                fmt::format("cannot open " SKIDPROOF_DEVICE ": {}", std::strerror(errno)));
  }
  auto device = std::make_shared<File>(file);
  uint32_t abi = 0;
  if (const int error = device->control(SKIDPROOF_IOC_ABI, &abi); error != 0) {
    return fail(ErrorCode::kIo, fmt::format(SKIDPROOF_DEVICE " does not say its version: {}",
                                            std::strerror(error)));
  }
  if (abi != SKIDPROOF_ABI) {
    return fail(
        ErrorCode::kNotAvailable,
        fmt::format("the loaded driver has interface version {}, and this program speaks {}", abi,
                    SKIDPROOF_ABI),
        "rmmod skidproof, then install and load the driver of this version");
  }
  return device;
}

}  // namespace skidproof::direct
