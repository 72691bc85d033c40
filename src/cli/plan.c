/* SPDX-License-Identifier: MIT */
/* contrail plan: what would be hooked in a file, how, and what not and why. */
#include "cli/command.h"
#include "cli/select.h"
#include "cli/shown.h"

#include <contrail/cache.h>
#include <contrail/exclude.h>
#include <contrail/plan.h>
#include <contrail/text.h>

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* A plan, and what is wanted of it. */
struct selected {
  const struct ct_plan *plan;
  const struct ct_selection *selection;
  struct ct_filter_result *filter_result;
};

static struct ct_plan_function
function_at(const struct selected *selected, size_t i)
{
  struct ct_plan_function function = {.struct_size = sizeof(function)};
  ct_plan_function(selected->plan, selected->filter_result, i, &function);
  return function;
}

static size_t
refused_count(const struct selected *selected, int refusal)
{
  return ct_plan_refused(selected->plan, selected->filter_result, (enum ct_refusal)refusal);
}

static json_t *
function_json(const struct selected *selected, size_t i)
{
  char label[512];
  struct ct_plan_function function = function_at(selected, i);
  json_t *json = json_object();
  json_object_set_new(json, "address", json_integer((json_int_t)function.address));
  json_object_set_new(json, "size", json_integer((json_int_t)function.size));
  json_object_set_new(json, "name", json_string(ct_plan_function_label(selected->plan, i, label, sizeof(label))));
  json_object_set_new(json, "callable", json_boolean(function.callable));
  if (function.refusal != CT_REFUSED_NOT) {
    json_object_set_new(json, "refused", json_string(ct_refusal_key(function.refusal)));
    json_object_set_new(json, "why", json_string(ct_refusal_text(function.refusal)));
    if (function.refusal == CT_REFUSED_BRANCH_INTO || function.refusal == CT_REFUSED_ENTRY_INTO) {
      json_object_set_new(json, "at", json_integer(function.refusal_offset));
    }
    if (function.refusal == CT_REFUSED_EXCLUDED || function.refusal == CT_REFUSED_UNSELECTED) {
      json_object_set_new(json, "trampoline", json_boolean(function.passthrough));
    }
  } else {
    json_object_set_new(json, "tactic", json_string(ct_tactic_name(function.tactic)));
    json_object_set_new(json, "mode", json_string(ct_hooked_name(function.hooked)));
  }
  return json;
}

static json_t *
totals_json(const struct selected *selected)
{
  const struct ct_plan *plan = selected->plan;
  size_t tactics[CT_TACTIC_COUNT] = {0};
  size_t enter_only = 0, light = 0, callable = 0;
  for (size_t i = 0; i < ct_plan_function_count(plan); i++) {
    struct ct_plan_function function = function_at(selected, i);
    callable += function.callable;
    enter_only += function.hooked == CT_HOOKED_ENTER;
    light += function.hooked == CT_HOOKED_LIGHT;
    if (function.tactic < CT_TACTIC_COUNT) {
      tactics[function.tactic]++;
    }
  }
  json_t *json = json_object();
  json_t *refused = json_object();
  json_t *by_tactic = json_object();
  for (int r = 1; r < CT_REFUSED_COUNT; r++) {
    if (refused_count(selected, r) != 0) {
      json_object_set_new(refused, ct_refusal_key(r), json_integer((json_int_t)refused_count(selected, r)));
    }
  }
  for (int t = 1; t < CT_TACTIC_COUNT; t++) {
    json_object_set_new(by_tactic, ct_tactic_name(t), json_integer((json_int_t)tactics[t]));
  }
  json_object_set_new(json, "functions", json_integer((json_int_t)ct_plan_function_count(plan)));
  json_object_set_new(json, "callable", json_integer((json_int_t)callable));
  json_object_set_new(json, "hooked", json_integer((json_int_t)ct_plan_hooked(plan, selected->filter_result)));
  json_object_set_new(json, "enter_only", json_integer((json_int_t)enter_only));
  json_object_set_new(json, "light", json_integer((json_int_t)light));
  json_object_set_new(json, "tactics", by_tactic);
  json_object_set_new(json, "refused", refused);
  const char *enter_only_because = ct_plan_enter_only_text(plan);
  if (enter_only_because != NULL) {
    json_object_set_new(json, "enter_only_because", json_string(enter_only_because));
  }
  json_object_set_new(json, "code_bytes", json_integer((json_int_t)ct_plan_code_bytes(plan)));
  json_object_set_new(json, "known_bytes", json_integer((json_int_t)ct_plan_known_bytes(plan)));
  json_object_set_new(json, "uses_gs", json_boolean(ct_plan_uses_gs(plan)));
  json_object_set_new(json, "cached", json_boolean(ct_plan_is_cached(plan)));
  json_object_set_new(json, "plan_ns", json_integer((json_int_t)ct_plan_ns(plan)));
  return json;
}

static int
print_json(const struct selected *selected)
{
  const struct ct_plan *plan = selected->plan;
  json_t *json = json_object();
  json_t *functions = json_array();
  for (size_t i = 0; i < ct_plan_function_count(plan); i++) {
    json_array_append_new(functions, function_json(selected, i));
  }
  json_object_set_new(json, "path", json_string(ct_plan_path(plan)));
  json_object_set_new(json, "build_id", json_string(ct_plan_build_id(plan)));
  json_object_set_new(json, "functions", functions);
  json_object_set_new(json, "totals", totals_json(selected));
  if (!ct_selection_is_everything(selected->selection)) {
    json_object_set_new(json, "patterns", ct_select_json(selected->selection));
  }
  int failed = json_dumpf(json, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
  putchar('\n');
  json_decref(json);
  return failed;
}

/* What patterns do not match is not shown. */
static int
print_text(const struct selected *selected, FILE *out)
{
  const struct ct_plan *plan = selected->plan;
  bool all = ct_selection_is_everything(selected->selection);
  char label[512], a[CT_COUNT_CHARS], b[CT_COUNT_CHARS], bytes[CT_DURATION_CHARS];
  for (size_t i = 0; i < ct_plan_function_count(plan); i++) {
    struct ct_plan_function function = function_at(selected, i);
    ct_plan_function_label(plan, i, label, sizeof(label));
    ct_make_printable(label);
    if (!all && function.refusal != CT_REFUSED_NOT) {
      continue;
    }
    if (function.refusal == CT_REFUSED_NOT) {
      fprintf(out, "%12" PRIx64 " %7" PRIu64 "  %-5s %-8s %s\n", function.address, function.size,
              ct_hooked_name(function.hooked), ct_tactic_name(function.tactic), label);
    } else {
      fprintf(out, "%12" PRIx64 " %7" PRIu64 "  -     -        %s: %s%s\n", function.address, function.size, label,
              ct_refusal_text(function.refusal),
              function.passthrough ? ", with a trampoline that records nothing" : "");
    }
  }
  if (ct_plan_enter_only_text(plan) != NULL) {
    fprintf(out, "\nenter only: %s\n", ct_plan_enter_only_text(plan));
  }
  fprintf(out, "\n%s functions, %s hooked, planned in %.1f ms%s\n", ct_format_count(a, ct_plan_function_count(plan)),
          ct_format_count(b, ct_plan_hooked(plan, selected->filter_result)), (double)ct_plan_ns(plan) / 1e6,
          ct_plan_is_cached(plan) ? " (from the cache)" : "");
  if (ct_plan_code_bytes(plan) != 0) {
    double share = 100.0 * (double)ct_plan_known_bytes(plan) / (double)ct_plan_code_bytes(plan);
    fprintf(out, "%.*f %% of %s of text belongs to known functions%s\n", share < 10 ? 2 : 0, share,
            ct_format_bytes(bytes, ct_plan_code_bytes(plan)), share < 50 ? "; calls in the rest are not recorded" : "");
  }
  for (int r = 1; r < CT_REFUSED_COUNT; r++) {
    if (refused_count(selected, r) != 0) {
      fprintf(out, "%8s not hooked: %s\n", ct_format_count(a, refused_count(selected, r)), ct_refusal_text(r));
    }
  }
  ct_select_print(selected->selection, out);
  return fflush(out) != 0 || ferror(out) ? CT_EIO : 0;
}

/* On a terminal in colours, and by the pager. */
static int
show_text(const struct selected *selected, const struct ct_look *look)
{
  FILE *out = ct_shown_open_as(CT_SHOWN_PLAN, look, true);
  if (out == NULL) {
    return ct_command_failed(&ct_command_plan, "out of memory");
  }
  int failed = print_text(selected, out);
  bool was_left = failed != 0 && errno == EPIPE && out != stdout; /* the pager */
  ct_shown_close(out);
  return was_left ? 0 : failed;
}

struct wanted {
  bool json, int3, no_cache;
  struct ct_selection *selection;
  struct ct_exclude *exclude;
  struct ct_look look;
};

/* There are patterns, and no function matches one of them. */
static bool
chooses_nothing(const struct ct_selection *selection)
{
  struct ct_select_info info = {.struct_size = sizeof(info)};
  size_t n = 0, matched = 0;
  while (selection != NULL && ct_selection_info(selection, n, &info) == 0) {
    matched += info.matched;
    n++;
  }
  return n != 0 && matched == 0;
}

static int
plan_it(const char *path, const struct wanted *wanted)
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
  struct selected selected = {.plan = plan, .selection = wanted->selection};
  failed = ct_filter_result_create(plan, wanted->selection, wanted->exclude, path, &selected.filter_result);
  if (failed == 0) {
    ct_plan_suggest(plan, wanted->selection, wanted->exclude, path);
    failed = wanted->json ? print_json(&selected) || chooses_nothing(wanted->selection)
                          : show_text(&selected, &wanted->look);
    ct_exclude_warn(wanted->exclude);
    ct_select_warn(wanted->selection);
  }
  ct_filter_result_destroy(selected.filter_result);
  ct_plan_free(plan);
  return failed != 0 || fflush(stdout) != 0 ? CT_EXIT_FAILED : CT_EXIT_OK;
}

static const struct ct_option options[] = {
    CT_OPTION_JSON(struct wanted, json, "print one JSON object"),
    CT_OPTION_GROUP(ct_select_options, struct wanted, selection),
    CT_OPTION_GROUP(ct_exclude_options, struct wanted, exclude),
    {.name = "int3",
     .help = "plan as if recorded with --int3",
     .apply = ct_apply_flag,
     .offset = offsetof(struct wanted, int3)},
    {.name = "no-cache",
     .help = "analyse the file anew, and keep nothing in the analysis cache (see contrail help cache)",
     .apply = ct_apply_flag,
     .offset = offsetof(struct wanted, no_cache)},
    CT_OPTION_GROUP(ct_look_options, struct wanted, look),
    CT_OPTIONS_END,
};

static int
run_plan(int argc, char **argv)
{
  struct wanted wanted = {false};
  int code = ct_parse(&ct_command_plan, argc, argv, &wanted);
  if (code == -1) {
    code = optind + 1 == argc ? plan_it(argv[optind], &wanted)
                              : ct_usage_error(&ct_command_plan, "exactly one file is needed");
  }
  ct_selection_free(wanted.selection);
  ct_exclude_free(wanted.exclude);
  return code;
}

const struct ct_command ct_command_plan = {
    .name = "plan",
    .summary = "show which functions of a file would be hooked, and how",
    .synopsis = "[OPTION]... FILE",
    .about = "Reads the ELF file only; nothing is run. Shows for each function its address, size, mode (full:\n"
             "enter and return; enter: enter only; light: enter only, by choice) and tactic, or why it is left\n"
             "out. With --trace it shows only what the patterns choose, and how many functions each of them\n"
             "matches. FILE is taken for the program itself.\n",
    .options = options,
    .operands = CT_COMPLETE_FILE,
    .run = run_plan,
};
