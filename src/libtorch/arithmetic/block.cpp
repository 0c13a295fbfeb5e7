// SPDX-License-Identifier: Apache-2.0
#include <potl/libtorch/arithmetic.hpp>
#include <potl/numeric/detail/rounding_session.hpp>

#include "fallback.hpp"
#include "rounding.hpp"

namespace potl::libtorch {
namespace {

class block {
 public:
  explicit block(const block_options& options)
      : guard_(options.mode, options.log == nullptr ? 32 : options.log->bits()),
        before_(dispatch::rounding()),
        was_lenient_(dispatch::let_through(options.lenient || dispatch::lets_through())) {
    dispatch::install_rounding(options.log);
  }
  block(const block&) = delete;
  block& operator=(const block&) = delete;
  ~block() {
    dispatch::let_through(was_lenient_);
    dispatch::install_rounding(before_);
  }

 private:
  deterministic_guard guard_;
  numeric::rounding_session* before_;
  bool was_lenient_;
};

}  // namespace

std::shared_ptr<void> exact_block(const block_options& options) {
  return std::make_shared<block>(options);
}

}  // namespace potl::libtorch
