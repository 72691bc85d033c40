/* SPDX-License-Identifier: MIT */
/* contrail plan: what would be hooked in a file, how, and what not and why. */
#include "cli/command.h"
#include "hook/cache.h"
#include "hook/plan.h"
#include "target/functions.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

static const char *
mode_name(const struct ct_planned *planned)
{
  return planned->mode == CT_HOOK_FULL ? "full" : "enter";
}

static json_t *
function_json(const struct ct_plan *plan, const struct ct_planned *planned)
{
  char label[512];
  struct ct_function function = {.address = planned->address, .name = planned->name};
  json_t *json = json_object();
  json_object_set_new(json, "address", json_integer((json_int_t)planned->address));
  json_object_set_new(json, "size", json_integer((json_int_t)planned->size));
  json_object_set_new(json, "name", json_string(ct_function_label(label, sizeof(label), plan->path, &function)));
  bool callable = ct_refusal_is_callable(planned->refusal);
  json_object_set_new(json, "callable", json_boolean(callable));
  if (planned->refusal != CT_REFUSED_NOT) {
    json_object_set_new(json, "refused", json_string(ct_refusal_key(planned->refusal)));
    json_object_set_new(json, "why", json_string(ct_refusal_text(planned->refusal)));
    if (planned->refusal == CT_REFUSED_BRANCH_INTO || planned->refusal == CT_REFUSED_ENTRY_INTO) {
      json_object_set_new(json, "at", json_integer(planned->refusal_offset));
    }
  } else {
    json_object_set_new(json, "tactic", json_string(ct_tactic_name(planned->tactic)));
    json_object_set_new(json, "mode", json_string(mode_name(planned)));
  }
  return json;
}

static json_t *
totals_json(const struct ct_plan *plan)
{
  size_t tactics[CT_TACTIC_COUNT] = {0};
  size_t enter_only = 0;
  for (size_t i = 0; i < plan->count; i++) {
    if (plan->functions[i].refusal == CT_REFUSED_NOT) {
      tactics[plan->functions[i].tactic]++;
      enter_only += plan->functions[i].mode != CT_HOOK_FULL;
    }
  }
  json_t *json = json_object();
  json_t *refused = json_object();
  json_t *by_tactic = json_object();
  for (int r = 1; r < CT_REFUSED_COUNT; r++) {
    if (plan->refused[r] != 0) {
      json_object_set_new(refused, ct_refusal_key(r), json_integer((json_int_t)plan->refused[r]));
    }
  }
  for (int t = 1; t < CT_TACTIC_COUNT; t++) {
    json_object_set_new(by_tactic, ct_tactic_name(t), json_integer((json_int_t)tactics[t]));
  }
  size_t callable = plan->hooked;
  for (int r = 1; r < CT_REFUSED_COUNT; r++) {
    callable += ct_refusal_is_callable((enum ct_refusal)r) ? plan->refused[r] : 0;
  }
  json_object_set_new(json, "functions", json_integer((json_int_t)plan->count));
  json_object_set_new(json, "callable", json_integer((json_int_t)callable));
  json_object_set_new(json, "hooked", json_integer((json_int_t)plan->hooked));
  json_object_set_new(json, "enter_only", json_integer((json_int_t)enter_only));
  json_object_set_new(json, "tactics", by_tactic);
  json_object_set_new(json, "refused", refused);
  json_object_set_new(json, "uses_gs", json_boolean(plan->uses_gs));
  json_object_set_new(json, "cached", json_boolean(plan->mapping != NULL));
  json_object_set_new(json, "plan_ns", json_integer((json_int_t)plan->plan_ns));
  return json;
}

static int
print_json(const struct ct_plan *plan)
{
  json_t *json = json_object();
  json_t *functions = json_array();
  for (size_t i = 0; i < plan->count; i++) {
    json_array_append_new(functions, function_json(plan, &plan->functions[i]));
  }
  json_object_set_new(json, "path", json_string(plan->path));
  json_object_set_new(json, "build_id", json_string(ct_elf_build_id(plan->elf)));
  json_object_set_new(json, "functions", functions);
  json_object_set_new(json, "totals", totals_json(plan));
  int failed = json_dumpf(json, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
  putchar('\n');
  json_decref(json);
  return failed;
}

static int
print_text(const struct ct_plan *plan)
{
  char label[512];
  for (size_t i = 0; i < plan->count; i++) {
    const struct ct_planned *planned = &plan->functions[i];
    struct ct_function function = {.address = planned->address, .name = planned->name};
    ct_function_label(label, sizeof(label), plan->path, &function);
    if (planned->refusal == CT_REFUSED_NOT) {
      printf("%12" PRIx64 " %7" PRIu64 "  %-5s %-8s %s\n", planned->address, planned->size, mode_name(planned),
             ct_tactic_name(planned->tactic), label);
    } else {
      printf("%12" PRIx64 " %7" PRIu64 "  -     -        %s: %s\n", planned->address, planned->size, label,
             ct_refusal_text(planned->refusal));
    }
  }
  printf("\n%zu functions, %zu hooked, planned in %.1f ms%s\n", plan->count, plan->hooked, (double)plan->plan_ns / 1e6,
         plan->mapping != NULL ? " (from the cache)" : "");
  for (int r = 1; r < CT_REFUSED_COUNT; r++) {
    if (plan->refused[r] != 0) {
      printf("%8zu not hooked: %s\n", plan->refused[r], ct_refusal_text(r));
    }
  }
  return 0;
}

static int
run_plan(int argc, char **argv)
{
  static const struct option options[] = {
      {"json", no_argument, NULL, 'j'},
      {"int3", no_argument, NULL, '3'},
      {"no-cache", no_argument, NULL, 'n'},
      {"help", no_argument, NULL, 'h'},
      {NULL, 0, NULL, 0},
  };
  bool json = false, int3 = false, no_cache = false;
  int got;
  while ((got = getopt_long(argc, argv, ":jh", options, NULL)) != -1) {
    switch (got) {
    case 'j':
      json = true;
      break;
    case '3':
      int3 = true;
      break;
    case 'n':
      no_cache = true;
      break;
    case 'h':
      return ct_show_usage(&ct_command_plan);
    default:
      return ct_bad_option(&ct_command_plan, argv, got);
    }
  }
  if (optind + 1 != argc) {
    return ct_usage_error(&ct_command_plan, "exactly one file is needed");
  }
  struct ct_diag diag = {""};
  struct ct_plan *plan;
  struct ct_cache *cache = no_cache ? NULL : ct_cache_open(NULL, NULL);
  int code = ct_cache_plan(cache, argv[optind], &plan, &diag);
  if (code == 0) {
    ct_cache_store(cache);
  }
  ct_cache_close(cache);
  if (code != 0) {
    return ct_command_failed(&ct_command_plan, "%s", diag.text);
  }
  if (int3) {
    ct_plan_use_int3(plan);
  }
  int failed = json ? print_json(plan) : print_text(plan);
  ct_plan_free(plan);
  return failed != 0 || fflush(stdout) != 0 ? CT_EXIT_FAILED : CT_EXIT_OK;
}

const struct ct_command ct_command_plan = {
    .name = "plan",
    .summary = "show which functions of a file would be hooked, and how",
    .usage = "usage: contrail plan [--json] [--int3] [--no-cache] FILE\n"
             "\n"
             "Reads the ELF file only; nothing is run. For each function: address, size, mode\n"
             "(full: enter and return; enter: enter only), tactic, or why it is left out.\n"
             "--int3: as if recorded with that option.\n",
    .run = run_plan,
};
