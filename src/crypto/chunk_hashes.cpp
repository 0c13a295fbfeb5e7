// SPDX-License-Identifier: Apache-2.0
#include "chunk_hashes.hpp"

#include <potl/crypto/detail/tensor_digest.hpp>

#if defined(__x86_64__) && __has_include(<intel-ipsec-mb.h>)
#define NO_COMPAT_IMB_API_053  // names like SHA1 are others' too
#include <intel-ipsec-mb.h>
#if IMB_VERSION_NUM >= 0x10300  // earlier ones hash one message at a time
#define POTL_HAVE_IPSEC_MB 1
#include <algorithm>
#include <array>
#include <memory>
#include <numeric>

#include <dlfcn.h>

#include "openssl.hpp"
#endif
#endif

namespace potl::detail {
namespace {

void one_by_one(std::span<const bytes_view> chunks, digest* out) {
  for (std::size_t i = 0; i < chunks.size(); ++i) out[i] = leaf_hash(chunks[i]);
}

}  // namespace

#ifdef POTL_HAVE_IPSEC_MB
namespace {

// The library is opened when it is first needed, so that who links or imports potl needs none.
struct library {
  decltype(&alloc_mb_mgr) make = nullptr;
  decltype(&free_mb_mgr) free = nullptr;
  decltype(&init_mb_mgr_sse) begin_sse = nullptr;
  decltype(&init_mb_mgr_auto) begin_auto = nullptr;
  bool good = false;

  library() {
    void* const opened = dlopen("libIPSec_MB.so.1", RTLD_NOW | RTLD_LOCAL);
    if (opened == nullptr) return;
    const auto version = of<decltype(&imb_get_version)>(opened, "imb_get_version");
    make = of<decltype(make)>(opened, "alloc_mb_mgr");
    free = of<decltype(free)>(opened, "free_mb_mgr");
    begin_sse = of<decltype(begin_sse)>(opened, "init_mb_mgr_sse");
    begin_auto = of<decltype(begin_auto)>(opened, "init_mb_mgr_auto");
    // What a job looks like may change with the second number.
    good = version != nullptr && version() >> 8 == IMB_VERSION_NUM >> 8 && make != nullptr &&
           free != nullptr && begin_sse != nullptr && begin_auto != nullptr;
  }

 private:
  template <class Function>
  static Function of(void* opened, const char* name) {
    return reinterpret_cast<Function>(dlsym(opened, name));
  }
};

const library& ipsec_mb() {
  static const library found;
  return found;
}

struct freed {
  void operator()(IMB_MGR* manager) const { ipsec_mb().free(manager); }
};

/// What one thread hashes with.
class lanes {
 public:
  lanes() {
    const library& from = ipsec_mb();
    if (!from.good) return;
    manager_.reset(from.make(0));
    if (manager_ == nullptr) return;
    // "auto" prefers sixteen slow lanes, which eight chunks do not fill, to two fast ones.
    if ((manager_->features & IMB_FEATURE_SHANI) != 0) {
      from.begin_sse(manager_.get());
      width_ = 2;  // two chunks stay in the first cache
    } else {
      from.begin_auto(manager_.get(), nullptr);
    }
    // A processor that it does not know, or a library that does something else.
    if (manager_->imb_errno != 0 || !agrees()) manager_.reset();
  }

  bool several() const { return manager_ != nullptr; }

  void hash(std::span<const bytes_view> chunks, digest* out) {
    for (std::size_t at = 0; at < chunks.size(); at += width_) {
      const auto some = chunks.subspan(at, std::min(width_, chunks.size() - at));
      require(hash_together(some, out + at), "IMB_SUBMIT_JOB");
    }
  }

 private:
  bool agrees() {
    std::array<std::uint8_t, 300> bytes{};
    std::iota(bytes.begin(), bytes.end(), std::uint8_t{7});
    const std::array chunks{bytes_view(bytes), bytes_view(bytes).first(100)};
    std::array<digest, 2> found;
    return hash_together(chunks, found.data()) && found[0] == leaf_hash(chunks[0]) &&
           found[1] == leaf_hash(chunks[1]);
  }

  /// Whether all were hashed.
  bool hash_together(std::span<const bytes_view> chunks, digest* out) {
    std::size_t done = 0;
    const auto count = [&](const IMB_JOB* job) {
      done += job != nullptr && job->status == IMB_STATUS_COMPLETED;
      return job != nullptr;
    };
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      // A leaf begins with a byte of its own. Behind it the chunk is aligned.
      std::uint8_t* const leaf = leaves_[i].data() + leaves_[i].size() - content_chunk_bytes - 1;
      *leaf = 0;
      std::copy(chunks[i].begin(), chunks[i].end(), leaf + 1);
      IMB_JOB* const job = IMB_GET_NEXT_JOB(manager_.get());
      *job = IMB_JOB{};
      job->cipher_mode = IMB_CIPHER_NULL;
      job->hash_alg = IMB_AUTH_SHA_256;
      job->chain_order = IMB_ORDER_HASH_CIPHER;
      job->src = leaf;
      job->msg_len_to_hash_in_bytes = chunks[i].size() + 1;
      job->auth_tag_output = out[i].bytes.data();
      job->auth_tag_output_len_in_bytes = digest::size;
      count(IMB_SUBMIT_JOB(manager_.get()));
    }
    while (count(IMB_FLUSH_JOB(manager_.get()))) {
    }
    return done == chunks.size();
  }

  std::unique_ptr<IMB_MGR, freed> manager_;
  std::size_t width_ = chunks_at_once;
  alignas(
      64) std::array<std::array<std::uint8_t, content_chunk_bytes + 64>, chunks_at_once> leaves_;
};

lanes& lanes_here() {
  thread_local const std::unique_ptr<lanes> mine = std::make_unique<lanes>();
  return *mine;
}

}  // namespace

void chunk_hashes(std::span<const bytes_view> chunks, digest* out) {
  if (chunks.size() < 2 || !lanes_here().several()) return one_by_one(chunks, out);
  lanes_here().hash(chunks, out);
}

}  // namespace potl::detail

bool potl::hashes_chunks_together() { return detail::lanes_here().several(); }

#else

void chunk_hashes(std::span<const bytes_view> chunks, digest* out) { one_by_one(chunks, out); }

}  // namespace potl::detail

bool potl::hashes_chunks_together() { return false; }

#endif
