/* SPDX-License-Identifier: MIT */
/*
 * From a thread's file to blocks, ready to be decoded: reading, checksums, decompression, the checks that let decode.c
 * go without any, and the way past damage.
 *
 * A block is taken only when its header and payload checksums are right, its columns have the sizes that the header
 * says, and there is exactly one delta and one id for each op that has one. So what is delivered from a
 * damaged file is the same as from the whole one. A file that was written to deceive may still contradict itself;
 * decode.c stops there.
 *
 * The stack of frames is carried from block to block. The open section is for the first one, a seek, and damage.
 */
#include "trace/atf_internal.h"

#include "base/crc32c.h"
#include "base/file.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NUMBER_UNKNOWN UINT64_MAX

enum load_result { LOAD_OK, LOAD_END, LOAD_DAMAGED };

bool
ct_file_header_ok(const struct ct_file_header *header)
{
  return header->magic == CT_FILE_MAGIC && ct_trace_version_ok(header->version) &&
         header->header_bytes == sizeof(*header) &&
         header->header_crc == ct_crc32c(0, header, offsetof(struct ct_file_header, header_crc));
}

static bool
block_sizes_ok(const struct ct_block_header *h)
{
  uint64_t ops = h->ops, stored = 0;
  for (int i = 0; i < CT_SECTIONS; i++) {
    if (h->section[i].stored_bytes > h->section[i].raw_bytes) {
      return false;
    }
    stored += h->section[i].stored_bytes;
  }
  return ops >= 1 && ops <= CT_BLOCK_OPS_MAX && (uint64_t)h->calls + h->returns <= ops && stored == h->payload_bytes &&
         h->section[CT_SECTION_OPEN].raw_bytes <= CT_OPEN_BYTES_MAX && h->section[CT_SECTION_OPS].raw_bytes == ops &&
         h->section[CT_SECTION_IDS].raw_bytes <= ops * CT_ID_BYTES_MAX &&
         h->section[CT_SECTION_DELTAS].raw_bytes <= ops * CT_DELTA_BYTES_MAX &&
         h->section[CT_SECTION_EXTRA].raw_bytes <= ops * CT_EXTRA_BYTES_MAX && h->open_count <= CT_BLOCK_OPEN_MAX &&
         h->open_count <= h->depth_start && h->depth_start <= CT_DEPTH_MAX && h->first_tsc <= h->last_tsc;
}

bool
ct_block_header_ok(const struct ct_block_header *header)
{
  if (header->magic != CT_BLOCK_MAGIC || header->header_bytes != sizeof(*header)) {
    return false;
  }
  struct ct_block_header copy = *header;
  copy.header_crc = 0;
  return ct_crc32c(0, &copy, sizeof(copy)) == header->header_crc && block_sizes_ok(header);
}

/* ---- reading ---- */

static struct ct_block_file *
file_borrow(struct ct_cursor *c)
{
  if (c->file != NULL) {
    return c->file;
  }
  struct ct_block_file *file = ct_trace_open_thread_file(c->trace, c->thread);
  if (file == NULL) {
    return NULL;
  }
  /* Damage to a piece is none to those after it, which are what the recording is about. */
  c->flags |= ct_block_file_pieces(file) > 1 ? CT_READ_SKIP_DAMAGED : 0;
  uint32_t files = ct_trace_holds_thread_file(c->trace, c->thread) ? 0 : ct_block_file_pieces(file);
  pthread_mutex_lock(&c->trace->lock);
  if (files == 0 || c->trace->open_files + files <= c->trace->open_files_max) {
    c->trace->open_files += files;
    c->kept_files = files;
    c->file = file;
  }
  pthread_mutex_unlock(&c->trace->lock);
  return file;
}

static void
file_give_back(const struct ct_cursor *c, struct ct_block_file *file)
{
  if (file != c->file) {
    ct_block_file_close(file);
  }
}

static enum load_result
check_file_header(struct ct_cursor *c, const struct ct_block_file *file)
{
  struct ct_file_header header;
  if (c->header_seen) {
    return LOAD_OK;
  }
  if (file == NULL && c->is_empty) {
    return LOAD_END;
  }
  if (file == NULL || ct_block_file_read(file, &header, sizeof(header), 0) != sizeof(header) ||
      !ct_file_header_ok(&header)) {
    return LOAD_DAMAGED;
  }
  c->header_seen = true;
  c->numbered = header.version > CT_TRACE_VERSION_OLD;
  if (header.version == CT_TRACE_VERSION_KEPT) { /* what was before the first block is not damage */
    c->next_number = NUMBER_UNKNOWN;
    c->begins_late = !c->sought;
  }
  return LOAD_OK;
}

/*
 * Reads and unpacks the block at c->offset. After LOAD_DAMAGED c->header is what stands there, or zero if that is not a
 * header. What the recorder has begun to write, and not ended, is the end.
 */
static enum load_result
load_block_from(struct ct_cursor *c, const struct ct_block_file *file)
{
  struct ct_block_header *header = &c->header;
  uint64_t last = ct_trace_end_offset(c->trace, c->thread_position, file);
  size_t n = file == NULL || c->offset >= last ? 0 : ct_block_file_read(file, header, sizeof(*header), c->offset);
  if (n != sizeof(*header) || !ct_block_header_ok(header)) {
    *header = (struct ct_block_header){0};
    return n == 0 || (n < sizeof(*header) && !c->trace->complete) ? LOAD_END : LOAD_DAMAGED;
  }
  uint64_t payload = c->offset + sizeof(*header), end = payload + header->payload_bytes;
  bool fits = end <= ct_block_file_next_piece(file, c->offset);
  if (fits && !c->trace->complete && (end > last || !ct_block_file_reaches(file, end))) {
    return LOAD_END;
  }
  return fits && ct_block_unpack(c, file, payload) ? LOAD_OK : LOAD_DAMAGED;
}

/* ---- the stack at the start of a block ---- */

/* The open section as a stack of its own. */
static bool
parse_open_section(const struct ct_cursor *c, struct ct_frame_stack *out, uint32_t *context)
{
  struct ct_frame_stack stack = {0};
  uint64_t number, age;
  const uint8_t *p = ct_varint_get(c->open, c->open_end, &number);
  if (p == NULL || number > UINT32_MAX || !ct_frame_stack_reserve(&stack, CT_BATCH_EVENTS)) {
    return false;
  }
  *context = (uint32_t)number;
  for (uint32_t i = 0; i < c->header.open_count; i++) {
    if ((p = ct_varint_get(p, c->open_end, &number)) == NULL || number > CT_FUNCTION_ID_MAX ||
        (p = ct_varint_get(p, c->open_end, &age)) == NULL || age > c->header.first_tsc || p == c->open_end) {
      goto damaged;
    }
    if (!ct_frame_stack_reserve(&stack, (uint64_t)i + 1)) {
      goto damaged;
    }
    stack.frames[i] = (struct ct_open_frame){
        .fn = (uint32_t)number, .uncertain = *p++ & CT_OPEN_UNCERTAIN, .enter_tsc = c->header.first_tsc - age};
  }
  stack.count = c->header.open_count;
  stack.base = c->header.depth_start - c->header.open_count;
  *out = stack;
  return true;

damaged:
  free(stack.frames - 1);
  return false;
}

bool
ct_cursor_add_pending(struct ct_cursor *c, const struct ct_event *event)
{
  if (c->pending_count == c->pending_capacity) {
    size_t capacity = c->pending_capacity == 0 ? 256 : c->pending_capacity * 2;
    struct ct_event *pending = realloc(c->pending, capacity * sizeof(*pending));
    if (pending == NULL) {
      return false;
    }
    c->pending = pending;
    c->pending_capacity = capacity;
  }
  c->pending[c->pending_count++] = *event;
  return true;
}

/* Events that lead from the frames before the damage to those after it, see CT_READ_SKIP_DAMAGED. */
static bool
bridge(struct ct_cursor *c, const struct ct_frame_stack *now, uint32_t context)
{
  struct ct_frame_stack *old = &c->stack;
  uint64_t tsc = c->tsc != 0 ? c->tsc : now->count > 0 ? now->frames[0].enter_tsc : c->header.first_tsc;
  struct ct_event event = {
      .kind = CT_EV_LOST, .tsc = tsc, .value = c->lost, .depth = old->base + old->count, .closed_fn = CT_FUNCTION_NONE};
  if (!ct_cursor_add_pending(c, &event)) {
    return false;
  }
  uint32_t same = 0;
  if (context == c->context && old->base == now->base) {
    while (same < old->count && same < now->count && old->frames[same].fn == now->frames[same].fn &&
           old->frames[same].enter_tsc == now->frames[same].enter_tsc) {
      same++;
    }
  }
  event.value = 0;
  for (; old->count > same; old->count--) {
    const struct ct_open_frame *frame = &old->frames[old->count - 1];
    event.kind = CT_EV_UNWOUND;
    event.reason = CT_UNWOUND_LOST;
    event.uncertain = 1;
    event.fn = frame->fn;
    event.enter_tsc = frame->enter_tsc;
    event.depth = old->base + old->count - 1;
    if (!ct_cursor_add_pending(c, &event)) {
      return false;
    }
  }
  event.reason = 0;
  event.enter_tsc = 0;
  if (context != c->context) {
    event.kind = CT_EV_SWITCH;
    event.value = context;
    event.fn = 0;
    event.uncertain = 0;
    event.depth = now->base;
    if (!ct_cursor_add_pending(c, &event)) {
      return false;
    }
  }
  event.kind = CT_EV_ENTER;
  event.value = 0;
  event.uncertain = 1;
  for (uint32_t i = same; i < now->count; i++) {
    event.fn = now->frames[i].fn;
    event.depth = now->base + i;
    event.tsc = now->frames[i].enter_tsc > event.tsc ? now->frames[i].enter_tsc : event.tsc;
    if (!ct_cursor_add_pending(c, &event)) {
      return false;
    }
  }
  return true;
}

static void
forget_stacks(struct ct_cursor *c)
{
  ct_contexts_clear(&c->contexts);
  c->stack.count = c->stack.base = 0;
}

/* Makes the stack that of the block at hand, from its open section. */
static bool
adopt_open_section(struct ct_cursor *c)
{
  struct ct_frame_stack stack;
  uint32_t context;
  if (!parse_open_section(c, &stack, &context)) {
    return false;
  }
  bool ok = c->begins_late ? ct_range_begin(c, &stack, context, c->header.first_tsc)
                           : !c->damage_passed || !c->resync || bridge(c, &stack, context);
  c->begins_late = false;
  ct_contexts_clear(&c->contexts);
  if (c->stack.frames != NULL) {
    free(c->stack.frames - 1);
  }
  c->stack = stack;
  c->context = context;
  return ok;
}

/* Frames that are not known here, after a seek, may be in the open section, and the block's ops count on that. */
static bool
learn_open_section(struct ct_cursor *c)
{
  struct ct_frame_stack stack;
  uint32_t context;
  bool is_in_range = c->trace->has_range && !c->before_range;
  if (c->stack.base <= c->header.depth_start - c->header.open_count) {
    return true;
  }
  if (!parse_open_section(c, &stack, &context)) {
    return false;
  }
  for (uint32_t i = 0; is_in_range && i < stack.count && stack.base + i < c->stack.base; i++) {
    stack.frames[i].enter_tsc = 0; /* it was not entered at the begin of the range: it ends as one that is not known */
  }
  if (c->stack.frames != NULL) {
    free(c->stack.frames - 1);
  }
  c->stack = stack;
  return true;
}

/* The block at hand must follow the one before it. Blocks that are missing are passed over as damaged ones are. */
static enum load_result
check_number(struct ct_cursor *c)
{
  struct ct_block_header *header = &c->header;
  if (!c->numbered || c->next_number == NUMBER_UNKNOWN || header->number == c->next_number) {
    return LOAD_OK;
  }
  if (header->number < c->next_number) { /* it was there already: nothing is lost with it */
    header->calls = header->returns = header->lost = 0;
  }
  if (!(c->flags & CT_READ_SKIP_DAMAGED) || header->number < c->next_number) {
    return LOAD_DAMAGED;
  }
  uint64_t missing = header->first_event > c->next_event ? header->first_event - c->next_event : 0;
  c->lost = missing > c->lost ? missing : c->lost;
  c->damage_passed = c->resync = true;
  return LOAD_OK;
}

static enum load_result
load_block(struct ct_cursor *c)
{
  struct ct_block_file *file = file_borrow(c);
  enum load_result result = check_file_header(c, file);
  if (result == LOAD_OK || (c->flags & CT_READ_SKIP_DAMAGED && c->damage_passed)) {
    result = load_block_from(c, file);
  }
  if (result == LOAD_OK) {
    result = check_number(c);
  }
  file_give_back(c, file);
  if (result != LOAD_OK) {
    c->op = c->header.ops = 0;
    return result;
  }
  bool fits = !c->resync && c->header.depth_start == (uint64_t)c->stack.base + c->stack.count;
  if (fits ? !learn_open_section(c) : !adopt_open_section(c)) {
    c->header.ops = 0;
    return LOAD_DAMAGED;
  }
  c->resync = false;
  c->lost = 0;
  c->op = 0;
  c->id = c->ids;
  c->last = 0;
  c->tsc = c->header.first_tsc;
  c->interval_log2 = c->header.interval_log2;
  clear_tables(c);
  c->offset += sizeof(c->header) + c->header.payload_bytes;
  c->next_number = (uint64_t)c->header.number + 1;
  c->next_event = c->header.first_event + c->header.calls + c->header.returns;
  if (c->numbered) {
    c->next_ordinal = c->header.first_enter;
  }
  return LOAD_OK;
}

/* ---- past damage ---- */

/* Looks for a block header from an offset on; UINT64_MAX when there is none. */
static uint64_t
find_block(const struct ct_block_file *file, uint64_t offset)
{
  enum { CHUNK = 64 << 10 };
  static const uint32_t magic = CT_BLOCK_MAGIC;
  uint8_t *chunk = malloc(CHUNK);
  uint64_t found = UINT64_MAX;
  while (chunk != NULL && found == UINT64_MAX) {
    size_t n = ct_block_file_read(file, chunk, CHUNK, offset);
    if (n < sizeof(struct ct_block_header)) {
      break;
    }
    size_t last = n - sizeof(struct ct_block_header);
    for (size_t i = 0; i <= last && found == UINT64_MAX; i++) {
      struct ct_block_header header;
      if (memcmp(chunk + i, &magic, sizeof(magic)) != 0) {
        continue;
      }
      memcpy(&header, chunk + i, sizeof(header));
      if (ct_block_header_ok(&header)) {
        found = offset + i;
      }
    }
    offset += last + 1;
  }
  free(chunk);
  return found;
}

/* Moves c->offset after the damaged block there, of which c->header is the header if that is whole. False at the end
 * of the file. */
static bool
skip_damaged(struct ct_cursor *c)
{
  struct ct_block_file *file = file_borrow(c);
  if (file == NULL) {
    return false;
  }
  uint64_t from = c->offset + 1;
  if (!c->header_seen && !c->damage_passed) {
    from = c->offset; /* it was the file's header */
  } else if (c->header.magic == CT_BLOCK_MAGIC) {
    from = c->offset + sizeof(c->header) + c->header.payload_bytes;
    c->lost += (uint64_t)c->header.calls + c->header.returns + c->header.lost;
  }
  uint64_t piece = ct_block_file_next_piece(file, c->offset);
  uint64_t next = find_block(file, from < piece ? from : piece);
  file_give_back(c, file);
  c->damage_passed = c->resync = true;
  if (next == UINT64_MAX) {
    return false;
  }
  c->offset = next;
  return true;
}

/* The next block with events, past damaged ones if that was asked for. */
static bool
next_block(struct ct_cursor *c)
{
  for (;;) {
    enum load_result result = load_block(c);
    if (result == LOAD_OK) {
      c->state = CT_CURSOR_OK;
      return true;
    }
    c->state = result == LOAD_END && !c->damage_passed && !c->cut ? CT_CURSOR_END : CT_CURSOR_DAMAGED;
    if (result == LOAD_END || !(c->flags & CT_READ_SKIP_DAMAGED) || !skip_damaged(c)) {
      return false;
    }
  }
}

/* ---- interface ---- */

int
ct_cursor_open(struct ct_trace *trace, uint32_t thread, uint32_t flags, struct ct_cursor **out, struct ct_diag *diag)
{
  if (thread >= trace->thread_count) {
    return ct_fail(diag, CT_ERANGE, "%s has no thread %u", trace->path, thread);
  }
  struct ct_cursor *c = calloc(1, sizeof(*c));
  if (c == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory to read thread %u", thread);
  }
  c->trace = trace;
  c->thread = trace->threads[thread].index;
  c->thread_position = thread;
  c->cut = trace->threads[thread].missing != 0;
  c->is_empty = ct_trace_has_no_file(trace, thread);
  c->flags = flags;
  c->offset = sizeof(struct ct_file_header);
  c->resync = true;
  c->limit = CT_BATCH_EVENTS;
  c->before_range = trace->has_range;
  if (trace->atf != NULL && ct_atf_source_open(c) != CT_OK) {
    ct_cursor_close(c);
    return ct_fail(diag, CT_ENOMEM, "out of memory to read thread %u", thread);
  }
  *out = c;
  return CT_OK;
}

void
ct_cursor_close(struct ct_cursor *c)
{
  if (c == NULL) {
    return;
  }
  if (c->file != NULL) {
    pthread_mutex_lock(&c->trace->lock);
    c->trace->open_files -= c->kept_files;
    pthread_mutex_unlock(&c->trace->lock);
    ct_block_file_close(c->file);
  }
  if (c->keeps_file) {
    pthread_mutex_lock(&c->trace->lock);
    c->trace->open_files--;
    pthread_mutex_unlock(&c->trace->lock);
  }
  ct_atf_source_close(c->atf);
  ct_contexts_clear(&c->contexts);
  if (c->stack.frames != NULL) {
    free(c->stack.frames - 1);
  }
  free(c->columns);
  free(c->ids);
  free(c->pending);
  free(c->passed);
  free(c);
}

/* Goes to the begin of the trace's range, where the frames that are open are entered. False: it is over before that. */
static bool
enter_range(struct ct_cursor *c)
{
  const struct ct_trace *trace = c->trace;
  uint64_t thread_end = trace->threads[c->thread_position].end_tsc;
  c->before_range = false;
  c->enters_range = true;
  bool is_over = c->atf != NULL ? ct_atf_at_end(c) : c->op == c->header.ops;
  if (is_over && thread_end < trace->range_from) {
    return false;
  }
  if (!ct_range_enter_others(c, trace->range_from) || !ct_range_begin(c, &c->stack, c->context, trace->range_from)) {
    return false;
  }
  ct_range_find_calls(c);
  return true;
}

/* How many of the ops are calls. Sixteen at a time: every block that is read passes through here. */
static uint32_t
count_calls(const uint8_t *ops, size_t count)
{
  static_assert(CT_TRACE_OP_ENTER_PREDICTED == 1 && CT_TRACE_OP_POINT == 6, "calls are 1 to 6");
  static_assert(CT_BATCH_EVENTS / 16 < 256, "a byte counts all");
  typedef uint8_t bytes __attribute__((vector_size(16)));
  bytes sums = {0};
  uint32_t calls = 0;
  size_t i = 0;
  for (; i + sizeof(bytes) <= count; i += sizeof(bytes)) {
    bytes op;
    memcpy(&op, ops + i, sizeof(op));
    sums -= (bytes)((op - CT_TRACE_OP_ENTER_PREDICTED) <= CT_TRACE_OP_POINT - CT_TRACE_OP_ENTER_PREDICTED) |
            (bytes)(op == CT_TRACE_OP_SAMPLED) | (bytes)(op == CT_TRACE_OP_SAMPLED_PREDICTED);
  }
  for (size_t n = 0; n < sizeof(bytes); n++) {
    calls += sums[n];
  }
  for (; i < count; i++) {
    uint8_t op = ops[i];
    calls += ((uint8_t)(op - CT_TRACE_OP_ENTER_PREDICTED) <= CT_TRACE_OP_POINT - CT_TRACE_OP_ENTER_PREDICTED) |
             (op == CT_TRACE_OP_SAMPLED) | (op == CT_TRACE_OP_SAMPLED_PREDICTED);
  }
  return calls;
}

/* A batch of the block at hand; 0: it has no more. */
static size_t
next_batch(struct ct_cursor *c, uint32_t limit)
{
  bool damaged;
  const uint8_t *ops = c->ops + c->op;
  c->limit = limit < CT_BATCH_EVENTS ? limit : CT_BATCH_EVENTS;
  size_t count = ct_decode_batch(c, &damaged);
  c->limit = CT_BATCH_EVENTS, c->few = 0;
  c->batch_ordinal = c->next_ordinal;
  c->next_ordinal += count_calls(ops, count);
  if (damaged) {
    c->lost += c->header.ops - c->op;
    c->header.ops = c->op;
    c->damage_passed = c->resync = true;
    c->state = CT_CURSOR_DAMAGED;
  }
  return count;
}

/* Passes over what is before the range, from its first block on; false: there is nothing of the range. */
static bool
pass_before_range(struct ct_cursor *c)
{
  if (c->atf != NULL) {
    while (ct_atf_batch(c, c->trace->range_from) > 0) {
    }
    return enter_range(c);
  }
  struct ct_block_file *file = file_borrow(c);
  uint64_t offset = ct_range_first_block(c, file);
  file_give_back(c, file);
  if (offset != sizeof(struct ct_file_header) && !ct_range_arrive(c, offset)) {
    return false;
  }
  for (;;) {
    uint32_t before = ct_range_ops_before(c, c->trace->range_from);
    c->pending_count = c->pending_next = 0; /* of a resync */
    if (c->op < c->header.ops && before == 0) {
      return enter_range(c);
    }
    if (c->op < c->header.ops ? next_batch(c, before) == 0 && c->state == CT_CURSOR_DAMAGED : !next_block(c)) {
      return enter_range(c);
    }
  }
}

size_t
ct_cursor_read(struct ct_cursor *c, const struct ct_event **events)
{
  for (;;) {
    c->gives_frames = c->pending_next < c->pending_count;
    if (c->gives_frames) {
      return ct_cursor_give_pending(c, events);
    }
    if (c->atf != NULL) {
      *events = c->batch;
      return ct_atf_batch(c, UINT64_MAX);
    }
    if (c->op < c->header.ops) {
      size_t count = next_batch(c, c->few - 1 < CT_BATCH_EVENTS ? c->few : CT_BATCH_EVENTS);
      *events = c->batch;
      if (count > 0) {
        return count;
      }
    }
    if ((c->state == CT_CURSOR_DAMAGED && c->damage_passed && !(c->flags & CT_READ_SKIP_DAMAGED)) || !next_block(c)) {
      return 0;
    }
  }
}

size_t
ct_cursor_next(struct ct_cursor *c, const struct ct_event **events)
{
  if (!c->trace->has_range) {
    return ct_cursor_read(c, events);
  }
  if (c->looks_on) {
    return ct_range_look_on(c, events);
  }
  if (c->after_range || (c->before_range && !pass_before_range(c))) {
    c->after_range = true;
    return 0;
  }
  size_t count = ct_cursor_read(c, events);
  for (;;) {
    size_t inside = ct_range_events_inside(c->trace, *events, count);
    if (inside < count) {
      c->after_range = c->looks_on = true;
      inside += *events == c->batch ? ct_range_take_away(c, inside, count) : 0;
      c->state = CT_CURSOR_END;
    }
    size_t known = inside;
    if (*events == c->batch) {
      known = ct_range_drop_unknown(c->batch, ct_range_clip_away(c->trace, c->batch, inside));
    }
    if (known == 0 && c->looks_on) {
      return ct_range_look_on(c, events);
    }
    if (known != 0 || inside == 0 || c->after_range) {
      return known;
    }
    count = ct_cursor_read(c, events);
  }
}

const struct ct_event *
ct_cursor_next_event(struct ct_cursor *c)
{
  if (c->single_count == 0) {
    c->single_count = ct_cursor_next(c, &c->single);
  }
  if (c->single_count == 0) {
    return NULL;
  }
  c->single_count--;
  return c->single++;
}

int
ct_cursor_seek(struct ct_cursor *c, uint64_t offset)
{
  forget_stacks(c);
  c->pending_count = c->pending_next = 0;
  c->single_count = 0;
  c->damage_passed = c->begins_late = false;
  c->resync = c->sought = true;
  c->lost = 0;
  c->op = c->header.ops = 0;
  c->offset = offset;
  c->next_number = NUMBER_UNKNOWN;
  c->state = CT_CURSOR_OK;
  if (c->atf != NULL) {
    ct_atf_seek(c, offset < sizeof(struct ct_atf_index_header)
                       ? 0
                       : (offset - sizeof(struct ct_atf_index_header)) / sizeof(struct ct_atf_event));
    return CT_OK;
  }
  enum load_result result = offset < sizeof(struct ct_file_header) ? LOAD_DAMAGED : load_block(c);
  if (result == LOAD_OK) {
    return CT_OK;
  }
  c->state = CT_CURSOR_DAMAGED;
  c->damage_passed = true;
  c->offset = UINT64_MAX / 2;
  return CT_EFORMAT;
}

int
ct_cursor_rewind(struct ct_cursor *c)
{
  forget_stacks(c);
  c->pending_count = c->pending_next = 0;
  c->single_count = 0;
  c->damage_passed = c->begins_late = c->sought = c->header_seen = c->after_range = c->looks_on = false;
  c->resync = true;
  c->before_range = c->trace->has_range;
  c->enters_range = false;
  c->stacks_entered = 0;
  c->lost = 0;
  c->op = c->header.ops = 0;
  c->context = 0;
  c->tsc = 0;
  c->offset = sizeof(struct ct_file_header);
  c->next_number = c->next_event = c->next_ordinal = 0;
  c->state = CT_CURSOR_OK;
  return CT_OK;
}

int
ct_cursor_seek_tail(struct ct_cursor *c, uint64_t ops)
{
  if (c->atf != NULL) {
    uint64_t events = c->trace->threads[c->thread_position].events;
    return ct_cursor_seek(c, sizeof(struct ct_atf_index_header) +
                                 (events > ops ? events - ops : 0) * sizeof(struct ct_atf_event));
  }
  /* Where the last blocks begin, and how many ops come before them: of the last TAIL_BLOCKS there are. */
  enum { TAIL_BLOCKS = 4096 };
  struct {
    uint64_t offset, before;
  } *blocks = malloc(TAIL_BLOCKS * sizeof(*blocks));
  if (blocks == NULL) {
    return CT_ENOMEM;
  }
  struct ct_block_header header;
  uint64_t offset = sizeof(struct ct_file_header), total = 0, count = 0;
  struct ct_block_file *file = file_borrow(c);
  while (file != NULL && offset < ct_trace_end_offset(c->trace, c->thread_position, file) &&
         ct_block_file_read(file, &header, sizeof(header), offset) == sizeof(header) && ct_block_header_ok(&header)) {
    blocks[count % TAIL_BLOCKS].offset = offset;
    blocks[count++ % TAIL_BLOCKS].before = total;
    total += header.ops;
    offset += sizeof(header) + header.payload_bytes;
  }
  file_give_back(c, file);
  uint64_t first = count == 0 ? 0 : count - 1, least = count > TAIL_BLOCKS ? count - TAIL_BLOCKS : 0;
  while (first > least && total - blocks[first % TAIL_BLOCKS].before < ops) {
    first--;
  }
  offset = count == 0 ? sizeof(struct ct_file_header) : blocks[first % TAIL_BLOCKS].offset;
  free(blocks);
  return ct_cursor_seek(c, offset);
}

enum ct_cursor_state
ct_cursor_state(const struct ct_cursor *c)
{
  return c->state;
}

size_t
ct_cursor_open_frames(const struct ct_cursor *c, const struct ct_open_frame **frames)
{
  *frames = c->stack.frames;
  return c->stack.count;
}

const struct ct_open_frame *
ct_cursor_open_frame(const struct ct_cursor *c, uint32_t n)
{
  return n < c->stack.count ? &c->stack.frames[n] : NULL;
}

uint32_t
ct_cursor_depth(const struct ct_cursor *c)
{
  return c->stack.base + c->stack.count;
}

uint64_t
ct_cursor_offset(const struct ct_cursor *c)
{
  return c->atf != NULL ? sizeof(struct ct_atf_index_header) + c->atf->next * sizeof(struct ct_atf_event) : c->offset;
}

bool
ct_cursor_gives_frames(const struct ct_cursor *c)
{
  return c->gives_frames;
}

uint64_t
ct_cursor_ordinal(const struct ct_cursor *c)
{
  return c->batch_ordinal;
}

void
ct_cursor_set_ordinal(struct ct_cursor *c, uint64_t ordinal)
{
  if (!c->numbered) {
    c->next_ordinal = ordinal;
  }
}

uint64_t
ct_cursor_block_offset(const struct ct_cursor *c)
{
  uint64_t bytes = sizeof(c->header) + c->header.payload_bytes;
  return c->offset >= bytes ? c->offset - bytes : 0;
}
