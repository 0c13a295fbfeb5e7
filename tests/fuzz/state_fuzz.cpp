// SPDX-License-Identifier: Apache-2.0
// Any bytes as a checkpoint: no crash. One that is accepted is, byte for byte, what its state would
// be saved as, and its digest is that of the tree inside.
#include <cstdlib>
#include <vector>

#include <potl/transcript/detail/state_encoding.hpp>
#include <potl/transcript/state.hpp>

#include "fuzz.hpp"

POTL_FUZZ_TARGET(state_fuzz) {
  using namespace potl::transcript;
  const potl::bytes_view input(data, size);
  const potl::result<decoded_tree> tree = decode_tree(input);
  if (tree && encode_tree(tree->root, tree->roots) != std::vector(data, data + size)) std::abort();
  const potl::result<state> got = parse_checkpoint({data, data + size}, nullptr);
  if (!got) return 0;
  const potl::digest whole = got->state_digest();
  if (!parse_checkpoint({data, data + size}, &whole)) std::abort();
  return 0;
}
