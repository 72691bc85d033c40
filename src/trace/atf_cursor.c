/* SPDX-License-Identifier: MIT */
/*
 * The events of an index.atf as events of a cursor. Calls open frames, returns close them, exceptions leave them; depth
 * decides where an event does not fit what is open: frames deeper than a call end without their return having been
 * seen, a return that has no frame is an orphan, and what is known of a stack begins anew at a call that is deeper than
 * what is open. Time that runs backwards is taken as the time before. The first event that is none (its kind, its
 * depth) ends the thread's stream: what comes before holds.
 */
#include "trace/atf_internal.h"

#include "base/crc32.h"
#include "base/file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the file ---- */

static bool
head_ok(const struct ct_atf_index_header *header)
{
  return header->head.magic == CT_ATF_INDEX_MAGIC && header->head.endian == CT_ATF_LITTLE_ENDIAN &&
         header->head.version == CT_ATF_FILE_VERSION && header->event_bytes == sizeof(struct ct_atf_event);
}

void
ct_atf_index_look(struct ct_atf_index *index)
{
  struct stat file;
  struct ct_atf_index_footer *footer = &index->footer;
  uint64_t head = sizeof(index->header), size;
  index->events = 0;
  index->has_footer = index->is_damaged = false;
  if (index->fd < 0 || fstat(index->fd, &file) != 0 || file.st_size < (off_t)head) {
    index->is_damaged = true;
    return;
  }
  index->file_bytes = size = (uint64_t)file.st_size;
  if (ct_read_at(index->fd, &index->header, sizeof(index->header), 0) != head || !head_ok(&index->header)) {
    index->is_damaged = true;
    return;
  }
  bool has_one = size >= head + sizeof(*footer) &&
                 ct_read_at(index->fd, footer, sizeof(*footer), size - sizeof(*footer)) == sizeof(*footer) &&
                 footer->magic == CT_ATF_INDEX_FOOTER_MAGIC;
  uint64_t bytes = size - head - (has_one ? sizeof(*footer) : 0);
  index->events = bytes / sizeof(struct ct_atf_event);
  index->has_footer = has_one && footer->event_bytes == bytes && footer->event_count == index->events &&
                      bytes % sizeof(struct ct_atf_event) == 0;
  index->is_damaged = !index->has_footer;
}

void
ct_atf_index_open(const struct ct_trace *trace, uint32_t thread, struct ct_atf_index *out)
{
  char name[64];
  struct stat file;
  snprintf(name, sizeof(name), CT_TRACE_THREAD_DIR "%u/" CT_ATF_INDEX, thread);
  *out = (struct ct_atf_index){.fd = openat(trace->dir_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (out->fd >= 0 && (fstat(out->fd, &file) != 0 || !S_ISREG(file.st_mode))) {
    ct_atf_index_close(out);
  }
  ct_atf_index_look(out);
}

void
ct_atf_index_close(struct ct_atf_index *index)
{
  if (index->fd >= 0) {
    close(index->fd);
  }
  index->fd = -1;
}

/* ---- the buffer ---- */

int
ct_atf_source_open(struct ct_cursor *c)
{
  struct ct_atf_source *source = calloc(1, sizeof(*source));
  if (source == NULL || !ct_frame_stack_reserve(&c->stack, CT_BATCH_EVENTS)) {
    free(source);
    return CT_ENOMEM;
  }
  memset(source->cached_function, 0xff, sizeof(source->cached_function));
  for (size_t i = 0; i < ATF_FUNCTION_CACHE; i++) {
    source->cached[i] = c->trace->atf->function_count;
  }
  source->index.fd = -1;
  source->in_order = true;
  c->atf = source;
  return CT_OK;
}

void
ct_atf_source_close(struct ct_atf_source *source)
{
  if (source != NULL) {
    ct_atf_index_close(&source->index);
    free(source);
  }
}

/* The file, opened for as long as this takes or, when there are not too many, for good. */
static bool
file_borrow(struct ct_cursor *c)
{
  struct ct_atf_source *source = c->atf;
  if (source->index.fd >= 0) {
    return true;
  }
  ct_atf_index_open(c->trace, c->thread, &source->index);
  pthread_mutex_lock(&c->trace->lock);
  if (source->index.fd >= 0 && c->trace->open_files < c->trace->open_files_max) {
    c->trace->open_files++;
    c->keeps_file = true;
  }
  pthread_mutex_unlock(&c->trace->lock);
  return source->index.fd >= 0;
}

static void
file_give_back(struct ct_cursor *c)
{
  if (!c->keeps_file) {
    ct_atf_index_close(&c->atf->index);
  }
}

/* Events into the empty buffer; false: there are none. */
static bool
fill(struct ct_cursor *c)
{
  struct ct_atf_source *source = c->atf;
  struct ct_atf_index *index = &source->index;
  if (!file_borrow(c)) {
    c->state = CT_CURSOR_DAMAGED;
    return false;
  }
  if (source->next >= index->events) {
    ct_atf_index_look(index); /* a recording that is under way has written more */
  }
  uint64_t left = source->next < index->events ? index->events - source->next : 0;
  size_t wanted = left < CT_BATCH_EVENTS ? (size_t)left : CT_BATCH_EVENTS;
  size_t got = ct_read_at(index->fd, source->buffer, wanted * sizeof(struct ct_atf_event),
                          sizeof(index->header) + source->next * sizeof(struct ct_atf_event)) /
               sizeof(struct ct_atf_event);
  source->crc = ct_crc32(source->crc, source->buffer, got * sizeof(struct ct_atf_event));
  source->at = 0;
  source->end = got;
  source->next += got;
  if (got == 0) {
    bool is_right = !index->is_damaged && (!source->in_order || source->crc == index->footer.crc);
    c->state = is_right ? CT_CURSOR_END : CT_CURSOR_DAMAGED;
  }
  file_give_back(c);
  return got != 0;
}

static uint32_t
function_of(struct ct_cursor *c, uint64_t function)
{
  struct ct_atf_source *source = c->atf;
  uint32_t slot = (uint32_t)((function ^ function >> 29) * 0x9e3779b97f4a7c15u >> 52);
  if (source->cached_function[slot] != function) {
    source->cached_function[slot] = function;
    source->cached[slot] = ct_atf_function(c->trace->atf, function);
  }
  return source->cached[slot];
}

/* ---- events ---- */

/* Puts the top frame into event as one that ends by it. */
static void
close_top(struct ct_cursor *c, struct ct_event *event, uint8_t kind, uint8_t reason)
{
  struct ct_open_frame *top = &c->stack.frames[--c->stack.count];
  event->kind = kind;
  event->reason = reason;
  event->fn = top->fn;
  event->enter_tsc = top->enter_tsc;
  event->depth = c->stack.base + c->stack.count;
}

/* What an event of the file becomes. False: a frame that stands in its way ends first. */
static bool
decode(struct ct_cursor *c, const struct ct_atf_event *in, struct ct_event *event)
{
  struct ct_frame_stack *stack = &c->stack;
  bool is_call = in->kind == CT_ATF_CALL;
  uint32_t open = in->depth + (is_call ? 0 : 1); /* frames before it */
  *event = (struct ct_event){.tsc = c->tsc, .closed_fn = CT_FUNCTION_NONE};
  if (stack->count > 0 && (stack->base + stack->count > open || (is_call && stack->base + stack->count < open))) {
    close_top(c, event, CT_EV_UNWOUND, CT_UNWOUND_UNSEEN);
    return false;
  }
  event->fn = function_of(c, in->function);
  if (is_call) {
    stack->base = stack->count == 0 ? in->depth : stack->base;
    event->kind = CT_EV_ENTER;
    event->depth = in->depth;
    stack->frames[stack->count++] = (struct ct_open_frame){.fn = event->fn, .enter_tsc = c->tsc};
    return true;
  }
  if (stack->count > 0 && stack->base + stack->count == open && stack->frames[stack->count - 1].fn == event->fn) {
    bool is_return = in->kind == CT_ATF_RETURN;
    close_top(c, event, is_return ? CT_EV_RETURN : CT_EV_UNWOUND, is_return ? 0 : CT_UNWOUND_JUMP);
    return true;
  }
  event->kind = CT_EV_ORPHAN_RETURN;
  event->depth = in->depth;
  return true;
}

static bool
event_ok(const struct ct_atf_event *in)
{
  return in->kind >= CT_ATF_CALL && in->kind <= CT_ATF_EXCEPTION && in->depth < CT_DEPTH_MAX && in->ns < INT64_MAX;
}

size_t
ct_atf_batch(struct ct_cursor *c, uint64_t before_ns)
{
  struct ct_atf_source *source = c->atf;
  size_t count = 0;
  c->batch_ordinal = c->next_ordinal;
  if (!ct_frame_stack_reserve(&c->stack, (uint64_t)c->stack.count + CT_BATCH_EVENTS)) {
    c->state = CT_CURSOR_DAMAGED;
    return 0;
  }
  while (count < CT_BATCH_EVENTS && !c->damage_passed && (source->at < source->end || (count == 0 && fill(c)))) {
    const struct ct_atf_event *in = &source->buffer[source->at];
    if (!event_ok(in)) {
      c->state = CT_CURSOR_DAMAGED;
      c->damage_passed = true;
      break;
    }
    if (in->ns >= before_ns) {
      break;
    }
    c->state = CT_CURSOR_OK;
    c->tsc = in->ns > c->tsc ? in->ns : c->tsc;
    source->at += decode(c, in, &c->batch[count]);
    c->next_ordinal += c->batch[count++].kind == CT_EV_ENTER;
  }
  return count;
}

void
ct_atf_seek(struct ct_cursor *c, uint64_t event)
{
  struct ct_atf_source *source = c->atf;
  source->next = event;
  source->at = source->end = 0;
  source->in_order = event == 0;
  source->crc = 0;
  c->tsc = 0;
}

bool
ct_atf_at_end(const struct ct_cursor *c)
{
  return c->atf->at == c->atf->end && c->state != CT_CURSOR_OK;
}
