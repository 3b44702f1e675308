// Launches a kernel of a pack through the CUDA driver API, and compares the product with one computed on the host.
//
//     g++ -std=c++17 -O2 examples/launch_pack.cpp -ldl -o launch_pack
//     ./launch_pack model.cutepack                            verifies the pack and lists its kernels
//     ./launch_pack model.cutepack sm80_hgemm_tn [M N K]      multiplies f16 matrices
//
// docs/pack_format.md describes the file; the comments here name its sections. This is for programs that choose among
// kernels at run time, and only plain f16 products are launched. A program that links one kernel takes the header of
// `cutegen emit SPEC --what cpp`, which takes epilogue operands, groups, pairs and factors. Both launch by driver.hpp.

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

constexpr const char* kName = "launch_pack";  // errors begin with it

#include "../templates/host/driver.hpp"

using Bytes = std::vector<unsigned char>;

// Calls a function of the driver that launches do not need: its context, and memory. The arguments have its types.
template <class... Arguments>
static void call(const char* name, Arguments... arguments) {
  int (*function)(Arguments...);
  find(function, name);
  check(function(arguments...), name);
}

static uint64_t allocated(size_t bytes) {
  uint64_t address = 0;
  call("cuMemAlloc_v2", &address, bytes);
  return address;
}

// ---- JSON: the subset that an index uses ----

struct Json {
  enum Kind { kNull, kBool, kNumber, kString, kList, kObject } kind = kNull;
  int64_t number = 0;  // an index has only integers
  std::string text;
  std::vector<Json> list;
  std::map<std::string, Json> object;

  bool null() const { return kind == kNull; }
  const Json& operator[](const std::string& key) const {
    auto found = object.find(key);
    if (found == object.end()) fail("the index has no key " + key);
    return found->second;
  }
  const Json& operator[](size_t i) const { return list.at(i); }
  bool has(const std::string& key) const { return object.count(key) != 0; }
};

class JsonReader {
 public:
  explicit JsonReader(const std::string& text) : at_(text.data()), end_(at_ + text.size()) {}

  Json read() {
    Json value = any(0);
    blank();
    if (at_ != end_) fail("the index has data after its end");
    return value;
  }

 private:
  const char *at_, *end_;

  void blank() {
    while (at_ != end_ && std::strchr(" \t\r\n", *at_)) ++at_;
  }
  char next() {
    blank();
    if (at_ == end_) fail("the index ends too soon");
    return *at_;
  }
  bool take(char wanted) {
    if (next() != wanted) return false;
    ++at_;
    return true;
  }
  void need(char wanted) {
    if (!take(wanted)) fail(std::string("the index lacks a ") + wanted);
  }
  Json word(const char* text, Json::Kind kind, int64_t number) {
    size_t size = std::strlen(text);
    if (size_t(end_ - at_) < size || std::strncmp(at_, text, size)) fail("the index has an unknown word");
    at_ += size;
    Json value;
    value.kind = kind;
    value.number = number;
    return value;
  }
  Json any(int depth) {
    if (depth > 32) fail("the index is nested too deeply");
    Json value;
    switch (next()) {
      case '{':
        ++at_;
        value.kind = Json::kObject;
        while (next() != '}') {
          std::string key = string();
          need(':');
          if (!value.object.emplace(key, any(depth + 1)).second) fail("the index has the key " + key + " twice");
          if (!take(',')) break;
        }
        need('}');
        return value;
      case '[':
        ++at_;
        value.kind = Json::kList;
        while (next() != ']') {
          value.list.push_back(any(depth + 1));
          if (!take(',')) break;
        }
        need(']');
        return value;
      case '"':
        value.kind = Json::kString;
        value.text = string();
        return value;
      case 't':
        return word("true", Json::kBool, 1);
      case 'f':
        return word("false", Json::kBool, 0);
      case 'n':
        return word("null", Json::kNull, 0);
      default:
        return integer();
    }
  }
  Json integer() {
    Json value;
    value.kind = Json::kNumber;
    bool negative = take('-');
    if (at_ == end_ || *at_ < '0' || *at_ > '9') fail("the index has an invalid value");
    for (; at_ != end_ && *at_ >= '0' && *at_ <= '9'; ++at_) {
      if (value.number > (INT64_MAX - 9) / 10) fail("the index has too large a number");
      value.number = 10 * value.number + (*at_ - '0');
    }
    if (negative) value.number = -value.number;
    return value;
  }
  std::string string() {
    need('"');
    std::string text;
    while (true) {
      if (at_ == end_) fail("the index ends within a string");
      char c = *at_++;
      if (c == '"') return text;
      if (c == '\\') {  // names are plain: an escape is kept unchanged
        if (at_ == end_) fail("the index ends within a string");
        text += c;
        c = *at_++;
      }
      text += c;
    }
  }
};

// ---- SHA-256 (FIPS 180-4) ----

static std::string sha256(const unsigned char* data, size_t size) {
  // The standard defines its constants as fractional parts of roots of the first primes.
  static uint32_t k[64], start[8];
  if (!k[0]) {
    for (int n = 2, count = 0; count < 64; ++n) {
      bool prime = true;
      for (int d = 2; d * d <= n; ++d) prime = prime && n % d != 0;
      if (!prime) continue;
      auto fraction = [](long double x) { return uint32_t((x - std::floor(x)) * 4294967296.0L); };
      if (count < 8) start[count] = fraction(std::sqrt((long double)n));
      k[count++] = fraction(std::cbrt((long double)n));
    }
  }
  auto turn = [](uint32_t x, int by) { return x >> by | x << (32 - by); };
  uint32_t h[8];
  std::memcpy(h, start, sizeof h);
  uint64_t bits = uint64_t(size) * 8, blocks = (size + 9 + 63) / 64;
  for (uint64_t block = 0; block < blocks; ++block) {
    unsigned char chunk[64] = {};
    size_t begin = block * 64, there = begin < size ? std::min<size_t>(64, size - begin) : 0;
    if (there) std::memcpy(chunk, data + begin, there);
    if (begin <= size && size < begin + 64) chunk[size - begin] = 0x80;
    if (block == blocks - 1)
      for (int i = 0; i < 8; ++i) chunk[56 + i] = (unsigned char)(bits >> (56 - 8 * i));
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; ++i)
      w[i] = uint32_t(chunk[4 * i]) << 24 | chunk[4 * i + 1] << 16 | chunk[4 * i + 2] << 8 | chunk[4 * i + 3];
    for (int i = 16; i < 64; ++i)
      w[i] = w[i - 16] + (turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3) + w[i - 7] +
             (turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10);
    std::memcpy(v, h, sizeof v);
    for (int i = 0; i < 64; ++i) {
      uint32_t t1 = v[7] + (turn(v[4], 6) ^ turn(v[4], 11) ^ turn(v[4], 25)) + ((v[4] & v[5]) ^ (~v[4] & v[6])) + k[i] + w[i];
      uint32_t t2 = (turn(v[0], 2) ^ turn(v[0], 13) ^ turn(v[0], 22)) + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
      std::memmove(v + 1, v, 7 * sizeof *v);
      v[4] += t1;
      v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; ++i) h[i] += v[i];
  }
  char hex[65];
  for (int i = 0; i < 8; ++i) std::snprintf(hex + 8 * i, 9, "%08x", h[i]);
  return hex;
}

// ---- The pack: header, index, members ----

struct Pack {
  Bytes data;
  size_t begin = 0;  // of the members
  Json index;

  const unsigned char* at(const Json& member) const { return data.data() + begin + member["offset"].number; }
};

static uint64_t little_endian(const Bytes& data, size_t at, int bytes) {
  uint64_t value = 0;
  for (int i = bytes; i-- > 0;) value = value << 8 | data[at + i];
  return value;
}

static Pack read_pack(const char* path) {
  Pack pack;
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(std::string(path) + " cannot be read");
  pack.data.assign(std::istreambuf_iterator<char>(file), {});
  const Bytes& data = pack.data;
  if (data.size() < 64 || std::memcmp(data.data(), "CUTEPACK", 8)) fail("not a pack");
  if (little_endian(data, 8, 4) != 1) fail("a pack of another version");
  uint64_t index_bytes = little_endian(data, 16, 8);
  if (little_endian(data, 24, 8) != data.size() || index_bytes > data.size() - 64) fail("the pack was cut off");
  std::string digest;
  for (int i = 32; i < 64; ++i) {
    char hex[3];
    std::snprintf(hex, sizeof hex, "%02x", data[i]);
    digest += hex;
  }
  if (sha256(data.data() + 64, index_bytes) != digest) fail("the index is damaged");
  pack.index = JsonReader(std::string(data.begin() + 64, data.begin() + 64 + index_bytes)).read();
  pack.begin = (64 + index_bytes + 63) / 64 * 64;
  for (const Json& entry : pack.index["entries"].list)
    for (const auto& [name, member] : entry["files"].object) {
      uint64_t offset = member["offset"].number, size = member["size_bytes"].number, room = data.size() - pack.begin;
      if (offset > room || size > room - offset) fail(name + " lies outside the pack");
      if (sha256(pack.at(member), size) != member["sha256"].text) fail(name + " is damaged");
    }
  return pack;
}

static void list(const Pack& pack) {
  for (const Json& entry : pack.index["entries"].list) {
    const Json& problem = entry["problem"];
    std::printf("%s for %s, ", entry["name"].text.c_str(), entry["target"].text.c_str());
    if (problem.null())
      std::printf("every problem\n");
    else
      std::printf("%lld x %lldx%lldx%lld\n", (long long)problem["batch"].number, (long long)problem["m"].number,
                  (long long)problem["n"].number, (long long)problem["k"].number);
  }
}

// Returns whether a cubin runs on a GPU: same major, same or later minor; with the suffix `a`, only the exact version.
static bool runs_on(const std::string& arch, int major, int minor) {
  char suffix = arch.back();
  int number = std::atoi(arch.c_str() + 3);
  if (suffix == 'a') return number == 10 * major + minor;
  return number / 10 == major && number % 10 <= minor;
}

// ---- Matrices on host and device ----

static float to_float(uint16_t half) {
  int exponent = half >> 10 & 31, fraction = half & 1023;
  float value = exponent == 31 ? (fraction ? NAN : INFINITY)
                : exponent     ? std::ldexp(float(1024 + fraction), exponent - 25)
                               : std::ldexp(float(fraction), -24);
  return half & 0x8000 ? -value : value;
}

struct Matrix {
  int64_t rows = 0, columns = 0, leading = 0;
  bool row_major = true;
  int bytes = 2;
  std::string dtype;
  Bytes host;
  uint64_t device = 0;

  int64_t offset(int64_t row, int64_t column) const {
    return row_major ? row * leading + column : column * leading + row;
  }
  double get(int64_t row, int64_t column) const {
    const unsigned char* at = host.data() + offset(row, column) * bytes;
    if (bytes == 2) {
      uint16_t half;
      std::memcpy(&half, at, 2);
      return to_float(half);
    }
    float value;
    std::memcpy(&value, at, 4);
    return value;
  }
  int64_t along_major() const { return row_major ? columns : rows; }
  int64_t across() const { return row_major ? rows : columns; }
};

static Matrix make_matrix(const Json& tensor, const std::map<std::string, int64_t>& extents) {
  Matrix matrix;
  matrix.dtype = tensor["dtype"].text;
  if (matrix.dtype != "f16" && !(matrix.dtype == "f32" && tensor["name"].text == "c")) fail("only f16 is launched here");
  matrix.bytes = matrix.dtype == "f16" ? 2 : 4;
  matrix.rows = extents.at(tensor["modes"][0].text);
  matrix.columns = extents.at(tensor["modes"][1].text);
  matrix.row_major = tensor["major"].text == tensor["modes"][1].text;
  int64_t unit = std::max<int64_t>(1, tensor["align_bytes"].number / matrix.bytes);
  matrix.leading = (matrix.along_major() + unit - 1) / unit * unit;
  matrix.host.assign(matrix.leading * matrix.across() * matrix.bytes, 0xff);  // NaN
  matrix.device = allocated(matrix.host.size());
  return matrix;
}

static void fill(Matrix& matrix, std::mt19937& random) {
  // Magnitudes around 1: exponents 2^-2 to 2^1, any sign and fraction.
  for (size_t i = 0; i < matrix.host.size(); i += 2) {
    uint16_t half = uint16_t((random() & 0x83ff) | (13 + random() % 3) << 10);
    std::memcpy(matrix.host.data() + i, &half, 2);
  }
}

// ---- Launching: "The launch contract" ----

static int64_t number(const Json& launch, const char* key, int64_t absent = 0) {
  return launch.has(key) && !launch[key].null() ? launch[key].number : absent;
}

static Contract contract_of(const Json& launch) {
  Contract made = {};
  made.cluster_x = made.cluster_y = 1;
  if (launch.has("cluster")) made.cluster_x = launch["cluster"][0].number, made.cluster_y = launch["cluster"][1].number;
  const Json& split = launch["split"];
  int64_t tiles_m = made.cluster_x, tiles_n = split.null() ? made.cluster_y : 1;  // of a cluster
  if (number(launch, "swapped")) std::swap(tiles_m, tiles_n);
  made.block_m = launch["cta_tile"][0].number * tiles_m;
  made.block_n = launch["cta_tile"][1].number * tiles_n;
  if (std::min({made.block_m, made.block_n, made.cluster_x, made.cluster_y}) < 1)
    fail("the launch contract has an extent below 1");
  made.cluster_tiles = tiles_m * tiles_n;
  made.grid_y = split.null() ? made.cluster_y : split["slices"].number;
  if (!split.null() && !split["atomics"].number) {
    made.slices = split["slices"].number;
    made.bytes_per_slice = split["bytes_per_slice"].number;
  }
  made.ctas_per_sm = number(launch, "ctas_per_multiprocessor");
  made.spread = number(launch, "spread");
  made.programmatic = number(launch, "programmatic");
  made.threads = unsigned(launch["threads"].number);
  made.smem_bytes = unsigned(launch["dynamic_smem_bytes"].number);
  return made;
}

static TensorMap encode_map(const Json& map, const Matrix& matrix) {
  const MapMode modes[3] = {{matrix.along_major(), 1, unsigned(map["box"][0].number)},
                            {matrix.across(), matrix.leading, unsigned(map["box"][1].number)},
                            {1, 0, 1}};  // the batch
  int type = matrix.dtype == "f16" ? 6 : 7;  // CU_TENSOR_MAP_DATA_TYPE_FLOAT16, FLOAT32
  int64_t bytes = map["swizzle_bytes"].number;
  int swizzle = bytes == 128 ? 3 : bytes == 64 ? 2 : bytes == 32 ? 1 : 0;  // CU_TENSOR_MAP_SWIZZLE_128B and so on
  return map_of(matrix.device, matrix.device, type, matrix.bytes, swizzle, modes);
}

static int run(const Pack& pack, const std::string& name, int64_t m, int64_t n, int64_t k) {
  int gpu = 0;
  void* context = nullptr;
  call("cuInit", 0u);
  call("cuDeviceGet", &gpu, 0);
  call("cuDevicePrimaryCtxRetain", &context, gpu);
  call("cuCtxSetCurrent", context);
  int major = attribute_of(gpu, 75), minor = attribute_of(gpu, 76);  // the compute capability

  const Json* found = nullptr;  // the first of several problems: each kernel computes all problems
  for (const Json& entry : pack.index["entries"].list)
    if (!found && entry["name"].text == name && runs_on(entry["gpu_arch"].text, major, minor)) found = &entry;
  if (!found) fail("no kernel of this name runs on sm_" + std::to_string(10 * major + minor));
  const Json& launch = (*found)["launch"];
  bool plain = launch["scalars"].list.empty() && launch["tensors"].list.size() == 3;
  if (!plain || launch.has("groups") || launch.has("pairs")) fail("only plain products are launched here");
  const Contract contract = contract_of(launch);
  void* loaded_kernel = loaded(pack.at((*found)["files"]["kernel.cubin"]), launch["entry"].text.c_str());
  const Bound kernel = bound_to(gpu, contract, loaded_kernel);

  std::mt19937 random(std::random_device{}());
  std::map<std::string, int64_t> extents = {{"m", m}, {"n", n}, {"k", k}};
  std::map<std::string, Matrix> matrices;
  for (const Json& tensor : launch["tensors"].list) {
    Matrix& matrix = matrices[tensor["name"].text] = make_matrix(tensor, extents);
    if (tensor["name"].text != "c") fill(matrix, random);
    call("cuMemcpyHtoD_v2", matrix.device, static_cast<const void*>(matrix.host.data()), matrix.host.size());
  }
  int64_t clusters = ceil_div(m, contract.block_m) * ceil_div(n, contract.block_n);
  uint64_t counters = 0;
  int64_t counted = counter_bytes(contract, clusters, 1), summed = sums_bytes(contract, clusters, 1);
  if (counted) call("cuMemsetD8_v2", counters = allocated(size_t(counted + summed)), (unsigned char)0, size_t(counted));
  const Json& split = launch["split"];
  if (!split.null() && split["atomics"].number)
    call("cuMemsetD8_v2", matrices["c"].device, (unsigned char)0, matrices["c"].host.size());

  // "Values of parameters, by name": a pointer to each value, in the order of the entry's parameters.
  std::map<std::string, uint64_t> addresses = {{"sums", counters + uint64_t(counted)}, {"counters", counters}};
  std::map<std::string, int64_t> strides;
  for (auto& [role, matrix] : matrices) {
    addresses[role] = matrix.device;
    strides["ld" + role] = matrix.leading;
    strides["batch_stride_" + role] = 0;
  }
  std::map<std::string, int32_t> sizes = {{"m", int32_t(m)}, {"n", int32_t(n)}, {"k", int32_t(k)}};
  std::map<std::string, TensorMap> maps;
  for (const Json& map : launch["maps"].list)
    maps["map_" + map["name"].text] = encode_map(map, matrices.at(map["name"].text));
  std::vector<void*> values;
  for (const Json& parameter : launch["parameters"].list) {
    const std::string &type = parameter["type"].text, &called = parameter["name"].text;
    if (type == "ptr") values.push_back(&addresses.at(called));
    if (type == "i64") values.push_back(&strides.at(called));
    if (type == "i32") values.push_back(&sizes.at(called));
    if (type == "tensormap") values.push_back(&maps.at(called));
  }
  LaunchAttribute attributes[2] = {};
  const LaunchConfig config = config_of(contract, launched(contract, kernel, clusters, 1), 1, attributes);
  check(driver().launch(&config, kernel.function, values.data(), nullptr), "cuLaunchKernelEx");
  call("cuCtxSynchronize");

  Matrix &a = matrices["a"], &b = matrices["b"], &c = matrices["c"];
  call("cuMemcpyDtoH_v2", static_cast<void*>(c.host.data()), c.device, c.host.size());
  double worst = 0, largest = 0;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double exact = 0;
      for (int64_t l = 0; l < k; ++l) exact += a.get(i, l) * b.get(j, l);
      double off = std::fabs(c.get(i, j) - exact);
      worst = std::max(worst, std::isnan(off) ? INFINITY : off);
      largest = std::max(largest, std::fabs(exact));
    }
  bool right = worst <= largest / 512;
  std::printf("%s for %s, %lldx%lldx%lld: largest error %.3g of %.3g, %s\n", name.c_str(), (*found)["gpu_arch"].text.c_str(),
              (long long)m, (long long)n, (long long)k, worst, largest, right ? "right" : "wrong");
  return right ? 0 : 1;
}

int main(int count, char** words) try {
  if (count != 2 && count != 3 && count != 6) fail("usage: launch_pack FILE.cutepack [NAME [M N K]]");
  Pack pack = read_pack(words[1]);
  if (count == 2) return list(pack), 0;
  int64_t extents[3] = {300, 272, 192};
  for (int i = 3; i < count; ++i)
    if ((extents[i - 3] = std::atoll(words[i])) < 1) fail("M, N and K are at least 1");
  return run(pack, words[2], extents[0], extents[1], extents[2]);
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
