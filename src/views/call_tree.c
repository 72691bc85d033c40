/* SPDX-License-Identifier: MIT */
/* See call_tree.h. */
#include "views/call_tree.h"

#include <stdlib.h>
#include <string.h>

static void free_entry(struct ct_call_trees *trees, struct ct_entry *entry);

static void
free_inside(struct ct_call_trees *trees, struct ct_entry *entry)
{
  for (uint32_t i = 0; i < entry->entry_count; i++) {
    free_entry(trees, entry->entries[i]);
  }
  free(entry->entries);
  entry->entries = NULL;
  entry->entry_count = entry->entry_capacity = 0;
}

/* No deeper than CT_TREE_LEVELS_MAX. */
static void
free_entry(struct ct_call_trees *trees, struct ct_entry *entry)
{
  if (entry != NULL) {
    free_inside(trees, entry);
    free_entry(trees, entry->slowest);
    free(entry->text);
    free(entry->result);
    entry->slowest = trees->spare; /* most live as long as a call does, and the next one takes their place */
    trees->spare = entry;
    trees->entry_count--;
  }
}

static struct ct_entry *
new_entry(struct ct_call_trees *trees, const struct ct_entry *entry)
{
  struct ct_entry *copy = trees->spare;
  if (copy != NULL) {
    trees->spare = copy->slowest;
  } else {
    copy = malloc(sizeof(*copy));
  }
  if (copy != NULL) {
    *copy = *entry;
    trees->entry_count++;
  }
  return copy;
}

/* ---- an entry more ---- */

static bool
is_alike(const struct ct_entry *a, const struct ct_entry *b)
{
  return a->kind == b->kind && a->fn == b->fn && (a->kind != CT_ENTRY_AWAY || a->end == b->end);
}

static void
add_to_repetition(struct ct_call_trees *trees, struct ct_entry *group, struct ct_entry *entry)
{
  group->count += entry->count;
  group->ticks += entry->ticks;
  group->off_ticks += entry->off_ticks;
  group->inside += entry->inside;
  if (entry->kind == CT_ENTRY_CALL && (group->slowest == NULL || entry->ticks > group->slowest->ticks)) {
    free_entry(trees, group->slowest);
    group->slowest = entry;
    group->max_ticks = entry->ticks;
    return;
  }
  group->max_ticks = entry->ticks > group->max_ticks ? entry->ticks : group->max_ticks;
  free_entry(trees, entry);
}

/* The entries like this one become one, in the place of the first. */
static int
make_repetition(struct ct_call_trees *trees, struct ct_entry *above, const struct ct_entry *like)
{
  struct ct_entry empty = {.kind = like->kind, .end = like->end, .fn = like->fn}, *group = new_entry(trees, &empty);
  uint32_t kept = 0;
  bool placed = false;
  if (group == NULL) {
    return CT_ENOMEM;
  }
  for (uint32_t i = 0; i < above->entry_count; i++) {
    struct ct_entry *entry = above->entries[i];
    if (!is_alike(entry, like)) {
      above->entries[kept++] = entry;
      continue;
    }
    group->tsc = placed ? group->tsc : entry->tsc;
    if (!placed) {
      above->entries[kept++] = group;
      placed = true;
    }
    add_to_repetition(trees, group, entry);
  }
  above->entry_count = kept;
  return 0;
}

/* Takes the entry over. */
static int
append(struct ct_call_trees *trees, struct ct_entry *above, struct ct_entry *entry)
{
  uint32_t alike = 0, last = 0;
  for (uint32_t i = above->entry_count; i-- > 0;) {
    if (is_alike(above->entries[i], entry)) {
      last = i;
      alike++;
      if (above->entries[i]->count > 1 || alike == CT_TREE_REPEATS) {
        break;
      }
    }
  }
  if (alike != 0 && above->entries[last]->count > 1) {
    add_to_repetition(trees, above->entries[last], entry);
    return 0;
  }
  if (above->entry_count == above->entry_capacity) {
    uint32_t capacity = above->entry_capacity == 0 ? 4 : above->entry_capacity * 2;
    struct ct_entry **entries = reallocarray(above->entries, capacity, sizeof(*entries));
    if (entries == NULL) {
      free_entry(trees, entry);
      return CT_ENOMEM;
    }
    above->entries = entries;
    above->entry_capacity = capacity;
  }
  above->entries[above->entry_count++] = entry;
  return alike == CT_TREE_REPEATS ? make_repetition(trees, above, entry) : 0;
}

/* ---- lines ---- */

/* Where to look first for a number. */
static size_t
slot_of(const struct ct_call_trees *trees, uint64_t number)
{
  return (size_t)(number * UINT64_C(0x9E3779B97F4A7C15) >> 32) & (trees->slot_count - 1);
}

static void
note_root(const struct ct_call_trees *trees, uint32_t *slots, uint64_t number, size_t root)
{
  size_t at = slot_of(trees, number);
  while (slots[at] != 0) {
    at = (at + 1) & (trees->slot_count - 1);
  }
  slots[at] = (uint32_t)root + 1;
}

/* For each call it is asked whether it is a root: by their ordinals, and by their ids. */
static int
note_roots(struct ct_call_trees *trees)
{
  for (trees->slot_count = 64; trees->slot_count < trees->root_count * 8; trees->slot_count *= 2) {
  }
  trees->by_ordinal = calloc(trees->slot_count, sizeof(*trees->by_ordinal));
  trees->by_id = calloc(trees->slot_count, sizeof(*trees->by_id));
  if (trees->by_ordinal == NULL || trees->by_id == NULL) {
    return CT_ENOMEM;
  }
  for (size_t i = 0; i < trees->root_count; i++) {
    note_root(trees, trees->by_ordinal, trees->roots[i].ordinal, i);
    note_root(trees, trees->by_id, trees->roots[i].id, i);
  }
  return 0;
}

static size_t
root_of(const struct ct_call_trees *trees, uint32_t thread, uint64_t ordinal)
{
  for (size_t at = slot_of(trees, ordinal); trees->by_ordinal[at] != 0; at = (at + 1) & (trees->slot_count - 1)) {
    const struct ct_tree_root *root = &trees->roots[trees->by_ordinal[at] - 1];
    if (root->thread == thread && root->ordinal == ordinal) {
      return trees->by_ordinal[at] - 1;
    }
  }
  return SIZE_MAX;
}

static size_t
root_of_id(const struct ct_call_trees *trees, uint64_t id)
{
  for (size_t at = slot_of(trees, id); trees->by_id[at] != 0; at = (at + 1) & (trees->slot_count - 1)) {
    if (trees->roots[trees->by_id[at] - 1].id == id) {
      return trees->by_id[at] - 1;
    }
  }
  return SIZE_MAX;
}

/* NULL: no selected call is open on it. */
static struct ct_tree_stack *
stack_of(const struct ct_call_trees *trees, uint32_t thread, uint64_t context)
{
  for (size_t i = 0; i < trees->stack_count; i++) {
    if (trees->stacks[i].thread == thread && trees->stacks[i].context == context && trees->stacks[i].count != 0) {
      return &trees->stacks[i];
    }
  }
  return NULL;
}

static struct ct_tree_stack *
make_stack(struct ct_call_trees *trees, uint32_t thread, uint64_t context, size_t root)
{
  size_t at = 0;
  while (at < trees->stack_count && trees->stacks[at].count != 0) {
    at++;
  }
  if (at == trees->stack_count) {
    struct ct_tree_stack *stacks = reallocarray(trees->stacks, at + 1, sizeof(*stacks));
    if (stacks == NULL) {
      return NULL;
    }
    trees->stacks = stacks;
    stacks[trees->stack_count++] = (struct ct_tree_stack){0};
  }
  struct ct_tree_stack *stack = &trees->stacks[at];
  stack->thread = thread;
  stack->context = context;
  stack->root = root;
  return stack;
}

static int
push(struct ct_call_trees *trees, const struct lane *lane, const struct ct_line *line)
{
  struct ct_tree_stack *stack = stack_of(trees, lane->thread, line->context);
  size_t root = root_of_id(trees, line->id);
  if (stack == NULL && root == SIZE_MAX) {
    return 0; /* what a selected call has ended with: a tail call */
  }
  if (stack == NULL && (stack = make_stack(trees, lane->thread, line->context, root)) == NULL) {
    return CT_ENOMEM;
  }
  if (stack->count == stack->capacity) {
    uint32_t capacity = stack->capacity == 0 ? 16 : stack->capacity * 2;
    struct ct_entry **open = reallocarray(stack->open, capacity, sizeof(*open));
    if (open == NULL) {
      return CT_ENOMEM;
    }
    stack->open = open;
    stack->capacity = capacity;
  }
  struct ct_entry call = {.kind = CT_ENTRY_CALL,
                          .fn = line->label->fn,
                          .depth = line->depth,
                          .id = line->id,
                          .parent = line->parent,
                          .tsc = line->tsc,
                          .count = 1,
                          .before = line->before_trace,
                          .off_since = lane->clock.off};
  struct ct_entry *entry = new_entry(trees, &call);
  if (entry == NULL) {
    return CT_ENOMEM;
  }
  stack->open[stack->count++] = entry;
  if (root != SIZE_MAX && stack->count > 1) {
    trees->roots[root].inside_of = stack->root;
    trees->seen++;
  }
  if (line->detail != NULL) {
    entry->text = ct_lines_call_text(&trees->writer, line);
    return entry->text != NULL ? 0 : CT_ENOMEM;
  }
  return 0;
}

/* The call has ended: it goes to where it belongs. */
static int
place(struct ct_call_trees *trees, struct ct_tree_stack *stack, struct ct_entry *entry)
{
  if (stack->count == 0) {
    trees->roots[stack->root].call = entry;
    trees->seen++;
    return 0;
  }
  struct ct_entry *above = stack->open[stack->count - 1];
  uint32_t levels = trees->levels != 0 && trees->levels < CT_TREE_LEVELS_MAX ? trees->levels : CT_TREE_LEVELS_MAX;
  above->inside += entry->inside + 1;
  if (stack->count >= levels || entry->ticks < trees->min_ticks || entry->ticks < trees->roots[stack->root].min_ticks) {
    above->hidden_calls += entry->inside + 1;
    above->hidden_ticks += entry->ticks;
    free_entry(trees, entry);
    return 0;
  }
  if (trees->entry_count > CT_TREE_ENTRIES_MAX && entry->entry_count != 0) {
    entry->hidden_calls = entry->inside;
    for (uint32_t i = 0; i < entry->entry_count; i++) {
      entry->hidden_ticks += entry->entries[i]->kind == CT_ENTRY_CALL ? entry->entries[i]->ticks : 0;
    }
    free_inside(trees, entry);
  }
  return append(trees, above, entry);
}

static int
pop(struct ct_call_trees *trees, const struct lane *lane, const struct ct_line *line, uint8_t end)
{
  struct ct_tree_stack *stack = stack_of(trees, lane->thread, line->context);
  if (stack == NULL || stack->open[stack->count - 1]->depth != line->depth) {
    return 0;
  }
  struct ct_entry *entry = stack->open[--stack->count];
  entry->ticks = entry->max_ticks = line->ticks;
  entry->off_ticks = lane->clock.off - entry->off_since;
  entry->end = end;
  entry->uncertain = line->uncertain;
  if (line->detail != NULL && line->kind == CT_LINE_CLOSE) {
    entry->result = ct_lines_call_text(&trees->writer, line);
    if (entry->result == NULL) {
      free_entry(trees, entry);
      return CT_ENOMEM;
    }
  }
  return place(trees, stack, entry);
}

/* Something that is no call with an end, inside of the innermost one. */
static int
add_other(struct ct_call_trees *trees, const struct lane *lane, const struct ct_line *line, enum ct_entry_kind kind)
{
  struct ct_tree_stack *stack = stack_of(trees, lane->thread, line->context);
  if (stack == NULL) {
    return 0;
  }
  struct ct_entry other = {.kind = (uint8_t)kind,
                           .end = line->end,
                           .fn = line->label != NULL ? line->label->fn : UINT32_MAX,
                           .tsc = line->tsc - (line->ticks < line->tsc ? line->ticks : 0), /* it has ended then */
                           .ticks = line->ticks,
                           .max_ticks = line->ticks,
                           .count = kind == CT_ENTRY_POINT || kind == CT_ENTRY_LOST ? line->value : 1};
  struct ct_entry *above = stack->open[stack->count - 1];
  above->inside += kind == CT_ENTRY_POINT ? other.count : 0;
  if (kind == CT_ENTRY_POINT && (trees->min_ticks != 0 || trees->roots[stack->root].min_ticks != 0 ||
                                 (trees->levels != 0 && stack->count >= trees->levels))) {
    above->hidden_calls += other.count;
    return 0;
  }
  struct ct_entry *entry = new_entry(trees, &other);
  return entry != NULL ? append(trees, above, entry) : CT_ENOMEM;
}

/* The thread has left a stack, or is back on it. */
static int
note_switch(struct ct_call_trees *trees, const struct lane *lane, const struct ct_line *line)
{
  uint64_t now = lane->clock.now;
  for (size_t i = 0; i < trees->stack_count; i++) {
    struct ct_tree_stack *stack = &trees->stacks[i];
    if (stack->thread != lane->thread || stack->count == 0) {
      continue;
    }
    struct ct_entry *top = stack->open[stack->count - 1];
    if (stack->context != line->value) {
      top->away_since = top->away_since != 0 ? top->away_since : now;
    } else if (top->away_since != 0) {
      struct ct_line back = *line;
      back.ticks = now - top->away_since;
      back.context = stack->context;
      top->away_since = 0;
      int code = add_other(trees, lane, &back, CT_ENTRY_STACK);
      if (code != 0) {
        return code;
      }
    }
  }
  return 0;
}

static int
take_line(void *arg, const struct lane *lane, const struct ct_line *line)
{
  struct ct_call_trees *trees = arg;
  int code = 0;
  switch (line->kind) {
  case CT_LINE_OPEN:
    return push(trees, lane, line);
  case CT_LINE_CLOSE:
    return pop(trees, lane, line, line->end);
  case CT_LINE_TAIL:
    code = line->other != NULL ? pop(trees, lane, line, CT_SPAN_TAIL) : 0;
    return code == 0 ? push(trees, lane, line) : code;
  case CT_LINE_POINT:
    return add_other(trees, lane, line, CT_ENTRY_POINT);
  case CT_LINE_AWAY:
    return line->end == CT_AWAY_SOME ? 0 : add_other(trees, lane, line, CT_ENTRY_AWAY);
  case CT_LINE_LOST:
    return add_other(trees, lane, line, CT_ENTRY_LOST);
  case CT_LINE_SWITCH:
    return note_switch(trees, lane, line);
  default:
    return 0;
  }
}

static bool
wants(void *arg, uint32_t thread, uint64_t ordinal)
{
  return ordinal != CT_NO_ORDINAL && root_of(arg, thread, ordinal) != SIZE_MAX;
}

static void
set_clock(void *arg, uint32_t thread, uint64_t ordinal, struct ct_span_clock *clock)
{
  const struct ct_call_trees *trees = arg;
  size_t root = ordinal != CT_NO_ORDINAL ? root_of(trees, thread, ordinal) : SIZE_MAX;
  if (root != SIZE_MAX && trees->roots[root].clock != NULL) {
    *clock = *trees->roots[root].clock;
  }
}

static bool
is_done(void *arg)
{
  const struct ct_call_trees *trees = arg;
  return trees->seen == trees->root_count;
}

int
ct_call_trees_sink(struct ct_call_trees *trees, struct replay_sink *sink)
{
  if (note_roots(trees) != 0) {
    return CT_ENOMEM;
  }
  *sink =
      (struct replay_sink){.wants = wants, .line = take_line, .set_clock = set_clock, .is_done = is_done, .arg = trees};
  return 0;
}

void
ct_call_trees_destroy(struct ct_call_trees *trees)
{
  for (size_t i = 0; i < trees->stack_count; i++) {
    for (uint32_t n = 0; n < trees->stacks[i].count; n++) {
      free_entry(trees, trees->stacks[i].open[n]);
    }
    free(trees->stacks[i].open);
  }
  for (size_t i = 0; i < trees->root_count; i++) {
    free_entry(trees, trees->roots[i].call);
  }
  for (struct ct_entry *entry = trees->spare, *next; entry != NULL; entry = next) {
    next = entry->slowest;
    free(entry);
  }
  free(trees->by_ordinal);
  free(trees->by_id);
  free(trees->stacks);
  ct_lines_destroy(&trees->writer);
}
