/* SPDX-License-Identifier: MIT */
/* contrail plan: what would be hooked in a file, how, and what not and why. */
#include "cli/command.h"
#include "hook/cache.h"
#include "hook/exclude.h"
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

/* A plan, and what is wanted of it. */
struct chosen {
  const struct ct_plan *plan;
  struct ct_choice choice;
};

static enum ct_wish
wish_of(const struct chosen *chosen, size_t i)
{
  return chosen->choice.wishes != NULL ? chosen->choice.wishes[i] : CT_WISH_HOOK;
}

static enum ct_refusal
refusal_of(const struct chosen *chosen, size_t i)
{
  return wish_of(chosen, i) != CT_WISH_HOOK ? CT_REFUSED_EXCLUDED : chosen->plan->functions[i].refusal;
}

static size_t
refused_count(const struct chosen *chosen, int refusal)
{
  return chosen->plan->refused[refusal] + (refusal == CT_REFUSED_EXCLUDED ? chosen->choice.excluded : 0);
}

static json_t *
function_json(const struct chosen *chosen, size_t i)
{
  char label[512];
  const struct ct_plan *plan = chosen->plan;
  const struct ct_planned *planned = &plan->functions[i];
  enum ct_refusal refusal = refusal_of(chosen, i);
  struct ct_function function = {.address = planned->address, .name = planned->name};
  json_t *json = json_object();
  json_object_set_new(json, "address", json_integer((json_int_t)planned->address));
  json_object_set_new(json, "size", json_integer((json_int_t)planned->size));
  json_object_set_new(json, "name", json_string(ct_function_label(label, sizeof(label), plan->path, &function)));
  bool callable = ct_refusal_is_callable(refusal);
  json_object_set_new(json, "callable", json_boolean(callable));
  if (refusal != CT_REFUSED_NOT) {
    json_object_set_new(json, "refused", json_string(ct_refusal_key(refusal)));
    json_object_set_new(json, "why", json_string(ct_refusal_text(refusal)));
    if (refusal == CT_REFUSED_BRANCH_INTO || refusal == CT_REFUSED_ENTRY_INTO) {
      json_object_set_new(json, "at", json_integer(planned->refusal_offset));
    }
    if (refusal == CT_REFUSED_EXCLUDED) {
      json_object_set_new(json, "trampoline", json_boolean(wish_of(chosen, i) == CT_WISH_QUIET));
    }
  } else {
    json_object_set_new(json, "tactic", json_string(ct_tactic_name(planned->tactic)));
    json_object_set_new(json, "mode", json_string(mode_name(planned)));
  }
  return json;
}

static json_t *
totals_json(const struct chosen *chosen)
{
  const struct ct_plan *plan = chosen->plan;
  size_t tactics[CT_TACTIC_COUNT] = {0};
  size_t enter_only = 0;
  for (size_t i = 0; i < plan->count; i++) {
    if (refusal_of(chosen, i) == CT_REFUSED_NOT) {
      tactics[plan->functions[i].tactic]++;
      enter_only += plan->functions[i].mode != CT_HOOK_FULL;
    }
  }
  json_t *json = json_object();
  json_t *refused = json_object();
  json_t *by_tactic = json_object();
  for (int r = 1; r < CT_REFUSED_COUNT; r++) {
    if (refused_count(chosen, r) != 0) {
      json_object_set_new(refused, ct_refusal_key(r), json_integer((json_int_t)refused_count(chosen, r)));
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
  json_object_set_new(json, "hooked", json_integer((json_int_t)(plan->hooked - chosen->choice.excluded)));
  json_object_set_new(json, "enter_only", json_integer((json_int_t)enter_only));
  json_object_set_new(json, "tactics", by_tactic);
  json_object_set_new(json, "refused", refused);
  const char *enter_only_because = ct_runtime_text((enum ct_runtime)plan->runtime);
  if (enter_only_because != NULL) {
    json_object_set_new(json, "enter_only_because", json_string(enter_only_because));
  }
  json_object_set_new(json, "uses_gs", json_boolean(plan->uses_gs));
  json_object_set_new(json, "cached", json_boolean(plan->mapping != NULL));
  json_object_set_new(json, "plan_ns", json_integer((json_int_t)plan->plan_ns));
  return json;
}

static int
print_json(const struct chosen *chosen)
{
  const struct ct_plan *plan = chosen->plan;
  json_t *json = json_object();
  json_t *functions = json_array();
  for (size_t i = 0; i < plan->count; i++) {
    json_array_append_new(functions, function_json(chosen, i));
  }
  json_object_set_new(json, "path", json_string(plan->path));
  json_object_set_new(json, "build_id", json_string(ct_elf_build_id(plan->elf)));
  json_object_set_new(json, "functions", functions);
  json_object_set_new(json, "totals", totals_json(chosen));
  int failed = json_dumpf(json, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
  putchar('\n');
  json_decref(json);
  return failed;
}

static int
print_text(const struct chosen *chosen)
{
  const struct ct_plan *plan = chosen->plan;
  char label[512];
  for (size_t i = 0; i < plan->count; i++) {
    const struct ct_planned *planned = &plan->functions[i];
    struct ct_function function = {.address = planned->address, .name = planned->name};
    ct_function_label(label, sizeof(label), plan->path, &function);
    enum ct_refusal refusal = refusal_of(chosen, i);
    if (refusal == CT_REFUSED_NOT) {
      printf("%12" PRIx64 " %7" PRIu64 "  %-5s %-8s %s\n", planned->address, planned->size, mode_name(planned),
             ct_tactic_name(planned->tactic), label);
    } else {
      printf("%12" PRIx64 " %7" PRIu64 "  -     -        %s: %s%s\n", planned->address, planned->size, label,
             ct_refusal_text(refusal),
             wish_of(chosen, i) == CT_WISH_QUIET ? ", with a trampoline that records nothing" : "");
    }
  }
  if (ct_runtime_text((enum ct_runtime)plan->runtime) != NULL) {
    printf("\nenter only: %s\n", ct_runtime_text((enum ct_runtime)plan->runtime));
  }
  printf("\n%zu functions, %zu hooked, planned in %.1f ms%s\n", plan->count, plan->hooked - chosen->choice.excluded,
         (double)plan->plan_ns / 1e6, plan->mapping != NULL ? " (from the cache)" : "");
  for (int r = 1; r < CT_REFUSED_COUNT; r++) {
    if (refused_count(chosen, r) != 0) {
      printf("%8zu not hooked: %s\n", refused_count(chosen, r), ct_refusal_text(r));
    }
  }
  return 0;
}

struct wanted {
  bool json, int3, no_cache;
};

static int
plan_it(const char *path, struct ct_exclude *exclude, const struct wanted *wanted)
{
  struct ct_diag diag = {""};
  struct ct_plan *plan;
  struct ct_cache *cache = wanted->no_cache ? NULL : ct_cache_open(NULL, NULL);
  int failed = ct_cache_plan(cache, path, &plan, &diag);
  if (failed == 0) {
    ct_cache_store(cache);
  }
  ct_cache_close(cache);
  if (failed != 0) {
    return ct_command_failed(&ct_command_plan, "%s", diag.text);
  }
  if (wanted->int3) {
    ct_plan_use_int3(plan);
  }
  struct chosen chosen = {.plan = plan};
  failed = ct_exclude_choose(exclude, plan, path, &chosen.choice);
  if (failed == 0) {
    failed = wanted->json ? print_json(&chosen) : print_text(&chosen);
    ct_exclude_warn(exclude);
  }
  ct_choice_free(&chosen.choice);
  ct_plan_free(plan);
  return failed != 0 || fflush(stdout) != 0 ? CT_EXIT_FAILED : CT_EXIT_OK;
}

static int
run_plan(int argc, char **argv)
{
  static const struct option options[] = {
      {"json", no_argument, NULL, 'j'},     {"int3", no_argument, NULL, '3'},
      {"no-cache", no_argument, NULL, 'n'}, CT_EXCLUDE_OPTIONS,
      {"help", no_argument, NULL, 'h'},     {NULL, 0, NULL, 0},
  };
  struct ct_exclude *exclude = NULL;
  struct wanted wanted = {false};
  int got, code = CT_EXIT_OK;
  while (code == CT_EXIT_OK && (got = getopt_long(argc, argv, ":jh", options, NULL)) != -1) {
    switch (got) {
    case 'j':
      wanted.json = true;
      break;
    case '3':
      wanted.int3 = true;
      break;
    case 'n':
      wanted.no_cache = true;
      break;
    case CT_OPTION_EXCLUDE:
    case CT_OPTION_EXCLUDE_FROM:
    case CT_OPTION_EXCLUDE_HOT:
      code = ct_exclude_option(&ct_command_plan, got, optarg, &exclude);
      break;
    case 'h':
      ct_exclude_free(exclude);
      return ct_show_usage(&ct_command_plan);
    default:
      code = ct_bad_option(&ct_command_plan, argv, got);
    }
  }
  if (code == CT_EXIT_OK && optind + 1 != argc) {
    code = ct_usage_error(&ct_command_plan, "exactly one file is needed");
  }
  if (code == CT_EXIT_OK) {
    code = plan_it(argv[optind], exclude, &wanted);
  }
  ct_exclude_free(exclude);
  return code;
}

const struct ct_command ct_command_plan = {
    .name = "plan",
    .summary = "show which functions of a file would be hooked, and how",
    .usage = "usage: contrail plan [OPTION]... FILE\n"
             "\n"
             "Reads the ELF file only; nothing is run. For each function: address, size, mode\n"
             "(full: enter and return; enter: enter only), tactic, or why it is left out.\n"
             "\n"
             "  --json\n"
             "  --int3, --exclude PATTERN, --exclude-from FILE, --exclude-hot\n"
             "          as if recorded with that option\n",
    .run = run_plan,
};
