// SPDX-License-Identifier: Apache-2.0
#include "transcript/shared_roots.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <system_error>
#include <thread>
#include <utility>

#include <potl/crypto/detail/tensor_digest.hpp>

#include "crypto/chunk_hashes.hpp"

namespace potl::transcript {
namespace {

// What a thread takes at once: some tens of microseconds.
constexpr std::size_t part_chunks = detail::chunks_at_once;
// Less than this is not worth starting a thread.
constexpr std::size_t parallel_bytes = 1024 * 1024;

std::size_t chunks_of(bytes_view bytes) {
  return static_cast<std::size_t>(content_chunks(bytes.size()));
}

}  // namespace

shared_roots::shared_roots(std::vector<bytes_view> contents) : contents_(std::move(contents)) {
  starts_.reserve(contents_.size() + 1);
  std::size_t chunks = 0;
  for (const bytes_view bytes : contents_) {
    starts_.push_back(chunks);
    chunks += chunks_of(bytes);
  }
  starts_.push_back(chunks);
  leaves_.resize(chunks);
  if (chunks == 0) collect();
}

const std::vector<digest>& shared_roots::compute(unsigned threads) {
  const std::size_t bytes = starts_.back() * content_chunk_bytes;
  std::vector<std::thread> helpers;
  if (phase_ == open && threads > 1 && bytes >= parallel_bytes) {
    const std::size_t more = std::min<std::size_t>(threads, bytes / (parallel_bytes / 2)) - 1;
    helpers.reserve(more);
    try {
      while (helpers.size() < more) helpers.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      // The threads that there are do it all.
    }
  }
  work();
  for (std::thread& helper : helpers) helper.join();
  phase_.wait(open);
  if (phase_ == failed) std::rethrow_exception(why_);
  return roots_;
}

void shared_roots::work() noexcept {
  const std::size_t chunks = starts_.back();
  try {
    while (phase_ == open) {
      const std::size_t first = next_.fetch_add(part_chunks);
      if (first >= chunks) return;
      const std::size_t last = std::min(first + part_chunks, chunks);
      hash(first, last);
      if (done_.fetch_add(last - first) + (last - first) == chunks) collect();
    }
  } catch (...) {
    const std::lock_guard lock(failing_);
    if (phase_ != open) return;
    why_ = std::current_exception();
    end(failed);
  }
}

void shared_roots::hash(std::size_t first, std::size_t last) {
  auto start = std::upper_bound(starts_.begin(), starts_.end(), first) - 1;
  std::array<bytes_view, part_chunks> chunks;
  for (std::size_t i = first; i < last; ++i) {
    while (start[1] <= i) ++start;
    const bytes_view bytes = contents_[static_cast<std::size_t>(start - starts_.begin())];
    const std::size_t at = (i - *start) * content_chunk_bytes;
    chunks[i - first] = bytes.subspan(at, std::min(content_chunk_bytes, bytes.size() - at));
  }
  detail::chunk_hashes(std::span(chunks).first(last - first), &leaves_[first]);
}

// All chunks are hashed: nobody else reads or writes anything but the atomics any more.
void shared_roots::collect() {
  roots_.reserve(contents_.size());
  for (std::size_t i = 0; i < contents_.size(); ++i) {
    merkle_frontier tree;
    for (std::size_t chunk = starts_[i]; chunk < starts_[i + 1]; ++chunk) {
      tree.append(leaves_[chunk]);
    }
    roots_.push_back(tree.root());
  }
  leaves_ = {};
  end(finished);
}

void shared_roots::end(phase how) {
  phase_ = how;
  phase_.notify_all();
}

}  // namespace potl::transcript
