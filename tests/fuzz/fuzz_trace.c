/* SPDX-License-Identifier: MIT */
/*
 * Trace directories: the reader, and the views on it. The input says what the blocks hold; sizes and checksums are made
 * here, so that what is after them is met, and then some bytes of the file are spoiled without.
 *
 *   input:   flags u8 | bytes of the manifest u16 | bytes of functions.tsv u16 | these | blocks
 *   functions.tsv is written as prototypes.tsv too.
 *   block:   flags u8 | bytes of the sections open, ops, ids, deltas, extra u16 x 5 | first tsc u32, span u32 |
 *            frames open u8 | of them listed u8 | lost u8 | the sections
 *   flags:   1 one byte of the file is spoiled, at the place that stands in front of the blocks (u16)
 *            2 what is damaged is skipped    4 JSON    8 each thread by itself    16 a second thread
 *   block's: 1 compressed    2 the number of ops is one more    4 the depth is large    8 a block before it is missing
 *            16 it is there twice
 */
#include "fuzz.h"

#include "base/crc32c.h"
#include "trace/format.h"
#include "trace/batch.h"
#include <contrail/graph.h>
#include <contrail/info.h>
#include <contrail/replay.h>
#include <contrail/slowest.h>
#include "span/spans.h"
#include "span/stacks.h"
#include "span/stats.h"
#include "views/report.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

enum { FILE_BYTES_MAX = 1 << 20 };

static char folder[64];
static uint8_t file[FILE_BYTES_MAX];
static size_t file_bytes;
static uint32_t block_number;

static void
leave(void)
{
  static const char *const names[] = {"manifest.json",        "functions.tsv",      "prototypes.tsv",
                                      "thread_0/index.ctb",   "thread_1/index.ctb", "thread_1/index-1.ctb",
                                      "thread_1/index-3.ctb", "thread_0",           "thread_1"};
  char path[128];
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
    snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
    if (unlink(path) != 0) {
      rmdir(path);
    }
  }
  rmdir(folder);
}

static void
enter(void)
{
  char path[128];
  snprintf(folder, sizeof(folder), "/dev/shm/contrail-fuzz-XXXXXX");
  CHECK(mkdtemp(folder) != NULL);
  for (int i = 0; i < 2; i++) {
    snprintf(path, sizeof(path), "%s/thread_%d", folder, i);
    CHECK(mkdir(path, 0700) == 0);
  }
  atexit(leave);
}

static void
put_file(const char *name, const void *bytes, size_t size)
{
  char path[128];
  snprintf(path, sizeof(path), "%s/%s", folder, name);
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  CHECK(fd >= 0 && write(fd, bytes, size) == (ssize_t)size && close(fd) == 0);
}

/* prototypes.tsv has the same lines, with the checksum that they need. */
static void
put_prototypes(const uint8_t *lines, size_t bytes)
{
  char head[64];
  int length = snprintf(head, sizeof(head), "%s%08x\n", CT_PROTOTYPES_HEAD, ct_crc32c(0, lines, bytes));
  char *whole = malloc((size_t)length + bytes);
  CHECK(whole != NULL);
  memcpy(whole, head, (size_t)length);
  memcpy(whole + length, lines, bytes);
  put_file("prototypes.tsv", whole, (size_t)length + bytes);
  free(whole);
}

static void
append(const void *bytes, size_t size)
{
  CHECK(size <= FILE_BYTES_MAX - file_bytes);
  memcpy(file + file_bytes, bytes, size);
  file_bytes += size;
}

static void
append_file_header(uint32_t index)
{
  struct ct_file_header header = {.magic = CT_FILE_MAGIC,
                                  .version = CT_TRACE_VERSION,
                                  .header_bytes = sizeof(header),
                                  .thread_index = index,
                                  .tid = 100 + index,
                                  .pid = 100};
  header.header_crc = ct_crc32c(0, &header, offsetof(struct ct_file_header, header_crc));
  append(&header, sizeof(header));
}

static void
append_section(struct input *input, size_t bytes, int packed, struct ct_section_size *size)
{
  uint8_t small[4096];
  size_t taken;
  uint8_t *part = input_part(input, bytes, &taken);
  *size = (struct ct_section_size){(uint32_t)taken, (uint32_t)taken};
  size_t packed_bytes = packed ? ZSTD_compress(small, sizeof(small), part, taken, 1) : taken;
  if (!ZSTD_isError(packed_bytes) && packed_bytes < taken) {
    size->stored_bytes = (uint32_t)packed_bytes;
    append(small, packed_bytes);
  } else {
    append(part, taken);
  }
  free(part);
}

static void
append_block(struct input *input)
{
  struct ct_block_header header = {.magic = CT_BLOCK_MAGIC, .header_bytes = sizeof(header)};
  size_t bytes[CT_SECTIONS];
  uint8_t flags = (uint8_t)input_number(input, 1);
  for (int i = 0; i < CT_SECTIONS; i++) {
    bytes[i] = input_number(input, 2) & 0x3ff;
  }
  header.first_tsc = input_number(input, 4);
  header.last_tsc = header.first_tsc + input_number(input, 4);
  header.depth_start = (uint32_t)input_number(input, 1);
  header.open_count = (uint32_t)input_number(input, 1);
  header.lost = input_number(input, 1);
  if (flags & 4) {
    header.depth_start = CT_DEPTH_MAX - header.depth_start;
  }
  block_number += (flags >> 3 & 1) - (flags >> 4 & 1);
  header.number = block_number++;
  header.first_event = header.first_enter = header.number * 5ull;
  size_t at = file_bytes;
  append(&header, sizeof(header));
  for (int i = 0; i < CT_SECTIONS; i++) {
    append_section(input, bytes[i], flags & 1, &header.section[i]);
  }
  header.ops = header.section[CT_SECTION_OPS].raw_bytes + (flags >> 1 & 1);
  header.payload_bytes = (uint32_t)(file_bytes - at - sizeof(header));
  const uint8_t *payload = file + at + sizeof(header);
  header.payload_crc = ct_crc32c(0, payload, header.payload_bytes);
  header.calls = header.ops / 2;
  header.header_crc = ct_crc32c(0, &header, sizeof(header));
  memcpy(file + at, &header, sizeof(header));
}

static void
check_events(struct ct_trace *trace, uint32_t thread, uint32_t flags)
{
  struct ct_cursor *cursor;
  const struct ct_event *events;
  const struct ct_open_frame *frames;
  size_t count;
  uint64_t tsc = 0;
  CHECK(ct_cursor_open(trace, thread, flags, &cursor, NULL) == CT_OK);
  while ((count = ct_cursor_next(cursor, &events)) != 0) {
    for (size_t i = 0; i < count; i++) {
      CHECK(events[i].kind <= CT_EV_COUNTED);
      if (events[i].kind == CT_EV_ENTER) {
        CHECK(events[i].fn <= CT_FUNCTION_ID_MAX);
      }
      tsc ^= events[i].tsc ^ events[i].enter_tsc; /* read all of it */
    }
  }
  CHECK(ct_cursor_state(cursor) != CT_CURSOR_OK);
  CHECK(ct_cursor_open_frames(cursor, &frames) <= ct_cursor_depth(cursor));
  for (uint64_t at = sizeof(struct ct_file_header); at < file_bytes && at < 4096; at += 32 + (tsc & 31)) {
    if (ct_cursor_seek(cursor, at) == CT_OK) {
      (void)ct_cursor_next(cursor, &events);
    }
  }
  ct_cursor_close(cursor);
}

static int
look_on(void *arg, const struct ct_spans *spans, struct ct_span_stack *stack)
{
  (void)arg, (void)spans, (void)stack;
  return 0;
}

static int
look_on_end(void *arg, const struct ct_spans *spans, struct ct_span_stack *stack, const struct ct_span_call *call)
{
  (void)arg, (void)spans, (void)stack, (void)call;
  return 0;
}

static void
check_same_span(const struct ct_span *a, const struct ct_span *b)
{
  CHECK(a->ordinal == b->ordinal && a->parent_ordinal == b->parent_ordinal && a->enter_tsc == b->enter_tsc &&
        a->end_tsc == b->end_tsc && a->duration_ticks == b->duration_ticks && a->self_ticks == b->self_ticks);
  CHECK(a->off_ticks == b->off_ticks && a->fresh_ticks == b->fresh_ticks && a->fresh_off_ticks == b->fresh_off_ticks &&
        a->fn == b->fn && a->caller_fn == b->caller_fn && a->context == b->context);
  CHECK(a->recursion == b->recursion && a->depth == b->depth && a->thread == b->thread && a->end == b->end &&
        a->uncertain == b->uncertain);
}

static void
check_same_sums(const struct ct_stats *a, const struct ct_stats *b)
{
  for (uint32_t i = 0; i <= a->fn_count; i++) {
    const struct ct_fn_stats *x = &a->fns[i], *y = &b->fns[i];
    CHECK((x->histogram == NULL) == (y->histogram == NULL) && x->points == y->points && x->untimed == y->untimed);
    CHECK(x->total_ticks == y->total_ticks && x->self_ticks == y->self_ticks && x->max_ticks == y->max_ticks);
    CHECK(x->min_ticks == y->min_ticks && x->orphans == y->orphans && a->off[i] == b->off[i]);
    CHECK(x->histogram == NULL ||
          (x->histogram->count == y->histogram->count && x->histogram->sum == y->histogram->sum));
    for (int end = 0; a->unwound[i] != NULL && end < CT_SPAN_ENDS; end++) {
      CHECK(a->unwound[i][end] == (b->unwound[i] != NULL ? b->unwound[i][end] : 0));
    }
  }
}

/* All begins and ends in their order, as one number. */
struct order {
  uint64_t hash, count, edges;
};

static void
add_to_order(struct order *order, uint64_t context, uint64_t tsc, uint32_t fn, uint32_t what)
{
  const uint64_t values[] = {context, tsc, fn, what};
  for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
    order->hash = (order->hash ^ values[i]) * 0x100000001b3ull;
  }
  order->count++;
}

static int
order_begin(void *arg, const struct ct_spans *spans, struct ct_span_stack *stack)
{
  const struct ct_span_frame *frame = &stack->frames[stack->count - 1];
  (void)spans;
  add_to_order(arg, (uint32_t)stack->context, frame->enter_tsc, frame->fn, CT_SPAN_EDGE_BEGIN);
  return 0;
}

static int
order_end(void *arg, const struct ct_spans *spans, struct ct_span_stack *stack, const struct ct_span_call *call)
{
  const struct ct_span *span = call->span;
  (void)spans, (void)stack;
  add_to_order(arg, span->context, span->end_tsc, span->fn,
               span->end | (uint32_t)span->uncertain << 8 | (uint32_t)(call->note == NULL) << 16);
  return 0;
}

static int
order_edges(void *arg, const struct ct_spans *spans, uint64_t context, const struct ct_span_edge *edges, size_t count)
{
  struct order *order = arg;
  (void)spans;
  CHECK(count != 0);
  for (size_t i = 0; i < count; i++) {
    add_to_order(order, (uint32_t)context, edges[i].tsc, edges[i].fn, edges[i].what);
  }
  order->edges += count;
  return 0;
}

/* What is told many at a time is what would have been told one by one. */
static void
check_edges(struct ct_trace *trace, uint32_t thread)
{
  struct order order[2] = {{0}};
  for (int i = 0; i < 2; i++) {
    const struct ct_span_observer observer = {
        .entered = order_begin, .ended = order_end, .edges = i == 0 ? NULL : order_edges, .arg = &order[i]};
    struct ct_spans *spans;
    const struct ct_span *batch;
    size_t count;
    CHECK(ct_spans_open(trace, thread, CT_TIME_WALL, &spans, NULL) == CT_OK);
    ct_spans_observe(spans, &observer);
    do {
      CHECK(ct_spans_next(spans, &batch, &count) == CT_OK);
    } while (count != 0);
    ct_spans_close(spans);
  }
  CHECK(order[0].hash == order[1].hash && order[0].count == order[1].count && order[1].edges <= order[1].count);
}

/* Spans and sums from the ops of blocks (span/direct.c) are those that events make, as somebody who looks on has them.
 */
static void
check_spans(struct ct_trace *trace, uint32_t thread)
{
  const struct ct_span_observer observer = {.entered = look_on, .ended = look_on_end};
  struct ct_spans *direct, *slow, *sums;
  struct ct_stats stats, added;
  const struct ct_span *a, *b;
  size_t a_count = 0, b_count = 0;
  CHECK(ct_spans_open(trace, thread, CT_TIME_WALL, &direct, NULL) == CT_OK);
  CHECK(ct_spans_open(trace, thread, CT_TIME_WALL, &slow, NULL) == CT_OK);
  CHECK(ct_spans_open(trace, thread, CT_TIME_WALL, &sums, NULL) == CT_OK);
  CHECK(ct_stats_init(&stats, ct_trace_function_count(trace)) == 0);
  CHECK(ct_stats_init(&added, ct_trace_function_count(trace)) == 0);
  ct_spans_observe(slow, &observer);
  for (;;) {
    CHECK(a_count != 0 || ct_spans_next(direct, &a, &a_count) == CT_OK);
    if (b_count == 0) {
      CHECK(ct_spans_next(slow, &b, &b_count) == CT_OK);
      CHECK(ct_stats_add(&added, b, b_count) == 0);
    }
    CHECK((a_count == 0) == (b_count == 0));
    if (a_count == 0) {
      break;
    }
    for (; a_count != 0 && b_count != 0; a_count--, b_count--) {
      check_same_span(a++, b++);
    }
  }
  CHECK(ct_spans_events(direct) == ct_spans_events(slow) && ct_spans_lost(direct) == ct_spans_lost(slow));
  CHECK(ct_spans_sum(sums, &stats, NULL, NULL) == CT_OK && ct_spans_events(sums) == ct_spans_events(slow));
  check_same_sums(&stats, &added);
  ct_stats_destroy(&stats);
  ct_stats_destroy(&added);
  ct_spans_close(direct);
  ct_spans_close(slow);
  ct_spans_close(sums);
  check_edges(trace, thread);
}

/* Thread 1 has the same in two pieces, divided anywhere; or none. */
static void
put_pieces(int wanted, size_t lot)
{
  char path[128];
  static const char *const names[] = {"thread_1/index-1.ctb", "thread_1/index-3.ctb", "thread_1/index.ctb"};
  for (int i = 0; i < 2 + wanted; i++) {
    snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
    unlink(path);
  }
  if (wanted) {
    size_t head = sizeof(struct ct_file_header), rest = file_bytes - head, cut = head + lot % (rest + 1);
    uint8_t *second = malloc(head + file_bytes - cut);
    CHECK(second != NULL);
    memcpy(second, file, head);
    memcpy(second + head, file + cut, file_bytes - cut);
    put_file(names[0], file, cut);
    put_file(names[1], second, head + file_bytes - cut);
    free(second);
  }
}

/* What was written as JSON: one value, or one in each line. */
static void
check_json(char *text, int lines)
{
  for (char *line = text; *line != 0;) {
    char *end = lines ? strchr(line, '\n') : line + strlen(line);
    CHECK(end != NULL);
    json_t *value = json_loadb(line, (size_t)(end - line), JSON_REJECT_DUPLICATES, NULL);
    CHECK(json_is_object(value));
    json_decref(value);
    line = *end == 0 ? end : end + 1;
  }
}

static void
check_views(struct ct_trace *trace, uint8_t flags)
{
  int json = (flags & 4) != 0;
  struct ct_view_notes notes = {.struct_size = sizeof(notes)};
  struct ct_info_options info = {.struct_size = sizeof(info), .json = json};
  struct ct_filter calls = {
      .struct_size = sizeof(calls), .max_ns = flags & 16 ? 1000 : 0, .reasons = flags & 32 ? 3 : 0};
  struct ct_report_options report = {.struct_size = sizeof(report),
                                     .json = json,
                                     .filter = &calls,
                                     .per_thread = (flags & 8) != 0,
                                     .workers = 1,
                                     .width = 80,
                                     .sort = flags >> 5};
  struct ct_filter filter = {.struct_size = sizeof(filter), .limit = 2000};
  struct ct_replay_options replay = {.struct_size = sizeof(replay), .json = json, .filter = &filter};
  struct ct_report_options rows = {.struct_size = sizeof(rows),
                                   .json = json,
                                   .filter = &filter,
                                   .rows = (enum ct_report_rows)(1 + flags % CT_ROWS_CLASSES)};
  const struct ct_filter *selected = (flags & 64) != 0 ? &calls : &filter;
  struct ct_graph_options graph = {
      .struct_size = sizeof(graph), .json = json, .filter = selected, .paths = 20, .per_thread = (flags & 8) != 0};
  struct ct_slowest_options slowest = {.struct_size = sizeof(slowest), .json = json, .filter = selected};
  for (int view = 0; view < 6; view++) {
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    CHECK(out != NULL);
    int code = view == 0   ? ct_info_write(trace, &info, out, NULL)
               : view == 1 ? ct_report_write(trace, &report, out, &notes, NULL)
               : view == 2 ? ct_replay_write(trace, &replay, out, &notes, NULL)
               : view == 3 ? ct_report_write(trace, &rows, out, &notes, NULL)
               : view == 4 ? ct_graph_write(trace, &graph, out, &notes, NULL)
                           : ct_slowest_write(trace, &slowest, out, &notes, NULL);
    CHECK(fclose(out) == 0);
    if (code == CT_OK && json) {
      check_json(text, view == 2);
    }
    free(text);
  }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  if (folder[0] == 0) {
    enter();
  }
  struct input input = {data, data + (size < 32768 ? size : 32768)};
  uint8_t flags = (uint8_t)input_number(&input, 1);
  size_t manifest_bytes = input_number(&input, 2), function_bytes = input_number(&input, 2);
  uint8_t *manifest = input_part(&input, manifest_bytes, &manifest_bytes);
  uint8_t *functions = input_part(&input, function_bytes, &function_bytes);
  put_file("manifest.json", manifest, manifest_bytes);
  put_file("functions.tsv", functions, function_bytes);
  put_prototypes(functions, function_bytes);
  size_t spoiled = flags & 1 ? input_number(&input, 2) : SIZE_MAX;
  file_bytes = 0;
  append_file_header(0);
  block_number = 0;
  while (input.at < input.end) {
    append_block(&input);
  }
  if (spoiled < file_bytes) {
    file[spoiled] ^= 0x10;
  }
  put_file("thread_0/index.ctb", file, file_bytes);
  if (flags & 16) {
    file[8] = 1;
    uint32_t crc = ct_crc32c(0, file, offsetof(struct ct_file_header, header_crc));
    memcpy(file + offsetof(struct ct_file_header, header_crc), &crc, sizeof(crc));
  }
  put_file("thread_1/index.ctb", file, flags & 16 ? file_bytes : 0);
  put_pieces((flags & 24) == 8, spoiled);
  struct ct_trace *trace;
  struct ct_diag diag = {""};
  if (ct_trace_open(folder, &trace, &diag) == CT_OK) {
    for (uint32_t i = 0; i < ct_trace_thread_count(trace); i++) {
      check_events(trace, i, flags & 2 ? CT_READ_SKIP_DAMAGED : 0);
      check_spans(trace, i);
    }
    check_views(trace, flags);
    ct_trace_close(trace);
  } else {
    CHECK(diag.text[0] != 0);
  }
  free(manifest);
  free(functions);
  return 0;
}
