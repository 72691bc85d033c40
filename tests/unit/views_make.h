/* SPDX-License-Identifier: MIT */
/*
 * Traces for the tests of the views, written with trace/writer.h into a temporary
 * directory. One tick is one nanosecond and the recording starts at 1000, so that numbers in expected
 * output are those in the test. Functions: the names given, all in module 0 "/bin/prog" but those that begin
 * with "lib", which are in module 1 "/lib/libx.so".
 */
#ifndef CT_TESTS_VIEWS_MAKE_H
#define CT_TESTS_VIEWS_MAKE_H

#include "trace/encoder.h"
#include "trace/batch.h"
#include "trace/writer.h"
#include "views/report.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAKE_START = 1000, MAKE_TICKS = 5000, MAKE_THREADS = 8 };

struct make {
  char parent[64];
  char dir[80];
  struct ct_trace_writer *writer;
  struct ct_encoder *encoders[MAKE_THREADS];
  const char *thread_names[MAKE_THREADS];
  uint32_t threads;
  const char *hook_costs;            /* JSON, NULL: none */
  const char *switches;              /* likewise */
  uint64_t thread_end[MAKE_THREADS]; /* 0: it lived to the end of the trace */
  uint64_t ticks;                    /* of the recording, MAKE_TICKS */
};

static inline void
make_manifest(struct make *m, bool complete, uint64_t dropped)
{
  json_t *threads = json_array();
  for (uint32_t i = 0; i < m->threads; i++) {
    json_array_append_new(threads,
                          json_pack("{s:i, s:i, s:s, s:I, s:I}", "index", (int)i, "tid", (int)(100 + i), "name",
                                    m->thread_names[i], "events", (json_int_t)ct_encoder_events(m->encoders[i]),
                                    "dropped", (json_int_t)(i == 0 ? dropped : 0)));
    if (m->thread_end[i] != 0) {
      json_object_update_new(json_array_get(threads, i),
                             json_pack("{s:I, s:b}", "end_tsc", (json_int_t)m->thread_end[i], "exited", 1));
    }
  }
  json_t *manifest =
      json_pack("{s:s, s:i, s:s, s:[s,s], s:i, s:{s:i,s:i,s:i,s:i}, s:i, s:o, s:o, s:i, s:o, s:I, s:["
                "{s:i,s:i,s:s,s:s,s:i,s:i,s:{s:i}}, {s:i,s:i,s:s,s:s,s:i,s:i,s:{}}]}",
                "format", "contrail", "version", 1, "state", complete ? "complete" : "recording", "command", "prog",
                "a b", "pid", 100, "clock", "tsc0", 0, "ns0", 0, "tsc1", 1000000000, "ns1", 1000000000, "start_ns",
                MAKE_START, "end_ns", complete ? json_integer((json_int_t)(MAKE_START + m->ticks)) : json_null(),
                "exit", complete ? json_pack("{s:i}", "signal", 11) : json_null(), "install_ns", 1500000, "threads",
                threads, "dropped_total", (json_int_t)dropped, "modules", "index", 0, "image", 0, "path", "/bin/prog",
                "build_id", "ab", "functions", 20, "hooked", 18, "refused", "too short", 2, "index", 1, "image", 0,
                "path", "/lib/libx.so", "build_id", "cd", "functions", 30, "hooked", 30, "refused");
  assert_non_null(manifest);
  if (m->hook_costs != NULL) {
    json_object_set_new(manifest, "hook_costs", json_loads(m->hook_costs, 0, NULL));
  }
  if (m->switches != NULL) {
    json_object_set_new(manifest, "switches", json_loads(m->switches, 0, NULL));
  }
  assert_int_equal(ct_trace_writer_manifest(m->writer, manifest), 0);
  json_decref(manifest);
}

/* names ends with NULL. */
static inline void
make_begin(struct make *m, const char *const *names, uint32_t threads)
{
  struct ct_diag diag = {""};
  *m = (struct make){.parent = "/tmp/contrail-views-XXXXXX", .threads = threads, .ticks = MAKE_TICKS};
  assert_non_null(mkdtemp(m->parent));
  snprintf(m->dir, sizeof(m->dir), "%s/t", m->parent);
  if (ct_trace_writer_create(m->dir, 64u << 20, &m->writer, &diag) != 0) {
    fail_msg("%s", diag.text);
  }
  for (uint32_t i = 0; names[i] != NULL; i++) {
    uint32_t module = strncmp(names[i], "lib", 3) == 0;
    assert_int_equal(ct_trace_writer_function(m->writer, i, module, 0x1000 + 16 * i, 16, "full", names[i]), 0);
  }
  assert_int_equal(ct_trace_writer_flush_functions(m->writer), 0);
  for (uint32_t i = 0; i < threads; i++) {
    m->thread_names[i] = i == 0 ? "prog" : "worker";
    assert_int_equal(ct_trace_writer_thread(m->writer, i, 100 + i, 100, &m->encoders[i]), 0);
  }
}

static inline struct ct_trace *
make_open(struct make *m, bool complete, uint64_t dropped)
{
  struct ct_diag diag = {""};
  struct ct_trace *trace = NULL;
  for (uint32_t i = 0; i < m->threads; i++) {
    assert_int_equal(ct_encoder_close(m->encoders[i]), 0);
  }
  make_manifest(m, complete, dropped);
  if (ct_trace_writer_close(m->writer, &diag) != 0 || ct_trace_open(m->dir, &trace, &diag) != 0) {
    fail_msg("%s", diag.text);
  }
  return trace;
}

static inline int
make_remove_one(const char *path, const struct stat *status, int type, struct FTW *ftw)
{
  (void)status;
  (void)type;
  (void)ftw;
  return remove(path);
}

static inline void
make_end(struct make *m, struct ct_trace *trace)
{
  ct_trace_close(trace);
  nftw(m->parent, make_remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* Compares text line by line, so that a failure shows the line. */
static inline void
assert_text(const char *got, const char *want)
{
  if (strcmp(got, want) != 0) {
    print_error("--- got\n%s--- want\n%s---\n", got, want);
  }
  assert_string_equal(got, want);
}

/* ---- Quantiles ---- */

/* Numbers that look random and are the same in each run. */
__attribute__((unused)) static uint64_t seed = 1;

static inline uint32_t
random_below(uint32_t bound)
{
  seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)((seed >> 33) % bound);
}

static inline int
compare_u64(const void *a, const void *b)
{
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

static inline uint64_t
exact_quantile(const uint64_t *sorted, size_t count, uint32_t permille)
{
  size_t rank = (count * permille + 999) / 1000;
  return sorted[rank == 0 ? 0 : rank - 1];
}

static inline void
assert_within_1_percent(uint64_t got, uint64_t want)
{
  uint64_t error = got > want ? got - want : want - got;
  if (error * 100 >= (want != 0 ? want : 1) && error != 0) {
    fail_msg("%llu is more than 1 %% off %llu", (unsigned long long)got, (unsigned long long)want);
  }
}

/* ---- A small trace and its report ---- */

/* The report's text, to be freed. */
static inline char *
report_text(struct ct_trace *trace, const struct ct_report_options *options)
{
  char *text;
  size_t size;
  struct ct_diag diag = {""};
  struct ct_view_notes notes = {.struct_size = sizeof(notes)};
  FILE *out = open_memstream(&text, &size);
  int code = ct_report_write(trace, options, out, &notes, &diag);
  fclose(out);
  if (code != 0) {
    fail_msg("%s", diag.text);
  }
  assert_int_equal(notes.damaged_threads, 0);
  return text;
}

__attribute__((unused)) static const char *const small_names[] = {"main", "work", "lib_alloc", "deep", NULL};

/* main (0..1000) { work { alloc } ; work unwound ; deep recursive } and a thread with a point and an open call */
static inline struct ct_trace *
small_trace(struct make *m)
{
  make_begin(m, small_names, 2);
  struct ct_encoder *e = m->encoders[0];
  ct_encode_enter(e, 1000, 0, 0);
  ct_encode_enter(e, 1100, 1, 0);
  ct_encode_enter(e, 1110, 2, 0);
  ct_encode_return(e, 1140);
  ct_encode_return(e, 1200);
  ct_encode_enter(e, 1300, 1, 0);
  ct_encode_unwound(e, 1350, CT_UNWOUND_JUMP);
  ct_encode_enter(e, 1400, 3, 0);
  ct_encode_enter(e, 1420, 3, 0);
  ct_encode_return(e, 1440);
  ct_encode_return(e, 1500);
  ct_encode_return(e, 2000);
  e = m->encoders[1];
  ct_encode_enter(e, 1500, 1, 0);
  ct_encode_point(e, 1600, 2);
  return make_open(m, true, 7);
}

#endif
