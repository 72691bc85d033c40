/* SPDX-License-Identifier: MIT */
/*
 * What replay need not read, by the index. Where only the calls of some functions are shown, with what is inside of
 * them (--function), or these alone (--module, --file), granules in which there is none of that are passed over. A line
 * that is shown whatever is asked for (losses, execs, the sampling) makes a granule wanted like a call does.
 *
 * Wanted are all granules from the one where a call of these functions begins to the one where it ends. So where a lane
 * lands after some that were passed over, no such call is open: the frames that are, are shown nowhere, and serve for
 * depths and reasons. What a selected function has tail-called goes on in its place, whatever function it is: as long
 * as a frame is open that was selected, nothing is passed over.
 *
 * Where only ends of long calls are shown (--min-duration), or of those that are not over (--reason), or losses, output
 * and the crash (--type), whatever function they are of, granules with one of these are wanted, and no others. A call
 * may be open then that is shown when it ends: the frames of a lane that lands are looked at like ones that are
 * entered. The last granule is always wanted: what is open at a lane's end is shown, and it is not what is open at the
 * end of the last granule that is wanted, where events were lost and with them the calls that are open all the time.
 *
 * The last event before is taken when the next one is known, and put into effect after that: the stacks become those
 * of the new place only when its first event is taken (replay_land).
 *
 * A piece of a trace that begins later has a clock of its own, which the index does not know: it is read as a whole.
 */
#include "views/replay_internal.h"

#include "index/index.h"
#include "views/pattern.h"

#include <stdlib.h>

/* Ends that are not in every granule, or no calls at all, and of whatever function. */
static bool
is_about_rare(const struct replay *r)
{
  const struct ct_filter *filter = r->options->filter;
  uint32_t unfinished = 0;
  for (unsigned end = 0; end < CT_SPAN_ENDS; end++) {
    unfinished |= ct_span_is_unfinished(end) ? 1u << end : 0;
  }
  bool has_calls = filter->types == 0 || (filter->types & ~(CT_FILTER_LOST | CT_FILTER_OUTPUT | CT_FILTER_CRASH)) != 0;
  bool has_ends = filter->min_ns != 0 || (filter->reasons != 0 && (filter->reasons & ~unfinished) == 0);
  return filter->function == NULL && (has_ends || !has_calls);
}

static bool
is_possible(const struct replay *r)
{
  const struct ct_filter *filter = r->options->filter;
  uint64_t from = 0, to = 0;
  bool begins_late = ct_trace_range(r->trace, &from, &to) && from != 0;
  bool has_functions = filter->function != NULL || filter->module != NULL || filter->file != NULL;
  return r->sink == NULL && (has_functions || is_about_rare(r)) && r->options->time == CT_TIME_WALL && !begins_late &&
         !ct_trace_is_atf(r->trace) && ct_trace_is_complete(r->trace) && ct_trace_missing_events(r->trace) == 0;
}

static bool
has_damage(const struct replay *r, const struct ct_index *index)
{
  for (uint32_t i = 0; i < ct_trace_thread_count(r->trace); i++) {
    struct ct_index_thread_sums sums;
    ct_index_thread_sums(index, i, &sums);
    if (sums.is_damaged) {
      return true;
    }
  }
  return false;
}

/* A byte for each function: its calls have lines, or make that others have. Of those that were called; ids that the
 * trace does not know are the last one. NULL: no memory. */
static uint8_t *
choose_functions(const struct replay *r, const struct ct_index *index, struct ct_view_pattern *pattern)
{
  const struct ct_filter *filter = r->options->filter;
  const struct ct_stats *stats = ct_index_stats(index);
  uint8_t *functions = calloc((size_t)stats->fn_count + 1, 1);
  for (uint32_t i = 0; functions != NULL && i < stats->touched_count; i++) {
    uint32_t fn = stats->touched[i];
    const struct ct_trace_function *function = fn < stats->fn_count ? ct_trace_function(r->trace, fn) : NULL;
    functions[fn] = filter->function != NULL ? ct_view_pattern_has_function(pattern, function)
                                             : ct_view_pattern_has_place(pattern, function);
  }
  return functions;
}

int
replay_index_open(struct replay *r, struct ct_view_pattern *pattern, struct ct_diag *diag)
{
  struct ct_index *index;
  if (!is_possible(r)) {
    return 0;
  }
  int code = ct_index_open_whole(r->trace, &index, diag);
  if (code != 0) {
    return code == CT_ENOENT ? 0 : code;
  }
  if (has_damage(r, index)) {
    ct_index_close(index);
    return 0;
  }
  r->index = index;
  if (is_about_rare(r)) {
    return 0;
  }
  r->index_functions = choose_functions(r, index, pattern);
  return r->index_functions != NULL ? 0 : ct_fail(diag, CT_ENOMEM, "out of memory for the functions of the trace");
}

void
replay_index_close(struct replay *r)
{
  for (size_t i = 0; r->lanes != NULL && i < r->lane_count; i++) {
    free(r->lanes[i].wanted);
  }
  ct_index_close(r->index);
  free(r->index_functions);
}

/* The granule that follows is this one. */
static void
expect(const struct replay *r, struct lane *lane, size_t granule)
{
  struct ct_index_place place = {.offset = UINT64_MAX};
  if (granule < lane->granule_count) {
    ct_index_place(r->index, lane->thread, granule, &place);
  }
  lane->next_granule = granule;
  lane->next_offset = place.offset;
}

static int
compare_moments(const void *a, const void *b)
{
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

/* When the thread wrote something, and the signal came that ended the program. To be freed; NULL: no memory. */
static uint64_t *
moments_of(const struct replay *r, const struct lane *lane, size_t *count)
{
  size_t n = lane->crash_tsc != 0;
  for (size_t i = lane->capture; i != NO_CAPTURE; i = r->next_capture[i]) {
    n++;
  }
  uint64_t *moments = malloc((n + 1) * sizeof(*moments));
  if (moments == NULL) {
    return NULL;
  }
  *count = n;
  if (lane->crash_tsc != 0) {
    moments[--n] = lane->crash_tsc;
  }
  for (size_t i = lane->capture; i != NO_CAPTURE; i = r->next_capture[i]) {
    moments[--n] = r->captures.items[i].tsc;
  }
  if (*count != 0) {
    qsort(moments, *count, sizeof(*moments), compare_moments);
  }
  return moments;
}

static int
look_for_rare(const struct replay *r, struct lane *lane)
{
  const struct ct_filter *filter = r->options->filter;
  struct ct_granules_asked asked = {.least_ns = filter->min_ns,
                                    .unfinished = filter->min_ns == 0 && filter->reasons != 0};
  uint64_t *moments = NULL;
  if (!replay_is_about_ends(r)) {
    asked.marks = (filter->types & CT_FILTER_LOST) != 0;
    asked.moments = moments = moments_of(r, lane, &asked.moment_count);
    if (moments == NULL) {
      return CT_ENOMEM;
    }
  }
  int code = ct_index_granules_with(r->index, lane->thread, &asked, &lane->wanted, &lane->granule_count);
  free(moments);
  if (code == 0 && lane->granule_count != 0) {
    lane->wanted[lane->granule_count - 1] = 1;
  }
  return code;
}

int
replay_index_lane(const struct replay *r, struct lane *lane, struct ct_diag *diag)
{
  if (r->index == NULL) {
    return 0;
  }
  int code = r->index_functions == NULL ? look_for_rare(r, lane)
                                        : ct_index_granules_of(r->index, lane->thread, r->index_functions,
                                                               &lane->wanted, &lane->granule_count);
  if (code != 0) {
    return ct_fail(diag, code, "%s",
                   code == CT_ENOMEM ? "out of memory for the threads of the trace"
                                     : "the index of the trace makes no sense: remove its spans.cti");
  }
  return 0;
}

void
replay_index_begin(const struct replay *r, struct lane *lane)
{
  lane->lands = false;
  if (lane->wanted != NULL) {
    expect(r, lane, 0);
  }
}

/* Frames that were selected hand that on to what is inside of them: one look at the innermost one says. */
static int
look_for_selected(struct ct_span_stack *stack, void *arg)
{
  const struct ct_span_frame *top = ct_span_stack_top(stack);
  *(bool *)arg |= top != NULL && (top->flags & REPLAY_SELECTED) != 0;
  return 0;
}

static bool
is_inside_selected(const struct replay *r, const struct lane *lane)
{
  bool found = false;
  struct ct_span_stacks stacks = lane->stacks;
  if (r->options->filter->function == NULL || stacks.current == NULL) {
    return false;
  }
  ct_span_stacks_each(&stacks, look_for_selected, &found);
  return found;
}

void
replay_pass_over(struct replay *r, struct lane *lane)
{
  uint64_t offset = ct_cursor_block_offset(lane->cursor);
  if (lane->count == 0 || offset < lane->next_offset) {
    return;
  }
  size_t granule = lane->next_granule;
  for (expect(r, lane, granule + 1); offset >= lane->next_offset; expect(r, lane, granule + 1)) {
    granule++;
  }
  if (lane->wanted[granule] != 0 || is_inside_selected(r, lane)) {
    return;
  }
  while (granule < lane->granule_count && lane->wanted[granule] == 0) {
    granule++;
  }
  lane->count = 0; /* the end, as it seems */
  if (granule == lane->granule_count) {
    return;
  }
  struct ct_index_place place;
  ct_index_place(r->index, lane->thread, granule, &place);
  if (ct_cursor_seek(lane->cursor, place.offset) == 0) {
    ct_cursor_set_ordinal(lane->cursor, place.first_ordinal);
    lane->count = ct_cursor_next(lane->cursor, &lane->events);
    lane->lands = lane->count != 0;
    lane->landing = granule;
    expect(r, lane, granule + 1);
  }
}

struct landing {
  struct replay *r;
  const struct lane *lane;
};

/* Where functions are asked for, none of the open frames was selected, or is inside of one that was. */
static int
classify_again(struct ct_span_stack *stack, void *arg)
{
  const struct landing *landing = arg;
  struct replay *r = landing->r;
  bool has_function = r->options->filter->function != NULL;
  for (uint32_t i = 0; i < stack->count; i++) {
    struct ct_span_frame *frame = &stack->frames[i];
    uint32_t flags = ((frame->flags & CT_SPAN_BEFORE) != 0 ? REPLAY_BEFORE : 0u) |
                     ((frame->flags & CT_SPAN_UNCERTAIN) != 0 ? REPLAY_UNCERTAIN : 0u);
    frame->level = 0;
    frame->below = has_function ? 0 : stack->base + i;
    frame->flags = has_function ? 0 : REPLAY_SELECTED;
    if (r->index_functions == NULL) {
      const struct ct_label *label = ct_label_of(&r->labels, frame->fn);
      if (label == NULL) {
        return CT_ENOMEM;
      }
      replay_classify(r, landing->lane, frame, i > 0 ? frame - 1 : NULL, label, stack->base + i);
    }
    frame->flags |= flags;
  }
  return 0;
}

void
replay_fill(struct lane *lane, struct ct_event *event)
{
  const struct ct_span_stack *stack = lane->stacks.current;
  bool is_tail = event->kind == CT_EV_TAIL;
  uint32_t *fn = is_tail ? &event->closed_fn : &event->fn;
  if ((event->kind == CT_EV_RETURN || event->kind == CT_EV_UNWOUND || is_tail) && *fn == UINT32_MAX &&
      stack->count != 0 && stack->base + stack->count == event->depth + 1) {
    const struct ct_span_frame *frame = &stack->frames[stack->count - 1];
    *fn = frame->fn;
    event->enter_tsc = frame->enter_tsc;
    event->uncertain = (frame->flags & REPLAY_UNCERTAIN) != 0;
  }
}

int
replay_land(struct replay *r, struct lane *lane)
{
  struct ct_index_place place;
  struct landing landing = {r, lane};
  ct_index_place(r->index, lane->thread, lane->landing, &place);
  int code = ct_span_state_take(place.state, place.state_bytes, &lane->stacks, &lane->clock);
  if (code != 0) {
    return code;
  }
  lane->lands = false;
  lane->has_landed = true;
  lane->result_count = 0;
  lane->context = lane->stacks.current->context;
  if (lane->details != NULL) {
    ct_details_pass(lane->details, lane->events[lane->pos].tsc);
  }
  return ct_span_stacks_each(&lane->stacks, classify_again, &landing);
}
