// SPDX-License-Identifier: Apache-2.0
// Weights and gradient of a guarded training whose two sides are on one machine.
//
// Claims: neither side can make the memory smaller, so that reading it ends nobody's program. Pages
// that a side gives back are zeros when they are touched next, and take memory again.
// Assumes nothing of what the other side writes there, or when: who believes something of it copies
// it first. Cost: the size of weights and gradient, once for both sides.
// Cannot detect: who else has the memory. It is passed over a Unix socket, which only its owner may
// open.
#pragma once

#include <cstdint>
#include <span>

#include <potl/core/file.hpp>
#include <potl/core/result.hpp>

namespace potl::checks {

/// Memory that both sides of a session map.
class spot_check_memory {
 public:
  /// Takes it. io: this system has none to give.
  static result<spot_check_memory> make(std::uint64_t weights_bytes, std::uint64_t gradient_bytes);
  /// Maps what make() of another process took. mismatch: it is of another size, or can become
  /// smaller. io: it cannot be mapped.
  static result<spot_check_memory> map(file_handle file, std::uint64_t weights_bytes,
                                       std::uint64_t gradient_bytes);
  ~spot_check_memory();
  spot_check_memory(spot_check_memory&& other) noexcept;
  spot_check_memory& operator=(spot_check_memory&& other) noexcept;

  std::span<std::uint8_t> weights() const noexcept;
  /// Begins on a page of its own.
  std::span<std::uint8_t> gradient() const noexcept;
  /// To pass to the other side.
  int descriptor() const noexcept { return file_.get(); }

 private:
  spot_check_memory() = default;

  file_handle file_;
  std::uint8_t* begin_ = nullptr;
  std::size_t size_ = 0, weights_bytes_ = 0, gradient_bytes_ = 0;
};

}  // namespace potl::checks
