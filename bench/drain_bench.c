/* SPDX-License-Identifier: MIT */
/*
 * What the drain takes for an event, without a program: the events of a trace are put into segments of a ring as hooks
 * write them, and the drain takes these over and over, up to the file.
 *
 *   drain_bench [--events N] [--rounds N] [--dir DIR] TRACE...
 *
 * N events (1048576) of the thread that has most of them, arguments and results among them; DIR: where the traces go,
 * /dev/shm. For each trace a line: of the rounds (15) the least and the median of the nanoseconds of a processor that
 * an event takes of the drain's thread, and of the thread that writes the files; bytes of the file for an event; and
 * whether the calls, returns and values read from it are those of TRACE. Times are comparable on a machine that others
 * use, too, as far as they leave its caches alone.
 */
#include "drain/drain_internal.h"
#include "trace/batch.h"
#include "trace/writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS_MAX 1000u
#define STACK_TOP  0xfffff000u /* low half of the address of the outermost frame's return-address slot */
#define FRAME      48u

struct image {
  uint8_t *segments;
  struct ct_segment_entry *entries;
  uint32_t segment_count;
  size_t events, most;
  uint64_t first_tsc;
  uint8_t *modes; /* of the functions */
  uint32_t functions;
};

/* The functions that open frames return as. */
struct roots {
  uint32_t *fn;
  size_t capacity;
};

static double
seconds(clockid_t clock)
{
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int
fail(const char *what, const char *why)
{
  fprintf(stderr, "drain_bench: %s: %s\n", what, why);
  return 1;
}

static bool
is_call_or_return(const struct ct_event *event)
{
  return event->kind == CT_EV_ENTER || event->kind == CT_EV_RETURN || event->kind == CT_EV_TAIL ||
         event->kind == CT_EV_POINT;
}

/* An entry of the ring. */
static bool
is_event(const struct ct_event *event)
{
  return is_call_or_return(event) || (event->kind == CT_EV_VALUE && event->reason != CT_VALUE_BEFORE);
}

static uint32_t
busiest_thread(const struct ct_trace *trace)
{
  uint32_t best = 0;
  for (uint32_t i = 1; i < ct_trace_thread_count(trace); i++) {
    best = ct_trace_thread(trace, i)->events > ct_trace_thread(trace, best)->events ? i : best;
  }
  return best;
}

static void
put(struct image *image, uint64_t tsc, uint32_t fn, enum ct_kind kind, uint32_t depth)
{
  uint32_t ra_slot = STACK_TOP - depth * FRAME;
  struct ct_ring_event *events =
      (struct ct_ring_event *)(image->segments + image->events / CT_SEGMENT_EVENTS * CT_SEGMENT_STRIDE);
  events[image->events++ % CT_SEGMENT_EVENTS] = (struct ct_ring_event){
      .tsc = tsc,
      .word = (uint64_t)ra_slot << 32 | fn << CT_WORD_FN_SHIFT | (uint32_t)kind << CT_WORD_KIND_SHIFT | 1,
  };
}

/* Calls of enter-only functions are as those of sampled hooks: which of both it was does not show. */
static bool
put_event(struct image *image, struct roots *roots, const struct ct_event *event)
{
  if (event->depth >= roots->capacity) {
    size_t capacity = (size_t)event->depth * 2 + 64;
    uint32_t *fn = realloc(roots->fn, capacity * sizeof(*fn));
    if (fn == NULL) {
      return false;
    }
    memset(fn + roots->capacity, 0xff, (capacity - roots->capacity) * sizeof(*fn));
    *roots = (struct roots){fn, capacity};
  }
  if (event->kind == CT_EV_VALUE) {
    uint32_t which = event->reason;
    which = which <= CT_VALUE_RESULT ? which - CT_VALUE_ARG_1 + CT_OTHER_ARG_1 : CT_OTHER_VALUE | which << 4;
    put(image, event->value, which, CT_KIND_OTHER, event->depth);
  } else if (event->kind == CT_EV_POINT) {
    uint32_t log2 = event->value > 1 ? 63 - (uint32_t)__builtin_clzll(event->value) : 0;
    put(image, event->tsc, event->fn | CT_FN_POINT_BIT | (log2 + 1) << CT_FN_WEIGHT_SHIFT, CT_KIND_OTHER, event->depth);
  } else if (event->kind == CT_EV_RETURN) {
    put(image, event->tsc, roots->fn[event->depth] != UINT32_MAX ? roots->fn[event->depth] : event->fn, CT_KIND_RETURN,
        event->depth);
  } else {
    roots->fn[event->depth] = event->kind == CT_EV_ENTER ? event->fn : roots->fn[event->depth];
    put(image, event->tsc, event->fn, event->kind == CT_EV_ENTER ? CT_KIND_ENTER : CT_KIND_TAIL, event->depth);
  }
  return true;
}

static int
make_image(struct ct_trace *trace, struct image *image)
{
  struct ct_cursor *cursor;
  struct ct_diag diag = {""};
  struct roots roots = {NULL, 0};
  image->functions = ct_trace_function_count(trace);
  image->modes = calloc(image->functions + 1, 1);
  image->entries = calloc(image->most / CT_SEGMENT_EVENTS + 1, sizeof(*image->entries));
  image->segments = mmap(NULL, (image->most / CT_SEGMENT_EVENTS + 1) * CT_SEGMENT_STRIDE, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (image->modes == NULL || image->entries == NULL || image->segments == MAP_FAILED ||
      ct_cursor_open(trace, busiest_thread(trace), 0, &cursor, &diag) != CT_OK) {
    return fail("image", diag.text[0] != 0 ? diag.text : "no memory");
  }
  for (uint32_t fn = 0; fn < image->functions; fn++) {
    const struct ct_trace_function *function = ct_trace_function(trace, fn);
    image->modes[fn] = function != NULL && function->enter_only ? CT_HOOK_SAMPLED : CT_HOOK_FULL;
  }
  const struct ct_event *events;
  bool ok = true;
  for (size_t n; ok && image->events < image->most && (n = ct_cursor_next(cursor, &events)) != 0;) {
    for (size_t i = 0; ok && i < n && image->events < image->most; i++) {
      ok = !is_event(&events[i]) || put_event(image, &roots, &events[i]);
    }
  }
  ct_cursor_close(cursor);
  free(roots.fn);
  image->segment_count = (uint32_t)((image->events + CT_SEGMENT_EVENTS - 1) / CT_SEGMENT_EVENTS);
  return ok && image->events != 0 ? 0 : fail("image", "no events, or no memory");
}

/* All segments are full, of one thread; it is another one each time. */
static void
fill_table(struct image *image, uint32_t round)
{
  for (uint32_t i = 0; i < image->segment_count; i++) {
    size_t rest = image->events - (size_t)i * CT_SEGMENT_EVENTS;
    image->entries[i] = (struct ct_segment_entry){
        .state = CT_SEG_WORD(CT_SEG_FULL, 0, (uint64_t)round * CT_SEGMENT_MAX + i + 1),
        .tag = 1,
        .reserved = (uint32_t)(rest < CT_SEGMENT_EVENTS ? rest : CT_SEGMENT_EVENTS),
        .thread_seq = i,
        .generation = round,
    };
  }
}

struct figures {
  double drain[ROUNDS_MAX], writer[ROUNDS_MAX]; /* seconds */
  uint64_t bytes;                               /* of one round */
};

static int
run_rounds(struct image *image, struct ct_trace_writer *writer, uint32_t rounds, struct figures *out)
{
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  struct ct_ring_header *ring = calloc(1, sizeof(*ring) + CT_SEGMENT_MAX / 8);
  struct ct_slot *slots = calloc(CT_SLOT_COUNT, sizeof(*slots));
  struct ct_drain *drain;
  if (ring == NULL || slots == NULL || ct_drain_create(writer, &lock, UINT32_MAX, NULL, &drain) != CT_OK) {
    return fail("drain", "no memory");
  }
  drain->ring = ring;
  drain->slots = slots;
  drain->entries = image->entries;
  drain->segments = image->segments;
  drain->segment_count = image->segment_count;
  drain->pid = (int)getpid();
  for (uint32_t fn = 0; fn < image->functions; fn++) {
    ct_drain_function_mode(drain, fn, image->modes[fn]);
  }
  for (uint32_t round = 0; round < rounds; round++) {
    fill_table(image, round);
    slots[0].generation = round;
    slots[0].tid = round + 1;
    uint64_t before = ct_trace_writer_bytes(writer);
    double all = seconds(CLOCK_PROCESS_CPUTIME_ID), own = seconds(CLOCK_THREAD_CPUTIME_ID);
    for (uint32_t i = 0; i < image->segment_count; i++) {
      struct candidate candidate = {CT_SEG_SEQ(image->entries[i].state), i};
      if (!drain_take_full(drain, &candidate, false)) {
        return fail("drain", "a segment was not taken");
      }
    }
    ct_encoder_flush(drain->threads[0]->encoder);
    own = seconds(CLOCK_THREAD_CPUTIME_ID) - own;
    ct_trace_writer_sync(writer);
    out->drain[round] = own;
    out->writer[round] = seconds(CLOCK_PROCESS_CPUTIME_ID) - all - own;
    out->bytes = ct_trace_writer_bytes(writer) - before;
  }
  ct_drain_free(drain);
  free(slots);
  free(ring);
  return 0;
}

/* The first `most` calls and returns of the thread, as a number. */
static int
fold(struct ct_trace *trace, uint32_t thread, size_t most, uint64_t *sum)
{
  struct ct_cursor *cursor;
  struct ct_diag diag = {""};
  if (ct_cursor_open(trace, thread, 0, &cursor, &diag) != CT_OK) {
    return fail("cursor", diag.text);
  }
  const struct ct_event *events;
  size_t count = 0;
  *sum = 0;
  for (size_t n; count < most && (n = ct_cursor_next(cursor, &events)) != 0;) {
    for (size_t i = 0; i < n && count < most; i++) {
      if (is_event(&events[i])) {
        uint64_t words[] = {events[i].tsc,
                            (uint64_t)events[i].fn << 16 | (uint64_t)events[i].reason << 8 | events[i].kind,
                            events[i].depth, events[i].value};
        for (size_t w = 0; w < sizeof(words) / sizeof(words[0]); w++) {
          *sum = (*sum ^ words[w]) * 0x9e3779b97f4a7c15u;
          *sum ^= *sum >> 29;
        }
        count++;
      }
    }
  }
  ct_cursor_close(cursor);
  *sum += count;
  return 0;
}

static int
compare_doubles(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static int
write_trace(struct image *image, const char *dir, uint32_t rounds, struct figures *figures)
{
  struct ct_trace_writer *writer;
  struct ct_diag diag = {""};
  if (ct_trace_writer_create(dir, 64 << 20, &writer, &diag) != CT_OK) {
    return fail(dir, diag.text);
  }
  json_t *manifest =
      json_pack("{s:s, s:i, s:s}", "format", "contrail", "version", CT_TRACE_VERSION, "state", "recording");
  ct_trace_writer_manifest(writer, manifest);
  ct_trace_writer_near_values(writer);
  json_decref(manifest);
  int result = run_rounds(image, writer, rounds, figures);
  return ct_trace_writer_close(writer, &diag) != CT_OK ? fail(dir, diag.text) : result;
}

static void
remove_trace(const char *dir, uint32_t rounds)
{
  char name[600];
  for (uint32_t i = 0; i < rounds; i++) {
    snprintf(name, sizeof(name), "%s/thread_%u/index.ctb", dir, i);
    remove(name);
    snprintf(name, sizeof(name), "%s/thread_%u", dir, i);
    remove(name);
  }
  static const char *const files[] = {"/manifest.json", "/functions.tsv", ""};
  for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
    snprintf(name, sizeof(name), "%s%s", dir, files[i]);
    remove(name);
  }
}

static int
compare(struct ct_trace *trace, const char *dir, size_t events, bool *is_same)
{
  struct ct_trace *written;
  struct ct_diag diag = {""};
  uint64_t before, after;
  if (ct_trace_open(dir, &written, &diag) != CT_OK) {
    return fail(dir, diag.text);
  }
  int result = fold(trace, busiest_thread(trace), events, &before);
  result = result != 0 ? result : fold(written, 0, events, &after);
  ct_trace_close(written);
  *is_same = result == 0 && before == after;
  return result;
}

static int
bench(const char *path, const char *parent, size_t events, uint32_t rounds)
{
  static struct figures figures;
  struct ct_trace *trace;
  struct ct_diag diag = {""};
  struct image image = {.most = events};
  char dir[512];
  bool is_same;
  if (ct_trace_open(path, &trace, &diag) != CT_OK) {
    return fail(path, diag.text);
  }
  snprintf(dir, sizeof(dir), "%s/drain_bench.%ld", parent, (long)getpid());
  int result = make_image(trace, &image);
  result = result != 0 ? result : write_trace(&image, dir, rounds, &figures);
  result = result != 0 ? result : compare(trace, dir, image.events, &is_same);
  remove_trace(dir, rounds);
  ct_trace_close(trace);
  if (result == 0) {
    double n = (double)image.events * 1e-9;
    qsort(figures.drain, rounds, sizeof(double), compare_doubles);
    qsort(figures.writer, rounds, sizeof(double), compare_doubles);
    const char *name = strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path;
    printf("%-12s %9zu events  drain %6.2f %6.2f ns  writer %5.2f %5.2f ns  %.4f bytes  %s\n", name, image.events,
           figures.drain[0] / n, figures.drain[rounds / 2] / n, figures.writer[0] / n, figures.writer[rounds / 2] / n,
           (double)figures.bytes / (double)image.events, is_same ? "same" : "DIFFERENT");
  }
  munmap(image.segments, (image.most / CT_SEGMENT_EVENTS + 1) * CT_SEGMENT_STRIDE);
  free(image.entries);
  free(image.modes);
  return result != 0 ? result : is_same ? 0 : 1;
}

int
main(int argc, char **argv)
{
  const char *parent = "/dev/shm";
  size_t events = 1u << 20;
  uint32_t rounds = 15;
  int at = 1, result = 0;
  for (; at + 1 < argc && argv[at][0] == '-'; at += 2) {
    if (strcmp(argv[at], "--events") == 0) {
      events = strtoull(argv[at + 1], NULL, 10);
    } else if (strcmp(argv[at], "--rounds") == 0) {
      rounds = (uint32_t)strtoul(argv[at + 1], NULL, 10);
    } else if (strcmp(argv[at], "--dir") == 0) {
      parent = argv[at + 1];
    } else {
      break;
    }
  }
  if (at == argc || argv[at][0] == '-' || events == 0 || events > (size_t)CT_SEGMENT_MAX * CT_SEGMENT_EVENTS ||
      rounds == 0 || rounds > ROUNDS_MAX) {
    fprintf(stderr, "usage: drain_bench [--events N] [--rounds N] [--dir DIR] TRACE...\n");
    return 2;
  }
  for (; at < argc; at++) {
    result |= bench(argv[at], parent, events, rounds);
  }
  return result;
}
