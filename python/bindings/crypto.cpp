// SPDX-License-Identifier: Apache-2.0
#include "bindings.hpp"

#include <potl/crypto/detail/tensor_digest.hpp>
#include <potl/crypto/hasher.hpp>
#include <potl/crypto/merkle.hpp>

namespace potl::python {
namespace {

// Below this many bytes, giving the interpreter lock away costs more than the work.
constexpr std::size_t long_work_bytes = 64 * 1024;

void bind_hashes(py::module_& module) {
  module.def(
      "sha256",
      [](py::handle data) {
        const readable_buffer buffer(data);
        if (buffer.bytes().size() < long_work_bytes) return to_bytes(sha256_of(buffer.bytes()));
        digest out;
        {
          py::gil_scoped_release released;
          out = sha256_of(buffer.bytes());
        }
        return to_bytes(out);
      },
      py::arg("data"));
  module.def(
      "sha512", [](py::handle data) { return to_bytes(sha512_of(readable_buffer(data).bytes())); },
      py::arg("data"));
  module.def(
      "hmac_sha256",
      [](py::handle key, py::handle data) {
        return to_bytes(hmac_sha256(readable_buffer(key).bytes(), readable_buffer(data).bytes()));
      },
      py::arg("key"), py::arg("data"));
  module.def(
      "hmac_sha512",
      [](py::handle key, py::handle data) {
        return to_bytes(hmac_sha512(readable_buffer(key).bytes(), readable_buffer(data).bytes()));
      },
      py::arg("key"), py::arg("data"));
  module.def(
      "equal_constant_time",
      [](py::handle a, py::handle b) {
        return equal_constant_time(readable_buffer(a).bytes(), readable_buffer(b).bytes());
      },
      py::arg("a"), py::arg("b"));
}

void bind_content(py::module_& module) {
  module.attr("CONTENT_CHUNK_BYTES") = content_chunk_bytes;
  module.def(
      "content_root",
      [](py::handle data) {
        const readable_buffer buffer(data);
        digest root;
        if (buffer.bytes().size() < long_work_bytes) {
          root = content_root(buffer.bytes());
        } else {
          py::gil_scoped_release released;
          root = content_root(buffer.bytes());
        }
        return to_bytes(root);
      },
      py::arg("data"));
  module.def(
      "open_chunk",
      [](py::handle data, std::uint64_t index) {
        const readable_buffer buffer(data);
        return to_bytes_list(open_chunk(buffer.bytes(), index).value());
      },
      py::arg("data"), py::arg("index"));
  module.def(
      "verify_chunk",
      [](py::handle root, std::uint64_t length, std::uint64_t index, py::handle chunk,
         const py::iterable& proof) {
        require(verify_chunk(to_digest(root), length, index, readable_buffer(chunk).bytes(),
                             to_digests(proof)));
      },
      py::arg("root"), py::arg("length"), py::arg("index"), py::arg("chunk"), py::arg("proof"));
}

void bind_merkle(py::module_& module) {
  module.def(
      "leaf_hash",
      [](py::handle data) { return to_bytes(leaf_hash(readable_buffer(data).bytes())); },
      py::arg("data"));

  using u64 = std::uint64_t;
  py::class_<merkle_tree>(module, "MerkleTree", py::module_local())
      .def(py::init<>())
      .def(
          "append", [](merkle_tree& tree, py::handle leaf) { return tree.append(to_digest(leaf)); },
          py::arg("leaf_hash"))
      .def("__len__", &merkle_tree::size)
      .def_property_readonly("size", &merkle_tree::size)
      .def(
          "leaf",
          [](const merkle_tree& tree, u64 index) { return to_bytes(tree.leaf(index).value()); },
          py::arg("index"))
      .def("root", [](const merkle_tree& tree) { return to_bytes(tree.root()); })
      .def(
          "root_at",
          [](const merkle_tree& tree, u64 size) { return to_bytes(tree.root_at(size).value()); },
          py::arg("size"))
      .def(
          "inclusion_proof",
          [](const merkle_tree& tree, u64 index, u64 size) {
            return to_bytes_list(tree.inclusion_proof(index, size).value());
          },
          py::arg("index"), py::arg("size"))
      .def(
          "consistency_proof",
          [](const merkle_tree& tree, u64 old_size, u64 new_size) {
            return to_bytes_list(tree.consistency_proof(old_size, new_size).value());
          },
          py::arg("old_size"), py::arg("new_size"));

  module.def(
      "verify_inclusion",
      [](u64 index, u64 size, py::handle leaf, const py::iterable& proof, py::handle root) {
        require(verify_inclusion(index, size, to_digest(leaf), to_digests(proof), to_digest(root)));
      },
      py::arg("index"), py::arg("size"), py::arg("leaf_hash"), py::arg("proof"), py::arg("root"));
  module.def(
      "verify_consistency",
      [](u64 old_size, u64 new_size, const py::iterable& proof, py::handle old_root,
         py::handle new_root) {
        require(verify_consistency(old_size, new_size, to_digests(proof), to_digest(old_root),
                                   to_digest(new_root)));
      },
      py::arg("old_size"), py::arg("new_size"), py::arg("proof"), py::arg("old_root"),
      py::arg("new_root"));
  module.def(
      "verify_subtree_inclusion",
      [](u64 index, u64 start, u64 end, py::handle leaf, const py::iterable& proof,
         py::handle root) {
        require(verify_subtree_inclusion(index, {start, end}, to_digest(leaf), to_digests(proof),
                                         to_digest(root)));
      },
      py::arg("index"), py::arg("start"), py::arg("end"), py::arg("leaf_hash"), py::arg("proof"),
      py::arg("root"));
  module.def(
      "verify_subtree_consistency",
      [](u64 start, u64 end, u64 size, const py::iterable& proof, py::handle subtree_root,
         py::handle root) {
        require(verify_subtree_consistency({start, end}, size, to_digests(proof),
                                           to_digest(subtree_root), to_digest(root)));
      },
      py::arg("start"), py::arg("end"), py::arg("size"), py::arg("proof"), py::arg("subtree_root"),
      py::arg("root"));
}

}  // namespace

void bind_crypto(py::module_& module) {
  bind_hashes(module);
  bind_content(module);
  bind_merkle(module);
}

}  // namespace potl::python
