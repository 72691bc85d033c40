/* SPDX-License-Identifier: MIT */
/*
 * The index of a trace's spans. The first byte of the input says what the rest is:
 *
 *   bit 3 is 0   bytes as they are within a part of the file, bits 0 to 2: statistics, self times, a tree, sums of one,
 *                edges, the functions and long spans of a granule, the builder's state, for stacks alone and to go on
 *                from in the trace
 *   it is 1      changes to a good file: offset (2 bytes), size (1), value (up to 8). The checksums are put right, so
 *                that the checks after them are what is tested. Then it is opened, as bits 4 and 5 say, and asked.
 */
#include "fuzz.h"

#include "base/crc32c.h"
#include "index/index_internal.h"
#include "span/stacks.h"
#include "trace/format.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
  BLOCKS = 60,
  CALLS = 40,
  FUNCTIONS = 5,
  FILE_BYTES_MAX = 1 << 20,
  START = 1000,
  HEAD_BYTES = 144,
  THREAD_BYTES = 176
};

static char folder[64];
static uint8_t thread_file[FILE_BYTES_MAX];
static size_t thread_bytes;
static uint8_t *good;
static size_t good_bytes;

/* ---- a trace ---- */

static const char *
path_of(const char *name)
{
  static char path[128];
  snprintf(path, sizeof(path), "%s/%s", folder, name);
  return path;
}

static void
leave(void)
{
  static const char *const names[] = {"manifest.json", "functions.tsv", "thread_0/index.ctb", "spans.cti",
                                      "spans.cti.new"};
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
    unlink(path_of(names[i]));
  }
  rmdir(path_of("thread_0"));
  rmdir(folder);
}

static void
put_file(const char *name, const void *bytes, size_t size)
{
  int fd = open(path_of(name), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  CHECK(fd >= 0 && write(fd, bytes, size) == (ssize_t)size && close(fd) == 0);
}

static void
append(const void *bytes, size_t size)
{
  CHECK(size <= FILE_BYTES_MAX - thread_bytes);
  memcpy(thread_file + thread_bytes, bytes, size);
  thread_bytes += size;
}

/* Function 0 is open all the while; in it others call each other, some of them for long. */
static void
append_block(uint32_t number, uint64_t first_tsc)
{
  struct ct_block_header header = {.magic = CT_BLOCK_MAGIC,
                                   .header_bytes = sizeof(header),
                                   .number = number,
                                   .first_tsc = first_tsc,
                                   .depth_start = number != 0,
                                   .open_count = number != 0};
  uint8_t open[32], ops[2 * CALLS + 2], ids[CALLS + 2], deltas[4 * CALLS + 8];
  uint8_t *o = open, *op = ops, *id = ids, *delta = deltas;
  uint64_t tsc = first_tsc;
  *o++ = 0;
  if (number != 0) {
    *o++ = 0;
    o = ct_varint_put(o, first_tsc - START);
    *o++ = 0;
  } else {
    *op++ = CT_TRACE_OP_ENTER;
    *id++ = *delta++ = 0;
  }
  for (uint32_t i = 0, depth = 0; i < CALLS || depth != 0;) {
    bool enters = i < CALLS && (depth == 0 || (i * 7 + number) % 3 != 0);
    uint32_t step = op == ops ? 0 : i % 11 == 10 && !enters ? 12000 : 3 + i % 5;
    *op++ = enters ? CT_TRACE_OP_ENTER : CT_TRACE_OP_RETURN;
    *id = (uint8_t)(1 + (i + number) % (FUNCTIONS - 1));
    id += enters;
    delta = ct_varint_put(delta, step);
    tsc += step;
    depth += enters ? 1 : -1u;
    i += enters;
  }
  if (number + 1 == BLOCKS) {
    *op++ = CT_TRACE_OP_RETURN;
    *delta++ = 5;
    tsc += 5;
  }
  const struct {
    const uint8_t *data, *end;
  } sections[CT_SECTIONS] = {{open, o}, {ops, op}, {ids, id}, {deltas, delta}, {deltas, deltas}};
  size_t at = thread_bytes;
  append(&header, sizeof(header));
  for (int i = 0; i < CT_SECTIONS; i++) {
    uint32_t bytes = (uint32_t)(sections[i].end - sections[i].data);
    header.section[i] = (struct ct_section_size){bytes, bytes};
    append(sections[i].data, bytes);
  }
  header.last_tsc = tsc;
  header.ops = (uint32_t)(op - ops);
  header.calls = (uint32_t)(id - ids);
  header.first_enter = number == 0 ? 0 : (uint64_t)number * CALLS + 1;
  header.first_event = number == 0 ? 0 : (uint64_t)number * CALLS * 2 + 1;
  header.payload_bytes = (uint32_t)(thread_bytes - at - sizeof(header));
  header.payload_crc = ct_crc32c(0, thread_file + at + sizeof(header), header.payload_bytes);
  header.header_crc = ct_crc32c(0, &header, sizeof(header));
  memcpy(thread_file + at, &header, sizeof(header));
}

static void
make_trace(void)
{
  static const char manifest[] =
      "{\"format\":\"contrail\",\"version\":2,\"state\":\"complete\",\"command\":[\"a\"],\"pid\":100,\"start_ns\":1000,"
      "\"end_ns\":2000000,\"clock\":{\"tsc0\":0,\"ns0\":0,\"tsc1\":1000000,\"ns1\":1000000},\"exit\":{\"status\":0},"
      "\"install_ns\":5,\"modules\":[{\"index\":0,\"image\":0,\"path\":\"/bin/p\",\"build_id\":\"ab\",\"base\":0,"
      "\"functions\":5,\"hooked\":5,\"refused\":{}}],\"threads\":[{\"index\":0,\"tid\":100,\"name\":\"a\",\"events\":9,"
      "\"dropped\":0}],\"dropped_total\":0}";
  static const char functions[] = "0\t0\t0x10\t16\tfull\tmain\n1\t0\t0x20\t16\tfull\ta\n2\t0\t0x30\t16\tfull\tb\n"
                                  "3\t0\t0x40\t16\tfull\tc\n4\t0\t0x50\t16\tfull\td\n";
  struct ct_file_header header = {
      .magic = CT_FILE_MAGIC, .version = CT_TRACE_VERSION, .header_bytes = sizeof(header), .tid = 100, .pid = 100};
  header.header_crc = ct_crc32c(0, &header, offsetof(struct ct_file_header, header_crc));
  snprintf(folder, sizeof(folder), "/dev/shm/contrail-fuzz-XXXXXX");
  CHECK(mkdtemp(folder) != NULL && mkdir(path_of("thread_0"), 0700) == 0);
  atexit(leave);
  append(&header, sizeof(header));
  for (uint32_t i = 0; i < BLOCKS; i++) {
    append_block(i, START + i * 100000ull);
  }
  put_file("manifest.json", manifest, sizeof(manifest) - 1);
  put_file("functions.tsv", functions, sizeof(functions) - 1);
  put_file("thread_0/index.ctb", thread_file, thread_bytes);
}

/* ---- the parts ---- */

static void
take_stats(const uint8_t *bytes, size_t size, bool selves)
{
  struct ct_stats stats;
  CHECK(ct_stats_init(&stats, FUNCTIONS) == 0);
  if (selves) {
    ct_stats_touch(&stats, 1);
    ct_stats_touch(&stats, 3);
  }
  int code = selves ? ct_selves_take(&stats, bytes, size) : ct_stats_take(&stats, bytes, size);
  CHECK(code == 0 || code == CT_EFORMAT || code == CT_ENOMEM);
  CHECK(stats.touched_count <= FUNCTIONS + 1);
  for (uint32_t i = 0; i < stats.touched_count && code == 0; i++) {
    CHECK(stats.touched[i] <= FUNCTIONS && stats.fns[stats.touched[i]].histogram != NULL);
    (void)ct_histogram_quantile(stats.fns[stats.touched[i]].histogram, 990);
  }
  ct_stats_destroy(&stats);
}

static void
take_tree(const uint8_t *bytes, size_t size, bool sums)
{
  struct ct_edge_table edges = {0};
  struct ct_span_tree tree = {0};
  struct ct_tree_sums of = {0};
  int code = sums ? ct_tree_sums_take(bytes, size, &of) : ct_tree_take(bytes, size, &tree);
  CHECK(code == 0 || code == CT_EFORMAT || code == CT_ENOMEM);
  if (code == 0) {
    CHECK((sums ? ct_tree_sums_add_edges(&of, &edges) : ct_tree_add_edges(&tree, &edges)) == 0);
    sums ? ct_tree_sums_destroy(&of) : ct_span_tree_destroy(&tree);
  }
  ct_edges_free(&edges);
}

static void
take_granule(const uint8_t *bytes, size_t size)
{
  const struct ct_granule granule = {.first_tsc = 1u << 20};
  uint8_t flags[FUNCTIONS + 1] = {0, 1, 0, 1, 0, 0};
  struct ct_granule_wanted wanted = ct_granule_wanted(size % 2 != 0 ? flags : NULL, FUNCTIONS);
  const uint8_t *at = bytes;
  struct ct_span span;
  uint64_t most;
  bool found;
  if (wanted.functions != NULL) {
    (void)ct_granule_has(bytes, bytes + size, &wanted, &most);
  }
  while (ct_granule_next_span(&at, bytes + size, &granule, &wanted, &span, &found) == 0 && found) {
    CHECK(at <= bytes + size && span.end < CT_SPAN_ENDS);
  }
}

static void
take_state(const uint8_t *bytes, size_t size)
{
  struct ct_span_stacks stacks;
  struct ct_span_clock clock;
  CHECK(ct_span_stacks_init(&stacks) == 0);
  int code = ct_span_state_take(bytes, size, &stacks, &clock);
  CHECK(code == 0 || code == CT_EFORMAT || code == CT_ENOMEM);
  ct_span_stacks_destroy(&stacks);
}

static void
go_on(struct ct_trace *trace, const uint8_t *bytes, size_t size)
{
  struct ct_spans *spans;
  const struct ct_span *batch;
  size_t count = 1;
  CHECK(ct_spans_open(trace, 0, CT_TIME_WALL, &spans, NULL) == 0);
  int code = ct_spans_restore(spans, sizeof(struct ct_file_header), bytes, size);
  CHECK(code == 0 || code == CT_EFORMAT || code == CT_ENOMEM);
  while (code == 0 && count != 0) {
    CHECK(ct_spans_next(spans, &batch, &count) == 0);
  }
  ct_spans_close(spans);
}

static void
take_part(struct ct_trace *trace, uint8_t which, const uint8_t *bytes, size_t size)
{
  struct ct_edge_table edges = {0};
  switch (which) {
  case 0:
  case 1:
    take_stats(bytes, size, which == 1);
    break;
  case 2:
  case 3:
    take_tree(bytes, size, which == 3);
    break;
  case 4:
    (void)ct_edges_take(&edges, bytes, size);
    ct_edges_free(&edges);
    break;
  case 5:
    take_granule(bytes, size);
    break;
  case 6:
    take_state(bytes, size);
    break;
  default:
    go_on(trace, bytes, size);
    break;
  }
}

/* ---- the file ---- */

static uint64_t
number_at(const uint8_t *bytes, size_t at)
{
  uint64_t value;
  memcpy(&value, bytes + at, sizeof(value));
  return value;
}

/* Of the piece whose place is there, going on from crc; what is not in the file is left out. */
static uint32_t
crc_of(const uint8_t *bytes, size_t at, uint32_t crc)
{
  uint64_t offset = number_at(bytes, at), size = number_at(bytes, at + 8);
  return offset > good_bytes || size > good_bytes - offset ? crc : ct_crc32c(crc, bytes + offset, size);
}

static void
put_crc(uint8_t *bytes, size_t at, uint32_t crc)
{
  memcpy(bytes + at, &crc, sizeof(crc));
}

/* docs/format.md has the offsets. */
static void
put_right(uint8_t *bytes)
{
  uint8_t *thread = bytes + HEAD_BYTES;
  uint64_t blob = number_at(thread, 120), size = number_at(thread, 128), granules = number_at(thread, 96) / 80;
  uint64_t table = (granules + 15) / 16 * 8, at = table;
  if (blob <= good_bytes && size <= good_bytes - blob && table <= size) {
    for (uint64_t i = 0; i < table; i += 8) {
      uint32_t frame;
      memcpy(&frame, bytes + blob + i, sizeof(frame));
      if (frame <= size - at) {
        put_crc(bytes, blob + i + 4, ct_crc32c(0, bytes + blob + at, frame));
        at += frame;
      }
    }
    put_crc(thread, 160, ct_crc32c(0, bytes + blob, table));
  }
  put_crc(thread, 28,
          crc_of(bytes, HEAD_BYTES + 136, crc_of(bytes, HEAD_BYTES + 104, crc_of(bytes, HEAD_BYTES + 88, 0))));
  put_crc(bytes, 12, crc_of(bytes, 56, crc_of(bytes, 40, 0)));
  put_crc(bytes, 112, crc_of(bytes, 88, 0));
  put_crc(bytes, 116, crc_of(bytes, 120, 0));
  put_crc(bytes, 8, 0);
  put_crc(bytes, 8, ct_crc32c(0, bytes, HEAD_BYTES + THREAD_BYTES));
}

static void
scan(struct ct_index *index, const struct ct_scan_filter *filter)
{
  struct ct_index_scan *scan;
  const struct ct_span *span;
  uint64_t count = 0;
  if (ct_scan_open(index, filter, &scan, NULL) == 0) {
    while (ct_scan_next(scan, &span) == 0 && span != NULL && count++ < 100000) {
    }
    ct_scan_close(scan);
  }
}

static void
ask(struct ct_index *index)
{
  uint8_t functions[FUNCTIONS + 1] = {0, 1, 0, 1, 0, 0}, *wanted = NULL;
  struct ct_scan_filter filter = CT_SCAN_FILTER_ALL;
  const struct ct_index_edge *edges;
  struct ct_index_extent extent;
  struct ct_span_clock clock;
  struct ct_span_tree tree;
  size_t count;
  scan(index, &filter);
  for (filter.longest = 7; filter.order <= CT_SCAN_LAST_ENDED; filter.order++) {
    scan(index, &filter);
  }
  filter = CT_SCAN_FILTER_ALL;
  filter.functions = functions;
  filter.least_ticks = 9000;
  scan(index, &filter);
  filter = CT_SCAN_FILTER_ALL;
  filter.start_from = START + 300000;
  filter.start_to = START + 500000;
  scan(index, &filter);
  filter = CT_SCAN_FILTER_ALL;
  filter.has_id = true;
  filter.ordinal = 3 * CALLS;
  scan(index, &filter);
  (void)ct_index_edges(index, &edges);
  (void)ct_index_clock_at(index, 0, 2 * CALLS, &clock);
  ct_index_extent(index, 0, &extent);
  if (ct_index_tree(index, 0, &tree) == 0) {
    ct_span_tree_destroy(&tree);
  }
  if (ct_index_granules_of(index, 0, functions, &wanted, &count) == 0) {
    free(wanted);
  }
}

static void
open_changed(struct ct_trace *trace, uint8_t how, struct input *input)
{
  static const struct ct_view_progress none;
  struct ct_index *index = NULL;
  uint8_t *bytes = malloc(good_bytes);
  CHECK(bytes != NULL);
  memcpy(bytes, good, good_bytes);
  bool is_changed = input->at < input->end;
  while (input->at < input->end) {
    size_t at = input_number(input, 2) % good_bytes, count = 1 + input_number(input, 1) % 8;
    uint64_t value = input_number(input, count);
    memcpy(bytes + at, &value, count < good_bytes - at ? count : good_bytes - at);
  }
  put_right(bytes);
  CHECK(is_changed || memcmp(bytes, good, good_bytes) == 0);
  put_file("spans.cti", bytes, good_bytes);
  free(bytes);
  int code = how % 4 == 1   ? ct_index_open_sums(trace, 1, &none, &index, NULL)
             : how % 4 == 2 ? ct_index_open_trees(trace, true, 1, &none, &index, NULL)
             : how % 4 == 3 ? ct_index_open_selves(trace, 1, &none, &index, NULL)
                            : ct_index_open(trace, 1, &none, &index, NULL);
  CHECK(is_changed || code == 0);
  if (code == 0 && how % 4 == 0) {
    CHECK(is_changed || ct_index_origin(index) == CT_INDEX_FROM_FILE);
    ask(index);
  }
  ct_index_close(index);
}

static void
make_good(struct ct_trace *trace)
{
  static const struct ct_view_progress none;
  struct ct_index *index;
  struct ct_diag diag = {""};
  CHECK(setenv("CONTRAIL_TEST_INDEX_EVENTS", "1", 1) == 0);
  CHECK(ct_index_open(trace, 1, &none, &index, &diag) == 0);
  CHECK(ct_index_stats(index)->touched_count == FUNCTIONS && index->threads[0].part.granule_count > 2);
  ask(index);
  ct_index_close(index);
  int fd = open(path_of("spans.cti"), O_RDONLY);
  struct stat status;
  CHECK(fd >= 0 && fstat(fd, &status) == 0);
  good_bytes = (size_t)status.st_size;
  good = malloc(good_bytes);
  CHECK(good != NULL && read(fd, good, good_bytes) == (ssize_t)good_bytes && close(fd) == 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static struct ct_trace *trace;
  if (trace == NULL) {
    make_trace();
    CHECK(ct_trace_open(folder, &trace, NULL) == 0);
    make_good(trace);
  }
  struct input input = {data, data + size};
  uint8_t which = (uint8_t)input_number(&input, 1);
  if ((which & 8) != 0) {
    open_changed(trace, which >> 4, &input);
    return 0;
  }
  size_t taken;
  uint8_t *part = input_part(&input, size, &taken);
  take_part(trace, which & 7, part, taken);
  free(part);
  return 0;
}
