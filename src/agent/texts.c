/* SPDX-License-Identifier: MIT */
/*
 * The texts that arguments of a call point to, for its record in the detail lane; and at its return what it has filled,
 * and what its result points to. The thread reads its own memory by process_vm_readv: whatever a pointer is, nothing
 * faults. One call for all of them, and further ones only after what cannot be read.
 *
 * What a return needs of the call is kept in the control page (struct ct_pending_call): the registers are lost by then,
 * and the record of the call may be. A tail call takes the place of the call that it ends: what it fills is asked for.
 * A signal handler may come in between anywhere: its calls have other slots, and are over when it is.
 */
#include "agent/agent.h"

enum { PIECES_MAX = 2 * CT_DETAIL_TEXTS, PAIR = 2, LOWEST = 4096, REGISTERS = 6 };

struct piece {
  uint64_t address, bytes;
};

static int
has_end(const uint8_t *text, uint64_t bytes)
{
  for (uint64_t i = 0; i < bytes; i++) {
    if (text[i] == 0) {
      return 1;
    }
  }
  return 0;
}

/* Reads from[i] to to[i]; got[i] = how many bytes of it could be read. */
static void
read_pieces(const struct piece *to, const struct piece *from, uint64_t *got, long count)
{
  for (long i = 0; i < count; i++) {
    got[i] = 0;
  }
  for (long i = 0; i < count; i++) {
    long done = agent_syscall(SYS_process_vm_readv, (long)agent_config.pid, (long)&to[i], count - i, (long)&from[i],
                              count - i, 0);
    uint64_t left = done > 0 ? (uint64_t)done : 0;
    while (i < count && left >= from[i].bytes) {
      left -= from[i].bytes;
      got[i] = from[i].bytes;
      i++;
    }
    if (i < count) {
      got[i] = left; /* after it nothing was tried */
    }
  }
}

/*
 * What objects as std::string is point to, which were read as texts: the text itself, unless it is inside of the
 * object. Returns how many texts there are then.
 */
static uint32_t
read_indirect(struct ct_detail_texts *texts, uint32_t strings, uint64_t *had, uint32_t *arguments,
              const uint64_t *addresses, uint32_t count)
{
  struct piece to[CT_DETAIL_TEXTS], from[CT_DETAIL_TEXTS];
  uint32_t total = count;
  for (uint32_t i = 0; i < count && total < CT_DETAIL_TEXTS; i++) {
    const uint64_t *object = (const uint64_t *)texts->data[i];
    int is_object = (strings >> arguments[i] & 1) != 0 && had[i] >= 2 * sizeof(*object);
    if (is_object && object[0] - addresses[i] >= had[i] && object[0] >= LOWEST && object[1] != 0) {
      uint64_t bytes = object[1] < CT_DETAIL_TEXT_BYTES ? object[1] : CT_DETAIL_TEXT_BYTES;
      from[total] = (struct piece){object[0], bytes};
      to[total] = (struct piece){(uint64_t)texts->data[total], bytes};
      arguments[total++] = arguments[i] | CT_DETAIL_TEXT_INDIRECT;
    }
  }
  if (total != count) {
    read_pieces(&to[count], &from[count], &had[count], (long)(total - count));
  }
  return total;
}

/* What is to be read. */
struct want {
  uint64_t address;
  uint32_t bytes, argument;
  uint32_t enough; /* with so many no further page is looked at; 0: with a zero among them */
};

/* Reads them to texts; had[i]: how many bytes of each there are. */
static void
read_wants(struct ct_detail_texts *texts, const struct want *wants, uint32_t count, uint64_t *had)
{
  struct piece to[PIECES_MAX] = {{0, 0}}, from[PIECES_MAX] = {{0, 0}};
  uint64_t got[PIECES_MAX];
  uint32_t of[CT_DETAIL_TEXTS], rest = 0;
  for (uint32_t i = 0; i < count; i++) {
    uint64_t in_page = CT_PAGE_BYTES - wants[i].address % CT_PAGE_BYTES;
    from[i] = (struct piece){wants[i].address, in_page < wants[i].bytes ? in_page : wants[i].bytes};
    to[i] = (struct piece){(uint64_t)texts->data[i], from[i].bytes};
  }
  read_pieces(to, from, got, (long)count);
  /* What goes on in the next page. */
  for (uint32_t i = 0; i < count; i++) {
    had[i] = got[i];
    if (got[i] == from[i].bytes && got[i] < wants[i].bytes &&
        (wants[i].enough != 0 ? got[i] < wants[i].enough : !has_end(texts->data[i], got[i]))) {
      struct piece *more = &from[CT_DETAIL_TEXTS + rest];
      *more = (struct piece){from[i].address + got[i], wants[i].bytes - got[i]};
      to[CT_DETAIL_TEXTS + rest] = (struct piece){(uint64_t)texts->data[i] + got[i], more->bytes};
      of[rest++] = i;
    }
  }
  read_pieces(&to[CT_DETAIL_TEXTS], &from[CT_DETAIL_TEXTS], &got[CT_DETAIL_TEXTS], (long)rest);
  for (uint32_t i = 0; i < rest; i++) {
    had[of[i]] += got[CT_DETAIL_TEXTS + i];
  }
}

static uint64_t
counts_of(const uint64_t *had, const uint32_t *arguments, uint32_t count)
{
  uint64_t counts = 0;
  for (uint32_t i = 0; i < count; i++) {
    counts |= (uint64_t)CT_DETAIL_TEXT((uint32_t)had[i], arguments[i]) << (16 * i);
  }
  return counts;
}

/* ---- What the return will need ---- */

/* The thread's own page; NULL: gs shows another. */
static struct ct_control_page *
own_control(void)
{
  uint32_t mode, slot;
  __asm__ volatile("movl %%gs:%c1, %0" : "=r"(mode) : "i"(CT_GS_MODE));
  __asm__ volatile("movl %%gs:%c1, %0" : "=r"(slot) : "i"(CT_GS_SLOT));
  return mode == CT_MODE_ON && slot < CT_SLOT_COUNT
             ? (struct ct_control_page *)(agent_config.controls + (uint64_t)slot * CT_CONTROL_STRIDE)
             : 0;
}

static void
keep_call(const struct ct_detail_enter *record, uint32_t outs)
{
  struct ct_control_page *control = own_control();
  if (control == 0) {
    return;
  }
  struct ct_pending_call *at = &control->pending[0];
  for (uint32_t i = 0; i < CT_PENDING_CALLS; i++) {
    struct ct_pending_call *call = &control->pending[i];
    if (call->sp == record->record.sp) {
      at = call;
      break;
    }
    if (at->sp != 0 && (call->sp == 0 || (int32_t)(call->order - at->order) < 0)) {
      at = call; /* a free one, or that of the oldest call */
    }
  }
  at->sp = record->record.sp;
  at->outs = outs;
  at->order = ++control->pending_order;
  for (uint32_t i = 0; i < CT_PENDING_REGISTERS; i++) {
    at->registers[i] = record->registers[i];
  }
}

/* What the call has left, which is over; with outs 0: it is not known. */
static struct ct_pending_call
take_call(uint64_t sp)
{
  struct ct_control_page *control = own_control();
  struct ct_pending_call taken = {.outs = 0};
  for (uint32_t i = 0; control != 0 && i < CT_PENDING_CALLS; i++) {
    struct ct_pending_call *call = &control->pending[i];
    if (call->sp == sp) {
      taken = *call;
      call->sp = 0;
    }
  }
  return taken;
}

/* How many bytes the call has filled. */
static uint32_t
filled_bytes(const struct ct_detail_return *record, uint32_t out)
{
  uint32_t most = CT_DETAIL_OUT_BYTES(out);
  most = most < CT_DETAIL_TEXT_BYTES ? most : CT_DETAIL_TEXT_BYTES;
  if ((uint32_t)record->rax == UINT32_MAX || (record->rax == 0 && (out & CT_DETAIL_OUT_ZERO_FAILS) != 0)) {
    return 0;
  }
  return CT_DETAIL_OUT_HOW(out) != CT_DETAIL_OUT_AS_RESULT ? most
         : (int64_t)record->rax <= 0                       ? 0
         : record->rax < most                              ? (uint32_t)record->rax
                                                           : most;
}

/* out: see CT_DETAIL_OUT_REGISTER. */
static void
read_outs(struct ct_detail_return *record, uint32_t out)
{
  struct ct_detail_texts *texts = (struct ct_detail_texts *)(record + 1);
  struct ct_pending_call call = take_call(record->record.sp);
  struct want wants[PAIR];
  uint64_t had[CT_DETAIL_TEXTS];
  uint32_t arguments[PAIR], count = 0;
  texts->counts = 0;
  if (CT_DETAIL_OUT_REGISTER(call.outs) - 1 < CT_PENDING_REGISTERS) {
    uint32_t bytes = filled_bytes(record, call.outs), number = CT_DETAIL_OUT_REGISTER(call.outs) - 1;
    if (call.registers[number] >= LOWEST && bytes != 0) {
      arguments[count] = number;
      wants[count++] = (struct want){call.registers[number], bytes, number, bytes};
    }
  }
  if ((out & CT_DETAIL_OUT_RESULT_TEXT) != 0 && record->rax >= LOWEST) {
    arguments[count] = CT_DETAIL_TEXT_RESULT;
    wants[count] = (struct want){record->rax, CT_DETAIL_TEXT_BYTES, CT_DETAIL_TEXT_RESULT, 0};
    count++;
  }
  if (count != 0 && !agent_is_silent()) {
    read_wants(texts, wants, count, had);
    texts->counts = counts_of(had, arguments, count);
  }
}

static void
read_texts(struct ct_detail_enter *record, uint32_t wanted)
{
  struct ct_detail_texts *texts =
      (struct ct_detail_texts *)((uint8_t *)record + (wanted >> CT_DETAIL_WANTED_OFFSET_SHIFT));
  uint32_t strings = wanted >> CT_DETAIL_WANTED_STRINGS_SHIFT & 0x3f;
  uint32_t blocks = wanted & strings; /* as long as there is room, whatever bytes are in them */
  strings &= ~blocks;
  struct want wants[CT_DETAIL_TEXTS];
  uint64_t had[CT_DETAIL_TEXTS], addresses[CT_DETAIL_TEXTS];
  uint32_t arguments[CT_DETAIL_TEXTS], count = 0;
  uint32_t far = 0; /* strings whose text may be elsewhere: it comes before blocks, and needs a place of its own */
  texts->counts = 0;
  for (uint32_t turn = 0; turn < 2 * REGISTERS && count < CT_DETAIL_TEXTS && !agent_is_silent(); turn++) {
    uint32_t i = turn % REGISTERS; /* texts first */
    uint32_t now = turn < REGISTERS ? (wanted | strings) & ~blocks : blocks;
    if ((now >> i & 1) == 0 || record->registers[i] < LOWEST || (turn >= REGISTERS && count + far >= CT_DETAIL_TEXTS)) {
      continue;
    }
    far += turn < REGISTERS && (strings >> i & 1) != 0;
    addresses[count] = record->registers[i];
    wants[count] = (struct want){record->registers[i], CT_DETAIL_TEXT_BYTES, i,
                                 (blocks >> i & 1) != 0    ? CT_DETAIL_TEXT_BYTES
                                 : (strings >> i & 1) != 0 ? 4 * (uint32_t)sizeof(uint64_t)
                                                           : 0};
    arguments[count++] = i;
  }
  if (count != 0) {
    read_wants(texts, wants, count, had);
    count = strings != 0 ? read_indirect(texts, strings, had, arguments, addresses, count) : count;
    texts->counts = counts_of(had, arguments, count);
  }
}

/* Of a call, or of a return: see CT_DETAIL_WANTED_STRINGS_SHIFT. */
void
agent_read_texts(struct ct_detail_record *record, uint32_t wanted, const struct ct_hook_desc *desc)
{
  if (((uint32_t)record->word >> CT_WORD_KIND_SHIFT & 3) == CT_KIND_RETURN) {
    read_outs((struct ct_detail_return *)record, wanted);
    return;
  }
  if ((wanted & CT_DETAIL_WANTED_PENDING) != 0) {
    keep_call((struct ct_detail_enter *)record, desc->outs);
  }
  if ((wanted & CT_DETAIL_WANTED_TEXTS) != 0) {
    read_texts((struct ct_detail_enter *)record, wanted);
  }
}
