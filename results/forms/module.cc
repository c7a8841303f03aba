// skidproof_forms, the store's fast way through results files (results/skidproof/store/forms.py says when it is used).
//
// The known lines of a block come out as stretches: their numbers stay here until the loader asks for table rows. What is known is
// in a dictionary of Python's, which gives for a line's key what such lines mean.
#include <pybind11/pybind11.h>

#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "results/forms/line.h"

namespace py = pybind11;

namespace skidproof::results::forms {
namespace {

constexpr int kInterface = 1;  // store/forms.py expects this one

py::object owned(PyObject* object) {
  if (object == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(object);
}

py::object bytes_of(std::string_view words) {
  return owned(PyBytes_FromStringAndSize(words.data(), static_cast<Py_ssize_t>(words.size())));
}

std::string_view view_of(py::handle bytes) {
  if (!PyBytes_Check(bytes.ptr())) throw py::type_error("bytes are needed");
  return {PyBytes_AS_STRING(bytes.ptr()), static_cast<size_t>(PyBytes_GET_SIZE(bytes.ptr()))};
}

py::object real_or_none(std::string_view number) {
  return number == "null" ? py::none() : owned(PyFloat_FromDouble(real(number)));
}

py::object whole(std::string_view number) { return owned(PyLong_FromLongLong(integer(number))); }

template <class... Items>
py::object tuple_of(Items&&... items) {
  py::object tuple = owned(PyTuple_New(sizeof...(Items)));
  Py_ssize_t at = 0;
  (PyTuple_SET_ITEM(tuple.ptr(), at++, py::object(std::forward<Items>(items)).release().ptr()),
   ...);
  return tuple;
}

void append(const py::object& list, const py::object& item) {
  if (PyList_Append(list.ptr(), item.ptr()) != 0) throw py::error_already_set();
}

// What Lines looks up for a line.
template <class Form>
void set_key(std::string& key, const Form& form) {
  key.clear();
  for (std::string_view part : form.key) key += part;
}

// What the loader knows of a shape in the database: forms.Ids.
struct Ids {
  Ids(const py::object& ids, const py::object& shape)
      : tuple(owned(PyObject_GetItem(ids.ptr(), shape.ptr()))) {
    if (!PyTuple_Check(tuple.ptr()) || PyTuple_GET_SIZE(tuple.ptr()) != 3)
      throw py::type_error("an entry of forms.Ids has three items");
  }
  py::object at(int item) const {
    return py::reinterpret_borrow<py::object>(PyTuple_GET_ITEM(tuple.ptr(), item));
  }

  py::object tuple;
};

// Lines of one run that follow one another, all known.
class Stretch {
 public:
  void add_measurement(std::string_view line, const Measurement& m, py::object shape) {
    measurements_.push_back({lines_.size(), m, std::move(shape), 0});
    lines_.push_back(line);
  }
  void add_test(std::string_view line, const Test& t, py::object shape) {
    tests_.emplace_back(t, std::move(shape));
    lines_.push_back(line);
    starts_ = 0;
  }
  void add_start(std::string_view line) {
    lines_.push_back(line);
    starts_ = 1;
  }
  void close(py::object block, std::string_view raw) {
    block_ = std::move(block);
    raw_ = raw;
  }

  size_t count() const { return lines_.size(); }
  py::object raw() const { return bytes_of(raw_); }

  // Whether the last of its test-start and test rows is a test-start; None without such rows.
  py::object test_open() const {
    return starts_ < 0 ? py::none() : py::object(py::bool_(starts_ == 1));
  }

  // Gives each measurement the subject that its machine is, a number of the process; says what identifies them in a run. None
  // where a machine is not known.
  py::object take(const py::dict& subjects) {
    py::object keys = owned(PyList_New(0));
    py::object machine;
    long long subject = 0;
    for (auto& one : measurements_) {
      const py::object named = one.shape.attr("machine");
      if (!machine || !named.is(machine)) {
        if (!subjects.contains(named)) return py::none();
        machine = named;
        subject = subjects[named].cast<long long>();
      }
      one.subject = static_cast<size_t>(subject);
      append(keys, owned(PyLong_FromLongLong(subject << 32 |
                                             one.shape.attr("figure").cast<long long>())));
    }
    return keys;
  }

  py::object tests() const {
    py::object found = owned(PyList_New(0));
    for (const auto& [t, shape] : tests_) {
      append(found, tuple_of(shape, whole(t.repetition), real_or_none(t.duration_s),
                             py::str(t.seed.data(), t.seed.size()), whole(t.iterations),
                             whole(t.comparisons), whole(t.n), whole(t.k), whole(t.voided),
                             real_or_none(t.rate), real_or_none(t.low), real_or_none(t.high),
                             bytes_of(t.evidence)));
    }
    return found;
  }

  // Rows of the table `measurements`.
  py::object rows(const py::object& ids, const py::list& subjects, const py::object& run) const {
    py::object rows = owned(PyList_New(0));
    for (const auto& [line, m, shape, subject] : measurements_) {
      const Ids known(ids, shape);
      append(rows, tuple_of(py::object(subjects[subject]), known.at(0), run, real_or_none(m.value),
                            real_or_none(m.low), real_or_none(m.high), whole(m.n), known.at(1),
                            whole(m.involuntary_switches), whole(m.migrations), whole(m.smi),
                            real_or_none(m.steal_s)));
    }
    return rows;
  }

  // The same for COPY: the numbers' own texts, with `null` for NULL; the run stands at the end.
  py::object copy(const py::object& ids, const py::list& subjects, const std::string& run) const {
    std::string out;
    for (const auto& [line, m, shape, subject] : measurements_) {
      out += py::str(subjects[subject]).cast<std::string_view>();
      out += '\t';
      out += view_of(Ids(ids, shape).at(2));
      for (std::string_view number :
           {m.value, m.low, m.high, m.n, m.involuntary_switches, m.migrations, m.smi, m.steal_s}) {
        out += '\t';
        out += number;
      }
      out += '\t';
      out += run;
      out += '\n';
    }
    return bytes_of(out);
  }

  // The measurements in their order: (subject, figure, how many figures from there on).
  py::object spans(const py::object& ids, const py::list& subjects) const {
    py::object spans = owned(PyList_New(0));
    long long subject = 0, figure = 0, count = 0;
    const auto add = [&] {
      if (count != 0) append(spans, py::make_tuple(subject, figure, count));
    };
    for (const auto& one : measurements_) {
      const Ids known(ids, one.shape);
      const auto next_subject = subjects[one.subject].cast<long long>(),
                 next_figure = known.at(0).cast<long long>();
      if (count != 0 && next_subject == subject && next_figure == figure + count) {
        ++count;
      } else {
        add();
        subject = next_subject, figure = next_figure, count = 1;
      }
    }
    add();
    return spans;
  }

  // The lines, with the stand-in for each measurement.
  py::object lines() const {
    std::string out;
    size_t at = 0;
    auto measurement = measurements_.begin();
    for (std::string_view line : lines_) {
      if (at != 0) out += '\n';
      if (measurement != measurements_.end() && measurement->line == at) {
        out += view_of(measurement->shape.attr("stand_in"));
        ++measurement;
      } else {
        out += line;
      }
      ++at;
    }
    return bytes_of(out);
  }

 private:
  struct Measured {
    size_t line;
    Measurement numbers;
    py::object shape;
    size_t subject = 0;
  };

  py::object block_;  // all texts are in it
  std::string_view raw_;
  std::vector<std::string_view> lines_;
  std::vector<Measured> measurements_;
  std::vector<std::pair<Test, py::object>> tests_;
  int starts_ = -1;
};

std::string_view without_return(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// The lines of a block, one after the other.
class Lines {
 public:
  Lines(py::bytes block, py::dict shapes)
      : block_(std::move(block)), left_(view_of(block_)), shapes_(std::move(shapes)) {}

  // A Stretch of what is known, or one line with its end, or None at the end of the block. Without `known` only lines; with
  // `starts`, that a test starts needs no parsing.
  py::object next(bool known, bool starts) {
    if (left_.empty()) return py::none();
    const std::string_view from = left_;
    Stretch stretch;
    while (known && !left_.empty() && add(stretch, starts)) {
    }
    if (stretch.count() != 0) {
      stretch.close(block_, from.substr(0, from.size() - left_.size()));
      return py::cast(std::move(stretch));
    }
    const std::string_view line = left_.substr(0, length());
    left_.remove_prefix(line.size());
    return bytes_of(line);
  }

 private:
  size_t length() const {  // of the next line, with its end
    const size_t end = left_.find('\n');
    return end == std::string_view::npos ? left_.size() : end + 1;
  }

  bool add(Stretch& stretch, bool starts) {
    const size_t size = length();
    if (left_[size - 1] != '\n') return false;  // it may have been cut short
    const std::string_view line = without_return(left_.substr(0, size - 1));
    if (const auto m = measurement(line)) {
      set_key(key_, *m);
      py::object shape = known();
      if (!shape) return false;
      stretch.add_measurement(line, *m, std::move(shape));
    } else if (const auto t = test(line)) {
      set_key(key_, *t);
      py::object shape = known();
      if (!shape) return false;
      stretch.add_test(line, *t, std::move(shape));
    } else if (starts && is_test_start(line)) {
      stretch.add_start(line);
    } else {
      return false;
    }
    left_.remove_prefix(size);
    return true;
  }

  py::object known() const {
    const py::object key = bytes_of(key_);
    PyObject* shape = PyDict_GetItemWithError(shapes_.ptr(), key.ptr());
    if (shape == nullptr && PyErr_Occurred() != nullptr) throw py::error_already_set();
    return py::reinterpret_borrow<py::object>(shape);
  }

  py::object block_;
  std::string_view left_;
  py::dict shapes_;
  std::string key_;
};

// What Lines looks up for a line; None where it is of no form that is looked up.
py::object key_of(const py::bytes& line) {
  std::string_view words = view_of(line);
  if (words.ends_with('\n')) words.remove_suffix(1);
  words = without_return(words);
  std::string key;
  if (const auto m = measurement(words)) {
    set_key(key, *m);
  } else if (const auto t = test(words)) {
    set_key(key, *t);
  } else {
    return py::none();
  }
  return bytes_of(key);
}

}  // namespace
}  // namespace skidproof::results::forms

PYBIND11_MODULE(skidproof_forms, module) {
  using namespace skidproof::results::forms;
  module.doc() =
      "Takes the lines of results files apart by the forms in which the writer writes them.";
  module.attr("INTERFACE") = kInterface;
  py::class_<Stretch>(module, "Stretch", "Lines of one run that follow one another, all known.")
      .def_property_readonly("count", &Stretch::count, "How many lines.")
      .def_property_readonly("raw", &Stretch::raw, "The lines as they came.")
      .def_property_readonly("test_open", &Stretch::test_open,
                             "Whether a test is left open; None without test rows.")
      .def("take", &Stretch::take,
           "Gives the measurements their subjects; says a key of each, or None where a machine is "
           "not known.")
      .def_property_readonly("tests", &Stretch::tests,
                             "Of each test (shape, repetition, duration_s, seed, iterations, "
                             "comparisons, n, k, voided, rate, low, high, "
                             "evidence as JSON).")
      .def("rows", &Stretch::rows, "Rows of the table `measurements`.")
      .def("copy", &Stretch::copy, "The same rows for COPY.")
      .def("spans", &Stretch::spans,
           "(subject, figure, how many figures from there on) of the measurements in their order.")
      .def("lines", &Stretch::lines, "The lines with the measurements' stand-ins.");
  py::class_<Lines>(module, "Lines", "The lines of a block, one after the other.")
      .def(py::init<py::bytes, py::dict>())
      .def("next", &Lines::next);
  module.def("key_of", &key_of, "A line's key; None where it is of no form that is looked up.");
}
