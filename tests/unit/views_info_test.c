/* SPDX-License-Identifier: MIT */
/* Info: of whole and of incomplete traces, after a crash, of a damaged account of one. */
#define _GNU_SOURCE 1 /* FTW_DEPTH */
#include "views_make.h"

#include <contrail/info.h>
#include "base/json.h"

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
      cmocka_unit_test(test_info),
      cmocka_unit_test(test_info_incomplete),
      cmocka_unit_test(test_info_crash),
      cmocka_unit_test(test_info_crash_damaged),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
