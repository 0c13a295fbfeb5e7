// SPDX-License-Identifier: Apache-2.0
// Any bytes: no crash. A header that is read says one thing only, and no frame is believed that the
// key did not seal.
#include <algorithm>
#include <cstdlib>

#include <potl/checks/detail/spot_check_frame.hpp>

#include "fuzz.hpp"

POTL_FUZZ_TARGET(spot_check_frame_fuzz) {
  using namespace potl::checks;
  const potl::bytes_view all(data, size);
  const potl::bytes_view head = all.first(std::min(size, spot_check_header_bytes));
  const potl::result<spot_check_header> header = parse_spot_check_header(head);
  if (!header) return 0;
  if (header->body_bytes > spot_check_body_limit) std::abort();
  const potl::bytes_view body =
      all.subspan(spot_check_header_bytes)
          .first(std::min<std::size_t>(size - spot_check_header_bytes, header->body_bytes));
  const auto& frame = header->frame;
  spot_check_chain chain(header->session, header->job, header->session, spot_check_side::trusted);
  chain.seal({});
  if (chain.open(*header, head, body, {frame.kind, frame.step, frame.payload_bytes})) std::abort();
  if (chain.sequence() != 1) std::abort();
  // Sealed again by its sender it is the same but for what depends on the key and the order.
  spot_check_chain sender(header->session, header->job, header->session, header->side);
  if (header->side == spot_check_side::worker || body.size() != header->body_bytes) return 0;
  spot_check_frame again = frame;
  again.body.assign(body.begin(), body.end());
  const auto sealed = sender.seal(again);
  const auto same = [&](std::size_t from, std::size_t to) {
    return std::equal(sealed.begin() + static_cast<std::ptrdiff_t>(from),
                      sealed.begin() + static_cast<std::ptrdiff_t>(to),
                      head.begin() + static_cast<std::ptrdiff_t>(from));
  };
  if (!same(0, 16) || !same(24, 104)) std::abort();
  return 0;
}
