/* SPDX-License-Identifier: MIT */
/* What a recording costs: each kind of event at its own price, never more than there was; as text and as JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cost.h"
#include "record/estimate.h"

static const struct ct_hook_costs costs = {.known = true,
                                           .enter_before = 1,
                                           .enter_after = 2,
                                           .return_before = 3,
                                           .return_after = 4,
                                           .value = 5,
                                           .point = 6,
                                           .sampled = 7,
                                           .passed_over = 0.5};
static const uint64_t no_drops[CT_DROP_COUNT];

static uint64_t
hooks_ns(enum ct_hook_event kind, uint64_t count)
{
  uint64_t events[CT_HOOK_EVENT_COUNT] = {0};
  events[kind] = count;
  return ct_estimate_cost(&costs, events, no_drops, 2, UINT64_MAX).hooks_ns;
}

static void
kinds(void **state)
{
  (void)state;
  assert_int_equal(hooks_ns(CT_HOOK_EVENT_HALF, 2000), 1000 * (1 + 2 + 3 + 4) * 2);
  assert_int_equal(hooks_ns(CT_HOOK_EVENT_POINT, 1000), 12000);
  assert_int_equal(hooks_ns(CT_HOOK_EVENT_SAMPLED, 1000), 14000);
  assert_int_equal(hooks_ns(CT_HOOK_EVENT_PASSED_OVER, 1000), 1000);
  assert_int_equal(hooks_ns(CT_HOOK_EVENT_VALUE, 1000), 10000);
  assert_int_equal(hooks_ns(CT_HOOK_EVENT_DETAIL, 1000), 0);
  assert_int_equal(hooks_ns(CT_HOOK_EVENT_OTHER, 1000), 0);
  const uint64_t all[CT_HOOK_EVENT_COUNT] = {2000, 1000, 1000, 7000, 1000, 0, 0};
  struct ct_cost cost = ct_estimate_cost(&costs, all, no_drops, 1, 100000);
  assert_true(cost.is_known && cost.hooks_ns == 10000 + 6000 + 7000 + 3500 + 5000 && cost.left_out == 0);
  assert_true(ct_cost_share(&cost) == 0.315);
}

static void
bounds(void **state)
{
  (void)state;
  const uint64_t many[CT_HOOK_EVENT_COUNT] = {1000, UINT64_MAX, 0, UINT64_MAX};
  const uint64_t none[CT_HOOK_EVENT_COUNT] = {0}, some[CT_HOOK_EVENT_COUNT] = {1000};
  struct ct_cost cost = ct_estimate_cost(&costs, many, no_drops, 1, 1000);
  assert_int_equal(cost.hooks_ns, 1000);
  assert_true(ct_cost_share(&cost) == 1);
  cost = ct_estimate_cost(&costs, none, no_drops, 1, 1000);
  assert_true(cost.hooks_ns == 0 && ct_cost_share(&cost) == 0);
  cost = ct_estimate_cost(&costs, some, no_drops, 1, 0); /* no processor time known: no share */
  assert_true(cost.hooks_ns == 5000 && ct_cost_share(&cost) < 0);
  struct ct_hook_costs wrong = costs;
  wrong.enter_after = -100;
  assert_int_equal(ct_estimate_cost(&wrong, some, no_drops, 1, 1000).hooks_ns, 0);
  wrong.known = false;
  cost = ct_estimate_cost(&wrong, some, no_drops, 1, 1000);
  assert_true(!cost.is_known && cost.hooks_ns == 0 && ct_cost_share(&cost) < 0);
}

static void
parts(void **state)
{
  (void)state;
  const uint64_t few[CT_HOOK_EVENT_COUNT] = {990, [CT_HOOK_EVENT_OTHER] = 10};
  const uint64_t more[CT_HOOK_EVENT_COUNT] = {989, [CT_HOOK_EVENT_OTHER] = 11};
  const uint64_t detail[CT_HOOK_EVENT_COUNT] = {990, [CT_HOOK_EVENT_DETAIL] = 10};
  const uint64_t written_over[CT_DROP_COUNT] = {[CT_DROP_OVERWRITTEN] = 1000};
  const uint64_t lost[CT_DROP_COUNT] = {[CT_DROP_NO_SEGMENT] = 1};
  assert_int_equal(ct_estimate_cost(&costs, few, no_drops, 1, 0).left_out, 0);
  assert_int_equal(ct_estimate_cost(&costs, more, no_drops, 1, 0).left_out, 1 << CT_COST_OTHER);
  assert_int_equal(ct_estimate_cost(&costs, detail, no_drops, 1, 0).left_out, 1 << CT_COST_DETAIL);
  assert_int_equal(ct_estimate_cost(&costs, few, lost, 1, 0).left_out, 1 << CT_COST_LOST);
  /* What was written over had been written. */
  struct ct_cost cost = ct_estimate_cost(&costs, few, written_over, 1, 0);
  assert_true(cost.left_out == 0 && cost.hooks_ns == 2 * 990 * 5);
}

static void
expect_text(const struct ct_cost *cost, const char *wanted)
{
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  assert_non_null(out);
  ct_cost_put(out, cost);
  fclose(out);
  assert_string_equal(text, wanted);
  free(text);
}

static void
shown(void **state)
{
  (void)state;
  struct ct_cost cost = {.is_known = true,
                         .hooks_ns = 610000000,
                         .program_cpu_ns = 1000000000,
                         .recorder_cpu_ns = 420000000,
                         .left_out = 1 << CT_COST_DETAIL | 1 << CT_COST_LOST};
  struct ct_cost back;
  expect_text(&cost,
              "hooks took 610.0 ms, 61 % of the program's processor time (estimated); the recorder 420.0 ms; not in "
              "it: records of detail, lost events");
  json_t *json = ct_cost_json(&cost);
  assert_true(ct_cost_of_json(json, &back));
  assert_true(back.is_known == cost.is_known && back.hooks_ns == cost.hooks_ns && back.left_out == cost.left_out);
  assert_true(back.program_cpu_ns == cost.program_cpu_ns && back.recorder_cpu_ns == cost.recorder_cpu_ns);
  json_object_set_new(json, "hooks_ns", json_integer(2000000000));
  assert_true(ct_cost_of_json(json, &back) && back.hooks_ns == back.program_cpu_ns);
  json_decref(json);
  cost = (struct ct_cost){.program_cpu_ns = 5, .recorder_cpu_ns = 7};
  expect_text(&cost, "what hooks take is not known; the recorder 7 ns");
  json = ct_cost_json(&cost);
  assert_true(json_is_null(json_object_get(json, "hooks_ns")) && json_is_null(json_object_get(json, "share")));
  assert_true(ct_cost_of_json(json, &back) && !back.is_known);
  json_decref(json);
  assert_false(ct_cost_of_json(NULL, &back));
  assert_null(ct_cost_part_name(CT_COST_PART_COUNT));
}

/* The clock of a process that has ended, until it is waited for; afterwards it has none. */
static void
clocks(void **state)
{
  (void)state;
  uint64_t ns = 0, own = ct_recorder_cpu_ns();
  pid_t pid = fork();
  if (pid == 0) {
    while (ct_recorder_cpu_ns() < 20000000) {
    }
    _exit(0);
  }
  assert_true(pid > 0);
  int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
  siginfo_t info;
  assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
  assert_true(ct_program_cpu_ns(pid, pidfd, &ns));
  assert_in_range(ns, 20000000, 10000000000);
  assert_int_equal(waitpid(pid, NULL, 0), pid);
  assert_false(ct_program_cpu_ns(pid, pidfd, &ns));
  assert_false(ct_program_cpu_ns(0, pidfd, &ns));
  assert_false(ct_program_cpu_ns(getpid(), pidfd, &ns)); /* the pidfd is another process's */
  close(pidfd);
  assert_true(ct_recorder_cpu_ns() > own);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(kinds), cmocka_unit_test(bounds), cmocka_unit_test(parts),
                                     cmocka_unit_test(shown), cmocka_unit_test(clocks)};
  return cmocka_run_group_tests_name("estimate", tests, NULL, NULL);
}
