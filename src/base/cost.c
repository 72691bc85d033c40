/* SPDX-License-Identifier: MIT */
/* See cost.h. */
#include "base/cost.h"

#include "base/json.h"

#include <contrail/text.h>

#include <math.h>
#include <string.h>

static const struct {
  const char *name, *text;
} parts[CT_COST_PART_COUNT] = {
    [CT_COST_DETAIL] = {"detail", "records of detail"},
    [CT_COST_BREAKPOINTS] = {"int3", "hooks by int3"},
    [CT_COST_LOST] = {"lost", "lost events"},
    [CT_COST_OTHER] = {"other", "changes of the stack"},
    [CT_COST_COUNTED] = {"counted", "calls that were not recorded"},
};

double
ct_cost_share(const struct ct_cost *cost)
{
  if (!cost->is_known || cost->program_cpu_ns == 0) {
    return -1;
  }
  return cost->hooks_ns < cost->program_cpu_ns ? (double)cost->hooks_ns / (double)cost->program_cpu_ns : 1;
}

const char *
ct_cost_part_name(int part)
{
  return part >= 0 && part < CT_COST_PART_COUNT ? parts[part].name : NULL;
}

void
ct_cost_put(FILE *out, const struct ct_cost *cost)
{
  char a[CT_DURATION_CHARS];
  double share = ct_cost_share(cost);
  const char *between = "; not in it: ";
  if (!cost->is_known) {
    fputs("what hooks take is not known", out);
  } else if (share < 0) {
    fprintf(out, "hooks took %s (estimated)", ct_format_duration(a, cost->hooks_ns));
  } else {
    fprintf(out, "hooks took %s, ", ct_format_duration(a, cost->hooks_ns));
    fprintf(out, "%.*f %% of the program's processor time (estimated)", share < 0.01 ? 2 : 0, 100 * share);
  }
  fprintf(out, "; the recorder %s", ct_format_duration(a, cost->recorder_cpu_ns));
  for (int part = 0; cost->is_known && part < CT_COST_PART_COUNT; part++) {
    if ((cost->left_out >> part & 1) != 0) {
      fprintf(out, "%s%s", between, parts[part].text);
      between = ", ";
    }
  }
}

/* Rounded so that they add up to what is shown of the whole. */
static void
put_parts(FILE *out, const struct ct_budget_status *budget)
{
  double whole = round(1000 * budget->spent), hooks = round(1000 * budget->hooks);
  double switches = round(1000 * budget->switches), recorder = whole - hooks - switches;
  fprintf(out, " (hooks %.1f, the recorder %.1f", hooks / 10, recorder > 0 ? recorder / 10 : 0);
  if (switches > 0) {
    fprintf(out, ", reports of switches %.1f", switches / 10);
  }
  fputs(")", out);
}

void
ct_budget_put(FILE *out, const struct ct_budget_status *budget)
{
  char a[CT_COUNT_CHARS], b[CT_COUNT_CHARS], c[CT_COUNT_CHARS], d[CT_COUNT_CHARS];
  if (budget->full + budget->sampled + budget->counted + budget->out == 0) { /* before the first look: as hooks begin */
    fprintf(out, "%.3g %%, nothing decided yet: calls are counted, one of 64 of each function is recorded too",
            100 * budget->limit);
    return;
  }
  fprintf(out, "%.3g %%, of late %.1f %% spent", 100 * budget->limit, 100 * budget->spent);
  if (budget->hooks + budget->switches + budget->recorder > 0) { /* not in a trace of an earlier version */
    put_parts(out, budget);
  }
  fprintf(out, "; functions: %s in full, %s sampled, %s counted, %s out; ", ct_format_count(a, budget->full),
          ct_format_count(b, budget->sampled), ct_format_count(c, budget->counted), ct_format_count(d, budget->out));
  fprintf(out, "%s step%s", ct_format_count(a, budget->steps), budget->steps == 1 ? "" : "s");
}

json_t *
ct_budget_json(const struct ct_budget_status *budget)
{
  return json_pack("{s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:I}", "limit", budget->limit, "spent", budget->spent,
                   "hooks", budget->hooks, "switches", budget->switches, "recorder", budget->recorder, "full",
                   (json_int_t)budget->full, "sampled", (json_int_t)budget->sampled, "counted",
                   (json_int_t)budget->counted, "out", (json_int_t)budget->out, "steps", (json_int_t)budget->steps);
}

bool
ct_budget_of_json(const json_t *json, struct ct_budget_status *budget)
{
  *budget = (struct ct_budget_status){.limit = json_number_value(json_object_get(json, "limit")),
                                      .spent = json_number_value(json_object_get(json, "spent")),
                                      .hooks = json_number_value(json_object_get(json, "hooks")),
                                      .switches = json_number_value(json_object_get(json, "switches")),
                                      .recorder = json_number_value(json_object_get(json, "recorder")),
                                      .full = (size_t)json_integer_value(json_object_get(json, "full")),
                                      .sampled = (size_t)json_integer_value(json_object_get(json, "sampled")),
                                      .counted = (size_t)json_integer_value(json_object_get(json, "counted")),
                                      .out = (size_t)json_integer_value(json_object_get(json, "out")),
                                      .steps = (uint64_t)json_integer_value(json_object_get(json, "steps"))};
  return budget->limit > 0;
}

json_t *
ct_cost_json(const struct ct_cost *cost)
{
  json_t *json = json_object(), *left_out = json_array();
  double share = ct_cost_share(cost);
  if (cost->is_known) {
    ct_json_put(json, "hooks_ns", cost->hooks_ns);
  } else {
    json_object_set_new(json, "hooks_ns", json_null());
  }
  if (cost->program_cpu_ns != 0) {
    ct_json_put(json, "program_cpu_ns", cost->program_cpu_ns);
  } else {
    json_object_set_new(json, "program_cpu_ns", json_null());
  }
  json_object_set_new(json, "share", share >= 0 ? json_real(share) : json_null());
  ct_json_put(json, "recorder_cpu_ns", cost->recorder_cpu_ns);
  for (int part = 0; cost->is_known && part < CT_COST_PART_COUNT; part++) {
    if ((cost->left_out >> part & 1) != 0) {
      json_array_append_new(left_out, json_string(parts[part].name));
    }
  }
  json_object_set_new(json, "left_out", left_out);
  return json;
}

bool
ct_cost_of_json(const json_t *json, struct ct_cost *cost)
{
  size_t i;
  json_t *name;
  *cost = (struct ct_cost){.is_known = json_is_integer(json_object_get(json, "hooks_ns")),
                           .hooks_ns = ct_json_get(json, "hooks_ns"),
                           .program_cpu_ns = ct_json_get(json, "program_cpu_ns"),
                           .recorder_cpu_ns = ct_json_get(json, "recorder_cpu_ns")};
  if (cost->program_cpu_ns != 0 && cost->hooks_ns > cost->program_cpu_ns) {
    cost->hooks_ns = cost->program_cpu_ns;
  }
  json_array_foreach(json_object_get(json, "left_out"), i, name)
  {
    for (int part = 0; part < CT_COST_PART_COUNT; part++) {
      if (json_is_string(name) && strcmp(json_string_value(name), parts[part].name) == 0) {
        cost->left_out |= 1u << part;
      }
    }
  }
  return json_is_object(json);
}
