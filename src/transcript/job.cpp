// SPDX-License-Identifier: Apache-2.0
#include <potl/transcript/job.hpp>

#include <algorithm>
#include <bit>

#include <potl/crypto/detail/prf.hpp>
#include <potl/crypto/hasher.hpp>

#include <potl/transcript/detail/batch_order.hpp>

namespace potl::transcript {

digest job::id() const {
  constexpr std::string_view domain("potl.job.v1\0", 12);
  return sha256_of(as_bytes_view(domain), as_bytes_view(text));
}

std::uint64_t job::epoch_samples() const { return order ? order->samples : data_count; }

std::uint64_t job::steps_per_epoch() const {
  const std::uint64_t whole = epoch_samples() / batch_size;
  return drop_last || epoch_samples() % batch_size == 0 ? whole : whole + 1;
}

std::uint64_t job::epoch_of(std::uint64_t step) const { return (step - 1) / steps_per_epoch(); }

std::vector<std::int64_t> job::sample_ids(std::uint64_t step) const {
  batch_order batches(*this);
  const std::span<const std::int64_t> ids = batches.of(step);
  return {ids.begin(), ids.end()};
}

const std::vector<double>* job::rates_at(std::uint64_t step) const {
  const auto end = std::lower_bound(rate_ends.begin(), rate_ends.end(), step);
  if (step == 0 || end == rate_ends.end()) return nullptr;
  return &rates[static_cast<std::size_t>(end - rate_ends.begin())].rates;
}

std::uint64_t job::segment_steps() const {
  return std::max<std::uint64_t>(1, max_segment / checkpoint_every) * checkpoint_every;
}

std::uint64_t job::segments() const {
  return steps / segment_steps() + (steps % segment_steps() != 0);
}

bool job::is_boundary(std::uint64_t step) const {
  return step <= steps && (step == steps || step % segment_steps() == 0);
}

bool job::is_checkpoint(std::uint64_t step) const {
  const std::uint64_t every = store_every == 0 ? checkpoint_every : store_every;
  return step <= steps && (step == steps || step % every == 0);
}

bool job::fills_gap(std::uint64_t step, std::uint64_t last) const {
  return step == last || (is_boundary(step) && is_checkpoint(step));
}

std::uint64_t job::max_gap() const { return store_every == 0 ? segment_steps() : store_every; }

std::uint64_t affordable_stride(std::uint64_t segments, std::uint64_t state_bytes) {
  constexpr std::uint64_t kept_states = 20, kept_bytes = 2'000'000'000;
  const std::uint64_t states =
      std::max(kept_states, kept_bytes / std::max<std::uint64_t>(1, state_bytes));
  return (segments + states - 2) / (states - 1);  // the state at step 0 is kept beside them
}

std::span<const std::int64_t> batch_order::of(std::uint64_t step) {
  if (step == 0 || step > agreed_.steps) {
    throw exception({errc::usage, "the job has no step " + std::to_string(step), ""});
  }
  if (agreed_.order) {
    throw exception({errc::usage, "the order of samples is the task's own",
                     "ask the task that the job was made of"});
  }
  const std::uint64_t per_epoch = agreed_.steps_per_epoch();
  const std::uint64_t epoch = (step - 1) / per_epoch;
  if (ids_.empty() || epoch != epoch_) {
    ids_ = permutation(derive_key(agreed_.seed, "order", {epoch}), agreed_.data_count);
    epoch_ = epoch;
  }
  const std::uint64_t first = (step - 1) % per_epoch * agreed_.batch_size;
  const std::uint64_t size = std::min(agreed_.batch_size, agreed_.data_count - first);
  return std::span(ids_).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(size));
}

digest digest_of_ids(std::span<const std::int64_t> ids) {
  if constexpr (std::endian::native == std::endian::little) {
    return sha256_of(bytes_view(reinterpret_cast<const std::uint8_t*>(ids.data()), ids.size() * 8));
  }
  std::vector<std::uint8_t> bytes;
  for (const std::int64_t id : ids) {
    for (unsigned i = 0; i < 8; ++i) {
      bytes.push_back(static_cast<std::uint8_t>(static_cast<std::uint64_t>(id) >> (8 * i)));
    }
  }
  return sha256_of(bytes);
}

order_digest::order_digest() {
  constexpr std::string_view domain("potl.order.v1\0", 14);
  hash_.update(as_bytes_view(domain));
}

}  // namespace potl::transcript
