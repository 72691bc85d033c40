/* SPDX-License-Identifier: MIT */
/*
 * A record is read when its enter or return has come; where it is has been said before. The target can write to all of
 * it at any time: it is copied once, and then compared with the call that it is to belong to. Whether it was still that
 * activation's is seen by the segment's state before and after.
 *
 * A thread uses its segments one after the other, and its events come in their order: when one has come that is about a
 * later segment, those before are done with. But a handler may have interrupted a hook in the middle of its record, and
 * have gone on to that later one: so some of those before are kept a while, and the hook goes on in its own.
 */
#include "drain/detail.h"

#include "drain/drain_internal.h"
#include "drain/thread.h"
#include "trace/detail.h"

#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KEPT      4    /* segments of a thread, of some 270 records each ... */
#define KEPT_FROM 256u /* ... where there are so many; else one */

/* The texts of a record as the trace has them, see CT_DETAIL_HAS_TEXTS; what makes no sense ends them. */
static size_t
text_words(const uint8_t *record, uint32_t last_register, uint64_t *words)
{
  struct ct_detail_texts texts;
  uint64_t counts = 0;
  size_t count = 1;
  memcpy(&texts, record, sizeof(texts));
  for (unsigned i = 0; i < CT_DETAIL_TEXTS; i++) {
    uint32_t text = (uint16_t)(texts.counts >> (16 * i)), bytes = CT_DETAIL_TEXT_COUNT(text);
    uint32_t argument = CT_DETAIL_TEXT_ARGUMENT(text);
    if ((text & CT_DETAIL_TEXT(0, 0)) == 0 || bytes > CT_DETAIL_TEXT_BYTES ||
        (argument & ~CT_DETAIL_TEXT_INDIRECT) > last_register) {
      break;
    }
    counts |= (uint64_t)CT_DETAIL_TEXT(bytes, argument) << (16 * i);
    memset(words + count, 0, (bytes + 7) & ~7u);
    memcpy(words + count, texts.data[i], bytes);
    count += (bytes + 7) / 8;
  }
  words[0] = counts;
  return count;
}

/* The words of a record in the order of the trace, and how many; 0: its stack is longer than asked for. */
static size_t
call_words(const struct drain_details *details, const uint8_t *record, uint64_t *words)
{
  struct ct_detail_enter enter;
  memcpy(&enter, record, sizeof(enter));
  size_t count = 0;
  words[count++] = enter.record.sp;
  words[count++] = enter.record.bp;
  words[count++] = enter.return_address;
  memcpy(words + count, enter.registers, sizeof(enter.registers));
  count += 8;
  const uint8_t *more = record + sizeof(enter);
  if (details->form.vectors != 0) {
    memcpy(words + count, more, CT_DETAIL_VECTORS * 8);
    count += CT_DETAIL_VECTORS;
    more += CT_DETAIL_VECTORS * 8;
  }
  if ((enter.record.word & CT_DETAIL_WORD_TEXTS) != 0) {
    count += text_words(record + ct_detail_enter_bytes(details->form), CT_DETAIL_R9, words + count);
  }
  if (details->form.stack != 0) {
    uint64_t bytes;
    memcpy(&bytes, more, sizeof(bytes));
    if (bytes > details->form.stack || bytes % 8 != 0) {
      return 0;
    }
    memcpy(words + count, more + 8, bytes);
    count += bytes / 8;
  }
  return count;
}

static size_t
return_words(const uint8_t *record, uint64_t *words, uint8_t *flags)
{
  struct ct_detail_return leave;
  memcpy(&leave, record, sizeof(leave));
  words[0] = leave.record.sp;
  words[1] = leave.rax;
  words[2] = leave.rdx;
  words[3] = leave.xmm0;
  words[4] = leave.xmm1;
  words[5] = (uint32_t)leave.error;
  size_t count = CT_DETAIL_RETURN_WORDS + (leave.is_error != 0 ? CT_DETAIL_ERROR_WORDS : 0);
  *flags = leave.is_error != 0 ? CT_DETAIL_HAS_ERROR : 0;
  if ((leave.record.word & CT_DETAIL_WORD_TEXTS) != 0) {
    *flags |= CT_DETAIL_HAS_TEXTS;
    count += text_words(record + sizeof(leave), CT_DETAIL_RAX, words + count);
  }
  return count;
}

/* Copies the record; false when it is not this thread's any more. */
static bool
copy_record(const struct drain_details *details, const struct drain_thread *thread, uint64_t place, uint8_t *record,
            uint32_t *thread_seq)
{
  uint64_t offset = CT_DETAIL_ADDRESS(place) - details->base;
  uint64_t index = offset / CT_SEGMENT_STRIDE, at = offset % CT_SEGMENT_STRIDE;
  if (index >= details->count || at >= CT_SEGMENT_BYTES) {
    return false;
  }
  struct ct_segment_entry *entry = &details->entries[index];
  uint64_t before = __atomic_load_n(&entry->state, __ATOMIC_ACQUIRE);
  *thread_seq = __atomic_load_n(&entry->thread_seq, __ATOMIC_RELAXED);
  bool is_ours = (CT_SEG_STATE(before) == CT_SEG_ACTIVE || CT_SEG_STATE(before) == CT_SEG_FULL) &&
                 CT_SEG_SLOT(before) < CT_SLOT_COUNT &&
                 __atomic_load_n(&details->slots[CT_SEG_SLOT(before)].tid, __ATOMIC_RELAXED) == thread->tid &&
                 __atomic_load_n(&entry->generation, __ATOMIC_RELAXED) == thread->generation;
  if (!is_ours || CT_DETAIL_IS_LATER(*thread_seq, place)) {
    return false;
  }
  const uint8_t *from = details->segments + index * CT_SEGMENT_STRIDE + at;
  uint32_t bytes = ct_detail_enter_bytes(details->form), word;
  memcpy(record, from, bytes);
  memcpy(&word, record, sizeof(word));
  if ((word >> CT_WORD_KIND_SHIFT & 3) == CT_KIND_RETURN) {
    bytes = sizeof(struct ct_detail_return);
  }
  if ((record[0] & CT_DETAIL_WORD_TEXTS) != 0) {
    memcpy(record + bytes, from + bytes, sizeof(struct ct_detail_texts));
  }
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  uint64_t after = __atomic_load_n(&entry->state, __ATOMIC_RELAXED);
  return CT_SEG_SEQ(after) == CT_SEG_SEQ(before) && CT_SEG_STATE(after) != CT_SEG_DRAINING &&
         CT_SEG_STATE(after) != CT_SEG_FREE;
}

void
drain_detail_announce(struct drain_thread *thread, uint64_t address, uint32_t ra_slot)
{
  struct drain_waiting_details *waiting = &thread->waiting_details;
  uint32_t at = 0;
  while (at < waiting->count && waiting->items[at].ra_slot != ra_slot) {
    at++;
  }
  if (at == DRAIN_DETAILS_WAITING) { /* handlers that have left by a jump, most likely: the oldest will not come */
    memmove(waiting->items, waiting->items + 1, sizeof(waiting->items) - sizeof(waiting->items[0]));
    at--;
    thread->details->refused++;
  } else if (at == waiting->count) {
    waiting->count++;
  }
  waiting->items[at].address = address; /* a second time: the hook has begun anew, without room for its event */
  waiting->items[at].ra_slot = ra_slot;
}

/* Puts the record into the trace; false when it makes no sense. */
static bool
encode(struct drain_details *details, struct drain_thread *thread, const uint8_t *record, uint64_t tsc,
       uint32_t ra_slot)
{
  struct ct_detail_record head;
  uint64_t words[(CT_DETAIL_BYTES_MAX + 64) / 8];
  const struct ct_frame *top = ct_encoder_top(thread->encoder);
  memcpy(&head, record, sizeof(head));
  unsigned kind = (unsigned)head.word >> CT_WORD_KIND_SHIFT & 3;
  uint32_t fn = (uint32_t)head.word >> CT_WORD_FN_SHIFT;
  bool is_return = kind == CT_KIND_RETURN;
  if (top == NULL || top->ra_slot != ra_slot || (uint32_t)(head.word >> 32) != ra_slot || kind == CT_KIND_OTHER ||
      fn != (!is_return                   ? top->fn
             : top->root_fn != UINT32_MAX ? top->root_fn
                                          : fn)) {
    return false;
  }
  uint8_t flags = (uint8_t)((details->form.vectors != 0 ? CT_DETAIL_HAS_VECTORS : 0) |
                            ((head.word & CT_DETAIL_WORD_TEXTS) != 0 ? CT_DETAIL_HAS_TEXTS : 0));
  size_t count = is_return ? return_words(record, words, &flags) : call_words(details, record, words);
  struct ct_detail_entry entry = {.enter_tsc = top->enter_tsc,
                                  .tsc = tsc,
                                  .fn = top->fn,
                                  .record_bytes = (uint16_t)(sizeof(entry) + count * 8),
                                  .kind = is_return ? CT_DETAIL_KIND_RETURN : CT_DETAIL_KIND_CALL,
                                  .flags = flags};
  if (count != 0) {
    ct_encode_detail(thread->encoder, &entry, words);
  }
  if (count != 0 && is_return && thread->rules != NULL) {
    rules_result(thread, top, words[1]); /* there is no other event of what it returns */
  }
  return count != 0;
}

/* Of a return without its call, as from the frames that a forked child has of its parent's: no call has it. */
static bool
has_no_call(const struct drain_thread *thread, const uint8_t *record, uint32_t ra_slot)
{
  const struct ct_frame *top = ct_encoder_top(thread->encoder);
  uint64_t word;
  memcpy(&word, record, sizeof(word));
  return ((uint32_t)word >> CT_WORD_KIND_SHIFT & 3) == CT_KIND_RETURN && (uint32_t)(word >> 32) == ra_slot &&
         (top == NULL || top->ra_slot != ra_slot);
}

void
drain_detail_take(struct drain_thread *thread, uint64_t tsc, uint32_t ra_slot)
{
  struct drain_waiting_details *waiting = &thread->waiting_details;
  struct drain_details *details = thread->details;
  uint8_t record[CT_DETAIL_BYTES_MAX];
  uint32_t at = 0, thread_seq;
  while (at < waiting->count && waiting->items[at].ra_slot != ra_slot) {
    at++;
  }
  if (at == waiting->count) {
    return;
  }
  uint64_t address = waiting->items[at].address;
  memmove(&waiting->items[at], &waiting->items[at + 1], (--waiting->count - at) * sizeof(waiting->items[0]));
  if (!copy_record(details, thread, address, record, &thread_seq)) {
    details->overwritten++;
    return;
  }
  thread->detail_seq = thread_seq;
  if (encode(details, thread, record, tsc, ra_slot)) {
    details->recorded++;
  } else if (!has_no_call(thread, record, ra_slot)) {
    details->refused++;
  }
}

static void
give_back(struct drain_details *details, uint32_t index, uint64_t word)
{
  uint64_t taken = CT_SEG_WORD(CT_SEG_DRAINING, CT_SEG_SLOT(word), CT_SEG_SEQ(word));
  struct ct_segment_entry *entry = &details->entries[index];
  if (__atomic_compare_exchange_n(&entry->state, &word, taken, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
    __atomic_store_n(&entry->state, CT_SEG_WORD(CT_SEG_FREE, 0, 0), __ATOMIC_RELAXED);
    /* release: pairs with the acquire of the thread that takes the bit */
    __atomic_fetch_or(&details->ring->detail_free_map[index / 64], 1ull << (index % 64), __ATOMIC_RELEASE);
    __atomic_fetch_add(&details->ring->free_doorbell, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&details->ring->free_waiters, __ATOMIC_SEQ_CST) != 0) {
      syscall(SYS_futex, &details->ring->free_doorbell, FUTEX_WAKE, DRAIN_WOKEN, NULL, NULL, 0);
    }
  }
}

uint32_t
drain_detail_free(struct drain_details *details, struct drain_thread *const *threads, uint32_t *freed)
{
  uint32_t used = 0;
  *freed = 0;
  int32_t keep = details->count >= KEPT_FROM ? KEPT : 1;
  for (uint32_t i = 0; i < details->count; i++) {
    struct ct_segment_entry *entry = &details->entries[i];
    uint64_t word = __atomic_load_n(&entry->state, __ATOMIC_ACQUIRE);
    uint32_t slot = CT_SEG_SLOT(word);
    if ((CT_SEG_STATE(word) != CT_SEG_FULL && CT_SEG_STATE(word) != CT_SEG_ACTIVE) || slot >= CT_SLOT_COUNT) {
      continue;
    }
    used++;
    const struct drain_thread *thread = threads[slot];
    uint32_t generation = __atomic_load_n(&entry->generation, __ATOMIC_RELAXED);
    uint32_t thread_seq = __atomic_load_n(&entry->thread_seq, __ATOMIC_RELAXED);
    bool is_past = thread != NULL ? (int32_t)(thread->generation - generation) > 0
                                  : __atomic_load_n(&details->tids[slot], __ATOMIC_ACQUIRE) == 0;
    bool is_passed = thread != NULL && thread->generation == generation && CT_SEG_STATE(word) == CT_SEG_FULL &&
                     (int32_t)(thread->detail_seq - thread_seq) > keep;
    if (is_past || is_passed) {
      give_back(details, i, word);
      ++*freed;
    }
  }
  return used;
}

/* ---- of the whole drain ---- */

void
ct_drain_detail(struct ct_drain *drain, struct ct_detail_form form)
{
  drain->details.form = form;
}

struct ct_detail_stats
ct_drain_detail_stats(const struct ct_drain *drain)
{
  const struct ct_detail_stats *before = &drain->details_before;
  const struct drain_details *now = &drain->details;
  struct ct_detail_dropped dropped = ct_trace_writer_detail_dropped(drain->writer);
  uint64_t overwritten;
  return (struct ct_detail_stats){.recorded = before->recorded + now->recorded,
                                  .overwritten = before->overwritten + now->overwritten,
                                  .skipped = before->skipped + drain_detail_skipped(drain, &overwritten),
                                  .refused = before->refused + now->refused,
                                  .outside = dropped.unwanted,
                                  .no_memory = dropped.no_memory,
                                  .no_disk = dropped.no_disk};
}

/* ---- detail around marks ---- */

/* Marks of moments that are a second past are all there: the drain is not that far behind, but for threads that hang.
 */
static enum ct_detail_fate
judge_detail(void *context, uint64_t from_tsc, uint64_t to_tsc, bool is_last)
{
  const struct ct_drain *drain = context;
  struct ct_windows *windows = drain->rules != NULL ? drain->rules->windows : NULL;
  if (windows == NULL) {
    return CT_DETAIL_WRITE;
  }
  if (ct_windows_covers(windows, from_tsc, to_tsc)) {
    ct_windows_note_detail(windows, ct_trace_writer_detail_bytes(drain->writer));
    return ct_windows_are_full(windows) ? CT_DETAIL_REFUSE : CT_DETAIL_WRITE;
  }
  uint64_t now = __builtin_ia32_rdtsc(), late = drain->rules->ticks_a_second;
  bool may_come = ct_windows_may_cover(windows, to_tsc, now > late ? now - late : 0);
  return is_last || !may_come ? CT_DETAIL_DROP : CT_DETAIL_HOLD;
}

void
ct_drain_mark_detail(struct ct_drain *drain, size_t max_bytes)
{
  ct_trace_writer_judge_detail(drain->writer, judge_detail, drain, max_bytes);
}

void
drain_reconcile_details(struct ct_drain *drain)
{
  if (drain->details.count != 0) {
    ct_trace_writer_reconcile_detail(drain->writer);
  }
}
