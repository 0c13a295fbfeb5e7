// SPDX-License-Identifier: Apache-2.0
// What stream_device is on a GPU, by simulated blocks, which run in another order each time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "block.hpp"
#include "simulated_block.hpp"

namespace potl::test {

class simulated_device {
 public:
  /// `order` draws in which order blocks and threads run.
  explicit simulated_device(std::uint64_t order) : order_(order) {}

  /// Every other pair of devices is a Hopper.
  bool multiplies_rows() const { return order_ / 2 % 2 == 1; }
  std::int64_t multiprocessors() const { return 2; }

  template <class Item>
  void each(std::uint64_t count, const Item& item) const {
    using block = simulated_block<32>;
    // Fewer threads than items: each has several.
    const std::uint64_t blocks = count / 100 + 1;
    blocks_in_turn<block>(blocks, [&](block& one) { cuda::for_items(one, blocks, count, item); });
  }

  template <class Body>
  void run(std::uint64_t blocks, const Body& body) const {
    using block = simulated_block<Body::threads>;
    blocks_in_turn<block>(blocks, [&](block& one) {
      const auto memory = std::make_unique<typename Body::template memory<block>>();
      body(one, *memory);
    });
  }

  template <class T>
  void send(const T* from, std::uint64_t count, T* to) const {
    std::copy(from, from + count, to);
  }

  template <class T>
  void receive(const T* from, std::uint64_t count, T* to) const {
    std::copy(from, from + count, to);
  }

  template <class T>
  class numbers {
   public:
    numbers(const simulated_device&, std::uint64_t count) : values_(count + 1) {
      // What nobody has set is no zero on a device either.
      std::memset(static_cast<void*>(values_.data()), 0xa5, values_.size() * sizeof(T));
    }
    T* data() { return values_.data(); }

   private:
    std::vector<T> values_;
  };

 private:
  template <class Block, class Work>
  void blocks_in_turn(std::uint64_t blocks, const Work& work) const {
    for (std::uint64_t i = 0; i < blocks; ++i) {
      Block one(order_ % 2 == 0 ? i : blocks - 1 - i, order_);
      work(one);
    }
  }

  std::uint64_t order_;
};

}  // namespace potl::test
