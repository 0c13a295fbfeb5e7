// SPDX-License-Identifier: Apache-2.0
// torch's thread pool as the kernels' executor.
//
// The pool is reached through TensorIterator, whose body is compiled in LibTorch: at::parallel_for
// is a template around OpenMP pragmas, and compiling it here would bring OpenMP, perhaps a second
// copy of its runtime, and with it a second pool.
#include <algorithm>
#include <atomic>

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/empty.h>

#include "mode.hpp"

namespace potl::libtorch::dispatch {
namespace {

class torch_pool final : public numeric::executor {
 public:
  std::size_t concurrency() const noexcept override {
    return at::in_parallel_region() ? 1 : static_cast<std::size_t>(at::get_num_threads());
  }

  void run(std::size_t tasks, numeric::task_body body) const override {
    const std::size_t threads = std::min(tasks, concurrency());
    if (threads <= 1) {
      for (std::size_t task = 0; task < tasks; ++task) body(task);
      return;
    }
    // One element per thread; each takes tasks until none is left.
    const at::Tensor elements =
        at::empty({static_cast<std::int64_t>(threads)}, at::TensorOptions(at::kByte));
    // Without operands, the sizes of the iterator are those of an output that may not be resized.
    at::TensorIterator iterator = at::TensorIteratorConfig()
                                      .add_output(elements)
                                      .check_all_same_dtype(false)
                                      .resize_outputs(false)
                                      .build();
    std::atomic<std::size_t> next{0};
    const auto work = [&](char**, const std::int64_t*, std::int64_t size0, std::int64_t size1) {
      if (size0 * size1 == 0) return;
      for (std::size_t task = next++; task < tasks; task = next++) body(task);
    };
    iterator.for_each(at::TensorIterator::loop2d_t(work), /*grain_size=*/1);
  }
};

}  // namespace

const numeric::executor& executor() noexcept {
  static const torch_pool pool;
  return pool;
}

}  // namespace potl::libtorch::dispatch
