/* SPDX-License-Identifier: MIT */
/* Callees of a recursion, classes, and the tree of paths when there are too many of them. */
#define _GNU_SOURCE 1 /* FTW_DEPTH */
#include "views_make.h"

#include "base/demangle.h"
#include "views/groups.h"
#include "views/paths.h"

static const char *const names[] = {"f", "g", "h", NULL};

/* f 0..10 { g 1..9 { f 2..5 { h 3..4 } } }: what edges.h says of it. */
static void
test_recursion(void **state)
{
  (void)state;
  struct make m;
  make_begin(&m, names, 1);
  struct ct_encoder *e = m.encoders[0];
  ct_encode_enter(e, 1000, 0, 0);
  ct_encode_enter(e, 1001, 1, 0);
  ct_encode_enter(e, 1002, 0, 0);
  ct_encode_enter(e, 1003, 2, 0);
  ct_encode_return(e, 1004);
  ct_encode_return(e, 1005);
  ct_encode_return(e, 1009);
  ct_encode_return(e, 1010);
  struct ct_trace *trace = make_open(&m, true, 0);
  struct ct_filter filter = {.struct_size = sizeof(filter), .function = "f"};
  struct ct_report_options options = {
      .struct_size = sizeof(options), .filter = &filter, .rows = CT_ROWS_CALLEES, .workers = 1};
  char *text = report_text(trace, &options);
  assert_text(text, "called by f (prog): 2 calls, total 10 ns, self 4 ns\n"
                    "     total      %       self        calls  module  function\n"
                    "      5 ns   50.0       5 ns            1  prog    g\n"
                    "      4 ns   40.0       4 ns            -          (self)\n"
                    "      1 ns   10.0       1 ns            1  prog    h\n"
                    "\n8 events in 1 thread, 0 dropped\n");
  free(text);
  options.rows = CT_ROWS_CALLERS;
  text = report_text(trace, &options);
  assert_text(text, "callers of f (prog): 2 calls, total 10 ns, self 4 ns\n"
                    "     total      %       self        calls  module  caller\n"
                    "     10 ns  100.0       2 ns            1          (root)\n"
                    "      0 ns    0.0       2 ns            1  prog    g\n"
                    "\n8 events in 1 thread, 0 dropped\n");
  free(text);
  make_end(&m, trace);
}

static void
test_classes(void **state)
{
  (void)state;
  static const struct {
    const char *name, *group;
  } cases[] = {
      {"main", ""},
      {"ns::f(int)", "ns"},
      {"ns::Box::get() const", "ns::Box"},
      {"std::map<a::b, c::d>::find(x::y const&)", "std::map<a::b, c::d>"},
      {"(anonymous namespace)::f()", "(anonymous namespace)"},
      {"ns::operator<(ns::a, ns::b)", "ns"},
      {"f(a::b)", ""},
      {"", ""},
      {"::", ""},
      {"a::", "a"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    char *group = ct_demangled_class(cases[i].name);
    assert_non_null(group);
    assert_string_equal(group, cases[i].group);
    free(group);
  }
}

/* Calls and times of all nodes; each is below its parent, and the totals are sums. */
static void
check_tree(struct ct_paths *paths, uint64_t calls, uint64_t ticks)
{
  uint64_t all_calls = 0, all_ticks = 0;
  uint32_t count = 0;
  for (uint32_t at = ct_paths_next(paths, CT_PATH_TOP, true); at != CT_PATH_NONE; at = ct_paths_next(paths, at, true)) {
    all_calls += paths->paths[at].calls;
    all_ticks += paths->paths[at].self_ticks;
    assert_true(++count <= paths->live);
    assert_int_equal(paths->paths[at].open, 0);
    for (uint32_t below = paths->paths[at].first; below != CT_PATH_NONE; below = paths->paths[below].next) {
      assert_int_equal(paths->paths[below].parent, at);
    }
  }
  assert_int_equal(count, paths->live);
  assert_int_equal(all_calls, calls);
  assert_int_equal(all_ticks, ticks);
  assert_int_equal(ct_paths_finish(paths), 0);
  assert_int_equal(paths->paths[CT_PATH_TOP].total_ticks, ticks);
}

enum { LIMIT = 100, ROUNDS = 200000, DEEPEST = 12, FUNCTIONS = 9 };

/* Walks over a stack of random calls, with far more paths than are kept. */
static void
walk(struct ct_paths *out, uint64_t *all_calls, uint64_t *all_ticks)
{
  struct ct_paths paths = {.limit = LIMIT};
  static struct ct_view_name functions[FUNCTIONS] = {[0 ... FUNCTIONS - 1] = {.name = (char *)"f", .path = (char *)""}};
  uint32_t stack[DEEPEST + 1] = {CT_PATH_TOP}, depth = 0;
  uint64_t calls = 0, ticks = 0;
  assert_int_equal(ct_paths_init(&paths), 0);
  paths.names.names = functions;
  for (int i = 0; i < ROUNDS || depth != 0; i++) {
    if (i < ROUNDS && depth < DEEPEST && random_below(2) == 0) {
      uint32_t path = ct_paths_step(&paths, stack[depth], random_below(FUNCTIONS));
      assert_int_not_equal(path, CT_PATH_NONE);
      /* No function is twice on a path. */
      for (uint32_t at = paths.paths[path].parent; at != CT_PATH_NONE; at = paths.paths[at].parent) {
        assert_true(paths.paths[at].name != paths.paths[path].name);
      }
      paths.paths[path].open++;
      stack[++depth] = path;
    } else if (depth != 0) {
      struct ct_path *path = &paths.paths[stack[depth--]];
      uint64_t self = random_below(50);
      path->open--;
      path->calls++;
      path->self_ticks += self;
      calls++;
      ticks += self;
    }
    assert_true(paths.live <= paths.limit + LIMIT);
  }
  assert_true(paths.folded > ROUNDS / 10);
  assert_true(paths.limit < 4 * LIMIT);
  *out = paths;
  *all_calls += calls;
  *all_ticks += ticks;
}

static void
end_walk(struct ct_paths *paths)
{
  paths->names.names = NULL; /* not its own */
  ct_paths_destroy(paths);
}

static void
test_too_many_paths(void **state)
{
  (void)state;
  struct ct_paths paths;
  uint64_t calls = 0, ticks = 0;
  walk(&paths, &calls, &ticks);
  check_tree(&paths, calls, ticks);
  end_walk(&paths);
}

/* Trees that have been folded, in one: all that was in them is there, and it is no larger than it may be. */
static void
test_trees_merged(void **state)
{
  (void)state;
  struct ct_paths all, paths;
  uint64_t calls = 0, ticks = 0;
  walk(&all, &calls, &ticks);
  for (int i = 0; i < 5; i++) {
    walk(&paths, &calls, &ticks);
    assert_int_equal(ct_paths_merge(&all, &paths), 0);
    assert_true(all.live <= all.limit + 1);
    for (uint32_t at = CT_PATH_TOP; at != CT_PATH_NONE; at = ct_paths_next(&all, at, true)) {
      for (uint32_t above = all.paths[at].parent; above != CT_PATH_NONE; above = all.paths[above].parent) {
        assert_true(all.paths[above].name != all.paths[at].name);
      }
    }
    end_walk(&paths);
  }
  check_tree(&all, calls, ticks);
  end_walk(&all);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_recursion),
      cmocka_unit_test(test_classes),
      cmocka_unit_test(test_too_many_paths),
      cmocka_unit_test(test_trees_merged),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
