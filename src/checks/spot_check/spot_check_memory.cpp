// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/detail/spot_check_memory.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace potl::checks {
namespace {

constexpr std::uint64_t page = 4096;
// Nobody takes them away again.
constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::uint64_t in_pages(std::uint64_t bytes) { return (bytes + page - 1) / page * page; }

error failed(const char* what, int code) {
  return {errc::io, std::string(what) + ": " + std::strerror(code), ""};
}

}  // namespace

result<spot_check_memory> spot_check_memory::make(std::uint64_t weights_bytes,
                                                  std::uint64_t gradient_bytes) {
  file_handle file(::memfd_create("potl spot-check", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return failed("no memory to share", errno);
  const auto size = static_cast<off_t>(in_pages(weights_bytes) + in_pages(gradient_bytes));
  // All of it now: a page that is missing later ends the program that touches it.
  if (const int code = ::posix_fallocate(file.get(), 0, size); code != 0) {
    return failed("no memory to share", code);
  }
  if (::fcntl(file.get(), F_ADD_SEALS, seals) != 0) return failed("no memory to share", errno);
  return map(std::move(file), weights_bytes, gradient_bytes);
}

result<spot_check_memory> spot_check_memory::map(file_handle file, std::uint64_t weights_bytes,
                                                 std::uint64_t gradient_bytes) {
  const std::uint64_t size = in_pages(weights_bytes) + in_pages(gradient_bytes);
  struct stat found {};
  if (::fstat(file.get(), &found) != 0) return failed("no memory came", errno);
  if (static_cast<std::uint64_t>(found.st_size) != size) {
    return error{errc::mismatch, "the shared memory is of another size", ""};
  }
  const int sealed = ::fcntl(file.get(), F_GET_SEALS);
  if (sealed < 0 || (sealed & F_SEAL_SHRINK) == 0) {
    return error{errc::mismatch, "the shared memory can become smaller", ""};
  }
  void* const place =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file.get(), 0);
  if (place == MAP_FAILED) return failed("shared memory cannot be mapped", errno);
  spot_check_memory out;
  out.file_ = std::move(file);
  out.begin_ = static_cast<std::uint8_t*>(place);
  out.size_ = size;
  out.weights_bytes_ = weights_bytes;
  out.gradient_bytes_ = gradient_bytes;
  return out;
}

spot_check_memory::~spot_check_memory() {
  if (begin_ != nullptr) ::munmap(begin_, size_);
}

spot_check_memory::spot_check_memory(spot_check_memory&& other) noexcept
    : file_(std::move(other.file_)),
      begin_(std::exchange(other.begin_, nullptr)),
      size_(other.size_),
      weights_bytes_(other.weights_bytes_),
      gradient_bytes_(other.gradient_bytes_) {}

spot_check_memory& spot_check_memory::operator=(spot_check_memory&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(begin_, other.begin_);
  std::swap(size_, other.size_);
  std::swap(weights_bytes_, other.weights_bytes_);
  std::swap(gradient_bytes_, other.gradient_bytes_);
  return *this;
}

std::span<std::uint8_t> spot_check_memory::weights() const noexcept {
  return {begin_, weights_bytes_};
}

std::span<std::uint8_t> spot_check_memory::gradient() const noexcept {
  return {begin_ + in_pages(weights_bytes_), gradient_bytes_};
}

}  // namespace potl::checks
