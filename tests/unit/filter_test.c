/* SPDX-License-Identifier: MIT */
/* Filters: the texts that they are given as, and what they say of calls, functions and threads. */
#define _GNU_SOURCE 1 /* FTW_DEPTH */
#include "views_make.h"

#include "views/filter.h"

#include <contrail/filter.h>
#include <contrail/span.h>

#include <sys/stat.h>
#include <time.h>

#define SECOND UINT64_C(1000000000)

static const char *const names[] = {"main", "work", "lib_alloc", "_ZN2ns3fooEi", NULL};
enum { MAIN, WORK, ALLOC, FOO };

static void
test_durations(void **state)
{
  (void)state;
  static const struct {
    const char *text;
    uint64_t ns;
  } good[] = {{"1ms", 1000000},
              {"1.5us", 1500},
              {"20ns", 20},
              {"3s", 3 * SECOND},
              {"2m", 120 * SECOND},
              {"1h", 3600 * SECOND},
              {"7d", 604800 * SECOND},
              {"0.000001s", 1000},
              {"1.0000000019s", SECOND + 1},
              {"100000000000ns", 100 * SECOND}};
  static const char *const bad[] = {"",
                                    "5",
                                    "0ms",
                                    "-1ms",
                                    "1.ms",
                                    ".5ms",
                                    "1 ms",
                                    "1e3ms",
                                    "0x1ms",
                                    "1msx",
                                    "ms",
                                    "0.1ns",
                                    "infs",
                                    "1,5ms",
                                    "+1ms",
                                    "nan",
                                    "1ms ",
                                    " 1ms",
                                    "1MS",
                                    "1000000000000000000000s",
                                    "999999999999999d"};
  for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
    uint64_t ns = 0;
    assert_int_equal(ct_filter_parse_duration(good[i].text, &ns, NULL), 0);
    assert_int_equal(ns, good[i].ns);
  }
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
    uint64_t ns = 77;
    struct ct_diag diag = {""};
    if (ct_filter_parse_duration(bad[i], &ns, &diag) != CT_EINVAL) {
      fail_msg("'%s' is taken for a duration", bad[i]);
    }
    assert_int_equal(ns, 77);
    assert_non_null(strstr(diag.text, "is no duration"));
  }
}

static void
test_words(void **state)
{
  (void)state;
  uint32_t bits = 0;
  struct ct_diag diag = {""};
  assert_int_equal(ct_filter_parse_reasons("returned", &bits, &diag), 0);
  assert_int_equal(bits, 1u << CT_SPAN_RETURNED);
  assert_int_equal(ct_filter_parse_reasons("exception,tail-call,thread exit,pthread_exit", &bits, &diag), 0);
  assert_int_equal(bits, 1u << CT_SPAN_EXCEPTION | 1u << CT_SPAN_TAIL | 1u << CT_SPAN_THREAD_EXIT |
                             1u << CT_SPAN_PTHREAD_EXIT);
  assert_int_equal(ct_filter_parse_reasons("exit", &bits, &diag), 0); /* two have this name */
  assert_int_equal(bits, 1u << CT_SPAN_EXIT | 1u << CT_SPAN_EXITED);
  for (unsigned end = 0; end < CT_SPAN_ENDS; end++) {
    assert_int_equal(ct_filter_parse_reasons(ct_span_end_text((enum ct_span_end)end), &bits, &diag), 0);
    assert_true((bits >> end & 1) != 0);
  }
  static const char *const bad[] = {
      "",       ",",        "returned,",          ",returned",
      "return", "Returned", "returned exception", "a word that is much longer than any of them could ever be"};
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
    bits = 77;
    assert_int_equal(ct_filter_parse_reasons(bad[i], &bits, &diag), CT_EINVAL);
    assert_int_equal(bits, 77);
    assert_non_null(strstr(diag.text, "returned, tail call, "));
  }
  assert_int_equal(ct_filter_parse_types("call,output,crash", &bits, &diag), 0);
  assert_int_equal(bits, CT_FILTER_CALL | CT_FILTER_OUTPUT | CT_FILTER_CRASH);
  assert_int_equal(ct_filter_parse_types("calls", &bits, &diag), CT_EINVAL);
  assert_string_equal(diag.text, "'calls' is no type: call, point, output, switch, lost, crash");
  assert_string_equal(ct_filter_type_name(CT_FILTER_LOST), "lost");
  assert_string_equal(ct_filter_type_name((enum ct_filter_type)3), "?");
}

static void
test_depths(void **state)
{
  (void)state;
  struct ct_filter filter = {.struct_size = sizeof(filter)};
  assert_int_equal(ct_filter_parse_depth("3", &filter, NULL), 0);
  assert_int_equal(filter.levels, 3);
  assert_false(filter.has_depths);
  filter = (struct ct_filter){.struct_size = sizeof(filter)};
  assert_int_equal(ct_filter_parse_depth("2..5", &filter, NULL), 0);
  assert_true(filter.has_depths && filter.first_depth == 2 && filter.last_depth == 5 && filter.levels == 0);
  assert_int_equal(ct_filter_parse_depth("..4", &filter, NULL), 0);
  assert_true(filter.first_depth == 0 && filter.last_depth == 4);
  assert_int_equal(ct_filter_parse_depth("7..", &filter, NULL), 0);
  assert_true(filter.first_depth == 7 && filter.last_depth == UINT32_MAX);
  static const char *const bad[] = {"", "..", "5..2", "x", "-1", "1.5", "1..2..3", "1...2", "12345678901", "3 "};
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
    struct ct_diag diag = {""};
    if (ct_filter_parse_depth(bad[i], &filter, &diag) != CT_EINVAL) {
      fail_msg("'%s' is taken for a depth", bad[i]);
    }
    assert_true(filter.first_depth == 7 && filter.last_depth == UINT32_MAX);
    assert_non_null(strstr(diag.text, "is no depth"));
  }
}

/* A recording that began at that time by the clock on the wall; its own begins at 1000 ns. */
static struct ct_trace *
trace_of(struct make *m, int64_t wall_ns)
{
  make_begin(m, names, 2);
  ct_encode_enter(m->encoders[0], 1000, MAIN, 0);
  ct_encode_return(m->encoders[0], 1500);
  struct ct_trace *trace = make_open(m, true, 0);
  if (wall_ns != 0) {
    json_object_set_new((json_t *)ct_trace_manifest(trace), "start_wall_ns", json_integer(wall_ns));
  }
  return trace;
}

static void
check_time(struct ct_trace *trace, const char *text, uint64_t want)
{
  uint64_t tsc = 77;
  struct ct_diag diag = {""};
  if (ct_filter_parse_time(trace, text, &tsc, &diag) != 0) {
    fail_msg("%s", diag.text);
  }
  if (tsc != want) {
    fail_msg("'%s' is %llu, not %llu", text, (unsigned long long)tsc, (unsigned long long)want);
  }
}

static void
check_no_times(struct ct_trace *trace)
{
  static const char *const bad[] = {"",
                                    "x",
                                    "-1",
                                    "1,5",
                                    "25:00",
                                    "10:60",
                                    "10:15:60",
                                    "1:2:3:4",
                                    "10:15:",
                                    "10:5",
                                    "10:15:30.",
                                    "10:15:30Z",
                                    "2026-13-01",
                                    "2026-02-30",
                                    "2026-11-24T",
                                    "2026-11-24x",
                                    "26-11-24",
                                    "2026-11-24T25:00",
                                    "1.5.5",
                                    "1..5",
                                    "1e3",
                                    "10:15 ",
                                    "2026-11-24T10:15:30ZZ",
                                    "1000000000",
                                    "1s5"};
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
    uint64_t tsc = 77;
    struct ct_diag diag = {""};
    if (ct_filter_parse_time(trace, bad[i], &tsc, &diag) != CT_EINVAL) {
      fail_msg("'%s' is taken for a time", bad[i]);
    }
    assert_int_equal(tsc, 77);
    assert_non_null(strstr(diag.text, "is no time"));
  }
}

static void
test_times(void **state)
{
  (void)state;
  struct make m;
  setenv("TZ", "UTC-2", 1); /* two hours east */
  tzset();
  /* 2026-11-24T08:15:30.25Z: 10:15:30.25 there. */
  const int64_t wall = INT64_C(1795508130) * 1000000000 + 250000000;
  struct ct_trace *trace = trace_of(&m, wall);
  check_time(trace, "0", MAKE_START);
  check_time(trace, "1.5", MAKE_START + 1500000000);
  check_time(trace, "1500ms", MAKE_START + 1500000000);
  check_time(trace, "20ns", MAKE_START + 20);
  check_time(trace, "2m", MAKE_START + 120 * SECOND);
  check_time(trace, "10:15:31", MAKE_START + 750000000);
  check_time(trace, "10:15:30.25", MAKE_START);
  check_time(trace, "10:15:30.2500000015", MAKE_START + 1);
  check_time(trace, "10:16", MAKE_START + 29750000000);
  check_time(trace, "2026-11-24T10:15:31.5", MAKE_START + 1250000000);
  check_time(trace, "2026-11-24 10:15:31.5", MAKE_START + 1250000000);
  check_time(trace, "2026-11-24T08:15:31.5Z", MAKE_START + 1250000000);
  check_time(trace, "2026-11-25", MAKE_START + (13 * 3600 + 44 * 60 + 29) * SECOND + 750000000);
  check_time(trace, "10:15:30.2499996", MAKE_START - 400); /* before the begin */
  check_time(trace, "10:15:30", 0);                        /* before the clock's */
  check_time(trace, "2026-11-23", 0);
  check_no_times(trace);
  make_end(&m, trace);
  /* 2026-11-24T23:59:59.999999 there; the recording takes 5 us. */
  trace = trace_of(&m, INT64_C(1795557599) * 1000000000 + 999999000);
  check_time(trace, "00:00:00", MAKE_START + 1000);
  check_time(trace, "00:00:00.000003", MAKE_START + 4000);
  check_time(trace, "00:00:00.000005", 0); /* after its end: so it is that of its first day */
  make_end(&m, trace);
  uint64_t tsc = 77;
  struct ct_diag diag = {""};
  trace = trace_of(&m, 0);
  assert_int_equal(ct_filter_parse_time(trace, "10:15", &tsc, &diag), CT_EINVAL);
  assert_non_null(strstr(diag.text, "does not say what time it was"));
  make_end(&m, trace);
}

/* A clock of so many ticks in so many ns, whose 0 is that of the other one. */
static struct ct_trace *
trace_with_ticks(struct make *m, int ticks, int ns)
{
  struct ct_trace *trace = trace_of(m, 0);
  char path[128];
  ct_trace_close(trace);
  snprintf(path, sizeof(path), "%s/manifest.json", m->dir);
  json_t *manifest = json_load_file(path, 0, NULL), *clock = json_object_get(manifest, "clock");
  assert_non_null(clock);
  json_object_set_new(clock, "tsc1", json_integer(ticks * INT64_C(100000000)));
  json_object_set_new(clock, "ns1", json_integer(ns * INT64_C(100000000)));
  assert_int_equal(json_dump_file(manifest, path, 0), 0);
  json_decref(manifest);
  assert_int_equal(ct_trace_open(m->dir, &trace, NULL), 0);
  return trace;
}

/* A piece has what is shown as of one of its times, from the first such tick on. */
static void
check_piece(const struct ct_trace *trace, uint64_t from, uint64_t to)
{
  char begin[32], end[32];
  struct ct_filter filter = {.struct_size = sizeof(filter)};
  snprintf(begin, sizeof(begin), "%uns", (unsigned)from);
  snprintf(end, sizeof(end), "%uns", (unsigned)to);
  assert_int_equal(ct_filter_parse_piece(trace, begin, end, &filter, NULL), 0);
  assert_true(ct_trace_ns(trace, filter.from_tsc) >= MAKE_START + from);
  assert_true(ct_trace_ns(trace, filter.from_tsc - 1) < MAKE_START + from);
  assert_true(filter.from_tsc <= filter.to_tsc);
  assert_true(ct_trace_ns(trace, filter.to_tsc) <= MAKE_START + to || filter.to_tsc == filter.from_tsc);
}

static void
test_pieces(void **state)
{
  (void)state;
  static const int clocks[][2] = {{26, 10}, {3, 1}, {1, 1}, {10, 26}, {10, 10000}, {29, 7}};
  for (size_t i = 0; i < sizeof(clocks) / sizeof(clocks[0]); i++) {
    struct make m;
    struct ct_trace *trace = trace_with_ticks(&m, clocks[i][0], clocks[i][1]);
    for (uint64_t from = 1; from < 300; from++) {
      check_piece(trace, from, from);
      check_piece(trace, from, from + 1);
      check_piece(trace, from, from + 100);
    }
    struct ct_filter filter = {.struct_size = sizeof(filter), .from_tsc = 3, .to_tsc = 4};
    assert_int_equal(ct_filter_parse_piece(trace, "2", "1", &filter, NULL), CT_ERANGE);
    assert_int_equal(ct_filter_parse_piece(trace, "2", "x", &filter, NULL), CT_EINVAL);
    assert_int_equal(ct_filter_parse_piece(trace, NULL, NULL, &filter, NULL), 0);
    assert_true(filter.from_tsc == 3 && filter.to_tsc == 4);
    make_end(&m, trace);
  }
}

static void
check_form(const char *text, const char *directory, const char *from, const char *to, int tid)
{
  struct ct_trace_form form = {.struct_size = sizeof(form)};
  struct ct_diag diag = {""};
  if (ct_trace_form_parse(text, &form, &diag) != 0) {
    fail_msg("%s", diag.text);
  }
  assert_string_equal(form.directory, directory);
  assert_string_equal(form.from != NULL ? form.from : "", from);
  assert_string_equal(form.to != NULL ? form.to : "", to);
  assert_int_equal(form.has_tid ? (int)form.tid : -1, tid);
  ct_trace_form_free(&form);
  ct_trace_form_free(&form);
}

static void
test_forms(void **state)
{
  (void)state;
  char folder[] = "/tmp/contrail-forms-XXXXXX", path[128], text[160];
  assert_non_null(mkdtemp(folder));
  check_form("t", "t", "", "", -1);
  check_form("t@1.5..2", "t", "1.5", "2", -1);
  check_form("t@..2m", "t", "", "2m", -1);
  check_form("t@10:15:30.5..", "t", "10:15:30.5", "", -1);
  check_form("t@2026-11-24 10:15..2026-11-24T10:16", "t", "2026-11-24 10:15", "2026-11-24T10:16", -1);
  check_form("t@..", "t", "", "", -1);
  check_form("t#4711", "t", "", "", 4711);
  check_form("a/t@1..2#4711", "a/t", "1", "2", 4711);
  check_form("a/t#4711@1..2", "a/t", "1", "2", 4711);
  check_form("t/@1..2", "t/", "1", "2", -1);
  check_form("@1..2", "", "1", "2", -1);
  check_form("#7", "", "", "", 7);
  static const char *const windows[] = {"t@window:12", "t@window:12#7", "t#7@window:12"};
  for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++) {
    struct ct_trace_form form = {.struct_size = sizeof(form)};
    assert_int_equal(ct_trace_form_parse(windows[i], &form, NULL), CT_OK);
    assert_string_equal(form.directory, "t");
    assert_int_equal(form.window, 12);
    assert_int_equal(form.has_tid, i != 0);
    assert_null(form.from);
    ct_trace_form_free(&form);
  }
  check_form("me@home/#1/t", "me@home/#1/t", "", "", -1);
  snprintf(path, sizeof(path), "%s/t@1..2", folder);
  assert_int_equal(mkdir(path, 0700), 0);
  check_form(path, path, "", "", -1);
  snprintf(text, sizeof(text), "%s#5@3..4", path);
  check_form(text, path, "3", "4", 5);
  snprintf(text, sizeof(text), "%s/t@1..3", folder);
  snprintf(path, sizeof(path), "%s/t", folder);
  check_form(text, path, "1", "3", -1);
  static const char *const bad[] = {"t@5",
                                    "t@",
                                    "t#",
                                    "t#x",
                                    "t#-1",
                                    "t#1#2",
                                    "t@1..2@3..4",
                                    "t#1 ",
                                    "t@1..2#",
                                    "t#99999999999",
                                    "t@window:0",
                                    "t@window:",
                                    "t@window:1x",
                                    "t@window:1@1..2",
                                    "t@1..2@window:1"};
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
    struct ct_trace_form form = {.struct_size = sizeof(form)};
    struct ct_diag diag = {""};
    if (ct_trace_form_parse(bad[i], &form, &diag) != CT_EINVAL) {
      fail_msg("'%s' is taken for a trace", bad[i]);
    }
    assert_null(form.directory);
    assert_non_null(strstr(diag.text, "there is no such directory"));
  }
  snprintf(path, sizeof(path), "%s/t@1..2", folder);
  rmdir(path);
  rmdir(folder);
}

static void
test_calls(void **state)
{
  (void)state;
  struct ct_filter filter = {.min_ns = 100, .max_ns = 200};
  assert_true(ct_filter_call_passes(&filter, 100, 0, CT_SPAN_RETURNED));
  assert_true(ct_filter_call_passes(&filter, 200, 9, CT_SPAN_OPEN));
  assert_false(ct_filter_call_passes(&filter, 99, 0, CT_SPAN_RETURNED));
  assert_false(ct_filter_call_passes(&filter, 201, 0, CT_SPAN_RETURNED));
  assert_false(ct_filter_call_passes(&filter, 150, 0, CT_SPAN_POINT));
  assert_false(ct_filter_call_passes(&filter, 150, 0, CT_SPAN_ORPHAN));
  filter = (struct ct_filter){.max_ns = 10};
  assert_false(ct_filter_call_passes(&filter, 0, 0, CT_SPAN_COUNTED));
  filter = (struct ct_filter){.has_depths = true, .first_depth = 2, .last_depth = 3, .levels = 3};
  assert_false(ct_filter_call_passes(&filter, 0, 1, CT_SPAN_RETURNED));
  assert_true(ct_filter_call_passes(&filter, 0, 2, CT_SPAN_POINT));
  assert_false(ct_filter_call_passes(&filter, 0, 3, CT_SPAN_RETURNED)); /* on the fourth level */
  assert_false(ct_filter_call_passes(&filter, 0, 2, CT_SPAN_COUNTED));  /* at which depths is not known */
  filter = (struct ct_filter){.levels = 3};
  assert_false(ct_filter_call_passes(&filter, 0, 0, CT_SPAN_COUNTED));
  filter = (struct ct_filter){.reasons = 1u << CT_SPAN_LOST | 1u << CT_SPAN_POINT};
  assert_true(ct_filter_call_passes(&filter, 0, 0, CT_SPAN_LOST));
  assert_true(ct_filter_call_passes(&filter, 0, 0, CT_SPAN_POINT));
  assert_false(ct_filter_call_passes(&filter, 0, 0, CT_SPAN_RETURNED));
  filter = (struct ct_filter){.types = CT_FILTER_POINT | CT_FILTER_LOST};
  assert_true(ct_filter_call_passes(&filter, 0, 0, CT_SPAN_COUNTED));
  assert_false(ct_filter_call_passes(&filter, 0, 0, CT_SPAN_RETURNED));
}

static void
test_compiled(void **state)
{
  (void)state;
  struct make m;
  struct ct_filter_compiled *compiled = NULL;
  struct ct_diag diag = {""};
  struct ct_trace *trace = trace_of(&m, 0);
  uint32_t tids[] = {101, 4711};
  struct ct_filter filter = {.struct_size = sizeof(filter), .function = "ns::**", .tids = tids, .tid_count = 1};
  assert_int_equal(ct_filter_compile(&filter, trace, &compiled, &diag), 0);
  for (int twice = 0; twice < 2; twice++) {
    assert_true(ct_filter_has_function(compiled, FOO));
    assert_false(ct_filter_has_function(compiled, WORK));
    assert_false(ct_filter_has_function(compiled, 4711)); /* nobody knows its name */
  }
  assert_true(ct_filter_has_thread(compiled, 101));
  assert_false(ct_filter_has_thread(compiled, 100));
  assert_false(ct_filter_is_about_calls(compiled));
  ct_filter_free_compiled(compiled);
  filter = (struct ct_filter){.struct_size = sizeof(filter), .module = "libx*", .min_ns = 5};
  assert_int_equal(ct_filter_compile(&filter, trace, &compiled, &diag), 0);
  assert_true(ct_filter_has_function(compiled, ALLOC));
  assert_false(ct_filter_has_function(compiled, MAIN));
  assert_true(ct_filter_has_thread(compiled, 1));
  assert_true(ct_filter_is_about_calls(compiled));
  assert_true(ct_filter_has_call(compiled, 5, 0, CT_SPAN_RETURNED));
  assert_false(ct_filter_has_call(compiled, 4, 0, CT_SPAN_RETURNED));
  ct_filter_free_compiled(compiled);
  ct_filter_free_compiled(NULL);
  compiled = NULL;
  filter = (struct ct_filter){.struct_size = sizeof(filter), .tids = tids, .tid_count = 2};
  assert_int_equal(ct_filter_compile(&filter, trace, &compiled, &diag), CT_ERANGE);
  filter = (struct ct_filter){.struct_size = sizeof(filter), .function = "[x"};
  assert_int_equal(ct_filter_compile(&filter, trace, &compiled, &diag), CT_EINVAL);
  filter = (struct ct_filter){.struct_size = sizeof(filter), .file = "dir/"};
  assert_int_equal(ct_filter_compile(&filter, trace, &compiled, &diag), CT_EINVAL);
  assert_non_null(strstr(diag.text, "--file 'dir/'"));
  filter = (struct ct_filter){.struct_size = 0};
  assert_int_equal(ct_filter_compile(&filter, trace, &compiled, &diag), CT_EINVAL);
  assert_null(compiled);
  struct ct_trace *same = NULL;
  assert_int_equal(ct_filter_open_process(trace, 100, &same, &diag), 0);
  assert_ptr_equal(same, trace);
  assert_int_equal(ct_filter_open_process(trace, 4711, &same, &diag), CT_ERANGE);
  make_end(&m, trace);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_durations), cmocka_unit_test(test_words),    cmocka_unit_test(test_depths),
      cmocka_unit_test(test_times),     cmocka_unit_test(test_pieces),   cmocka_unit_test(test_forms),
      cmocka_unit_test(test_calls),     cmocka_unit_test(test_compiled),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
