/* SPDX-License-Identifier: MIT */
/* See tree_sums.h. */
#include "span/tree_sums.h"

#include "base/crc32c.h"
#include "base/demangle.h"
#include "base/hash_key.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_EDGES = 1024, NO_GROUP = 0 };

/* ---- groups of functions ---- */

/* Texts under numbers from 1 on. Of ways to group, the texts are the trace's, but those of classes. */
struct numbering {
  char **texts;
  uint32_t *buckets; /* number, 0: free */
  uint32_t count, capacity;
  uint64_t hash_key; /* base/hash_key.h */
};

static uint32_t *
find_text(const struct numbering *numbering, const char *text)
{
  uint64_t hash = numbering->hash_key;
  for (const char *p = text; *p != '\0'; p++) {
    hash = (hash ^ (unsigned char)*p) * UINT64_C(0x100000001B3);
  }
  uint32_t mask = numbering->capacity * 2 - 1, at = (uint32_t)(hash >> 20) & mask;
  while (numbering->buckets[at] != 0 && strcmp(numbering->texts[numbering->buckets[at] - 1], text) != 0) {
    at = (at + 1) & mask;
  }
  return &numbering->buckets[at];
}

static int
number_of_text(struct numbering *numbering, const char *text, uint32_t *number)
{
  if (numbering->count == numbering->capacity) {
    uint32_t capacity = numbering->capacity == 0 ? 256 : numbering->capacity * 2;
    char **texts = reallocarray(numbering->texts, capacity, sizeof(*texts));
    numbering->texts = texts != NULL ? texts : numbering->texts;
    uint32_t *buckets = calloc((size_t)capacity * 2, sizeof(*buckets));
    if (texts == NULL || buckets == NULL) {
      free(buckets);
      return CT_ENOMEM;
    }
    free(numbering->buckets);
    numbering->buckets = buckets;
    numbering->capacity = capacity;
    numbering->hash_key = ct_hash_key();
    for (uint32_t i = 0; i < numbering->count; i++) {
      *find_text(numbering, texts[i]) = i + 1;
    }
  }
  uint32_t *bucket = find_text(numbering, text);
  if (*bucket == 0) {
    char *copy = strdup(text);
    if (copy == NULL) {
      return CT_ENOMEM;
    }
    numbering->texts[numbering->count++] = copy;
    *bucket = numbering->count;
  }
  *number = *bucket;
  return 0;
}

/* What the function's group is known by, as views/groups.c has it; to be freed. NULL: out of memory. */
static char *
text_of_group(struct ct_trace *trace, uint32_t fn, enum ct_tree_grouping grouping)
{
  const struct ct_trace_function *function = ct_trace_function(trace, fn);
  uint32_t line;
  const char *file;
  if (function == NULL) { /* a number of an image of the parent's, before its exec: of a forked child, nobody's */
    return strdup("");
  }
  const struct ct_trace_module *module = ct_trace_module(trace, function->module);
  switch (grouping) {
  case CT_TREE_MODULES:
    return strdup(module != NULL && module->path[0] != '\0' ? module->path : "?");
  case CT_TREE_FILES:
    file = ct_trace_function_source(trace, fn, &line);
    return strdup(file != NULL ? file : "(not known)");
  default: {
    char *own = ct_demangle_name(function->raw_name);
    char *text = ct_demangled_class(own != NULL ? own : function->name);
    free(own);
    return text;
  }
  }
}

static int
number_functions(struct ct_tree_groupings *groupings, struct ct_trace *trace, uint32_t fn_count,
                 enum ct_tree_grouping i)
{
  struct numbering numbering = {0};
  int code = 0;
  uint32_t *of = groupings->of[i] = calloc((size_t)fn_count + 1, sizeof(*of));
  if (of == NULL) {
    return CT_ENOMEM;
  }
  for (uint32_t fn = 0; fn < fn_count && code == 0; fn++) {
    char *text = text_of_group(trace, fn, i);
    code = text != NULL ? number_of_text(&numbering, text, &of[fn]) : CT_ENOMEM;
    free(text);
  }
  groupings->count[i] = numbering.count;
  groupings->crc[i] = code == 0 ? ct_crc32c(0, of, fn_count * sizeof(*of)) : 0;
  for (uint32_t n = 0; n < numbering.count; n++) {
    free(numbering.texts[n]);
  }
  free(numbering.texts);
  free(numbering.buckets);
  return code;
}

int
ct_tree_groupings_init(struct ct_tree_groupings *groupings, struct ct_trace *trace, uint32_t fn_count, unsigned mask)
{
  *groupings = (struct ct_tree_groupings){.fn_count = fn_count};
  for (unsigned i = 0; i < CT_TREE_ALL; i++) {
    int code = (mask >> i & 1) != 0 ? number_functions(groupings, trace, fn_count, (enum ct_tree_grouping)i) : 0;
    if (code != 0) {
      ct_tree_groupings_destroy(groupings);
      return code;
    }
  }
  return 0;
}

void
ct_tree_groupings_destroy(struct ct_tree_groupings *groupings)
{
  for (unsigned i = 0; i < CT_TREE_ALL; i++) {
    free(groupings->of[i]);
  }
  *groupings = (struct ct_tree_groupings){0};
}

/* ---- edges ---- */

static uint32_t *
find_edge(const struct ct_tree_sums *sums, uint32_t caller, uint32_t fn)
{
  uint32_t mask = sums->edge_capacity * 2 - 1;
  uint32_t at = (uint32_t)ct_hash(sums->hash_key, (uint64_t)caller << 32 | fn) & mask;
  for (; sums->buckets[at] != 0; at = (at + 1) & mask) {
    const struct ct_tree_edge *edge = &sums->edges[sums->buckets[at] - 1];
    if (edge->caller == caller && edge->fn == fn) {
      break;
    }
  }
  return &sums->buckets[at];
}

static int
grow_edges(struct ct_tree_sums *sums)
{
  uint32_t capacity = sums->edge_capacity == 0 ? FIRST_EDGES : sums->edge_capacity * 2;
  struct ct_tree_edge *edges = reallocarray(sums->edges, capacity, sizeof(*edges));
  sums->edges = edges != NULL ? edges : sums->edges;
  uint32_t *buckets = calloc((size_t)capacity * 2, sizeof(*buckets));
  if (edges == NULL || buckets == NULL) {
    free(buckets);
    return CT_ENOMEM;
  }
  free(sums->buckets);
  sums->buckets = buckets;
  sums->edge_capacity = capacity;
  sums->hash_key = ct_hash_key();
  for (uint32_t i = 0; i < sums->edge_count; i++) {
    *find_edge(sums, edges[i].caller, edges[i].fn) = i + 1;
  }
  return 0;
}

struct ct_tree_edge *
ct_tree_sums_edge(struct ct_tree_sums *sums, uint32_t caller, uint32_t fn)
{
  if (sums->edge_count == sums->edge_capacity && grow_edges(sums) != 0) {
    return NULL;
  }
  uint32_t *bucket = find_edge(sums, caller, fn);
  if (*bucket == 0) {
    sums->edges[sums->edge_count++] = (struct ct_tree_edge){.caller = caller, .fn = fn};
    *bucket = sums->edge_count;
  }
  return &sums->edges[*bucket - 1];
}

static uint32_t
caller_of(const struct ct_span_tree *tree, uint32_t node)
{
  switch (tree->nodes[node].parent) {
  case CT_TREE_OWN:
    return CT_CALLER_OWN;
  case CT_TREE_OTHERS:
    return CT_CALLER_OTHERS;
  case CT_TREE_COUNTED:
    return CT_CALLER_COUNTED;
  default:
    return tree->nodes[tree->nodes[node].parent].fn;
  }
}

/* By node, its function; NULL: out of memory, or one that the trace does not have. To be freed. */
static uint32_t *
functions_of(const struct ct_span_tree *tree, uint32_t fn_count)
{
  uint32_t *functions = calloc(tree->count, sizeof(*functions));
  bool ok = functions != NULL;
  for (uint32_t i = CT_TREE_FIRST; ok && i < tree->count; i++) {
    functions[i] = tree->nodes[i].fn;
    ok = functions[i] < fn_count;
  }
  if (!ok) {
    free(functions);
    return NULL;
  }
  return functions;
}

static int
add_edges(struct ct_tree_sums *sums, const struct ct_span_tree *tree, const struct ct_tree_time *times,
          const struct ct_tree_outer *outers)
{
  for (uint32_t i = CT_TREE_FIRST; i < tree->count; i++) {
    const struct ct_tree_node *node = &tree->nodes[i];
    struct ct_tree_edge *edge = ct_tree_sums_edge(sums, caller_of(tree, i), node->fn);
    if (edge == NULL) {
      return CT_ENOMEM;
    }
    edge->frames += node->frames;
    edge->points += node->points;
    edge->before += node->before;
    edge->total += node->total;
    edge->self += node->self;
    edge->fresh += node->fresh;
    edge->fresh_off += node->fresh_off;
    edge->self_off += times[i].self_off;
    edge->here += times[i].here;
    edge->here_off += times[i].here_off;
    if (outers[i].outer == CT_TREE_NONE) {
      continue;
    }
    /* What the frame further out had called, this one included, is not that one's time. */
    edge = ct_tree_sums_edge(sums, node->fn, tree->nodes[outers[i].inner].fn);
    if (edge == NULL) {
      return CT_ENOMEM;
    }
    edge->here -= times[i].here;
    edge->here_off -= times[i].here_off;
  }
  return 0;
}

/* ---- groups ---- */

static struct ct_tree_group *
group_of(struct ct_tree_sums *sums, unsigned grouping, uint32_t number, uint32_t fn)
{
  uint32_t *count = &sums->group_count[grouping];
  uint32_t position = grouping == CT_TREE_ALL ? *count : sums->group_at[grouping][number];
  if (position != 0) {
    return &sums->groups[grouping][position - 1];
  }
  if ((*count & (*count - 1)) == 0) { /* it grows at powers of two */
    struct ct_tree_group *groups =
        reallocarray(sums->groups[grouping], *count == 0 ? 1 : (size_t)*count * 2, sizeof(*groups));
    if (groups == NULL) {
      return NULL;
    }
    sums->groups[grouping] = groups;
  }
  sums->groups[grouping][(*count)++] = (struct ct_tree_group){.fn = fn, .number = number};
  if (grouping != CT_TREE_ALL) {
    sums->group_at[grouping][number] = *count;
  }
  return &sums->groups[grouping][*count - 1];
}

/* Whether the functions that there were are grouped as they were then: numbers are given in their order. */
static bool
is_grouped_alike(const struct ct_tree_sums *sums, unsigned grouping, const struct ct_tree_groupings *groupings)
{
  const uint32_t *of = groupings->of[grouping];
  return sums->fn_count == 0 || (sums->fn_count <= groupings->fn_count && sums->crc[grouping] != 0 &&
                                 ct_crc32c(0, of, sums->fn_count * sizeof(*of)) == sums->crc[grouping]);
}

/*
 * Groups that there are already have the numbers of these groupings. What was one group then may be several now, as
 * modules and files get known while a recording goes on: of such a way of grouping there are no sums any more.
 */
static int
number_groups(struct ct_tree_sums *sums, const struct ct_tree_groupings *groupings)
{
  for (unsigned i = 0; i < CT_TREE_ALL; i++) {
    bool is_alike = is_grouped_alike(sums, i, groupings);
    free(sums->group_at[i]);
    sums->group_at[i] = calloc((size_t)groupings->count[i] + 1, sizeof(*sums->group_at[i]));
    sums->crc[i] = is_alike ? groupings->crc[i] : 0;
    if (sums->group_at[i] == NULL) {
      return CT_ENOMEM;
    }
    for (uint32_t n = 0; n < sums->group_count[i] && sums->crc[i] != 0; n++) {
      struct ct_tree_group *group = &sums->groups[i][n];
      group->number = group->fn < groupings->fn_count ? groupings->of[i][group->fn] : NO_GROUP;
      if (group->number == NO_GROUP || sums->group_at[i][group->number] != 0) {
        sums->crc[i] = 0;
      } else {
        sums->group_at[i][group->number] = n + 1;
      }
    }
    sums->group_count[i] = sums->crc[i] != 0 ? sums->group_count[i] : 0;
  }
  sums->fn_count = groupings->fn_count;
  return 0;
}

static int
add_group(struct ct_tree_sums *sums, unsigned grouping, const struct ct_span_tree *tree, const uint32_t *keys,
          uint32_t key_count)
{
  struct ct_tree_outer *outers = ct_span_tree_outers(tree, keys, key_count);
  int code = outers != NULL ? 0 : CT_ENOMEM;
  for (uint32_t i = CT_TREE_FIRST; i < tree->count && code == 0; i++) {
    if (outers[i].outer == CT_TREE_NONE) {
      struct ct_tree_group *group = group_of(sums, grouping, keys[i], tree->nodes[i].fn);
      code = group != NULL ? 0 : CT_ENOMEM;
      if (group != NULL) {
        group->total += tree->nodes[i].total;
        group->off += tree->nodes[i].off;
      }
    }
  }
  free(outers);
  return code;
}

static int
add_groups(struct ct_tree_sums *sums, const struct ct_span_tree *tree, const struct ct_tree_groupings *groupings)
{
  for (uint32_t i = CT_TREE_FIRST; i < tree->count; i++) {
    sums->has_groups &= tree->nodes[i].parent != CT_TREE_OTHERS;
  }
  bool is_same = sums->fn_count == groupings->fn_count && sums->group_at[0] != NULL;
  int code = !sums->has_groups || is_same ? 0 : number_groups(sums, groupings);
  uint32_t *keys = sums->has_groups ? calloc(tree->count, sizeof(*keys)) : NULL;
  if (keys == NULL) {
    return sums->has_groups ? CT_ENOMEM : code;
  }
  for (unsigned grouping = 0; grouping < CT_TREE_GROUPINGS && code == 0; grouping++) {
    if (grouping != CT_TREE_ALL && sums->crc[grouping] == 0) {
      continue;
    }
    for (uint32_t i = CT_TREE_FIRST; i < tree->count; i++) {
      keys[i] = grouping == CT_TREE_ALL ? 1 : groupings->of[grouping][tree->nodes[i].fn];
    }
    code = add_group(sums, grouping, tree, keys, grouping == CT_TREE_ALL ? 2 : groupings->count[grouping] + 1);
  }
  free(keys);
  return code;
}

/* ---- paths ---- */

static int
add_paths(struct ct_tree_sums *sums, const struct ct_span_tree *tree, const struct ct_tree_time *times,
          const struct ct_tree_outer *outers)
{
  struct ct_span_tree *paths = &sums->paths;
  uint32_t *of = calloc(tree->count, sizeof(*of)); /* by node */
  if (of == NULL) {
    return CT_ENOMEM;
  }
  for (uint32_t i = CT_TREE_OWN; i < CT_TREE_FIRST; i++) {
    of[i] = i;
  }
  for (uint32_t i = CT_TREE_FIRST; i < tree->count && sums->has_paths; i++) {
    const struct ct_tree_node *node = &tree->nodes[i];
    uint32_t base = of[node->parent], at = base;
    if (outers[i].outer != CT_TREE_NONE) { /* its path may have gone back before that one meanwhile */
      while (at >= CT_TREE_FIRST && paths->nodes[at].fn != node->fn) {
        at = paths->nodes[at].parent;
      }
    }
    bool is_recursive = outers[i].outer != CT_TREE_NONE && at >= CT_TREE_FIRST;
    of[i] = is_recursive ? at : ct_span_tree_child(paths, base, node->fn);
    if (of[i] == CT_TREE_NONE) {
      sums->has_paths = false;
      break;
    }
    struct ct_tree_node *path = &paths->nodes[of[i]];
    path->frames += node->frames - node->before;
    path->before += is_recursive ? node->frames - node->before : 0;
    path->points += node->points;
    path->self += node->self;
    path->off += times[i].self_off;
  }
  free(of);
  return sums->has_paths && sums->paths.count > sums->most_paths ? ct_tree_sums_fold(sums, sums->most_paths / 2) : 0;
}

/* ---- all of it ---- */

int
ct_tree_sums_init(struct ct_tree_sums *sums, uint32_t most_paths)
{
  *sums = (struct ct_tree_sums){.has_groups = true, .has_paths = true, .most_paths = most_paths};
  int code = ct_span_tree_init(&sums->paths, UINT32_MAX / 2);
  code = code == 0 ? grow_edges(sums) : code;
  if (code != 0) {
    ct_tree_sums_destroy(sums);
  }
  return code;
}

void
ct_tree_sums_destroy(struct ct_tree_sums *sums)
{
  free(sums->edges);
  free(sums->buckets);
  for (unsigned i = 0; i < CT_TREE_GROUPINGS; i++) {
    free(sums->groups[i]);
  }
  for (unsigned i = 0; i < CT_TREE_ALL; i++) {
    free(sums->group_at[i]);
  }
  ct_span_tree_destroy(&sums->paths);
  *sums = (struct ct_tree_sums){0};
}

int
ct_tree_sums_add(struct ct_tree_sums *sums, const struct ct_span_tree *tree, const struct ct_tree_groupings *groupings)
{
  uint32_t *functions = functions_of(tree, groupings->fn_count);
  if (functions == NULL) {
    return CT_ENOENT;
  }
  struct ct_tree_time *times = ct_span_tree_times(tree);
  struct ct_tree_outer *outers = ct_span_tree_outers(tree, functions, groupings->fn_count);
  int code = times != NULL && outers != NULL ? add_edges(sums, tree, times, outers) : CT_ENOMEM;
  code = code == 0 && sums->has_paths ? add_paths(sums, tree, times, outers) : code;
  free(functions);
  free(times);
  free(outers);
  return code == 0 && sums->has_groups ? add_groups(sums, tree, groupings) : code;
}

uint64_t
ct_tree_edge_calls(const struct ct_tree_edge *edge)
{
  return edge->frames - edge->before + edge->points;
}
