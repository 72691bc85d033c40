/* SPDX-License-Identifier: MIT */
/* Report: against a naive reference, as text, as JSON. */
#define _GNU_SOURCE 1 /* FTW_DEPTH */
#include "views_make.h"

#include "base/json.h"
#include "span/spans.h"

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
    ct_encode_unwound(g->encoder, g->now, CT_UNWOUND_JUMP);
    gen_close(g, KNOWN);
    break;
  case 2:
    if (depth == 0) {
      break;
    }
    ct_encode_unwound(g->encoder, g->now, CT_UNWOUND_LOST);
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
  struct ct_filter all = {.struct_size = sizeof(all)};
  struct ct_report_options options = {
      .struct_size = sizeof(options), .sort = CT_SORT_SELF, .workers = workers, .filter = &all};
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
  struct ct_filter filter = {.struct_size = sizeof(filter), .tids = &tid, .tid_count = 1};
  options.filter = &filter;
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
  struct ct_filter filter = {.struct_size = sizeof(filter), .limit = 3};
  struct ct_report_options options = {
      .struct_size = sizeof(options), .workers = 1, .sort = CT_SORT_NAME, .filter = &filter};
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
  filter = (struct ct_filter){.struct_size = sizeof(filter), .function = "[wm]*", .module = "pr*"};
  options = (struct ct_report_options){.struct_size = sizeof(options), .workers = 1, .filter = &filter, .width = 100};
  text = report_text(trace, &options);
  assert_non_null(strstr(text, "not shown, for want of columns: min, avg, p50, p95"));
  assert_non_null(strstr(text, "  4.650 us   4.620 us            3     100 ns   4.500 us          1  prog    work\n"));
  free(text);
  options.width = 200;
  text = report_text(trace, &options);
  assert_null(strstr(text, "not shown"));
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
  struct ct_filter filter = {.struct_size = sizeof(filter), .tids = &tid, .tid_count = 1};
  struct ct_report_options options = {.struct_size = sizeof(options), .filter = &filter, .workers = 2};
  struct ct_view_notes notes = {.struct_size = sizeof(notes)};
  struct ct_diag diag = {""};
  assert_int_equal(ct_report_write(trace, &options, stdout, &notes, &diag), CT_ERANGE);
  assert_non_null(strstr(diag.text, "4711"));
  make_end(&m, trace);
}

/* Of a family a function's number is only when it was met first: rows that are alike otherwise go by their modules. */
static void
test_report_alike_rows(void **state)
{
  (void)state;
  for (int turn = 0; turn < 2; turn++) {
    struct ct_report_row rows[] = {{.name = "f", .module = turn == 0 ? "liba.so" : "libb.so", .fn = 0},
                                   {.name = "f", .module = turn == 0 ? "libb.so" : "liba.so", .fn = 1},
                                   {.name = "e", .module = "libz.so", .fn = 2}};
    for (int sort = 0; sort < 2; sort++) {
      ct_report_sort_rows(rows, 3, sort == 0 ? CT_SORT_TOTAL : CT_SORT_NAME);
      assert_string_equal(rows[0].name, "e");
      assert_string_equal(rows[1].module, "liba.so");
      assert_string_equal(rows[2].module, "libb.so");
    }
  }
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_report_random),
      cmocka_unit_test(test_report_json),
      cmocka_unit_test(test_report_table),
      cmocka_unit_test(test_report_unknown_thread),
      cmocka_unit_test(test_report_alike_rows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
