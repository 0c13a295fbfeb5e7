// SPDX-License-Identifier: Apache-2.0
// Products in cr32 and log64 from floats to floats, on any device (layers.hpp). Private.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "doubles.hpp"
#include "integer_layers.hpp"

namespace potl::cuda {

/// Elements for which there is a list at first. Where cr32 has more, all are looked through.
constexpr std::uint64_t most_doubtful = std::uint64_t{1} << 20;
/// Enough of them to fill a device, which look at an element after the other.
constexpr std::uint64_t most_settling_blocks = 8192;

/// Norms of all lines of an operand.
template <class Device>
class operand_norms {
 public:
  template <class Lines>
  operand_norms(const Device& device, const Lines& from, std::int64_t products)
      : norms_(device, static_cast<std::uint64_t>(products * from.count())),
        found_{norms_.data(), from.count()} {
    const auto count = static_cast<std::uint64_t>(products * from.count());
    typename Device::template numbers<double> lanes(device, count * numeric::norm_lanes);
    device.each(count * numeric::norm_lanes,
                norm_lanes_of<Lines>{from, products * from.count(), lanes.data()});
    device.each(count, norm_of_lanes{lanes.data(), from.depth(), found_.of});
  }
  const line_norms& found() const { return found_; }

 private:
  typename Device::template numbers<double> norms_;
  line_norms found_;
};

/// C of `products` products of lines of A and lines of B, rounded to `bits`. In log64 `ties` gets
/// the elements near one, in no order; this waits for the device. Null: cr32. `doubtful_room` is
/// for the tests.
template <class Device, class A, class B, class Targets>
void multiply_rounded(const Device& device, int bits, const A& a, const B& b,
                      const Targets& targets, std::int64_t products,
                      std::vector<numeric::near_tie>* ties,
                      std::uint64_t doubtful_room = most_doubtful) {
  const std::int64_t rows = a.count(), columns = b.count();
  if (products <= 0 || rows <= 0 || columns <= 0) return;
  const operand_norms<Device> a_norms(device, a, products), b_norms(device, b, products);
  const double factor = numeric::error_factor(a.depth()) * (ties == nullptr ? 1 : 2);
  const auto all = static_cast<std::uint64_t>(products * rows * columns);
  typename Device::template numbers<std::uint64_t> counts(device, 2);
  // Of random numbers one in a thousand is near a tie; where there is no room, all is done again.
  std::uint64_t room = ties == nullptr ? 0 : std::min(all, all / 256 + 1024);
  doubtful_room = std::min(all, doubtful_room);
  for (;;) {
    typename Device::template numbers<doubtful_element> doubtful(device, doubtful_room);
    typename Device::template numbers<numeric::near_tie> logged(device, room);
    device.each(2, cleared<std::uint64_t>{counts.data()});
    const rounded_products<A, B, Targets> work{{a,
                                                b,
                                                targets,
                                                a_norms.found(),
                                                b_norms.found(),
                                                {bits, factor, ties != nullptr},
                                                {doubtful.data(), counts.data(), doubtful_room},
                                                {logged.data(), counts.data() + 1, room}}};
    device.run(static_cast<std::uint64_t>(work.tiles() * products), work);
    const std::uint64_t blocks = std::min(all, most_settling_blocks);
    device.run(blocks, settled_elements<A, B, Targets>{work.elements, products, blocks});
    if (ties == nullptr) return;
    std::uint64_t found[2];
    device.receive(counts.data(), 2, found);
    if (found[0] > doubtful_room || found[1] > room) {
      doubtful_room = std::max(doubtful_room, found[0]);
      room = std::max(room, found[1]);
      continue;
    }
    const std::size_t before = ties->size();
    ties->resize(before + found[1]);
    if (found[1] != 0) device.receive(logged.data(), found[1], ties->data() + before);
    return;
  }
}

/// In ascending order, as gemm_log64() returns them.
inline void sort_ties(std::vector<numeric::near_tie>& ties) {
  std::sort(ties.begin(), ties.end(),
            [](const auto& x, const auto& y) { return x.index < y.index; });
}

/// Products in memory with strides.
template <class Device>
void multiply_rounded(const Device& device, int bits, const products& p,
                      std::vector<numeric::near_tie>* ties,
                      std::uint64_t doubtful_room = most_doubtful) {
  multiply_rounded(device, bits, stored_lines{p.a, p.batch.a_stride},
                   stored_lines{columns_of(p.b), p.batch.b_stride},
                   stored_targets{p.c, p.batch.c_stride}, p.batch.count, ties, doubtful_room);
  if (ties != nullptr) sort_ties(*ties);
}

}  // namespace potl::cuda
