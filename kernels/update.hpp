// SPDX-License-Identifier: Apache-2.0
// The bodies of fused optimizer steps over many tensors. Private: needs block.hpp's macros.
//
// Exact because sgd_step() and adam_step() are the CPU's own, with one lane. An element is updated
// from its own operands, by one thread.
#pragma once

#include <cstdint>

#include "block.hpp"
#include "numeric/elementwise/combinations.hpp"

namespace potl::cuda {

/// Elements of one tensor that a block updates.
constexpr std::uint64_t update_piece = 4096;

/// One tensor of many: its pieces are those of all tensors from `first` on. m is the momentum, or
/// the mean of gradients; v and u are Adam's.
struct updated_tensor {
  float* p;
  const float* g;
  float *m, *v, *u;
  std::uint64_t count, first;
};

/// As many as a launch takes by value: nothing is copied beforehand, and a graph may hold it.
struct updated_tensors {
  static constexpr unsigned most = 64;
  updated_tensor of[most];
  std::uint64_t count;
};

/// item(tensor, i) for each element of the piece that the block has.
template <class Block, class Item>
POTL_BODY void update_each(Block& block, const updated_tensors& all, const Item& item) {
  const updated_tensor& tensor = all.of[owner_of(all.of, all.count, block.index())];
  const std::uint64_t begin = (block.index() - tensor.first) * update_piece;
  const std::uint64_t left = tensor.count - begin;
  const std::uint64_t end = begin + (left < update_piece ? left : update_piece);
  block.each([&](unsigned thread) {
    for (std::uint64_t i = begin + thread; i < end; i += Block::threads) item(tensor, i);
  });
}

using updated_lane = numeric::elementwise::single<float>;

constexpr unsigned update_threads = 256;
/// These bodies share nothing.
struct nothing_shared {
  static constexpr unsigned threads = update_threads;
  template <class Block>
  struct memory {};
};

/// One step of SGD.
template <class Scalars>
struct sgd_update : nothing_shared {
  updated_tensors all;
  Scalars scalars;

  template <class Block>
  POTL_BODY void operator()(Block& block, nothing_shared::memory<Block>&) const {
    update_each(block, all, [&](const updated_tensor& t, std::uint64_t i) {
      updated_lane p(t.p[i]), m(0.0F);
      if (scalars.has_momentum) m = updated_lane(t.m[i]);
      sgd_step(scalars, p, updated_lane(t.g[i]), m);
      t.p[i] = p.v;
      if (scalars.has_momentum) t.m[i] = m.v;
    });
  }
};

/// One step of Adam or AdamW.
template <class Scalars>
struct adam_update : nothing_shared {
  updated_tensors all;
  Scalars scalars;

  template <class Block>
  POTL_BODY void operator()(Block& block, nothing_shared::memory<Block>&) const {
    update_each(block, all, [&](const updated_tensor& t, std::uint64_t i) {
      updated_lane p(t.p[i]), m(t.m[i]), v(t.v[i]), u(0.0F);
      if (scalars.amsgrad) u = updated_lane(t.u[i]);
      adam_step(scalars, p, updated_lane(t.g[i]), m, v, u);
      t.p[i] = p.v;
      t.m[i] = m.v;
      t.v[i] = v.v;
      if (scalars.amsgrad) t.u[i] = u.v;
    });
  }
};

}  // namespace potl::cuda
