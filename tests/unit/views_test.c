/* SPDX-License-Identifier: MIT */
/* Views: histogram, durations, report against a naive reference, info. Replay is in views_replay_test.c. */
#define _GNU_SOURCE 1 /* FTW_DEPTH */
#include "views_make.h"

#include <contrail/info.h>
#include "base/json.h"
#include "views/report.h"
#include "views/spans.h"
#include "views/text.h"

static uint64_t seed = 1;

static uint32_t
random_below(uint32_t bound)
{
  seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)((seed >> 33) % bound);
}

static int
compare_u64(const void *a, const void *b)
{
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

static uint64_t
exact_quantile(const uint64_t *sorted, size_t count, uint32_t permille)
{
  size_t rank = (count * permille + 999) / 1000;
  return sorted[rank == 0 ? 0 : rank - 1];
}

static void
assert_within_1_percent(uint64_t got, uint64_t want)
{
  uint64_t error = got > want ? got - want : want - got;
  if (error * 100 >= (want != 0 ? want : 1) && error != 0) {
    fail_msg("%llu is more than 1 %% off %llu", (unsigned long long)got, (unsigned long long)want);
  }
}

/* ---- Histogram ---- */

static void
check_quantiles(const struct ct_histogram *h, uint64_t *values, size_t count)
{
  qsort(values, count, sizeof(*values), compare_u64);
  for (uint32_t permille = 0; permille <= 1000; permille += 25) {
    assert_within_1_percent(ct_histogram_quantile(h, permille), exact_quantile(values, count, permille));
  }
}

static void
test_histogram(void **state)
{
  (void)state;
  enum { COUNT = 20000 };
  uint64_t *values = malloc(COUNT * sizeof(*values));
  for (unsigned bits = 1; bits <= 64; bits += 3) {
    for (size_t count = 1; count <= COUNT; count = count * 3 + 1) {
      struct ct_histogram all = {0}, half = {0};
      uint64_t sum = 0;
      for (size_t i = 0; i < count; i++) {
        uint64_t wide = (uint64_t)random_below(1u << 31) << 33 ^ (uint64_t)random_below(1u << 31) << 3;
        values[i] = wide >> (64 - bits) >> random_below(bits < 9 ? 1 : 9);
        sum += values[i];
        assert_int_equal(ct_histogram_add(i % 3 == 0 ? &half : &all, values[i]), 0);
      }
      assert_int_equal(ct_histogram_merge(&all, &half), 0);
      assert_int_equal(all.count, count);
      assert_int_equal(all.sum, sum);
      check_quantiles(&all, values, count);
      ct_histogram_destroy(&all);
      ct_histogram_destroy(&half);
    }
  }
  free(values);
}

static void
test_histogram_extremes(void **state)
{
  (void)state;
  struct ct_histogram h = {0};
  assert_int_equal(ct_histogram_quantile(&h, 500), 0);
  for (int i = 0; i < 100; i++) {
    assert_int_equal(ct_histogram_add(&h, 0), 0);
    assert_int_equal(ct_histogram_add(&h, UINT64_MAX), 0);
  }
  assert_int_equal(ct_histogram_quantile(&h, 500), 0);
  assert_within_1_percent(ct_histogram_quantile(&h, 501), UINT64_MAX / 128 * 127);
  ct_histogram_destroy(&h);
}

/* ---- Text ---- */

static void
test_durations(void **state)
{
  (void)state;
  static const struct {
    uint64_t ns;
    const char *text;
  } cases[] = {
      {0, "0 ns"},           {999, "999 ns"},          {1000, "1.000 us"},        {1234, "1.234 us"},
      {12345, "12.35 us"},   {123456, "123.5 us"},     {999949, "999.9 us"},      {999951, "1.000 ms"},
      {9999999, "10.00 ms"}, {61200000000, "61.20 s"}, {3600000000000, "3600 s"}, {UINT64_MAX, "18446744073 s"},
  };
  char buf[CT_DURATION_CHARS];
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    assert_string_equal(ct_format_duration(buf, cases[i].ns), cases[i].text);
  }
  char count[CT_COUNT_CHARS];
  assert_string_equal(ct_format_count(count, 0), "0");
  assert_string_equal(ct_format_count(count, 999), "999");
  assert_string_equal(ct_format_count(count, 1234567), "1,234,567");
  assert_string_equal(ct_format_count(count, UINT64_MAX), "18,446,744,073,709,551,615");
}

static void
test_json_string(void **state)
{
  (void)state;
  static const char *const cases[][2] = {
      {"plain", "plain"},
      {"caf\xC3\xA9", "caf\xC3\xA9"},
      {"a\xFF"
       "b",
       "a\xEF\xBF\xBD"
       "b"},
      {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
      {"cut\xE2\x82", "cut\xEF\xBF\xBD\xEF\xBF\xBD"},
      {"\xC0\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD"},
      {"\xF4\x90\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    json_t *json = ct_json_string(cases[i][0]);
    assert_non_null(json);
    assert_string_equal(json_string_value(json), cases[i][1]);
    json_decref(json);
  }
}

/* ---- Report against a reference ---- */

enum { FNS = 24, STACKS = 3, MAX_DEPTH = 40, MAX_SPANS = 200000 };

static const char *const fn_names[FNS + 1] = {"f0",  "f1",  "f2",  "f3",  "f4",  "f5",  "f6",  "f7",  "f8",
                                              "f9",  "f10", "f11", "f12", "f13", "f14", "f15", "f16", "f17",
                                              "f18", "f19", "f20", "f21", "f22", "f23", NULL};

/* One call as the generator knows it; children's time is counted afterwards. */
struct call {
  uint64_t from, to;
  uint64_t away; /* spent on other stacks while innermost */
  int parent;    /* -1: none */
  uint32_t fn;
  bool timed, partial;
};

struct reference {
  struct call *calls;
  size_t count;
  uint64_t calls_of[FNS], points_of[FNS], uncertain_of[FNS], orphans_of[FNS];
  uint64_t unfinished_of[FNS], longest_partial_of[FNS];
  uint64_t total_of[FNS], self_of[FNS]; /* summed thread by thread */
  uint64_t *durations[FNS];
  size_t duration_count[FNS];
  uint64_t events;
};

struct generator {
  struct reference *ref;
  struct ct_encoder *encoder;
  int stack[STACKS][MAX_DEPTH]; /* calls */
  bool uncertain[STACKS][MAX_DEPTH];
  int depth[STACKS];
  uint64_t left_at[STACKS];
  int current;
  uint64_t now;
};

static void
gen_open(struct generator *g, uint32_t fn)
{
  int s = g->current, d = g->depth[s];
  assert_true(g->ref->count < MAX_SPANS);
  g->ref->calls[g->ref->count] = (struct call){.from = g->now, .parent = d == 0 ? -1 : g->stack[s][d - 1], .fn = fn};
  g->stack[s][d] = (int)g->ref->count++;
  g->uncertain[s][d] = false;
  g->depth[s]++;
  g->ref->calls_of[fn]++;
}

enum gen_end { KNOWN, UNKNOWN, AT_END };

static void
gen_close(struct generator *g, enum gen_end end)
{
  int s = g->current, d = --g->depth[s];
  struct call *call = &g->ref->calls[g->stack[s][d]];
  call->to = g->now;
  call->timed = end == KNOWN && !g->uncertain[s][d];
  call->partial = end == AT_END && !g->uncertain[s][d];
  g->ref->uncertain_of[call->fn] += !call->timed && !call->partial;
  g->ref->unfinished_of[call->fn] += end == AT_END;
}

static void
gen_switch(struct generator *g, int to)
{
  g->left_at[g->current] = g->now;
  g->current = to;
  if (g->depth[to] != 0 && g->left_at[to] != 0) {
    g->ref->calls[g->stack[to][g->depth[to] - 1]].away += g->now - g->left_at[to];
  }
}

static void
gen_rare(struct generator *g, uint32_t fn)
{
  int depth = g->depth[g->current];
  switch (random_below(7)) {
  case 0:
    ct_encode_point(g->encoder, g->now, fn);
    g->ref->calls_of[fn]++;
    g->ref->points_of[fn]++;
    g->ref->events++;
    break;
  case 1:
    if (depth == 0) {
      break;
    }
    ct_encode_left(g->encoder, g->now, CT_LEFT_UNWOUND);
    gen_close(g, KNOWN);
    break;
  case 2:
    if (depth == 0) {
      break;
    }
    ct_encode_left(g->encoder, g->now, CT_LEFT_LOST);
    gen_close(g, UNKNOWN);
    break;
  case 3:
    if (random_below(20) != 0) {
      break;
    }
    ct_encode_lost(g->encoder, g->now, 5);
    ct_encode_point(g->encoder, g->now, fn); /* the gap has no length: one that has some is in views_replay_test */
    g->ref->calls_of[fn]++;
    g->ref->points_of[fn]++;
    g->ref->events++;
    for (int s = 0; s < STACKS; s++) {
      memset(g->uncertain[s], 1, sizeof(g->uncertain[s]));
    }
    break;
  case 4: {
    int to = (int)random_below(STACKS);
    if (to == g->current) {
      break;
    }
    ct_encode_switch(g->encoder, g->now, (uint32_t)to * 77);
    gen_switch(g, to);
    break;
  }
  case 5:
    if (depth != 0) {
      break;
    }
    ct_encode_orphan_return(g->encoder, g->now, fn);
    g->ref->orphans_of[fn]++;
    g->ref->events++;
    break;
  default:
    ct_encode_tail(g->encoder, g->now, fn);
    g->ref->events++;
    if (depth != 0) {
      gen_close(g, KNOWN);
    }
    gen_open(g, fn);
    break;
  }
}

static void
generate(struct reference *ref, struct ct_encoder *encoder, size_t steps)
{
  struct generator g = {.ref = ref, .encoder = encoder, .now = MAKE_START};
  for (size_t i = 0; i < steps; i++) {
    g.now += random_below(10) == 0 ? random_below(100000) : random_below(50);
    uint32_t kind = random_below(100), fn = random_below(random_below(3) == 0 ? FNS : 5);
    if (kind < 12) {
      gen_rare(&g, fn);
    } else if (kind < 56 && g.depth[g.current] < MAX_DEPTH - 1) {
      ct_encode_enter(encoder, g.now, fn, 0);
      gen_open(&g, fn);
      ref->events++;
    } else if (g.depth[g.current] > 0) {
      ct_encode_return(encoder, g.now);
      gen_close(&g, KNOWN);
      ref->events++;
    }
  }
  /* Open calls are cut at the end of the trace, or of the thread's events if these are later. */
  ct_encode_point(encoder, g.now, 0);
  g.now = g.now > MAKE_START + MAKE_TICKS ? g.now : MAKE_START + MAKE_TICKS;
  ref->calls_of[0]++;
  ref->points_of[0]++;
  ref->events++;
  for (int s = 0; s < STACKS; s++) {
    if (s != g.current && g.depth[s] != 0) {
      ref->calls[g.stack[s][g.depth[s] - 1]].away += g.now - g.left_at[s];
    }
  }
  for (g.current = 0; g.current < STACKS; g.current++) {
    while (g.depth[g.current] > 0) {
      gen_close(&g, AT_END);
    }
  }
}

static int
compare_from(const void *a, const void *b)
{
  const struct call *x = a, *y = b;
  return (x->from > y->from) - (x->from < y->from);
}

/* Self times by the definition, totals as the length of the union of intervals. */
static void
evaluate(struct reference *ref)
{
  uint64_t *children = calloc(ref->count + 1, sizeof(*children));
  for (size_t i = 0; i < ref->count; i++) {
    if (ref->calls[i].parent >= 0) {
      children[ref->calls[i].parent] += ref->calls[i].to - ref->calls[i].from;
    }
  }
  for (size_t i = 0; i < ref->count; i++) {
    const struct call *c = &ref->calls[i];
    uint64_t taken = children[i] + c->away, duration = c->to - c->from;
    ref->self_of[c->fn] += duration > taken ? duration - taken : 0;
    if (c->partial && duration > ref->longest_partial_of[c->fn]) {
      ref->longest_partial_of[c->fn] = duration;
    }
    if (c->timed) {
      size_t n = ref->duration_count[c->fn]++;
      ref->durations[c->fn] = realloc(ref->durations[c->fn], (n + 1) * sizeof(uint64_t));
      ref->durations[c->fn][n] = duration;
    }
  }
  free(children);
  qsort(ref->calls, ref->count, sizeof(*ref->calls), compare_from);
  uint64_t covered[FNS] = {0};
  for (size_t i = 0; i < ref->count; i++) {
    const struct call *c = &ref->calls[i];
    uint64_t from = c->from > covered[c->fn] ? c->from : covered[c->fn];
    if (c->to > from) {
      ref->total_of[c->fn] += c->to - from;
      covered[c->fn] = c->to;
    }
  }
  ref->count = 0; /* the next thread begins anew */
}

static void
check_row(struct reference *ref, const struct ct_report_row *row)
{
  uint32_t fn = row->fn;
  assert_true(fn < FNS);
  assert_string_equal(row->name, fn_names[fn]);
  assert_string_equal(row->module, "prog");
  assert_int_equal(row->calls, ref->calls_of[fn]);
  assert_int_equal(row->points, ref->points_of[fn]);
  assert_int_equal(row->uncertain, ref->uncertain_of[fn]);
  assert_int_equal(row->unfinished, ref->unfinished_of[fn]);
  assert_int_equal(row->orphans, ref->orphans_of[fn]);
  assert_int_equal(row->total_ns, ref->total_of[fn]);
  assert_int_equal(row->self_ns, ref->self_of[fn]);
  size_t count = ref->duration_count[fn];
  uint64_t *durations = ref->durations[fn];
  assert_int_equal(row->timed, count);
  if (count == 0) {
    return;
  }
  uint64_t sum = 0;
  for (size_t i = 0; i < count; i++) {
    sum += durations[i];
  }
  qsort(durations, count, sizeof(*durations), compare_u64);
  assert_int_equal(row->min_ns, durations[0]);
  uint64_t partial = ref->longest_partial_of[fn];
  assert_int_equal(row->max_ns, durations[count - 1] > partial ? durations[count - 1] : partial);
  assert_int_equal(row->avg_ns, sum / count);
  assert_within_1_percent(row->p50_ns, exact_quantile(durations, count, 500));
  assert_within_1_percent(row->p95_ns, exact_quantile(durations, count, 950));
  assert_within_1_percent(row->p99_ns, exact_quantile(durations, count, 990));
}

static void
check_report(struct ct_trace *trace, struct reference *ref, unsigned workers)
{
  struct ct_report_options options = {.struct_size = sizeof(options), .sort = CT_SORT_SELF, .workers = workers};
  struct ct_stats stats;
  struct ct_report_thread *threads;
  struct ct_report_row *rows;
  size_t thread_count, count;
  struct ct_diag diag = {""};
  assert_int_equal(ct_report_collect(trace, &options, &stats, &threads, &thread_count, &diag), 0);
  assert_int_equal(ct_report_rows(trace, &stats, &options, &rows, &count, &diag), 0);
  uint64_t events = 0;
  for (size_t i = 0; i < thread_count; i++) {
    assert_int_equal(threads[i].index, i);
    events += threads[i].events;
  }
  assert_int_equal(events, ref->events);
  size_t seen = 0;
  for (uint32_t fn = 0; fn < FNS; fn++) {
    seen += ref->calls_of[fn] + ref->orphans_of[fn] != 0;
  }
  size_t gaps = 0; /* the time in which events were lost has a row of its own */
  for (size_t i = 0; i < count; i++) {
    gaps += rows[i].is_gap;
  }
  assert_int_equal(count - gaps, seen);
  assert_true(gaps <= 1);
  for (size_t i = 0; i < count; i++) {
    if (!rows[i].is_gap) {
      check_row(ref, &rows[i]);
    }
    assert_true(i == 0 || rows[i - 1].self_ns >= rows[i].self_ns);
  }
  free(rows);
  free(threads);
  ct_stats_destroy(&stats);
}

static void
test_report_random(void **state)
{
  (void)state;
  static const size_t steps[] = {0, 1, 50, 1000, 100000};
  for (size_t round = 0; round < 12; round++) {
    struct reference ref = {.calls = malloc(MAX_SPANS * sizeof(struct call))};
    struct make m;
    seed = round + 1;
    make_begin(&m, fn_names, 3);
    for (uint32_t t = 0; t < 3; t++) {
      generate(&ref, m.encoders[t], steps[(round + t) % 5]);
      evaluate(&ref);
    }
    struct ct_trace *trace = make_open(&m, true, 0);
    check_report(trace, &ref, 1);
    check_report(trace, &ref, 2);
    make_end(&m, trace);
    for (uint32_t fn = 0; fn < FNS; fn++) {
      free(ref.durations[fn]);
    }
    free(ref.calls);
  }
}

/* ---- Report as text and JSON ---- */

static char *
report_text(struct ct_trace *trace, const struct ct_report_options *options)
{
  char *text;
  size_t size;
  struct ct_diag diag = {""};
  struct ct_view_notes notes = {.struct_size = sizeof(notes)};
  FILE *out = open_memstream(&text, &size);
  int rc = ct_report_write(trace, options, out, &notes, &diag);
  fclose(out);
  if (rc != 0) {
    fail_msg("%s", diag.text);
  }
  assert_int_equal(notes.damaged_threads, 0);
  return text;
}

static const char *const small_names[] = {"main", "work", "lib_alloc", "deep", NULL};

/* main (0..1000) { work { alloc } ; work unwound ; deep recursive } and a thread with a point and an open call */
static struct ct_trace *
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
  ct_encode_left(e, 1350, CT_LEFT_UNWOUND);
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

static void
test_report_json(void **state)
{
  (void)state;
  struct make m;
  struct ct_trace *trace = small_trace(&m);
  struct ct_report_options options = {.struct_size = sizeof(options), .json = true, .workers = 1};
  char *text = report_text(trace, &options);
  json_t *json = json_loads(text, 0, NULL);
  assert_non_null(json);
  assert_int_equal(json_integer_value(json_object_get(json, "events")), 13);
  assert_int_equal(json_integer_value(json_object_get(json, "dropped")), 7);
  assert_int_equal(json_array_size(json_object_get(json, "threads")), 2);
  json_t *functions = json_object_get(json, "functions");
  assert_int_equal(json_array_size(functions), 4);
  const char *name, *module;
  json_int_t calls, total, self, min, max, uncertain, unfinished;
  int enter_only;
  assert_int_equal(json_unpack(json_array_get(functions, 0), "{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:b, s:I, s:I}",
                               "name", &name, "module", &module, "calls", &calls, "total_ns", &total, "self_ns", &self,
                               "min_ns", &min, "max_ns", &max, "enter_only", &enter_only, "uncertain", &uncertain,
                               "unfinished", &unfinished),
                   0);
  assert_string_equal(name, "work");
  assert_string_equal(module, "prog");
  assert_int_equal(calls, 3);
  assert_int_equal(total, 150 + 4500); /* one goes on to the end of the trace */
  assert_int_equal(self, 120 + 4500);
  assert_int_equal(min, 50);
  assert_int_equal(max, 4500);
  assert_int_equal(enter_only, 0);
  assert_int_equal(uncertain, 0);
  assert_int_equal(unfinished, 1);
  json_decref(json);
  free(text);
  uint32_t tid = 101;
  options.tids = &tid;
  options.tid_count = 1;
  options.per_thread = true;
  text = report_text(trace, &options);
  json = json_loads(text, 0, NULL);
  assert_non_null(json);
  json_t *point = json_array_get(json_object_get(json, "functions"), 1);
  assert_true(json_is_true(json_object_get(point, "enter_only")));
  assert_true(json_is_null(json_object_get(point, "total_ns")));
  assert_true(json_is_null(json_object_get(point, "p99_ns")));
  json_t *thread = json_array_get(json_object_get(json, "threads"), 0);
  assert_int_equal(json_array_size(json_object_get(thread, "functions")), 2);
  json_decref(json);
  free(text);
  make_end(&m, trace);
}

static void
test_report_table(void **state)
{
  (void)state;
  struct make m;
  struct ct_trace *trace = small_trace(&m);
  struct ct_report_options options = {.struct_size = sizeof(options), .workers = 1, .sort = CT_SORT_NAME, .limit = 3};
  char *text = report_text(trace, &options);
  assert_text(text, "35.0 % of events LOST, counts are too low\n"
                    "     total       self self %        calls        min        avg        p50        p95        p99  "
                    "      max  module   "
                    "function\n"
                    "    100 ns     100 ns    1.8            2      20 ns      60 ns      20 ns     100 ns     100 ns  "
                    "   100 ns  prog     "
                    "deep\n"
                    "     30 ns      30 ns    0.5            2      30 ns      30 ns      30 ns      30 ns      30 ns  "
                    "    30 ns  libx.so  "
                    "lib_alloc\n"
                    "  1.000 us     750 ns   13.6            1   1.000 us   1.000 us   1.000 us   1.000 us   1.000 us  "
                    " 1.000 us  prog     "
                    "main\n"
                    "... and 1 more; --limit 0 shows all\n"
                    "\n"
                    "13 events in 2 threads, 7 dropped\n"
                    "unfinished calls: 1 (open when the program or the trace ended), with their time until then\n");
  free(text);
  options = (struct ct_report_options){
      .struct_size = sizeof(options), .workers = 1, .function_glob = "[wm]*", .module_glob = "pr*", .width = 100};
  text = report_text(trace, &options);
  assert_non_null(strstr(text, "unfinished"));
  assert_non_null(strstr(text,
                         "  4.650 us   4.620 us            3      50 ns      75 ns      50 ns     100 ns     100 ns   "
                         "4.500 us          1  prog    work\n"));
  assert_non_null(strstr(text, "work"));
  assert_non_null(strstr(text, "main"));
  assert_null(strstr(text, "deep"));
  assert_null(strstr(text, "alloc"));
  free(text);
  make_end(&m, trace);
}

static void
test_report_unknown_thread(void **state)
{
  (void)state;
  struct make m;
  struct ct_trace *trace = small_trace(&m);
  uint32_t tid = 4711;
  struct ct_report_options options = {.struct_size = sizeof(options), .tids = &tid, .tid_count = 1, .workers = 2};
  struct ct_view_notes notes = {.struct_size = sizeof(notes)};
  struct ct_diag diag = {""};
  assert_int_equal(ct_report_write(trace, &options, stdout, &notes, &diag), CT_ERANGE);
  assert_non_null(strstr(diag.text, "4711"));
  make_end(&m, trace);
}

/* ---- Spans ---- */

static void
test_span_ends(void **state)
{
  (void)state;
  struct make m;
  make_begin(&m, small_names, 1);
  struct ct_encoder *e = m.encoders[0];
  ct_encode_orphan_return(e, 1000, 3);
  ct_encode_enter(e, 1010, 0, 0);
  ct_encode_switch(e, 1020, 9);
  ct_encode_enter(e, 1030, 1, 0);
  ct_encode_switch(e, 1050, 0);
  ct_encode_left(e, 1060, CT_LEFT_THREAD_EXIT);
  ct_encode_enter(e, 1070, 2, 0);
  ct_encode_exec(e, 1080);
  ct_encode_enter(e, 1090, 3, 0);
  ct_encode_tail(e, 1100, 0);
  struct ct_trace *trace = make_open(&m, true, 0);
  static const struct ct_span want[] = {
      {.enter_tsc = 1000, .end_tsc = 1000, .fn = 3, .end = CT_SPAN_ORPHAN},
      {.enter_tsc = 1010, .end_tsc = 1060, .self_ticks = 20, .fresh_ticks = 50, .fn = 0, .end = CT_SPAN_THREAD_EXIT},
      {.enter_tsc = 1070, .end_tsc = 1080, .self_ticks = 10, .fresh_ticks = 10, .fn = 2, .end = CT_SPAN_EXEC},
      {.enter_tsc = 1030, .end_tsc = 1080, .self_ticks = 20, .fresh_ticks = 50, .fn = 1, .end = CT_SPAN_EXEC},
      {.enter_tsc = 1090, .end_tsc = 1100, .self_ticks = 10, .fresh_ticks = 10, .fn = 3, .end = CT_SPAN_TAIL},
      {.enter_tsc = 1100, .end_tsc = 6000, .self_ticks = 4900, .fresh_ticks = 4900, .fn = 0, .end = CT_SPAN_OPEN},
  };
  struct ct_spans *spans;
  const struct ct_span *batch;
  size_t count, n = 0;
  assert_int_equal(ct_spans_open(trace, 0, CT_TIME_WALL, &spans, NULL), 0);
  while (ct_spans_next(spans, &batch, &count) == 0 && count != 0) {
    for (size_t i = 0; i < count; i++, n++) {
      assert_true(n < sizeof(want) / sizeof(want[0]));
      assert_int_equal(batch[i].fn, want[n].fn);
      assert_int_equal(batch[i].end, want[n].end);
      assert_int_equal(batch[i].enter_tsc, want[n].enter_tsc);
      assert_int_equal(batch[i].end_tsc, want[n].end_tsc);
      assert_int_equal(batch[i].self_ticks, want[n].self_ticks);
      assert_int_equal(batch[i].fresh_ticks, want[n].fresh_ticks);
      assert_int_equal(batch[i].depth, 0);
    }
  }
  assert_int_equal(n, sizeof(want) / sizeof(want[0]));
  ct_spans_close(spans);
  make_end(&m, trace);
}

/* Of time off the processor bounds are known: no function has more in an interval than it has time there. */
static void
test_bounds(void **state)
{
  (void)state;
  struct make m;
  make_begin(&m, small_names, 1);
  m.switches = "{\"source\": \"totals\"}";
  struct ct_encoder *e = m.encoders[0];
  ct_encode_enter(e, 1000, 0, 0);
  ct_encode_enter(e, 1100, 1, 0);
  ct_encode_return(e, 1200);
  ct_encode_away(e, 1250, 1300, CT_AWAY_SOME);
  ct_encode_enter(e, 1400, 1, 0);
  ct_encode_return(e, 1500);
  ct_encode_away(e, 1350, 1600, CT_AWAY_SOME);
  ct_encode_return(e, 1700); /* of the last 100 nothing is known */
  struct ct_trace *trace = make_open(&m, true, 0);
  struct ct_report_options options = {.struct_size = sizeof(options), .json = true, .workers = 1};
  char *text = report_text(trace, &options);
  assert_non_null(strstr(text, "\"total_ns\":700,\"self_ns\":500,\"off_ns\":null,"));
  assert_non_null(strstr(text, "\"off_at_most_ns\":400"));
  assert_non_null(strstr(text, "\"total_ns\":200,\"self_ns\":200,\"off_ns\":null,"));
  assert_non_null(strstr(text, "\"off_at_most_ns\":150"));
  free(text);
  make_end(&m, trace);
}

/* ---- Own time ---- */

struct own_span {
  uint32_t fn;
  uint64_t duration, self, fresh, off;
};

static void
check_own_times(struct ct_trace *trace, enum ct_view_time time, const struct own_span *want, size_t want_count)
{
  struct ct_spans *spans;
  const struct ct_span *batch;
  size_t count, n = 0;
  assert_int_equal(ct_spans_open(trace, 0, time, &spans, NULL), 0);
  while (ct_spans_next(spans, &batch, &count) == 0 && count != 0) {
    for (size_t i = 0; i < count; i++) {
      if (batch[i].end == CT_SPAN_POINT) {
        continue;
      }
      assert_true(n < want_count);
      assert_int_equal(batch[i].fn, want[n].fn);
      assert_int_equal(batch[i].duration_ticks, want[n].duration);
      assert_int_equal(batch[i].self_ticks, want[n].self);
      assert_int_equal(batch[i].fresh_ticks, want[n].fresh);
      assert_int_equal(batch[i].off_ticks, want[n].off);
      n++;
    }
  }
  assert_int_equal(n, want_count);
  ct_spans_close(spans);
}

/* A call costs 11 in it and 7 outside; main calls work three times, once too short for its hook. */
static void
test_own_times(void **state)
{
  (void)state;
  struct make m;
  make_begin(&m, small_names, 1);
  m.hook_costs = "{\"enter_before\": 4, \"enter_after\": 6, \"return_before\": 5, \"return_after\": 3, \"value\": 2,"
                 " \"point\": 8.5, \"sampled\": 9, \"passed_over\": 1}";
  struct ct_encoder *e = m.encoders[0];
  ct_encode_enter(e, 1000, 0, 0);
  ct_encode_enter(e, 1030, 1, 0); /* 20 of main's own */
  ct_encode_return(e, 1061);   /* 20 */
  ct_encode_enter(e, 1088, 1, 0); /* 20 */
  ct_encode_return(e, 1097);   /* 9 for a hook of 11: 0, and a debt of 2 */
  ct_encode_enter(e, 1126, 1, 0); /* 22 - 2 */
  ct_encode_value(e, CT_VALUE_ARG_1, 7);
  ct_encode_point(e, 1150, 2);
  ct_encode_point(e, 1160, 2);
  ct_encode_return(e, 1176); /* 50 - 11 - 2 - 17 */
  struct ct_trace *trace;
  ct_encode_return(e, 1204); /* 28 - 8 */
  trace = make_open(&m, true, 0);
  static const struct own_span own[] = {{1, 20, 20, 20, 0}, {1, 0, 0, 0, 0}, {1, 20, 20, 20, 0}, {0, 120, 80, 120, 0}};
  check_own_times(trace, CT_TIME_WALL, own, 4);
  check_own_times(trace, CT_TIME_CPU, own, 4);
  static const struct own_span raw[] = {{1, 31, 31, 31, 0}, {1, 9, 9, 9, 0}, {1, 50, 50, 50, 0}, {0, 204, 114, 204, 0}};
  check_own_times(trace, CT_TIME_RAW, raw, 4);
  make_end(&m, trace);
}

/* Hooks that were cheaper than measured: what comes after them pays for four of them, not for a thousand. */
static void
test_debt_is_bounded(void **state)
{
  (void)state;
  struct make m;
  make_begin(&m, small_names, 1);
  m.hook_costs = "{\"enter_before\": 5, \"enter_after\": 5, \"return_before\": 5, \"return_after\": 5}";
  struct ct_encoder *e = m.encoders[0];
  uint64_t t = 1000;
  ct_encode_enter(e, t, 0, 0);
  for (int i = 0; i < 1000; i++) {
    ct_encode_enter(e, t += 8, 1, 0);
    ct_encode_return(e, t += 8);
  }
  ct_encode_return(e, t + 10000);
  struct ct_trace *trace = make_open(&m, true, 0);
  struct ct_spans *spans;
  const struct ct_span *batch;
  size_t count;
  uint64_t total = 0, selves = 0;
  assert_int_equal(ct_spans_open(trace, 0, CT_TIME_WALL, &spans, NULL), 0);
  while (ct_spans_next(spans, &batch, &count) == 0 && count != 0) {
    for (size_t i = 0; i < count; i++) {
      assert_true(batch[i].duration_ticks <= 10000);
      selves += batch[i].self_ticks;
      total = batch[i].fn == 0 ? batch[i].fresh_ticks : total;
    }
  }
  ct_spans_close(spans);
  assert_int_equal(total, selves);
  assert_in_range(total, 10000 - 4 * 20 - 20, 10000);
  make_end(&m, trace);
}

/* Off the processor, and contrail's own; where both are, the second. */
static void
test_away(void **state)
{
  (void)state;
  struct make m;
  make_begin(&m, small_names, 1);
  struct ct_encoder *e = m.encoders[0];
  ct_encode_enter(e, 1000, 0, 0);
  ct_encode_enter(e, 1010, 1, 0);
  ct_encode_away(e, 1020, 1120, CT_AWAY_BLOCKED);
  ct_encode_away(e, 1130, 1140, CT_AWAY_PREEMPTED);
  ct_encode_return(e, 1200);
  ct_encode_away(e, 1220, 1320, CT_AWAY_BLOCKED); /* while it was held for longer */
  ct_encode_away(e, 1210, 1330, CT_AWAY_HELD);
  ct_encode_away(e, 1400, 1450, CT_AWAY_ROOM);
  ct_encode_away(e, 1410, 1430, CT_AWAY_BLOCKED);
  ct_encode_return(e, 1500);
  struct ct_trace *trace = make_open(&m, true, 0);
  static const struct own_span wall[] = {{1, 190, 190, 190, 110}, {0, 330, 140, 330, 110}};
  static const struct own_span cpu[] = {{1, 80, 80, 80, 110}, {0, 220, 140, 220, 110}};
  check_own_times(trace, CT_TIME_WALL, wall, 2);
  check_own_times(trace, CT_TIME_CPU, cpu, 2);
  static const struct own_span raw[] = {{1, 190, 190, 190, 110}, {0, 500, 310, 500, 110}};
  check_own_times(trace, CT_TIME_RAW, raw, 2);
  make_end(&m, trace);
}

/* ---- Reasons ---- */

static const char *const unwind_names[] = {"main",
                                           "work",
                                           "longjmp",
                                           "__longjmp",
                                           "__cxa_throw",
                                           "_Unwind_RaiseException",
                                           "_Unwind_Resume",
                                           "_Unwind_ForcedUnwind",
                                           "pthread_exit",
                                           "exit",
                                           "start_thread",
                                           "handler",
                                           NULL};
enum {
  L_MAIN,
  L_WORK,
  L_LONGJMP,
  L_LONGJMP2,
  L_THROW,
  L_RAISE,
  L_RESUME,
  L_FORCED,
  L_PTHREAD_EXIT,
  L_EXIT,
  L_START,
  L_HANDLER
};

struct expected_end {
  uint32_t fn;
  uint8_t end;
};

static void
check_ends(struct ct_trace *trace, uint32_t thread, const struct expected_end *expected, size_t count)
{
  struct ct_diag diag = {""};
  struct ct_spans *spans;
  assert_int_equal(ct_spans_open(trace, thread, CT_TIME_WALL, &spans, &diag), 0);
  const struct ct_span *batch;
  size_t n, at = 0;
  while (ct_spans_next(spans, &batch, &n) == 0 && n != 0) {
    for (size_t i = 0; i < n; i++) {
      if (batch[i].end == CT_SPAN_POINT) {
        continue;
      }
      assert_true(at < count);
      if (batch[i].fn != expected[at].fn || batch[i].end != expected[at].end) {
        fail_msg("span %zu: function %u %s, not %u %s", at, batch[i].fn, ct_span_end_text(batch[i].end),
                 expected[at].fn, ct_span_end_text(expected[at].end));
      }
      at++;
    }
  }
  assert_int_equal(at, count);
  ct_spans_close(spans);
}

static uint64_t unwind_now;

static void
enter(struct ct_encoder *e, uint32_t fn)
{
  ct_encode_enter(e, unwind_now += 10, fn, 0);
}

static void
point(struct ct_encoder *e, uint32_t fn)
{
  ct_encode_point(e, unwind_now += 10, fn);
}

/* One event of the thread, further out: what is inside was left. */
static void
left(struct ct_encoder *e, int frames)
{
  unwind_now += 10;
  while (frames-- > 0) {
    ct_encode_left(e, unwind_now, CT_LEFT_UNWOUND);
  }
}

/* A throw passes three frames, two of which clean up, the inner one with an exception of its own, thrown and caught. */
static void
throw_through(struct ct_encoder *e)
{
  enter(e, L_WORK);
  enter(e, L_WORK);
  enter(e, L_WORK);
  enter(e, L_THROW);
  point(e, L_RAISE);
  left(e, 1); /* lands in the innermost */
  enter(e, L_HANDLER);
  enter(e, L_WORK);
  enter(e, L_LONGJMP);
  left(e, 2); /* the handler's own longjmp */
  ct_encode_return(e, unwind_now += 10);
  point(e, L_RESUME);
  left(e, 1); /* lands in the middle */
  point(e, L_RESUME);
  left(e, 1); /* with more stack in use than the throw needed, as it seems ... */
  enter(e, L_HANDLER);
  ct_encode_return(e, unwind_now += 10);
  left(e, 1); /* ... for in truth it is the outermost where it landed */
}

static void
test_reasons(void **state)
{
  (void)state;
  struct make m;
  make_begin(&m, unwind_names, 4);
  unwind_now = MAKE_START;
  struct ct_encoder *e = m.encoders[0];
  enter(e, L_MAIN);
  enter(e, L_WORK);
  enter(e, L_LONGJMP);
  enter(e, L_LONGJMP2);
  left(e, 3);
  throw_through(e);
  enter(e, L_WORK);
  left(e, 1); /* by nothing that is in the trace */
  enter(e, L_WORK);
  ct_encode_switch(e, unwind_now += 10, 1);
  enter(e, L_HANDLER);
  enter(e, L_LONGJMP);
  ct_encode_switch(e, unwind_now += 10, 0);
  left(e, 1); /* from a signal stack */
  enter(e, L_EXIT);
  const struct expected_end first[] = {
      {L_LONGJMP2, CT_SPAN_LONGJMP}, {L_LONGJMP, CT_SPAN_LONGJMP}, {L_WORK, CT_SPAN_LONGJMP},
      {L_THROW, CT_SPAN_EXCEPTION},  {L_LONGJMP, CT_SPAN_LONGJMP}, {L_WORK, CT_SPAN_LONGJMP},
      {L_HANDLER, CT_SPAN_RETURNED}, {L_WORK, CT_SPAN_EXCEPTION},  {L_WORK, CT_SPAN_EXCEPTION},
      {L_HANDLER, CT_SPAN_RETURNED}, {L_WORK, CT_SPAN_EXCEPTION},  {L_WORK, CT_SPAN_UNWOUND},
      {L_WORK, CT_SPAN_LONGJMP},     {L_EXIT, CT_SPAN_EXIT},       {L_MAIN, CT_SPAN_EXIT},
      {L_LONGJMP, CT_SPAN_LONGJMP},  {L_HANDLER, CT_SPAN_LONGJMP},
  };
  e = m.encoders[1]; /* cancelled; then at its end, with a longjmp to where it began */
  enter(e, L_START);
  enter(e, L_WORK);
  enter(e, L_WORK);
  point(e, L_FORCED);
  left(e, 1);
  point(e, L_RESUME);
  enter(e, L_HANDLER); /* of the unwinder */
  enter(e, L_LONGJMP);
  left(e, 3);
  const struct expected_end second[] = {{L_WORK, CT_SPAN_CANCELLED},
                                        {L_LONGJMP, CT_SPAN_CANCELLED},
                                        {L_HANDLER, CT_SPAN_CANCELLED},
                                        {L_WORK, CT_SPAN_CANCELLED},
                                        {L_START, CT_SPAN_THREAD_EXIT}};
  e = m.encoders[2];
  enter(e, L_START);
  enter(e, L_WORK);
  enter(e, L_PTHREAD_EXIT);
  point(e, L_FORCED);
  left(e, 1);
  point(e, L_RESUME);
  left(e, 1);
  const struct expected_end third[] = {
      {L_PTHREAD_EXIT, CT_SPAN_PTHREAD_EXIT}, {L_WORK, CT_SPAN_PTHREAD_EXIT}, {L_START, CT_SPAN_THREAD_EXIT}};
  e = m.encoders[3]; /* an unwinder that found nobody and returned is no reason for what comes later */
  enter(e, L_MAIN);
  enter(e, L_THROW);
  point(e, L_RAISE);
  ct_encode_return(e, unwind_now += 10);
  enter(e, L_WORK);
  left(e, 1);
  const struct expected_end fourth[] = {{L_THROW, CT_SPAN_RETURNED}, {L_WORK, CT_SPAN_UNWOUND}, {L_MAIN, CT_SPAN_OPEN}};
  struct ct_trace *trace = make_open(&m, true, 0);
  check_ends(trace, 0, first, sizeof(first) / sizeof(first[0]));
  check_ends(trace, 1, second, sizeof(second) / sizeof(second[0]));
  check_ends(trace, 2, third, sizeof(third) / sizeof(third[0]));
  check_ends(trace, 3, fourth, sizeof(fourth) / sizeof(fourth[0]));
  struct ct_report_options options = {.struct_size = sizeof(options), .json = true, .workers = 1};
  char *text = report_text(trace, &options);
  assert_non_null(strstr(text, "\"name\":\"__cxa_throw\""));
  assert_non_null(strstr(text, "\"left\":{\"exception\":1}"));
  assert_non_null(strstr(text, "\"left\":{\"pthread_exit\":1}"));
  assert_non_null(strstr(text, "\"left\":{\"thread exit\":2}"));
  free(text);
  make_end(&m, trace);
}

/* ---- Info ---- */

static char *
info_text(struct ct_trace *trace, bool json)
{
  char *text;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  struct ct_info_options options = {.struct_size = sizeof(options), .json = json};
  assert_int_equal(ct_info_write(trace, &options, out, NULL), 0);
  fclose(out);
  return text;
}

static void
test_info(void **state)
{
  (void)state;
  struct make m;
  struct ct_trace *trace = small_trace(&m);
  char *text = info_text(trace, true);
  json_t *json = json_loads(text, 0, NULL);
  assert_non_null(json);
  json_int_t events, dropped, bytes, duration, signal, install, hooked, refused;
  int complete;
  double each;
  const char *word, *path;
  assert_int_equal(json_unpack(json, "{s:I, s:I, s:I, s:I, s:{s:I}, s:b, s:[{s:s, s:I, s:{s:I}}], s:I, s:[s], s:F}",
                               "events", &events, "dropped", &dropped, "bytes", &bytes, "duration_ns", &duration,
                               "exit", "signal", &signal, "complete", &complete, "modules", "path", &path, "hooked",
                               &hooked, "refused", "too short", &refused, "install_ns", &install, "command", &word,
                               "bytes_per_event", &each),
                   0);
  assert_int_equal(events, 13);
  assert_int_equal(dropped, 7);
  assert_true(bytes > 100);
  assert_int_equal(duration, 5000);
  assert_int_equal(signal, 11);
  assert_int_equal(complete, 1);
  assert_string_equal(path, "/bin/prog");
  assert_int_equal(hooked, 18);
  assert_int_equal(refused, 2);
  assert_int_equal(install, 1500000);
  assert_string_equal(word, "prog");
  assert_int_equal(json_array_size(json_object_get(json, "threads")), 2);
  json_decref(json);
  free(text);
  text = info_text(trace, false);
  assert_non_null(strstr(text, "killed by signal 11 (SIGSEGV, Segmentation fault)\n"));
  assert_non_null(strstr(text, "command    prog 'a b'  (pid 100)\n"));
  assert_non_null(strstr(text, "events     13, 7 dropped (35.00 %)\n"));
  assert_non_null(strstr(text, "duration   5.000 us, hooks installed in 1.500 ms\n"));
  assert_non_null(strstr(text, "modules    2 with 50 functions, 48 hooked (96.0 %)\n"));
  assert_non_null(strstr(text, "too short\n"));
  assert_null(strstr(text, "INCOMPLETE"));
  free(text);
  make_end(&m, trace);
}

static void
test_info_incomplete(void **state)
{
  (void)state;
  struct make m;
  make_begin(&m, small_names, 1);
  ct_encode_enter(m.encoders[0], 1000, 0, 0);
  struct ct_trace *trace = make_open(&m, false, 0);
  char *text = info_text(trace, false);
  assert_non_null(strstr(text, "INCOMPLETE"));
  assert_non_null(strstr(text, "exit       unknown"));
  free(text);
  text = info_text(trace, true);
  json_t *json = json_loads(text, 0, NULL);
  assert_non_null(json);
  assert_true(json_is_null(json_object_get(json, "exit")));
  assert_true(json_is_null(json_object_get(json, "duration_ns")));
  assert_true(json_is_false(json_object_get(json, "complete")));
  json_decref(json);
  free(text);
  make_end(&m, trace);
}

static struct ct_trace *
crashed_trace(struct make *m, const char *crash)
{
  static const char *const names[] = {"main", "_Z4leafi", NULL};
  make_begin(m, names, 2);
  ct_encode_enter(m->encoders[0], 1100, 0, 0);
  ct_encode_enter(m->encoders[0], 1200, 1, 0);
  ct_encode_return(m->encoders[0], 1350);
  ct_encode_enter(m->encoders[0], 2000, 1, 0);
  ct_encode_enter(m->encoders[1], 1300, 0, 0);
  json_t *json = json_loads(crash, 0, NULL);
  assert_non_null(json);
  assert_int_equal(ct_trace_writer_crash(m->writer, json), 0);
  json_decref(json);
  return make_open(m, true, 0);
}

static void
test_info_crash(void **state)
{
  (void)state;
  struct make m;
  struct ct_trace *trace = crashed_trace(
      &m,
      "{\"version\": 1, \"signal\": 11, \"name\": \"SIGSEGV\", \"code\": 1, \"code_name\": \"SEGV_MAPERR\","
      "\"meaning\": \"nothing is mapped there\", \"address\": \"0x10\", \"pid\": 100, \"tid\": 100, \"tsc\": 2100,"
      "\"registers\": {\"rip\": \"0x401020\"}, \"threads\": [{\"tid\": 100, \"thread_name\": \"prog\", \"backtrace\": ["
      "{\"pc\": \"0x401020\", \"module\": \"/bin/prog\", \"offset\": \"0x1020\", \"function\": \"_Z4leafi\","
      "\"function_offset\": 16, \"file\": \"/src/leaf.cc\", \"line\": 7}, {\"pc\": \"0x7\"}]},"
      "{\"tid\": 101, \"thread_name\": \"worker\", \"system_call\": 34, \"cut\": true, \"backtrace\": []}]}");
  char *text = info_text(trace, false);
  static const char want[] = "crashed    SIGSEGV: nothing is mapped there (SEGV_MAPERR), address 0x10\n"
                             "           in thread prog/100, 0.000001100 s after the start\n"
                             "           #0   leaf(int)+0x10 (prog+0x1020) at leaf.cc:7\n"
                             "           #1   0x7\n"
                             "           rip    0x401020            rsp    ?                   rbp    ?\n";
  static const char calls[] = "           last calls (time, duration, depth):\n"
                              "             0.000000100   4.900 us    0  main (prog)  -- unfinished\n"
                              "             0.000000200     150 ns    1    leaf(int) (prog)\n"
                              "             0.000001000   4.000 us    1    leaf(int) (prog)  -- unfinished\n"
                              "           thread worker/101, in system call 34:\n"
                              "           ...\n"
                              "           last calls (time, duration, depth):\n"
                              "             0.000000300   4.700 us    0  main (prog)  -- unfinished\n"
                              "\n"
                              "exit       killed by signal 11";
  assert_memory_equal(text, want, sizeof(want) - 1);
  assert_non_null(strstr(text, calls));
  free(text);
  text = info_text(trace, true);
  json_t *json = json_loads(text, 0, NULL);
  json_int_t time, duration, depth;
  const char *name;
  assert_int_equal(json_unpack(json, "{s:{s:I, s:[{s:[{}, {s:I, s:I, s:s}]}]}}", "crash", "time_ns", &time, "threads",
                               "last_calls", "duration_ns", &duration, "depth", &depth, "name", &name),
                   0);
  assert_int_equal(time, 1100);
  assert_int_equal(duration, 150);
  assert_int_equal(depth, 1);
  assert_string_equal(name, "leaf(int)");
  json_decref(json);
  free(text);
  make_end(&m, trace);
}

/* What is in the file may be anything. */
static void
test_info_crash_damaged(void **state)
{
  (void)state;
  static const char *const crashes[] = {
      "{}", "[]", "{\"threads\": 5, \"tid\": \"x\", \"tsc\": -1, \"name\": []}",
      "{\"threads\": [1, null, {\"tid\": -1, \"backtrace\": {}}, {\"backtrace\": [0, {\"pc\": 1, \"function\": {}}]}]}",
      "{\"signal\": \"\", \"registers\": [], \"threads\": [{\"backtrace\": [{\"function\": \"\\u0007\"}]}]}"};
  for (size_t i = 0; i < sizeof(crashes) / sizeof(crashes[0]); i++) {
    struct make m;
    struct ct_trace *trace = crashed_trace(&m, crashes[i]);
    char *text = info_text(trace, false);
    assert_non_null(strstr(text, "exit       killed by signal 11"));
    assert_null(strchr(text, '\a'));
    free(text);
    text = info_text(trace, true);
    json_t *json = json_loads(text, 0, NULL);
    assert_true(json_is_object(json_object_get(json, "crash")));
    json_decref(json);
    free(text);
    make_end(&m, trace);
  }
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_histogram),     cmocka_unit_test(test_histogram_extremes),
      cmocka_unit_test(test_durations),     cmocka_unit_test(test_json_string),
      cmocka_unit_test(test_report_random), cmocka_unit_test(test_report_json),
      cmocka_unit_test(test_report_table),  cmocka_unit_test(test_report_unknown_thread),
      cmocka_unit_test(test_span_ends),     cmocka_unit_test(test_bounds),
      cmocka_unit_test(test_own_times),     cmocka_unit_test(test_debt_is_bounded),
      cmocka_unit_test(test_away),          cmocka_unit_test(test_reasons),
      cmocka_unit_test(test_info),          cmocka_unit_test(test_info_incomplete),
      cmocka_unit_test(test_info_crash),    cmocka_unit_test(test_info_crash_damaged),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
