// SPDX-License-Identifier: Apache-2.0
// Files for Python: read once, without following links where somebody else made them; written so
// that a power cut leaves the old content or the new.
#include <string>
#include <utility>
#include <vector>

#include <potl/core/directory_lock.hpp>
#include <potl/core/file.hpp>

#include "bindings.hpp"

namespace potl::python {
namespace {

template <class Read>
std::vector<std::uint8_t> unlocked(Read read) {
  const py::gil_scoped_release released;
  return read().value();
}

}  // namespace

void bind_files(py::module_& module) {
  module.def(
      "read_file",
      [](const file_path& path, std::uint64_t max_bytes) {
        return to_bytes(unlocked([&] { return read_file(path, max_bytes, links::follow); }));
      },
      py::arg("path"), py::kw_only(), py::arg("max_bytes"));
  module.def(
      "read_entry",
      [](const file_path& directory, const std::string& name, std::uint64_t max_bytes) {
        return to_bytes(unlocked([&] { return read_entry(directory, name, max_bytes); }));
      },
      py::arg("directory"), py::arg("name"), py::kw_only(), py::arg("max_bytes"));
  module.def(
      "write_file",
      [](const file_path& path, py::handle data) {
        const readable_buffer buffer(data);
        write_file_atomically(path, buffer.bytes()).value();
      },
      py::arg("path"), py::arg("data"));
  module.def(
      "create_directory", [](const file_path& path) { create_directory(path).value(); },
      py::arg("path"));
  py::class_<directory_lock>(module, "DirectoryLock", py::module_local())
      .def(py::init([](const file_path& path, std::string elsewhere, std::string remedy) {
             return directory_lock::take(path, std::move(elsewhere), std::move(remedy)).value();
           }),
           py::arg("path"), py::arg("elsewhere"), py::arg("remedy"))
      .def("release", &directory_lock::release);
  module.def(
      "sync_directory", [](const file_path& path) { sync_directory(path).value(); },
      py::arg("path"));
}

}  // namespace potl::python
