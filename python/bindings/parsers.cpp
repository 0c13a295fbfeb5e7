// SPDX-License-Identifier: Apache-2.0
// Canonical JSON and safetensors files for Python.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include <potl/core/file.hpp>
#include <potl/encoding/detail/safetensors.hpp>
#include <potl/encoding/json.hpp>

#include "bindings.hpp"

namespace potl::python {
namespace {

constexpr std::size_t max_depth = 64;
constexpr std::uint64_t default_max_file = std::uint64_t{64} << 30;

std::string text_of(py::handle object) {
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(object.ptr(), &size);
  if (text == nullptr) throw py::error_already_set();
  return {text, static_cast<std::size_t>(size)};
}

json_value to_json_object(py::handle object, std::size_t depth) {
  json_value::object members;
  for (const auto& [name, value] : py::reinterpret_borrow<py::dict>(object)) {
    if (!PyUnicode_Check(name.ptr())) throw py::type_error("JSON names are str");
    members.push_back({text_of(name), to_json(value, depth + 1)});
  }
  return json_value::from_members(std::move(members)).value();
}

void bind_json(py::module_& module) {
  module.def(
      "canonical_json",
      [](py::handle object) { return to_bytes(as_bytes_view(canonical_json(to_json(object)))); },
      py::arg("obj"));
  module.def(
      "parse_json",
      [](py::handle data, std::size_t max_bytes) {
        json_limits limits;
        limits.max_bytes = max_bytes;
        // 32 bytes of text per value, as the defaults have it.
        limits.max_nodes = std::max(limits.max_nodes, max_bytes / 32);
        limits.max_string = std::max(limits.max_string, max_bytes / 4);
        return to_python(parse_json(readable_buffer(data).bytes(), limits).value());
      },
      py::arg("data"), py::kw_only(), py::arg("max_bytes") = json_limits{}.max_bytes);
}

// The object behind a memoryview: CPython keeps it, and it keeps the memory.
struct owned_view {
  std::shared_ptr<const void> owner;
  bytes_view bytes;
};

// A file in memory together with what it says.
struct safetensors_file {
  std::vector<std::uint8_t> bytes;
  safetensors_view view;

  static std::shared_ptr<safetensors_file> parse(std::vector<std::uint8_t> bytes) {
    auto file = std::make_shared<safetensors_file>();
    file->bytes = std::move(bytes);
    file->view = parse_safetensors(file->bytes).value();
    return file;
  }
};

py::tuple shape_of(const std::vector<std::uint64_t>& dims) {
  py::tuple shape(dims.size());
  for (std::size_t i = 0; i < dims.size(); ++i) shape[i] = py::int_(dims[i]);
  return shape;
}

void bind_reader(py::module_& module) {
  py::class_<owned_view>(module, "_OwnedView", py::buffer_protocol(), py::module_local())
      .def_buffer([](owned_view& self) {
        static const std::uint8_t nothing = 0;
        const std::uint8_t* data = self.bytes.empty() ? &nothing : self.bytes.data();
        return py::buffer_info(const_cast<std::uint8_t*>(data), 1,
                               py::format_descriptor<std::uint8_t>::format(), 1,
                               {static_cast<py::ssize_t>(self.bytes.size())}, {1}, true);
      });

  using file_pointer = std::shared_ptr<safetensors_file>;
  py::class_<safetensors_file, file_pointer>(module, "SafetensorsFile", py::module_local())
      .def_static(
          "open",
          [](const file_path& path, std::uint64_t max_bytes) {
            py::gil_scoped_release released;
            return safetensors_file::parse(read_file(path, max_bytes, links::follow).value());
          },
          py::arg("path"), py::kw_only(), py::arg("max_bytes") = default_max_file)
      .def_static(
          "parse",
          [](py::handle data) {
            const readable_buffer buffer(data);
            return safetensors_file::parse({buffer.bytes().begin(), buffer.bytes().end()});
          },
          py::arg("data"))
      .def_property_readonly("metadata",
                             [](const safetensors_file& self) {
                               py::dict metadata;
                               for (const auto& [name, text] : self.view.metadata)
                                 metadata[py::str(name)] = py::str(text);
                               return metadata;
                             })
      .def("names",
           [](const safetensors_file& self) {
             py::list names;
             for (const safetensors_tensor& tensor : self.view.tensors)
               names.append(py::str(tensor.name));
             return names;
           })
      .def(
          "tensor",
          [](const file_pointer& self, const std::string& name) {
            const safetensors_tensor* tensor = self->view.find(name);
            if (tensor == nullptr) throw py::key_error(name);
            return py::make_tuple(py::str(std::string(info(tensor->type).name)),
                                  shape_of(tensor->dims), view_of(self, tensor->data));
          },
          py::arg("name"));
}

using tensor_argument =
    std::tuple<std::string, std::string, std::vector<std::uint64_t>, py::object>;

void write_file(const file_path& path, const std::vector<tensor_argument>& tensors,
                const std::map<std::string, std::string>& metadata) {
  std::vector<safetensors_writer::tensor> announced;
  std::map<std::string, std::unique_ptr<readable_buffer>> buffers;
  for (const auto& [name, type_name, dims, buffer] : tensors) {
    const std::optional<dtype> type = dtype_from_name(type_name);
    if (!type) throw exception(error{errc::usage, name + ": unknown dtype " + type_name, ""});
    auto held = std::make_unique<readable_buffer>(buffer);
    const result<std::uint64_t> size = tensor_bytes(*type, dims);
    if (!size || *size != held->bytes().size())
      throw exception(
          error{errc::usage, name + ": the buffer does not have dtype x shape bytes", ""});
    announced.push_back({name, *type, dims});
    buffers[name] = std::move(held);
  }

  py::gil_scoped_release released;
  atomic_file file = atomic_file::create(path).value();
  safetensors_writer writer =
      safetensors_writer::create(std::move(announced), {metadata.begin(), metadata.end()},
                                 [&file](bytes_view part) { return file.write(part); })
          .value();
  for (const safetensors_writer::tensor& tensor : writer.order())
    require(writer.write(buffers.at(tensor.name)->bytes()));
  require(writer.finish());
  require(file.commit());
}

}  // namespace

json_value to_json(py::handle object, std::size_t depth) {
  if (depth > max_depth)
    throw exception(error{errc::usage, "nested too deeply for JSON", "does it contain itself?"});
  PyObject* raw = object.ptr();
  if (object.is_none()) return {};
  if (PyBool_Check(raw)) return raw == Py_True;
  if (PyLong_Check(raw)) {
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(raw, &overflow);
    if (value == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
    return overflow == 0 ? json_value(value) : json_value(overflow < 0 ? INT64_MIN : INT64_MAX);
  }
  if (PyFloat_Check(raw)) return PyFloat_AS_DOUBLE(raw);
  if (PyUnicode_Check(raw)) return text_of(object);
  if (PyDict_Check(raw)) return to_json_object(object, depth);
  if (PyList_Check(raw) || PyTuple_Check(raw)) {
    json_value::array elements;
    for (py::handle element : object) elements.push_back(to_json(element, depth + 1));
    return elements;
  }
  throw py::type_error(std::string("JSON has no ") + Py_TYPE(raw)->tp_name);
}

py::object to_python(const json_value& value) {
  switch (value.type()) {
    case json_value::kind::null: return py::none();
    case json_value::kind::boolean: return py::bool_(*value.if_boolean());
    case json_value::kind::integer: return py::int_(*value.if_integer());
    case json_value::kind::number: return py::float_(*value.if_number());
    case json_value::kind::string: return py::str(*value.if_string());
    case json_value::kind::array: {
      py::list list;
      for (const json_value& element : *value.if_array()) list.append(to_python(element));
      return list;
    }
    case json_value::kind::object: {
      py::dict dict;
      for (const json_member& member : *value.if_object())
        dict[py::str(member.name)] = to_python(member.value);
      return dict;
    }
  }
  return py::none();
}

py::memoryview view_of(std::shared_ptr<const void> owner, bytes_view bytes) {
  return py::memoryview(py::cast(owned_view{std::move(owner), bytes}));
}

void bind_parsers(py::module_& module) {
  bind_json(module);
  bind_reader(module);
  module.def("write_safetensors", &write_file, py::arg("path"), py::arg("tensors"),
             py::arg("metadata"));
}

}  // namespace potl::python
