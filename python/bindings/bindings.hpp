// SPDX-License-Identifier: Apache-2.0
// What the bindings share. Each bind_* function adds one layer to the module; module.cpp calls
// them. Signatures carry bytes, buffers, ints and potl's own types only (no torch types). Every
// py::class_ is py::module_local(): a test may import potl._core and potl._core_hooks together.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <potl/core/digest.hpp>
#include <potl/core/error.hpp>
#include <potl/core/result.hpp>

namespace potl {
class json_value;
}

namespace potl::python {

namespace py = pybind11;

/// What one of potl's own exceptions says; nothing of any other.
std::optional<error> own_error_of(const py::error_already_set& thrown);
/// What an exception of Python's says: one of potl's by its class, any other as own trouble (io).
error error_of(const py::error_already_set& thrown);

void bind_crypto(py::module_& module);
void bind_signatures(py::module_& module);
void bind_sealing(py::module_& module);
void bind_random(py::module_& module);
void bind_files(py::module_& module);
void bind_parsers(py::module_& module);
void bind_state(py::module_& module);
void bind_transcript(py::module_& module);
void bind_evidence(py::module_& module);
void bind_inspect(py::module_& module);
void bind_ledger(py::module_& module);
void bind_environment(py::module_& module);
void bind_rounding(py::module_& module);
void bind_checks(py::module_& module);
void bind_attestation(py::module_& module);
void bind_displacement(py::module_& module);
void bind_numeric(py::module_& module);
void bind_freivalds(py::module_& module);
void bind_spot_check(py::module_& module);
void bind_dispute(py::module_& module);

/// The path of a file or directory. usage when it is not UTF-8, for what is written of a run is.
struct file_path {
  std::string name;

  operator const std::string&() const noexcept { return name; }  // NOLINT(google-explicit-*)
};

/// A contiguous Python buffer as bytes, held while this object lives. The element type is ignored.
class readable_buffer {
 public:
  explicit readable_buffer(py::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) throw py::error_already_set();
  }
  ~readable_buffer() { PyBuffer_Release(&view_); }
  readable_buffer(const readable_buffer&) = delete;
  readable_buffer& operator=(const readable_buffer&) = delete;

  bytes_view bytes() const {
    return {static_cast<const std::uint8_t*>(view_.buf), static_cast<std::size_t>(view_.len)};
  }

 private:
  Py_buffer view_{};
};

inline py::bytes to_bytes(bytes_view bytes) {
  return py::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

/// None, bool, int, float, str, list, tuple and dict as JSON. TypeError for anything else, usage
/// when it is nested too deeply.
json_value to_json(py::handle object, std::size_t depth = 0);

/// A parsed document as dict, list, str, int, float, bool, None.
py::object to_python(const json_value& value);

/// A read-only memoryview of `bytes` that keeps `owner` alive. Needs bind_parsers.
py::memoryview view_of(std::shared_ptr<const void> owner, bytes_view bytes);

/// A digest from 32 bytes; malformed when there are more or fewer.
inline digest to_digest(py::handle object) {
  const readable_buffer buffer(object);
  if (buffer.bytes().size() != digest::size) {
    throw exception(error{errc::malformed,
                          "a digest has 32 bytes, not " + std::to_string(buffer.bytes().size()),
                          ""});
  }
  digest out;
  std::copy(buffer.bytes().begin(), buffer.bytes().end(), out.bytes.begin());
  return out;
}

inline std::vector<digest> to_digests(const py::iterable& objects) {
  std::vector<digest> out;
  for (py::handle object : objects) out.push_back(to_digest(object));
  return out;
}

inline std::vector<py::bytes> to_bytes_list(std::span<const digest> digests) {
  std::vector<py::bytes> out;
  for (const digest& one : digests) out.push_back(to_bytes(one));
  return out;
}

/// What `to` makes of each value.
template <class Values, class To>
py::list list_of(const Values& values, const To& to) {
  py::list out(values.size());
  std::size_t at = 0;
  for (const auto& one : values) out[at++] = to(one);
  return out;
}

/// Raises the Python exception of a failed status.
inline void require(const status& outcome) { outcome.value(); }

}  // namespace potl::python

template <>
struct pybind11::detail::type_caster<potl::python::file_path> {
  PYBIND11_TYPE_CASTER(potl::python::file_path, const_name("str"));

  bool load(handle from, bool) {
    if (!isinstance<str>(from)) return false;
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(from.ptr(), &size);
    if (text == nullptr) {
      PyErr_Clear();
      throw potl::exception(
          {potl::errc::usage,
           static_cast<std::string>(reinterpret_steal<str>(PyObject_ASCII(from.ptr()))) +
               " is not UTF-8 here",
           "rename it, or set a locale such as C.UTF-8"});
    }
    value.name.assign(text, static_cast<std::size_t>(size));
    return true;
  }
};
