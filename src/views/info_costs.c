/* SPDX-License-Identifier: MIT */
/* What info says of a recording's costs: processor time, memory, the analysis of files, and a hook's time. */
#include "views/info_costs.h"

#include "base/cost.h"
#include "base/json.h"
#include "trace/batch.h"

#include <contrail/text.h>

#define PATCHES_SHARE_SHOWN 0.2 /* of the limit */

/* A number of all modules together. */
uint64_t
ct_info_sum_of_modules(const json_t *manifest, const char *key)
{
  uint64_t sum = 0;
  size_t i;
  json_t *module;
  json_array_foreach(json_object_get(manifest, "modules"), i, module) sum += ct_json_get(module, key);
  return sum;
}

/* So wide are the labels of info. */
static void
label(FILE *out, const char *text)
{
  fprintf(out, "%-10s ", text);
}

/* Functions that are out under a budget and cost something all the same, as memcpy does. */
static void
write_patches(FILE *out, const struct ct_trace *trace, const json_t *budget)
{
  const json_t *left = json_object_get(budget, "patches_left"), *functions = json_object_get(left, "functions"), *item;
  size_t i;
  if (json_real_value(json_object_get(left, "share")) <
      PATCHES_SHARE_SHOWN * json_real_value(json_object_get(budget, "limit"))) {
    return;
  }
  label(out, "");
  double share = 100 * json_real_value(json_object_get(left, "share"));
  fprintf(out, "out, but with their patches, which take some %.*f %% of the processor time: ", share < 10 ? 1 : 0,
          share);
  json_array_foreach((json_t *)functions, i, item)
  {
    const struct ct_trace_function *function =
        ct_trace_function((struct ct_trace *)trace, (uint32_t)ct_json_get(item, "function"));
    fputs(i == 0 ? "" : ", ", out);
    ct_put_printable(out, function != NULL ? function->name : "?", 200);
    share = 100 * json_real_value(json_object_get(item, "share"));
    fprintf(out, " (%.*f %%)", share < 10 ? 1 : 0, share);
  }
  putc('\n', out);
}

/* From the begin to the end: a short program is over before much has been decided. */
static void
write_in_all(FILE *out, const json_t *budget)
{
  const json_t *in_all = json_object_get(budget, "in_all");
  static const char *const names[] = {"hooks", "recorder", "switches"};
  static const char *const texts[] = {"in all hooks at most", ", the recorder", ", reports of switches"};
  double own_ns = (double)ct_json_get(in_all, "own_ns");
  char duration[CT_DURATION_CHARS];
  if (!json_is_object(in_all)) { /* an older trace, or it has had next to no time */
    return;
  }
  label(out, "");
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
    double ns = own_ns * json_number_value(json_object_get(in_all, names[i]));
    fprintf(out, "%s %s", texts[i], ct_format_duration(duration, ns > 0 && ns < 1e18 ? (uint64_t)ns : 0));
  }
  fprintf(out, "; at least %s of its own\n", ct_format_duration(duration, (uint64_t)own_ns));
}

/* What the recording cost the program. */
static void
write_share(FILE *out, const struct ct_trace *trace, const json_t *manifest)
{
  struct ct_cost cost;
  if (ct_cost_of_json(json_object_get(manifest, "cost"), &cost)) {
    label(out, "cost");
    ct_cost_put(out, &cost);
    putc('\n', out);
  }
  struct ct_budget_status budget;
  if (ct_budget_of_json(json_object_get(manifest, "budget"), &budget)) {
    label(out, "budget");
    ct_budget_put(out, &budget);
    putc('\n', out);
    write_in_all(out, json_object_get(manifest, "budget"));
    write_patches(out, trace, json_object_get(manifest, "budget"));
  }
}

/* What recording took besides: memory, and whether the files had been analysed before. */
static void
write_memory(FILE *out, const json_t *manifest)
{
  const json_t *memory = json_object_get(manifest, "memory"), *analysis = json_object_get(manifest, "analysis");
  char b[CT_DURATION_CHARS];
  if (json_is_object(memory)) {
    label(out, "memory");
    fprintf(out, "recorder at most %s", ct_format_bytes(b, ct_json_get(memory, "recorder_peak_bytes")));
    fprintf(out, "; program: trampolines %s", ct_format_bytes(b, ct_info_sum_of_modules(manifest, "trampoline_bytes")));
    fprintf(out, ", patched text %s", ct_format_bytes(b, ct_info_sum_of_modules(manifest, "text_bytes")));
    if (ct_json_get(memory, "program_private_bytes") != 0) {
      fprintf(out, ", private in all %s", ct_format_bytes(b, ct_json_get(memory, "program_private_bytes")));
    }
    putc('\n', out);
  }
  if (json_is_object(analysis)) {
    uint64_t hits = ct_json_get(analysis, "hits"), misses = ct_json_get(analysis, "misses");
    label(out, "analysis");
    if (json_is_string(json_object_get(analysis, "cache"))) {
      uint64_t evictions = ct_json_get(analysis, "evictions");
      fprintf(out, "%llu of %llu files from the cache", (unsigned long long)hits, (unsigned long long)(hits + misses));
      if (evictions != 0) {
        fprintf(out, ", %llu old ones removed from it", (unsigned long long)evictions);
      }
      putc('\n', out);
    } else {
      fputs("no cache\n", out);
    }
  }
}

/* What of each call's time was its hook's, as it was measured. */
static void
write_hook_costs(FILE *out, const struct ct_trace *trace, const json_t *manifest)
{
  struct ct_trace_costs costs;
  if (!json_is_object(json_object_get(manifest, "hook_costs"))) {
    return;
  }
  ct_trace_costs(trace, &costs);
  int64_t inside = costs.enter_after + costs.return_before, outside = costs.enter_before + costs.return_after;
  double ns = (double)ct_trace_ticks_ns(trace, 1u << 20) / ((double)(1u << 20) * CT_COST_UNIT);
  label(out, "hooks");
  fprintf(out, "%.1f ns a call, of which its duration had %.1f and its caller's %.1f; they are not in any time shown\n",
          (double)(inside + outside) * ns, (double)inside * ns, (double)outside * ns);
}

void
ct_info_put_costs(const struct ct_trace *trace, FILE *out)
{
  const json_t *manifest = ct_trace_manifest(trace);
  write_share(out, trace, manifest);
  write_memory(out, manifest);
  write_hook_costs(out, trace, manifest);
}
