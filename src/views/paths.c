/* SPDX-License-Identifier: MIT */
/* See paths.h. The table of steps has those that lead to a child, and shortcuts: those of recursions. */
#include "views/paths.h"

#include "base/branch.h"
#include "span/stacks.h"
#include "views/filter.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_PATHS = 1024, SMALLEST_LIMIT = 16 };

/* ---- the tree ---- */

static uint32_t
hash_of(uint32_t parent, uint32_t name)
{
  uint64_t key = (uint64_t)parent << 32 | name;
  return (uint32_t)((key * UINT64_C(0x9E3779B97F4A7C15)) >> 32);
}

static struct ct_path_step *
find(const struct ct_paths *paths, uint32_t parent, uint32_t name)
{
  uint32_t mask = paths->step_capacity - 1, at = hash_of(parent, name) & mask;
  while (paths->steps[at].path != CT_PATH_NONE &&
         (paths->steps[at].parent != parent || paths->steps[at].name != name)) {
    at = (at + 1) & mask;
  }
  return &paths->steps[at];
}

/* A table of that size with the steps to children alone. */
static int
rehash(struct ct_paths *paths, uint32_t capacity)
{
  struct ct_path_step *steps = calloc(capacity, sizeof(*steps));
  if (steps == NULL) {
    return CT_ENOMEM;
  }
  free(paths->steps);
  paths->steps = steps;
  paths->step_capacity = capacity;
  paths->step_count = 0;
  for (uint32_t i = CT_PATH_TOP + 1; i < paths->count; i++) {
    const struct ct_path *path = &paths->paths[i];
    if (path->parent != CT_PATH_NONE) {
      *find(paths, path->parent, path->name) = (struct ct_path_step){path->parent, path->name, i};
      paths->step_count++;
    }
  }
  return 0;
}

static int
add_step(struct ct_paths *paths, uint32_t parent, uint32_t name, uint32_t path)
{
  if ((paths->step_count + 1) * 2 > paths->step_capacity) {
    /* Shortcuts are made again when they are needed: the table is for the paths. */
    uint32_t capacity = paths->step_capacity;
    while (capacity < paths->live * 8) {
      capacity *= 2;
    }
    if (rehash(paths, capacity) != 0) {
      return CT_ENOMEM;
    }
  }
  struct ct_path_step *step = find(paths, parent, name);
  paths->step_count += step->path == CT_PATH_NONE;
  *step = (struct ct_path_step){parent, name, path};
  return 0;
}

int
ct_paths_init(struct ct_paths *paths)
{
  paths->limit = paths->limit == 0 ? CT_PATHS_MAX : paths->limit < SMALLEST_LIMIT ? SMALLEST_LIMIT : paths->limit;
  paths->paths = calloc(FIRST_PATHS, sizeof(*paths->paths));
  paths->steps = calloc((size_t)FIRST_PATHS * 8, sizeof(*paths->steps));
  if (paths->paths == NULL || paths->steps == NULL) {
    return CT_ENOMEM;
  }
  paths->capacity = FIRST_PATHS;
  paths->step_capacity = FIRST_PATHS * 8;
  paths->count = CT_PATH_TOP + 1;
  paths->paths[CT_PATH_TOP].name = CT_PATH_ROOT;
  paths->top = CT_PATH_TOP;
  return 0;
}

/* A child that there is not yet. */
static uint32_t
make(struct ct_paths *paths, uint32_t parent, uint32_t name)
{
  uint32_t path = paths->spare;
  if (path != CT_PATH_NONE) {
    paths->spare = paths->paths[path].next;
  } else if (paths->count == paths->capacity) {
    struct ct_path *grown = reallocarray(paths->paths, (size_t)paths->capacity * 2, sizeof(*grown));
    if (grown == NULL) {
      return CT_PATH_NONE;
    }
    paths->paths = grown;
    paths->capacity *= 2;
  }
  path = path != CT_PATH_NONE ? path : paths->count++;
  struct ct_path *above = &paths->paths[parent];
  paths->paths[path] = (struct ct_path){.name = name, .parent = parent, .next = above->first};
  above->first = path;
  paths->live++;
  return add_step(paths, parent, name, path) == 0 ? path : CT_PATH_NONE;
}

uint32_t
ct_paths_next(const struct ct_paths *paths, uint32_t path, bool below)
{
  if (below && paths->paths[path].first != CT_PATH_NONE) {
    return paths->paths[path].first;
  }
  while (path != CT_PATH_TOP && paths->paths[path].next == CT_PATH_NONE) {
    path = paths->paths[path].parent;
  }
  return path != CT_PATH_TOP ? paths->paths[path].next : CT_PATH_NONE;
}

/* All of them with each one after what it hangs below. To be freed; NULL: out of memory. */
static uint32_t *
in_order(const struct ct_paths *paths, uint32_t *count)
{
  uint32_t *order = malloc(((size_t)paths->live + 2) * sizeof(*order));
  uint32_t n = 0;
  for (uint32_t at = CT_PATH_TOP; order != NULL && at != CT_PATH_NONE; at = ct_paths_next(paths, at, true)) {
    order[n++] = at;
  }
  *count = n;
  return order;
}

static void
sum_up(struct ct_paths *paths, const uint32_t *order, uint32_t count)
{
  for (uint32_t i = 0; i < count; i++) {
    struct ct_path *path = &paths->paths[order[i]];
    path->total_ticks = path->self_ticks + path->left_ticks;
    path->total_off_ticks = path->self_off_ticks + path->left_off_ticks;
    path->total_calls = path->calls;
  }
  for (uint32_t i = count; i-- > 1;) {
    const struct ct_path *path = &paths->paths[order[i]];
    struct ct_path *above = &paths->paths[path->parent];
    above->total_ticks += path->total_ticks;
    above->total_off_ticks += path->total_off_ticks;
    above->total_calls += path->total_calls;
  }
}

/* ---- too many of them ---- */

static int
compare_ticks(const void *a, const void *b)
{
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? -1 : x > y;
}

/* Pinned: a call of it, or of something below it, is open. By position; NULL: out of memory. */
static uint8_t *
find_pinned(const struct ct_paths *paths, const uint32_t *order, uint32_t count)
{
  uint8_t *pinned = calloc(paths->count, 1);
  for (uint32_t i = count; pinned != NULL && i-- > 0;) {
    const struct ct_path *path = &paths->paths[order[i]];
    bool is_own = path->name >= CT_PATH_THREAD && path->name != CT_PATH_OTHER; /* no function: there are few */
    pinned[order[i]] |= path->open != 0 || is_own;
    pinned[path->parent] |= pinned[order[i]];
  }
  return pinned;
}

/* So thin are the paths that go: the thinner half of those that can. */
static int
find_threshold(const struct ct_paths *paths, const uint32_t *order, uint32_t count, const uint8_t *pinned,
               uint64_t *threshold)
{
  uint64_t *ticks = malloc((size_t)count * sizeof(*ticks));
  uint32_t n = 0;
  if (ticks == NULL) {
    return CT_ENOMEM;
  }
  for (uint32_t i = 0; i < count; i++) {
    if (!pinned[order[i]] && paths->paths[order[i]].name != CT_PATH_OTHER) {
      ticks[n++] = paths->paths[order[i]].total_ticks;
    }
  }
  qsort(ticks, n, sizeof(*ticks), compare_ticks);
  *threshold = n != 0 ? ticks[n / 2] : 0;
  free(ticks);
  return 0;
}

/* Of each path that goes: what it goes into, the "(other)" of the innermost path around it that stays. */
static int
fold_paths(struct ct_paths *paths, const uint32_t *order, uint32_t count, const uint8_t *pinned, uint64_t threshold)
{
  uint32_t *into = calloc(paths->count, sizeof(*into));
  if (into == NULL) {
    return CT_ENOMEM;
  }
  for (uint32_t i = 1; i < count; i++) {
    struct ct_path *path = &paths->paths[order[i]];
    if (into[path->parent] != CT_PATH_NONE) {
      into[order[i]] = into[path->parent];
    } else if (!pinned[order[i]] && path->total_ticks <= threshold && path->name != CT_PATH_OTHER) {
      into[order[i]] = path->parent; /* for now: it stays itself */
    }
  }
  /* From the innermost on: sums go up to the path that goes as a whole, and from there to its neighbours' "(other)". */
  uint32_t others = CT_PATH_NONE;
  for (uint32_t i = count; i-- > 1;) {
    uint32_t at = order[i];
    struct ct_path gone = paths->paths[at];
    if (into[at] == CT_PATH_NONE) {
      continue;
    }
    uint32_t *link = &paths->paths[gone.parent].first;
    while (*link != at) {
      link = &paths->paths[*link].next;
    }
    *link = gone.next;
    paths->paths[at] = (struct ct_path){.next = others}; /* the list of those that are gone */
    others = at;
    paths->live--;
    uint32_t to = find(paths, into[at], CT_PATH_OTHER)->path;
    if (to == CT_PATH_NONE || paths->paths[to].parent != into[at]) {
      to = make(paths, into[at], CT_PATH_OTHER);
      if (to == CT_PATH_NONE) {
        free(into);
        return CT_ENOMEM;
      }
    }
    struct ct_path *other = &paths->paths[to];
    other->calls += gone.calls;
    other->self_ticks += gone.self_ticks;
    other->self_off_ticks += gone.self_off_ticks;
    other->left_ticks += gone.left_ticks;
    other->left_off_ticks += gone.left_off_ticks;
    other->folded += gone.name == CT_PATH_OTHER ? gone.folded : 1;
    paths->folded += gone.name != CT_PATH_OTHER;
  }
  while (others != CT_PATH_NONE) {
    uint32_t next = paths->paths[others].next;
    paths->paths[others].next = paths->spare;
    paths->spare = others;
    others = next;
  }
  free(into);
  return rehash(paths, paths->step_capacity);
}

static __attribute__((noinline, cold)) int
fold(struct ct_paths *paths)
{
  uint32_t count, before = paths->live;
  uint32_t *order = in_order(paths, &count);
  uint8_t *pinned = NULL;
  uint64_t threshold;
  int code = CT_ENOMEM;
  if (order != NULL) {
    sum_up(paths, order, count);
    pinned = find_pinned(paths, order, count);
  }
  if (pinned != NULL && find_threshold(paths, order, count, pinned, &threshold) == 0) {
    code = fold_paths(paths, order, count, pinned, threshold);
  }
  if (code == 0 && paths->live > before - before / 8) {
    paths->limit += paths->limit / 4 + 1; /* nearly all are open: they cannot go */
  }
  free(order);
  free(pinned);
  return code;
}

uint32_t
ct_paths_step(struct ct_paths *paths, uint32_t parent, uint32_t name)
{
  const struct ct_path_step *step = find(paths, parent, name);
  if (CT_LIKELY(step->path != CT_PATH_NONE)) {
    return step->path;
  }
  if (paths->paths[parent].name == CT_PATH_OTHER) {
    return parent;
  }
  for (uint32_t at = parent; at != CT_PATH_NONE; at = paths->paths[at].parent) {
    if (paths->paths[at].name == name) {
      return add_step(paths, parent, name, at) == 0 ? at : CT_PATH_NONE;
    }
  }
  if (paths->live >= paths->limit) {
    paths->paths[parent].open++; /* it stays */
    int code = fold(paths);
    paths->paths[parent].open--;
    if (code != 0) {
      return CT_PATH_NONE;
    }
  }
  return make(paths, parent, name);
}

/* ---- two trees ---- */

static int
add_label(struct ct_paths *paths, const struct ct_path_label *label)
{
  struct ct_path_label *labels = reallocarray(paths->labels, paths->label_count + 1, sizeof(*labels));
  if (labels == NULL) {
    return CT_ENOMEM;
  }
  paths->labels = labels;
  labels[paths->label_count] = (struct ct_path_label){label->tid, label->pid, strdup(label->name)};
  if (labels[paths->label_count].name == NULL) {
    return CT_ENOMEM;
  }
  paths->label_count++;
  return 0;
}

static void
add_path(struct ct_path *into, const struct ct_path *from)
{
  into->calls += from->calls;
  into->recursive += into->name == from->name ? from->recursive : 0;
  into->self_ticks += from->self_ticks;
  into->self_off_ticks += from->self_off_ticks;
  into->left_ticks += from->left_ticks;
  into->left_off_ticks += from->left_off_ticks;
  into->folded += from->name == CT_PATH_OTHER ? from->folded : 0;
}

/*
 * Down and up through the other tree, and with it through this one. What is above the path at hand is open, so that it
 * stays when paths are folded.
 */
int
ct_paths_merge(struct ct_paths *into, const struct ct_paths *from)
{
  uint32_t first_label = into->label_count, at = from->paths[CT_PATH_TOP].first, to = CT_PATH_TOP;
  for (uint32_t i = 0; i < from->label_count; i++) {
    if (add_label(into, &from->labels[i]) != 0) {
      return CT_ENOMEM;
    }
  }
  uint32_t *above = calloc(from->count, sizeof(*above)); /* of a path that was gone down from: what it is here */
  int code = above != NULL ? 0 : CT_ENOMEM;
  while (code == 0 && at != CT_PATH_NONE) {
    const struct ct_path *path = &from->paths[at];
    bool is_thread = path->name >= CT_PATH_THREAD && path->name < CT_PATH_OTHER;
    to = ct_paths_step(into, to, path->name + (is_thread ? first_label : 0));
    if (to == CT_PATH_NONE) {
      code = CT_ENOMEM;
      break;
    }
    add_path(&into->paths[to], path);
    into->paths[to].open++;
    above[at] = to;
    if (path->first != CT_PATH_NONE) {
      at = path->first;
      continue;
    }
    for (; at != CT_PATH_TOP; at = from->paths[at].parent) {
      into->paths[above[at]].open--;
      if (from->paths[at].next != CT_PATH_NONE) {
        break;
      }
    }
    uint32_t parent = from->paths[at].parent;
    to = parent == CT_PATH_TOP || at == CT_PATH_TOP ? CT_PATH_TOP : above[parent];
    at = at != CT_PATH_TOP ? from->paths[at].next : CT_PATH_NONE;
  }
  free(above);
  into->counted += from->counted;
  into->folded += from->folded;
  return code;
}

/* ---- the pass ---- */

/* The path below which the innermost frame's callee is; CT_PATH_NONE: outside of the selected functions. */
static uint32_t
base_of(struct ct_paths *paths, const struct ct_span_stack *stack, uint32_t frames)
{
  if (frames != 0) {
    return stack->notes[frames - 1].node;
  }
  if (paths->is_selected_only) {
    return CT_PATH_NONE;
  }
  return stack->context == 0 ? paths->top : ct_paths_step(paths, paths->top, CT_PATH_STACKS);
}

int
ct_paths_of_call(struct ct_paths *paths, uint32_t base, uint32_t fn, uint32_t *path)
{
  uint32_t name = ct_view_reading_name(paths->reading, fn);
  *path = CT_PATH_NONE;
  if (name == CT_NO_NAME) {
    return CT_ENOMEM;
  }
  if (base == CT_PATH_NONE && !paths->known[name].is_selected) {
    return 0;
  }
  *path = ct_paths_step(paths, base != CT_PATH_NONE ? base : paths->top, name);
  return *path != CT_PATH_NONE ? 0 : CT_ENOMEM;
}

static int
begin_thread(void *arg, struct ct_trace *trace, uint32_t thread, void **part)
{
  const struct ct_paths *all = arg;
  const struct ct_trace_thread *info = ct_trace_thread(trace, thread);
  struct ct_paths *paths = *part = calloc(1, sizeof(*paths));
  if (paths == NULL) {
    return CT_ENOMEM;
  }
  paths->limit = all->limit;
  paths->is_selected_only = all->is_selected_only;
  paths->is_filtered = all->is_filtered;
  paths->is_limited = all->is_limited;
  paths->trace = trace;
  paths->reading = all->reading;
  paths->known = all->reading->names->names;
  if (ct_paths_init(paths) != 0) {
    return CT_ENOMEM;
  }
  if (!all->per_thread) {
    return 0;
  }
  const struct ct_path_label label = {info->tid, info->pid, (char *)info->name};
  int code = add_label(paths, &label);
  paths->top = code == 0 ? ct_paths_step(paths, CT_PATH_TOP, CT_PATH_THREAD) : CT_PATH_NONE;
  return paths->top != CT_PATH_NONE ? 0 : CT_ENOMEM;
}

static void
free_part(void *part)
{
  ct_paths_destroy(part);
  free(part);
}

static size_t
part_bytes(const void *part)
{
  const struct ct_paths *paths = part;
  return paths->capacity * sizeof(*paths->paths) + paths->step_capacity * sizeof(*paths->steps);
}

static int
merge_part(void *arg, void *part)
{
  return ct_paths_merge(arg, part);
}

static int
entered(void *arg, const struct ct_spans *spans, struct ct_span_stack *stack)
{
  struct ct_paths *paths = arg;
  uint32_t top = stack->count - 1, base = base_of(paths, stack, top), path;
  (void)spans;
  int code = ct_paths_of_call(paths, base, stack->frames[top].fn, &path);
  if (code != 0 || path == CT_PATH_NONE) {
    return code;
  }
  stack->notes[top].node = path;
  stack->notes[top].outer = base != CT_PATH_NONE && paths->paths[path].parent != base; /* it was on the path already */
  paths->paths[path].open++;
  return 0;
}

/* Its call and time are to be summed up. */
static bool
is_summed(struct ct_paths *paths, const struct ct_span *span)
{
  if (!paths->is_filtered && !paths->is_limited) {
    return true;
  }
  bool has_time = span->end < CT_SPAN_ORPHAN;
  uint64_t ns = has_time ? ct_trace_ticks_ns(paths->trace, span->duration_ticks) : 0;
  return (!paths->is_filtered || ct_filter_has_function(paths->reading->chooses, span->fn)) &&
         ct_filter_has_call(paths->reading->chooses, ns, span->depth, span->end);
}

/* A call is left out: it and what is left out inside of it go to the call around it, which may be left out as well. */
static void
leave_out(const struct ct_span_stack *stack, const struct ct_span_call *call)
{
  if (call->note == NULL || stack->count == 0) {
    return;
  }
  struct ct_span_note *around = &stack->notes[stack->count - 1];
  around->left += call->span->self_ticks + call->note->left;
  around->left_off += call->self_off_ticks + call->note->left_off;
}

static int
ended(void *arg, const struct ct_spans *spans, struct ct_span_stack *stack, const struct ct_span_call *call)
{
  struct ct_paths *paths = arg;
  const struct ct_span *span = call->span;
  uint32_t path = CT_PATH_NONE;
  (void)spans;
  if (span->end == CT_SPAN_ORPHAN) {
    return 0;
  }
  bool is_in = is_summed(paths, span);
  if (span->end == CT_SPAN_COUNTED) {
    paths->counted += is_in ? span->duration_ticks : 0;
    return 0;
  }
  if (call->note != NULL) {
    path = call->note->node;
  } else if (ct_paths_of_call(paths, base_of(paths, stack, stack->count), span->fn, &path) != 0) {
    return CT_ENOMEM;
  }
  if (path == CT_PATH_NONE) {
    return 0;
  }
  struct ct_path *node = &paths->paths[path];
  if (call->note != NULL) {
    node->open -= node->open != 0;
  }
  if (!is_in) {
    leave_out(stack, call);
    return 0;
  }
  node->calls += ct_view_calls_of(span);
  if (call->note != NULL) {
    node->recursive += call->note->outer != 0 && node->name != CT_PATH_OTHER ? ct_view_calls_of(span) : 0;
    node->left_ticks += paths->is_limited ? call->note->left : 0;
    node->left_off_ticks += paths->is_limited ? call->note->left_off : 0;
  }
  node->self_ticks += span->end != CT_SPAN_POINT ? span->self_ticks : 0;
  node->self_off_ticks += call->self_off_ticks;
  return 0;
}

/* ---- the end ---- */

static int
compare_paths(const void *a, const void *b, void *arg)
{
  const struct ct_paths *paths = arg;
  const struct ct_path *x = &paths->paths[*(const uint32_t *)a], *y = &paths->paths[*(const uint32_t *)b];
  if (x->total_ticks != y->total_ticks) {
    return x->total_ticks < y->total_ticks ? 1 : -1;
  }
  if (x->total_calls != y->total_calls) {
    return x->total_calls < y->total_calls ? 1 : -1;
  }
  int order = strcmp(ct_paths_name(paths, x->name), ct_paths_name(paths, y->name));
  if (order == 0 && x->name < CT_PATH_THREAD && y->name < CT_PATH_THREAD) {
    order = ct_view_names_compare(&paths->names, x->name, y->name);
  }
  return order != 0 ? order : (x->name > y->name) - (x->name < y->name);
}

/* list: room for all paths. */
static void
sort_children(struct ct_paths *paths, uint32_t path, uint32_t *list)
{
  uint32_t count = 0;
  for (uint32_t at = paths->paths[path].first; at != CT_PATH_NONE; at = paths->paths[at].next) {
    list[count++] = at;
  }
  if (count == 0) {
    return;
  }
  qsort_r(list, count, sizeof(*list), compare_paths, paths);
  paths->paths[path].first = list[0];
  for (uint32_t i = 0; i < count; i++) {
    paths->paths[list[i]].next = i + 1 < count ? list[i + 1] : CT_PATH_NONE;
  }
}

/* Takes away what has neither calls nor times: below such a path there is no other. */
static void
prune(struct ct_paths *paths, const uint32_t *order, uint32_t count)
{
  for (uint32_t i = 0; i < count; i++) {
    uint32_t *link = &paths->paths[order[i]].first;
    while (*link != CT_PATH_NONE) {
      const struct ct_path *path = &paths->paths[*link];
      if (path->total_calls == 0 && path->total_ticks == 0) {
        *link = path->next;
        paths->live--;
      } else {
        link = &paths->paths[*link].next;
      }
    }
  }
}

int
ct_paths_finish(struct ct_paths *paths)
{
  uint32_t count;
  uint32_t *order = in_order(paths, &count), *list = malloc(((size_t)paths->live + 2) * sizeof(*list));
  int code = CT_ENOMEM;
  if (order == NULL || list == NULL) {
    goto free_lists;
  }
  code = 0;
  sum_up(paths, order, count);
  if (paths->is_limited) {
    prune(paths, order, count);
  }
  for (uint32_t i = 0; i < count; i++) {
    sort_children(paths, order[i], list);
  }
free_lists:
  free(order);
  free(list);
  return code;
}

static int
add_gap(struct ct_paths *paths, uint64_t ticks)
{
  uint32_t gap = ct_paths_step(paths, CT_PATH_TOP, CT_PATH_LOST);
  if (gap == CT_PATH_NONE) {
    return CT_ENOMEM;
  }
  paths->paths[gap].self_ticks = ticks;
  return 0;
}

int
ct_paths_collect(struct ct_paths *paths, struct ct_view_reading *reading, struct ct_diag *diag)
{
  const struct ct_span_observer observer = {.entered = entered, .ended = ended};
  paths->reading = reading;
  if (ct_paths_init(paths) != 0) {
    return ct_fail(diag, CT_ENOMEM, "out of memory for the paths of calls");
  }
  reading->names = &paths->names;
  reading->arg = paths;
  reading->begin_thread = begin_thread;
  reading->merge = merge_part;
  reading->free_part = free_part;
  reading->part_bytes = part_bytes;
  reading->observer = &observer;
  reading->take_tree = ct_paths_take_tree;
  reading->take_sums = ct_paths_take_sums;
  reading->passes_over = paths->is_selected_only && !paths->is_limited && !paths->is_filtered;
  int code = ct_view_read(reading, diag);
  reading->observer = NULL;
  const struct ct_filter *filter = reading->filter;
  bool is_whole =
      !paths->is_limited && (!paths->is_filtered || (filter->function == NULL && filter->module == NULL &&
                                                     filter->file == NULL && !ct_filter_limits_calls(filter)));
  if (code == 0 && reading->gap_ticks != 0 && !paths->is_selected_only && is_whole) {
    code = add_gap(paths, reading->gap_ticks);
  }
  if (code == 0 && ct_paths_finish(paths) != 0) {
    code = ct_fail(diag, CT_ENOMEM, "out of memory for the paths of calls");
  }
  return code;
}

void
ct_paths_destroy(struct ct_paths *paths)
{
  ct_view_names_destroy(&paths->names);
  for (uint32_t i = 0; i < paths->label_count; i++) {
    free(paths->labels[i].name);
  }
  free(paths->labels);
  free(paths->paths);
  free(paths->steps);
  *paths = (struct ct_paths){0};
}
