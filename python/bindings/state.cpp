// SPDX-License-Identifier: Apache-2.0
// Training states for Python: a walk over plain objects in, a copy of the tensors without the
// interpreter lock, and the same tree out again.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <potl/checks/detail/schema.hpp>
#include <potl/encoding/detail/safetensors.hpp>
#include <potl/numeric/detail/squares.hpp>
#include <potl/transcript/detail/kept_tensor.hpp>
#include <potl/transcript/detail/state_encoding.hpp>
#include <potl/transcript/snapshot.hpp>
#include <potl/transcript/state.hpp>

#include "bindings.hpp"
#include "values.hpp"

namespace potl::python {
namespace {

using namespace potl::transcript;

constexpr std::uint64_t default_max_bytes = std::uint64_t{64} << 30;

struct tensor_argument {
  dtype type;
  std::vector<std::uint64_t> dims;
  std::string memory_format;
  bytes_view bytes;
  py::object owner;
  std::shared_ptr<kept_tensor> kept = nullptr;
  std::optional<std::uint64_t> version = std::nullopt;
  bool written = false;
  bool elsewhere = false;

  // Kept from the second time on that torch has counted no write; never after one.
  void not_trained(std::uint64_t now) {
    written = written || now != version.value_or(now);
    if (written) {
      kept.reset();
    } else if (version && !kept) {
      kept = std::make_shared<kept_tensor>();
    }
    version = now;
  }
};

struct tensor_view {
  state owner;
  const state_tensor* tensor;
};

// A tensor of which nothing is known but what its encoding says.
struct tensor_outline {
  state_tensor form;
  digest root;
};

tensor_outline make_outline(const std::string& type_name, std::vector<std::uint64_t> shape,
                            std::string memory_format, py::handle root) {
  const std::optional<dtype> type = dtype_from_torch_name(type_name);
  if (!type) throw py::type_error("tensors of dtype " + type_name + " are not supported");
  // The encoding has one byte for each of these lengths. What an operator returns may have more
  // dimensions than a tensor of a state.
  if (shape.size() > 255 || memory_format.size() > 255) {
    throw exception(
        error{errc::usage,
              "a tensor has at most 255 dimensions, and its memory format at most 255 bytes", ""});
  }
  tensor_outline out{{}, to_digest(root)};
  out.form.type = *type;
  out.form.memory_format = std::move(memory_format);
  out.form.dims = std::move(shape);
  return out;
}

tensor_argument make_tensor(const std::string& type_name, std::vector<std::uint64_t> shape,
                            std::string memory_format, std::uintptr_t data, std::uint64_t nbytes,
                            py::object owner, bool elsewhere) {
  const std::optional<dtype> type = dtype_from_torch_name(type_name);
  if (!type) throw py::type_error("tensors of dtype " + type_name + " are not supported");
  const result<std::uint64_t> size = tensor_bytes(*type, shape);
  if (!size || *size != nbytes) {
    throw exception(error{errc::usage, "a tensor's bytes do not fit its dtype and shape", ""});
  }
  tensor_argument out{*type, std::move(shape), std::move(memory_format),
                      bytes_view(reinterpret_cast<const std::uint8_t*>(data), nbytes),
                      std::move(owner)};
  out.elsewhere = elsewhere;
  return out;
}

// Turns Python objects into a tree whose tensors still lie in the caller's memory.
class tree_reader {
 public:
  state_value read(py::handle object) {
    state_value out;
    read(object.ptr(), out);
    return out;
  }

 private:
  void read(PyObject* object, state_value& out) {
    PyTypeObject* type = Py_TYPE(object);
    if (type == tensor_type_) {
      read_tensor(object, out);
    } else if (object == Py_None) {
      out.content = std::monostate{};
    } else if (type == &PyFloat_Type) {
      out.content = PyFloat_AS_DOUBLE(object);
    } else if (type == &PyBool_Type) {
      out.content = object == Py_True;
    } else if (type == &PyLong_Type) {
      out.content = integer(object);
    } else if (type == &PyUnicode_Type) {
      out.content = text(object);
    } else if (PyDict_Check(object)) {
      read_dict(object, out.content.emplace<state_map>());
    } else if (type == &PyList_Type) {
      read_items(object, out.content.emplace<state_list>());
    } else if (type == &PyTuple_Type) {
      read_items(object, out.content.emplace<state_tuple>().items);
    } else if (type == &PyBytes_Type) {
      const auto* bytes = reinterpret_cast<const std::uint8_t*>(PyBytes_AS_STRING(object));
      out.content = state_bytes{{bytes, bytes + PyBytes_GET_SIZE(object)}};
    } else if (const auto* form = as<tensor_outline>(object)) {
      auto& tensor = out.content.emplace<state_tensor>(form->form);
      tensor.bytes = form->root;
      tensor.elsewhere = true;  // capture takes none for a tensor
    } else if (const auto* alias = as<state_alias>(object)) {
      out.content = *alias;
    } else if (const auto* reference = as<state_reference>(object)) {
      out.content = *reference;
    } else {
      refuse(std::string("a state cannot hold ") + type->tp_name,
             "store None, bool, int, float, str, bytes, list, tuple, dict or tensors");
    }
  }

  template <class Value>
  static const Value* as(py::handle object) {
    return py::isinstance<Value>(object) ? py::cast<const Value*>(object) : nullptr;
  }

  void read_tensor(PyObject* object, state_value& out) {
    const auto& tensor = *py::cast<const tensor_argument*>(py::handle(object));
    state_tensor copy;
    copy.type = tensor.type;
    copy.memory_format = tensor.memory_format;
    copy.dims = tensor.dims;
    copy.bytes = tensor.bytes;
    copy.kept = tensor.kept;
    copy.elsewhere = tensor.elsewhere;
    out.content = std::move(copy);
  }

  void read_items(PyObject* object, state_list& out) {
    const Py_ssize_t size = PySequence_Fast_GET_SIZE(object);
    out.resize(static_cast<std::size_t>(size));
    for (Py_ssize_t i = 0; i < size; ++i) {
      const nested inside(*this, nullptr, i);
      read(PySequence_Fast_GET_ITEM(object, i), out[static_cast<std::size_t>(i)]);
    }
  }

  void read_dict(PyObject* object, state_map& out) {
    out.reserve(static_cast<std::size_t>(PyDict_Size(object)));
    PyObject* key = nullptr;
    PyObject* value = nullptr;
    Py_ssize_t position = 0;
    while (PyDict_Next(object, &position, &key, &value) != 0) {
      const nested inside(*this, key, 0);
      auto& [out_key, out_value] = out.emplace_back();
      if (Py_TYPE(key) == &PyUnicode_Type) {
        out_key = text(key);
      } else if (Py_TYPE(key) == &PyLong_Type) {
        out_key = integer(key);
      } else {
        refuse(std::string("a key cannot be a ") + Py_TYPE(key)->tp_name, "use str or int keys");
      }
      read(value, out_value);
    }
  }

  std::int64_t integer(PyObject* object) {
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (value == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
    if (overflow != 0) refuse("an int does not fit 64 bits", "store it as str or bytes");
    return value;
  }

  std::string text(PyObject* object) {
    Py_ssize_t size = 0;
    const char* bytes = PyUnicode_AsUTF8AndSize(object, &size);
    if (bytes != nullptr) return {bytes, static_cast<std::size_t>(size)};
    PyErr_Clear();
    refuse("a str holds lone surrogates", "store it as bytes");
  }

  [[noreturn]] void refuse(const std::string& what, const std::string& remedy) {
    std::string where;
    for (const auto& [key, index] : path_) {
      where += '[';
      where +=
          key != nullptr ? py::cast<std::string>(py::repr(py::handle(key))) : std::to_string(index);
      where += ']';
    }
    throw py::type_error(what + " at state" + where + " (" + remedy + ")");
  }

  struct nested {
    nested(tree_reader& reader, PyObject* key, Py_ssize_t index) : reader_(reader) {
      reader_.path_.emplace_back(key, index);
      if (reader_.path_.size() > max_state_depth) {
        reader_.refuse("nested too deeply", "does the state contain itself?");
      }
    }
    ~nested() { reader_.path_.pop_back(); }
    nested(const nested&) = delete;
    nested& operator=(const nested&) = delete;
    tree_reader& reader_;
  };

  PyTypeObject* tensor_type_ =
      reinterpret_cast<PyTypeObject*>(py::type::of<tensor_argument>().ptr());
  std::vector<std::pair<PyObject*, Py_ssize_t>> path_;
};

// Builds the Python tree of a state.
class tree_writer {
 public:
  explicit tree_writer(const state& owner) : owner_(owner) {}

  py::object write(const state_value& value) { return std::visit(*this, value.content); }

  py::object operator()(std::monostate) { return py::none(); }
  py::object operator()(bool value) { return py::bool_(value); }
  py::object operator()(std::int64_t value) { return py::int_(value); }
  py::object operator()(double value) { return py::float_(value); }
  py::object operator()(const std::string& value) { return py::str(value); }
  py::object operator()(const state_bytes& value) { return to_bytes(value.bytes); }
  py::object operator()(const state_alias& value) { return py::cast(value); }
  py::object operator()(const state_reference& value) { return py::cast(value); }
  py::object operator()(const state_tensor& value) { return py::cast(tensor_view{owner_, &value}); }
  py::object operator()(const state_list& items) {
    py::list out(items.size());
    for (std::size_t i = 0; i < items.size(); ++i) out[i] = write(items[i]);
    return out;
  }
  py::object operator()(const state_tuple& value) {
    py::tuple out(value.items.size());
    for (std::size_t i = 0; i < value.items.size(); ++i) out[i] = write(value.items[i]);
    return out;
  }
  py::object operator()(const state_map& map) {
    py::dict out;
    for (const auto& [key, value] : map) {
      const auto* number = std::get_if<std::int64_t>(&key);
      const py::object name =
          number != nullptr ? py::object(py::int_(*number)) : py::str(std::get<std::string>(key));
      out[name] = write(value);
    }
    return out;
  }

 private:
  const state& owner_;
};

state capture_tree(py::handle tree, bool whole) {
  // Blocks of memory for the copies, used again from step to step.
  static auto* memory = new snapshot_memory();
  state_value root = tree_reader().read(tree);
  py::gil_scoped_release released;
  return capture(std::move(root), *memory, whole).value();
}

state adopt_tree(py::handle tree, py::object owner) {
  state_value root = tree_reader().read(tree);
  const auto kept = std::make_shared<const shared_object>(std::move(owner));
  const py::gil_scoped_release released;
  return adopt(std::move(root), kept).value();
}

digest digest_of_tree(py::handle tree, const py::object& roots) {
  state_value root = tree_reader().read(tree);
  const auto roots_of = [&](std::span<const bytes_view> there) {
    const py::gil_scoped_acquire held;
    py::list places;
    for (const bytes_view one : there) {
      places.append(py::make_tuple(reinterpret_cast<std::uintptr_t>(one.data()), one.size()));
    }
    return to_digests(roots(places));
  };
  const py::gil_scoped_release released;
  return digest_of(std::move(root), roots_of).value();
}

bool would_equal_tree(const state& before, py::handle tree) {
  state_value root = tree_reader().read(tree);
  py::gil_scoped_release released;
  return would_equal(std::move(root), before).value();
}

// Calls `tensor` for each tensor, in the order of the encoding.
template <class Tensor>
void sort_maps(state_value& value, const Tensor& tensor) {
  if (auto* map = std::get_if<state_map>(&value.content)) {
    std::sort(map->begin(), map->end(),
              [](const state_entry& a, const state_entry& b) { return a.first < b.first; });
    for (state_entry& one : *map) sort_maps(one.second, tensor);
  } else if (auto* list = std::get_if<state_list>(&value.content)) {
    for (state_value& one : *list) sort_maps(one, tensor);
  } else if (auto* tuple = std::get_if<state_tuple>(&value.content)) {
    for (state_value& one : tuple->items) sort_maps(one, tensor);
  } else if (auto* found = std::get_if<state_tensor>(&value.content)) {
    tensor(*found);
  }
}

std::vector<std::uint8_t> encoding_of(py::handle value) {
  state_value tree = tree_reader().read(value);
  std::vector<digest> roots;
  sort_maps(tree, [&](const state_tensor& one) {
    if (one.bytes.size() != digest::size || !one.elsewhere) {
      throw exception(error{errc::usage, "only outlines of tensors have an encoding", ""});
    }
    std::copy(one.bytes.begin(), one.bytes.end(), roots.emplace_back().bytes.begin());
  });
  return encode_tree(tree, roots);
}

std::optional<checks::violation> unlawful(const state& recorded, py::handle laws) {
  state_value tree = tree_reader().read(laws);
  const py::gil_scoped_release released;
  sort_maps(tree, [](const state_tensor&) {});
  return checks::unlawful(recorded.root(), tree);
}

py::tuple shape_of(const state_tensor& tensor) {
  py::tuple shape(tensor.dims.size());
  for (std::size_t i = 0; i < tensor.dims.size(); ++i) shape[i] = py::int_(tensor.dims[i]);
  return shape;
}

void bind_tensors(py::module_& module) {
  py::class_<tensor_argument>(module, "Tensor", py::module_local())
      .def(py::init(&make_tensor), py::arg("dtype"), py::arg("shape"), py::arg("memory_format"),
           py::arg("data"), py::arg("nbytes"), py::arg("owner"), py::kw_only(),
           py::arg("elsewhere") = false)
      .def("not_trained", &tensor_argument::not_trained, py::arg("version"));
  py::class_<tensor_view>(module, "TensorView", py::module_local())
      .def_property_readonly("dtype",
                             [](const tensor_view& self) {
                               return py::str(std::string(info(self.tensor->type).torch_name));
                             })
      .def_property_readonly("shape",
                             [](const tensor_view& self) { return shape_of(*self.tensor); })
      .def_property_readonly("memory_format",
                             [](const tensor_view& self) { return self.tensor->memory_format; })
      .def_property_readonly("path", [](const tensor_view& self) { return self.tensor->path; })
      .def_property_readonly("data", [](const tensor_view& self) {
        return view_of(std::make_shared<state>(self.owner), self.tensor->bytes);
      });
  module.def(
      "averages_squares",
      [](std::optional<double> momentum, const tensor_view& first) {
        return numeric::averages_squares(momentum, first.tensor->type, first.tensor->bytes);
      },
      py::arg("momentum"), py::arg("first"));
  py::class_<tensor_outline>(module, "Outline", py::module_local())
      .def(py::init(&make_outline), py::arg("dtype"), py::arg("shape"), py::arg("memory_format"),
           py::arg("root"));
  py::class_<state_alias>(module, "Alias", py::module_local())
      .def(py::init<std::string>(), py::arg("path"))
      .def_readonly("path", &state_alias::path);
  py::class_<state_reference>(module, "Reference", py::module_local())
      .def(py::init<std::string>(), py::arg("path"));
  module.def(
      "encode_tree", [](py::handle tree) { return to_bytes(encoding_of(tree)); }, py::arg("tree"));
  module.def(
      "digest_of_encoding",
      [](py::handle encoding) {
        return to_bytes(digest_of_encoding(readable_buffer(encoding).bytes()));
      },
      py::arg("encoding"));
  module.def(
      "safetensors_dtype",
      [](const std::string& torch_name) {
        const std::optional<dtype> type = dtype_from_torch_name(torch_name);
        if (!type) throw py::type_error("tensors of dtype " + torch_name + " are not supported");
        return std::string(info(*type).name);
      },
      py::arg("torch_name"));
}

}  // namespace

void bind_state(py::module_& module) {
  bind_tensors(module);
  py::class_<checks::violation>(module, "Violation", py::module_local())
      .def_property_readonly("rule",
                             [](const checks::violation& self) { return std::string(self.rule); })
      .def_readonly("path", &checks::violation::path)
      .def_readonly("reason", &checks::violation::reason)
      .def("__str__", &checks::violation::text);
  module.def("unlawful", &unlawful, py::arg("state"), py::arg("laws"));
  py::class_<state>(module, "State", py::module_local())
      .def_static("capture", &capture_tree, py::arg("tree"), py::kw_only(), py::arg("whole") = true)
      .def_static("adopt", &adopt_tree, py::arg("tree"), py::arg("owner"))
      .def_static(
          "digest_of",
          [](py::handle tree, const py::object& roots) {
            return to_bytes(digest_of_tree(tree, roots));
          },
          py::arg("tree"), py::arg("roots"))
      .def("would_equal", &would_equal_tree, py::arg("tree"))
      .def_static(
          "load",
          [](const file_path& path, py::handle expected, std::uint64_t max_bytes) {
            const digest wanted = to_digest(expected);
            py::gil_scoped_release released;
            return load_checkpoint(path, wanted, max_bytes).value();
          },
          py::arg("path"), py::arg("expected"), py::kw_only(),
          py::arg("max_bytes") = default_max_bytes)
      .def_static(
          "load_unverified",
          [](const file_path& path, std::uint64_t max_bytes) {
            py::gil_scoped_release released;
            return load_own_checkpoint(path, max_bytes).value();
          },
          py::arg("path"), py::kw_only(), py::arg("max_bytes") = default_max_bytes)
      .def(
          "save",
          [](const state& self, const file_path& path) {
            py::gil_scoped_release released;
            save_checkpoint(path, self).value();
          },
          py::arg("path"))
      .def(
          "digest",
          [](const state& self, unsigned threads) {
            digest out;
            {
              py::gil_scoped_release released;
              out = self.state_digest(threads);
            }
            return to_bytes(out);
          },
          py::arg("threads") = 1)
      .def(
          "roots",
          [](const state& self, unsigned threads) {
            const std::vector<digest>* roots = nullptr;
            {
              const py::gil_scoped_release released;
              roots = &self.roots(threads);
            }
            py::dict found;
            for (std::size_t i = 0; i < roots->size(); ++i) {
              found[py::str(self.tensors()[i]->path)] = to_bytes((*roots)[i]);
            }
            return found;
          },
          py::arg("threads") = 1)
      .def("tree", [](const state& self) { return tree_writer(self).write(self.root()); })
      .def_property_readonly("nbytes", &state::size_bytes);
}

}  // namespace potl::python
