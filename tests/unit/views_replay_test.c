/* SPDX-License-Identifier: MIT */
/* Replay: what the text and the JSON of small traces look like, filters, order over threads. */
#define _GNU_SOURCE 1 /* FTW_DEPTH */
#include "views_make.h"

#include <contrail/replay.h>

#include "trace/format.h"

static const char *const names[] = {"main", "work", "lib_alloc", "_ZN2ns3fooEi", "tail", NULL};
enum { MAIN, WORK, ALLOC, FOO, TAIL };

#define FILTERED(...)                                                                                                  \
  (struct ct_replay_options)                                                                                           \
  {                                                                                                                    \
    .filter = &(struct ct_filter)                                                                                      \
    {                                                                                                                  \
      .struct_size = sizeof(struct ct_filter), __VA_ARGS__                                                             \
    }                                                                                                                  \
  }

static char *
replay_text(struct ct_trace *trace, struct ct_replay_options options)
{
  char *text;
  size_t size;
  struct ct_diag diag = {""};
  struct ct_view_notes notes = {.struct_size = sizeof(notes)};
  options.struct_size = sizeof(options);
  FILE *out = open_memstream(&text, &size);
  int code = ct_replay_write(trace, &options, out, &notes, &diag);
  fclose(out);
  if (code != 0) {
    fail_msg("%s", diag.text);
  }
  return text;
}

static void
check(struct ct_trace *trace, struct ct_replay_options options, const char *want)
{
  char *text = replay_text(trace, options);
  assert_text(text, want);
  free(text);
}

static struct ct_trace *
one_thread(struct make *m)
{
  make_begin(m, names, 1);
  struct ct_encoder *e = m->encoders[0];
  ct_encode_enter(e, 1000, MAIN, 0);
  ct_encode_enter(e, 1100, WORK, 0);
  ct_encode_enter(e, 1110, ALLOC, 0);
  ct_encode_return(e, 1140);
  ct_encode_point(e, 1150, FOO);
  ct_encode_return(e, 1200);
  ct_encode_enter(e, 1300, FOO, 0);
  ct_encode_return(e, 3534);
  ct_encode_return(e, 4000);
  return make_open(m, true, 0);
}

#define HEAD "      time (s)  thread      duration  calls\n"

static void
test_text(void **state)
{
  (void)state;
  struct make m;
  struct ct_trace *trace = one_thread(&m);
  check(trace, (struct ct_replay_options){0},
        HEAD "   0.000000000  prog/100              main() {\n"
             "   0.000000100  prog/100                work() {\n"
             "   0.000000110  prog/100       30 ns      lib_alloc();\n"
             "   0.000000150  prog/100                  ns::foo(int)  -- enter only\n"
             "   0.000000200  prog/100      100 ns    } work()\n"
             "   0.000000300  prog/100    2.234 us    ns::foo(int);\n"
             "   0.000003000  prog/100    3.000 us  } main()\n");
  make_end(&m, trace);
}

static void
test_filters(void **state)
{
  (void)state;
  struct make m;
  struct ct_trace *trace = one_thread(&m);
  check(trace, FILTERED(.function = "work"),
        HEAD "   0.000000100  prog/100              work() {\n"
             "   0.000000110  prog/100       30 ns    lib_alloc();\n"
             "   0.000000150  prog/100                ns::foo(int)  -- enter only\n"
             "   0.000000200  prog/100      100 ns  } work()\n");
  check(trace, FILTERED(.function = "work", .levels = 1),
        HEAD "   0.000000100  prog/100              work() {\n"
             "   0.000000200  prog/100      100 ns  } work()\n");
  check(trace, FILTERED(.function = "ns::foo"),
        HEAD "   0.000000150  prog/100              ns::foo(int)  -- enter only\n"
             "   0.000000300  prog/100    2.234 us  ns::foo(int);\n");
  check(trace, FILTERED(.module = "libx*"), HEAD "   0.000000110  prog/100       30 ns  lib_alloc();\n");
  check(trace, FILTERED(.module = "/bin/*", .levels = 2),
        HEAD "   0.000000000  prog/100              main() {\n"
             "   0.000000100  prog/100                work() {\n"
             "   0.000000200  prog/100      100 ns    } work()\n"
             "   0.000000300  prog/100    2.234 us    ns::foo(int);\n"
             "   0.000003000  prog/100    3.000 us  } main()\n");
  check(trace, FILTERED(.limit = 2),
        HEAD "   0.000000000  prog/100              main() {\n"
             "   0.000000100  prog/100                work() {\n");
  make_end(&m, trace);
}

static struct ct_trace *
odd_ends(struct make *m)
{
  make_begin(m, names, 1);
  struct ct_encoder *e = m->encoders[0];
  ct_encode_orphan_return(e, 1000, WORK);
  ct_encode_enter(e, 1100, MAIN, 0);
  ct_encode_enter(e, 1200, WORK, 0);
  ct_encode_tail(e, 1210, TAIL);
  ct_encode_tail(e, 1220, ALLOC);
  ct_encode_enter(e, 1230, FOO, 0);
  ct_encode_unwound(e, 1240, CT_UNWOUND_JUMP);
  ct_encode_unwound(e, 1240, CT_UNWOUND_JUMP);
  ct_encode_switch(e, 1300, 2);
  ct_encode_enter(e, 1310, WORK, 0);
  ct_encode_switch(e, 1320, 0);
  ct_encode_enter(e, 1330, FOO, 0);
  ct_encode_lost(e, 1400, 12);
  ct_encode_return(e, 1500);
  ct_encode_exec(e, 1600);
  ct_encode_enter(e, 1700, MAIN, 0);
  ct_encode_enter(e, 1800, WORK, 0);
  ct_encode_lost(e, 1900, 1);
  return make_open(m, false, 13);
}

#define ODD_HEAD                                                                                                       \
  "INCOMPLETE: the recording was cut short or still goes on; what is here is what had been written\n"                  \
  "54.2 % of events LOST, counts are too low\n" HEAD

static void
test_odd_ends(void **state)
{
  (void)state;
  struct make m;
  struct ct_trace *trace = odd_ends(&m);
  check(trace, (struct ct_replay_options){0},
        ODD_HEAD
        "   0.000000000  prog/100              } work()  -- return without its call\n"
        "   0.000000100  prog/100              main() {\n"
        "   0.000000200  prog/100       10 ns    work();  -- tail call to tail()\n"
        "   0.000000210  prog/100       10 ns    tail();  -- tail call to lib_alloc()\n"
        "   0.000000220  prog/100                lib_alloc() {\n"
        "   0.000000230  prog/100       10 ns      ns::foo(int);  -- left without a return (longjmp, exception or "
        "cancellation)\n"
        "   0.000000240  prog/100       20 ns    } lib_alloc()  -- left without a return (longjmp, exception or "
        "cancellation)\n"
        "   0.000000300  prog/100              -- on another stack, number 2 --\n"
        "   0.000000310  prog/100              work() {\n"
        "   0.000000320  prog/100                -- back on the thread's own stack --\n"
        "   0.000000330  prog/100                ns::foo(int) {\n"
        "   0.000000400  prog/100                  -- events lost: 12 --\n"
        "   0.000000500  prog/100       70 ns    } ns::foo(int)  -- uncertain: events were lost meanwhile\n"
        "   0.000000600  prog/100      400 ns  } main()  -- ended by exec, uncertain: events were lost meanwhile\n"
        "   0.000000600  prog/100      190 ns  } work()  -- ended by exec, uncertain: events were lost meanwhile\n"
        "   0.000000600  prog/100              -- exec: another program from here on --\n"
        "   0.000000700  prog/100              main() {\n"
        "   0.000000800  prog/100                work() {\n"
        "   0.000000900  prog/100                  -- events lost: 1 --\n"
        "   0.000000900  prog/100      100 ns    } work()  -- unfinished: still open at the end of the trace, "
        "uncertain: events were lost meanwhile\n"
        "   0.000000900  prog/100      200 ns  } main()  -- unfinished: still open at the end of the trace, "
        "uncertain: events were lost meanwhile\n");
  /* What a selected function tail-calls goes on in its place. */
  check(trace, FILTERED(.function = "tail", .levels = 1),
        ODD_HEAD "   0.000000210  prog/100       10 ns  tail();  -- tail call to lib_alloc()\n"
                 "   0.000000220  prog/100              lib_alloc() {\n"
                 "   0.000000240  prog/100       20 ns  } lib_alloc()  -- left without a return (longjmp, exception or "
                 "cancellation)\n"
                 "   0.000000400  prog/100              -- events lost: 12 --\n"
                 "   0.000000600  prog/100              -- exec: another program from here on --\n"
                 "   0.000000900  prog/100              -- events lost: 1 --\n");
  make_end(&m, trace);
}

static void
test_json(void **state)
{
  (void)state;
  struct make m;
  struct ct_trace *trace = odd_ends(&m);
  static const char *const kinds[] = {"orphan", "enter", "enter",  "tail",  "tail", "enter",  "left", "left",
                                      "switch", "enter", "switch", "enter", "lost", "return", "left", "left",
                                      "exec",   "enter", "enter",  "lost",  "left", "left"};
  char *text = replay_text(trace, (struct ct_replay_options){.json = true});
  size_t n = 0, warnings = 0;
  char *save = NULL;
  for (char *line = strtok_r(text, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save), n++) {
    json_t *json = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    if (json == NULL) {
      fail_msg("not JSON: %s", line);
    }
    assert_true(n < sizeof(kinds) / sizeof(kinds[0]));
    if (strcmp(json_string_value(json_object_get(json, "kind")), "warning") == 0) {
      assert_int_equal(n, 0);
      assert_non_null(json_object_get(json, "text"));
      json_decref(json);
      warnings++;
      n--;
      continue;
    }
    assert_string_equal(json_string_value(json_object_get(json, "kind")), kinds[n]);
    assert_int_equal(json_integer_value(json_object_get(json, "tid")), 100);
    assert_non_null(json_object_get(json, "ts_ns"));
    assert_non_null(json_object_get(json, "duration_ns"));
    if (n == 4) {
      assert_string_equal(json_string_value(json_object_get(json, "name")), "lib_alloc");
      assert_string_equal(json_string_value(json_object_get(json, "module")), "libx.so");
      assert_string_equal(json_string_value(json_object_get(json_object_get(json, "ended"), "name")), "tail");
      assert_int_equal(json_integer_value(json_object_get(json, "duration_ns")), 10);
      assert_int_equal(json_integer_value(json_object_get(json, "ts_ns")), 220);
      assert_int_equal(json_integer_value(json_object_get(json, "depth")), 1);
    }
    json_decref(json);
  }
  assert_int_equal(n, sizeof(kinds) / sizeof(kinds[0]));
  assert_int_equal(warnings, 2);
  free(text);
  make_end(&m, trace);
}

/* Many events on eight threads: all are there, in order of time, also when the lanes' files have several blocks. */
static void
test_merge(void **state)
{
  (void)state;
  enum { CALLS = 30000 };
  struct make m;
  make_begin(&m, names, MAKE_THREADS);
  for (uint32_t t = 0; t < MAKE_THREADS; t++) {
    for (uint64_t i = 0; i < CALLS; i++) {
      ct_encode_enter(m.encoders[t], 1000 + i * 100 + (t * 7919 + i * 31) % 90, t % 4, 0);
      ct_encode_return(m.encoders[t], 1000 + i * 100 + 95);
    }
  }
  struct ct_trace *trace = make_open(&m, true, 0);
  char *text = replay_text(trace, (struct ct_replay_options){.json = true});
  size_t lines = 0;
  long long last = 0;
  for (const char *p = text; *p != '\0'; p = strchr(p, '\n') + 1, lines++) {
    assert_memory_equal(p, "{\"ts_ns\":", 9);
    long long ts = strtoll(p + 9, NULL, 10);
    assert_true(ts >= last);
    last = ts;
  }
  assert_int_equal(lines, MAKE_THREADS * CALLS * 2);
  free(text);
  text = replay_text(trace, (struct ct_replay_options){0});
  lines = 0;
  for (const char *p = text; *p != '\0'; p = strchr(p, '\n') + 1, lines++) {
    assert_true(lines == 0 || strchr(p, '\n')[-1] == ';'); /* all are leaves */
  }
  assert_int_equal(lines, MAKE_THREADS * CALLS + 1);
  free(text);
  uint32_t tid = 103;
  struct ct_filter filter = {.struct_size = sizeof(filter), .tids = &tid, .tid_count = 1};
  text = replay_text(trace, (struct ct_replay_options){.filter = &filter, .json = true});
  lines = 0;
  for (const char *p = text; *p != '\0'; p = strchr(p, '\n') + 1, lines++) {
    assert_memory_equal(strchr(p, ',') + 1, "\"tid\":103,", 10);
  }
  assert_int_equal(lines, CALLS * 2);
  free(text);
  make_end(&m, trace);
}

/* Open calls go on until their thread or the trace ends, in the order of these ends among others' events. */
static void
test_open_calls(void **state)
{
  (void)state;
  struct make m;
  make_begin(&m, names, 3);
  ct_encode_enter(m.encoders[0], 1100, MAIN, 0);
  ct_encode_enter(m.encoders[1], 1200, WORK, 0);
  m.thread_end[1] = 3000;
  ct_encode_enter(m.encoders[2], 1300, FOO, 0);
  ct_encode_return(m.encoders[2], 4000);
  struct ct_trace *trace = make_open(&m, true, 0);
  check(trace, (struct ct_replay_options){0},
        "      time (s)  thread        duration  calls\n"
        "   0.000000100  prog/100                main() {\n"
        "   0.000000200  worker/101              work() {\n"
        "   0.000000300  worker/102    2.700 us  ns::foo(int);\n"
        "   0.000002000  worker/101    1.800 us  } work()  -- ended with its thread\n"
        "   0.000005000  prog/100      4.900 us  } main()  -- unfinished: still open at the end of the trace\n");
  char *text = replay_text(trace, (struct ct_replay_options){.json = true});
  assert_non_null(strstr(text, "\"duration_ns\":4900,\"reason\":\"still open\",\"unfinished\":true}\n"));
  free(text);
  assert_int_equal(ct_trace_end_tsc(trace), 6000);
  assert_int_equal(ct_trace_thread(trace, 1)->end_tsc, 3000);
  make_end(&m, trace);
}

/* A frame that is a line of its own and one that is not, by longjmp; frames that are open at the exit. */
static void
test_reasons(void **state)
{
  (void)state;
  static const char *const unwinding[] = {"main", "work", "longjmp", "exit", NULL};
  struct make m;
  make_begin(&m, unwinding, 1);
  struct ct_encoder *e = m.encoders[0];
  ct_encode_enter(e, 1000, 0, 0);
  ct_encode_enter(e, 1100, 1, 0);
  ct_encode_enter(e, 1200, 2, 0);
  ct_encode_unwound(e, 1300, CT_UNWOUND_JUMP);
  ct_encode_unwound(e, 1300, CT_UNWOUND_JUMP);
  ct_encode_enter(e, 1300, 1, 0);
  ct_encode_return(e, 1400);
  ct_encode_enter(e, 1500, 3, 0);
  struct ct_trace *trace = make_open(&m, true, 0);
  check(trace, (struct ct_replay_options){0},
        HEAD "   0.000000000  prog/100              main() {\n"
             "   0.000000100  prog/100                work() {\n"
             "   0.000000200  prog/100      100 ns      longjmp();  -- left by longjmp\n"
             "   0.000000300  prog/100      200 ns    } work()  -- left by longjmp\n"
             "   0.000000300  prog/100      100 ns    work();\n"
             "   0.000000500  prog/100                exit() {\n"
             "   0.000005000  prog/100    4.500 us    } exit()  -- open when the program exited\n"
             "   0.000005000  prog/100    5.000 us  } main()  -- open when the program exited\n");
  char *text = replay_text(trace, (struct ct_replay_options){.json = true});
  const char *at = text;
  for (int i = 0; i < 2; i++) {
    at = strstr(at, "\"reason\":\"longjmp\"");
    assert_non_null(at++);
  }
  for (int i = 0; i < 2; i++) {
    at = strstr(at, "\"reason\":\"exit\"");
    assert_non_null(at++);
  }
  free(text);
  make_end(&m, trace);
}

/* What was written stands where it was written, below the innermost call; of several threads in order of time. */
static void
test_output(void **state)
{
  (void)state;
  struct make m;
  make_begin(&m, names, 2);
  ct_encode_enter(m.encoders[0], 1100, MAIN, 0);
  ct_encode_enter(m.encoders[0], 1200, WORK, 0);
  ct_encode_return(m.encoders[0], 1400);
  ct_encode_enter(m.encoders[1], 1250, FOO, 0);
  ct_encode_return(m.encoders[1], 1290);
  ct_encode_return(m.encoders[0], 2000);
  struct ct_capture_record records[] = {{.tsc = 1300, .tid = 100, .fd = 1, .given = 6},
                                        {.tsc = 1260, .tid = 101, .fd = 2, .given = 3},
                                        {.tsc = 2500, .tid = 100, .fd = 1, .given = 4}};
  static const char *const texts[] = {"one\ntw\x01", "e\"r", "last"};
  for (size_t i = 0; i < 3; i++) {
    assert_int_equal(ct_trace_writer_capture(m.writer, &records[i], texts[i], strlen(texts[i])), 0);
  }
  struct ct_trace *trace = make_open(&m, true, 0);
  check(trace, (struct ct_replay_options){0},
        "      time (s)  thread        duration  calls\n"
        "   0.000000100  prog/100                main() {\n"
        "   0.000000200  prog/100        200 ns    work();\n"
        "   0.000000250  worker/101       40 ns  ns::foo(int);\n"
        "   0.000000260  worker/101                stderr | e\"r\n"
        "   0.000000300  prog/100                    stdout | one\n"
        "   0.000000300  prog/100                    stdout | tw?\n"
        "   0.000001000  prog/100        900 ns  } main()\n"
        "   0.000001500  prog/100                stdout | last\n");
  char *text = replay_text(trace, (struct ct_replay_options){.no_output = true});
  assert_null(strstr(text, "|"));
  free(text);
  text = replay_text(trace, (struct ct_replay_options){.json = true});
  assert_non_null(strstr(text, "{\"ts_ns\":260,\"tid\":101,\"id\":null,\"parent\":2112,\"depth\":1,\"stack\":0,"
                               "\"kind\":\"output\",\"name\":null,\"module\":null,"
                               "\"duration_ns\":null,\"fd\":2,\"text\":\"e\\u0022r\"}\n"));
  free(text);
  make_end(&m, trace);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_text),       cmocka_unit_test(test_output),  cmocka_unit_test(test_filters),
      cmocka_unit_test(test_odd_ends),   cmocka_unit_test(test_json),    cmocka_unit_test(test_merge),
      cmocka_unit_test(test_open_calls), cmocka_unit_test(test_reasons),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
