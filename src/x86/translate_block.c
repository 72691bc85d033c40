/* SPDX-License-Identifier: MIT */
/* Which instructions belong to a unit. */
#include "x86/translate_internal.h"

#include <string.h>

static bool
is_executed_here(const struct ct_source_insn *insn)
{
  return insn->flow != CT_SOURCE_STEP && insn->flow != CT_SOURCE_STOP && insn->flow != CT_SOURCE_APART;
}

/* How what cannot be recorded is executed: in the unit, if it goes on after it, and else by a step where it is. */
static enum ct_source_flow
apart_or_step(const struct ct_source_insn *insn)
{
  return insn->flow == CT_SOURCE_NEXT ? CT_SOURCE_APART : CT_SOURCE_STEP;
}

/* False: it begins another unit. */
static bool
take(const struct ct_translation_place *place, struct ct_block *block, struct ct_source_insn *insn)
{
  bool is_first = block->count == 0;
  if (place->records) {
    if (!ct_record_decode(place, insn)) {
      insn->flow = (uint8_t)apart_or_step(insn);
    }
    if (insn->flow == CT_SOURCE_SYSCALL && !is_first) {
      return false;
    }
    if (is_executed_here(insn) && !ct_record_takes(insn, &block->recording)) {
      if (!is_first) {
        return false;
      }
      insn->flow = (uint8_t)apart_or_step(insn);
    }
    block->recorded += is_executed_here(insn);
  }
  block->count++;
  block->used += insn->length;
  block->is_open = insn->flow == CT_SOURCE_NEXT;
  return true;
}

/* Does it store, at an address that is relative to its own, near the unit at pc, so perhaps over what follows in it? */
static bool
stores_near(const struct ct_source_insn *insn, uint64_t pc)
{
  enum { NEAR = 256 }; /* more than a unit whose code may change has of bytes, and than a store has */
  for (int k = 0; insn->is_rip && k < insn->effects.access_count; k++) {
    const struct ct_access *access = &insn->effects.access[k];
    if ((access->how & CT_ACCESS_RIP) != 0 && (access->how & CT_ACCESS_WRITE) != 0) {
      return insn->address - pc + NEAR < 2 * (uint64_t)NEAR;
    }
  }
  return false;
}

/* cpuid, serialize: what was stored before it is what is executed after it, by the processor's manual. */
static bool
is_serializing(const struct ct_source_insn *insn)
{
  static const uint8_t cpuid[] = {0x0f, 0xa2}, serialize[] = {0x0f, 0x01, 0xe8};
  return (insn->length >= sizeof(cpuid) &&
          memcmp(insn->code + insn->length - sizeof(cpuid), cpuid, sizeof(cpuid)) == 0) ||
         (insn->length >= sizeof(serialize) &&
          memcmp(insn->code + insn->length - sizeof(serialize), serialize, sizeof(serialize)) == 0);
}

bool
ct_block_is_watched(const struct ct_translation_place *place, uint64_t pc)
{
  uint32_t low = 0, high = place->watched_count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (place->watched[middle] < pc) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < place->watched_count && place->watched[low] == pc;
}

enum { AREA_SHIFT = 16 };

static bool
goes_back_or_far(const struct ct_source_insn *insn)
{
  return insn->target <= insn->pc || insn->target >> AREA_SHIFT != insn->pc >> AREA_SHIFT;
}

/* Is there room for more after its last instruction so far? Of code that may be executed once, less is translated. */
static bool
has_room(const struct ct_block_request *request, const struct ct_block *block)
{
  enum { LONG_INSNS = 96, SHORT_INSNS = 48, SHORT_SIDES = 8, SHORT_STRETCHES = 8 };
  bool is_long = request->source != NULL && request->source->is_hot;
  return block->count <= (is_long ? LONG_INSNS : SHORT_INSNS) &&
         block->sides < (is_long ? CT_UNIT_SIDES_MAX : SHORT_SIDES) &&
         block->stretch_count < (is_long ? CT_UNIT_STRETCHES_MAX : SHORT_STRETCHES);
}

/* Is it in the block, as the first or a later instruction? */
static bool
has(const struct ct_block *block, uint64_t pc)
{
  for (uint32_t k = 0; k < block->count; k++) {
    if (block->insns[k].pc == pc) {
      return true;
    }
  }
  return false;
}

/*
 * Does the unit go on after that branch, its last instruction so far? Where it is taken, the record is one of a unit
 * that ends there. Not where a look would be wanted, nor code may change: what is compared is what is executed.
 */
static bool
goes_on(const struct ct_block_request *request, const struct ct_block *block)
{
  const struct ct_source_insn *last = &block->insns[block->count - 1];
  return last->flow == CT_SOURCE_BRANCH && !request->is_checked && has_room(request, block) && !goes_back_or_far(last);
}

/* Does it go on where the branch leads, its last instruction so far? */
static bool
goes_there(const struct ct_block_request *request, const struct ct_block *block)
{
  const struct ct_source_insn *last = &block->insns[block->count - 1];
  return request->source != NULL && last->flow == CT_SOURCE_BRANCH && has_room(request, block) &&
         request->source->is_taken(request->source->context, last->pc + last->length);
}

static bool
is_in_reach(const struct ct_block_request *request, const struct ct_source_insn *insn)
{
  enum { SLACK = 1 << 20 };
  int64_t distance = (int64_t)(insn->address - request->out);
  return !insn->is_rip || (distance > INT32_MIN + SLACK && distance < INT32_MAX - SLACK);
}

/* The last stretch of the block, of which size bytes of code are there. */
static void
read_stretch(const struct ct_block_request *request, size_t size, struct ct_block *block)
{
  enum { CHECKED_INSNS_MAX = 12 };
  const struct ct_translation_place *place = request->place;
  const struct ct_block_stretch *stretch = &block->stretches[block->stretch_count - 1];
  uint32_t most = request->is_checked ? CHECKED_INSNS_MAX : stretch->first + CT_STRETCH_INSNS_MAX;
  most = most < CT_UNIT_INSNS_MAX ? most : CT_UNIT_INSNS_MAX;
  block->used = 0;
  block->is_open = true;
  block->is_cut = block->is_switch = false;
  while (block->is_open) {
    uint64_t next = stretch->pc + block->used;
    bool begins = block->used != 0 && (ct_block_is_watched(place, next) || ct_sequence_at(place, next) != NULL);
    if (block->count == most || begins) {
      block->is_cut = true;
      break;
    }
    struct ct_source_insn *insn = &block->insns[block->count];
    if (!ct_source_decode(next, stretch->code + block->used, size - block->used, insn)) {
      break;
    }
    if ((stretch->first != 0 && !is_in_reach(request, insn)) || !take(place, block, insn)) {
      block->is_cut = true;
      break;
    }
    if (!block->is_open && goes_on(request, block) && !goes_there(request, block)) {
      insn->is_side = block->is_open = true;
      block->sides++;
    }
    if (block->is_open && place->records && place->asks_at_switches && insn->flow == CT_SOURCE_NEXT &&
        ct_effects_switch_stack(&insn->effects)) {
      block->is_cut = block->is_switch = true;
      break;
    }
    if (block->is_open && request->is_checked &&
        (is_serializing(insn) || (place->records && stores_near(insn, stretch->pc)))) {
      block->is_cut = true; /* the next unit compares what is there then */
      break;
    }
  }
}

/* ---- returns, and indirect branches that go where they nearly always go ---- */

static bool
is_indirect(const struct ct_source_insn *insn)
{
  return insn->flow == CT_SOURCE_RET || insn->flow == CT_SOURCE_JUMP_INDIRECT || insn->flow == CT_SOURCE_CALL_INDIRECT;
}

/* How far it moves the stack pointer, if that is all that it does to it by itself; false: otherwise, or not known. */
static bool
moves_stack(const struct ct_source_insn *insn, int64_t *by)
{
  const uint8_t *code = insn->code;
  size_t at = (code[0] & 0xf0) == 0x40 ? 1 : 0; /* REX */
  *by = 0;
  if ((insn->effects.writes >> CT_RSP & 1) == 0) {
    return true;
  }
  if ((code[at] & 0xf8) == 0x50 && insn->length == at + 1) { /* push */
    *by = -8;
    return true;
  }
  if ((code[at] & 0xf8) == 0x58 && insn->length == at + 1) { /* pop */
    *by = 8;
    return code[at] != 0x5c || (at != 0 && (code[0] & 1) != 0); /* of another register */
  }
  if (code[0] == 0x48 && (code[1] == 0x83 || code[1] == 0x81) && (code[2] == 0xc4 || code[2] == 0xec)) {
    *by = code[2] == 0xc4 ? insn->effects.imm : -insn->effects.imm; /* add, sub */
    return true;
  }
  return false;
}

/* May it write to the 8 bytes that are `slot` above the stack pointer? */
static bool
may_write(const struct ct_source_insn *insn, int64_t slot)
{
  const struct ct_effects *effects = &insn->effects;
  bool may = (effects->traits & CT_EFFECT_MORE_STORES) != 0;
  for (int k = 0; k < effects->access_count; k++) {
    const struct ct_access *access = &effects->access[k];
    bool is_plain = access->base == CT_RSP && access->index == CT_NO_REG && access->segment == CT_SEGMENT_NONE &&
                    access->bits_reg == CT_NO_REG && access->size != 0 &&
                    (access->how & ~(CT_ACCESS_READ | CT_ACCESS_WRITE)) == 0;
    bool is_apart = is_plain && (access->disp >= slot + 8 || access->disp + access->size <= slot);
    may |= (access->how & CT_ACCESS_WRITE) != 0 && !is_apart;
  }
  return may;
}

/* Is the return address that `call` pushes surely what the block's last instruction takes from the stack? */
static bool
is_certain(const struct ct_block *block, const struct ct_source_insn *call)
{
  int64_t slot = 0;
  const struct ct_source_insn *ret = &block->insns[block->count - 1];
  for (const struct ct_source_insn *insn = call + 1; insn < ret; insn++) {
    int64_t by = 0;
    if (slot < 0) {
      return false;
    }
    if (insn->flow == CT_SOURCE_CALL || insn->flow == CT_SOURCE_CALL_INDIRECT) {
      by = -8;
    } else if (insn->flow == CT_SOURCE_RET) {
      by = 8 + insn->ret_bytes;
    } else if (may_write(insn, slot) || !moves_stack(insn, &by)) {
      return false;
    }
    slot -= by;
  }
  return slot == 0;
}

/* The call whose return address the last instruction takes from the stack, if all is as it seems; NULL: it is before
 * the block. */
static const struct ct_source_insn *
call_of_return(const struct ct_block *block)
{
  uint32_t returns = 1;
  for (uint32_t k = block->stretch_count; k-- > 1;) {
    const struct ct_source_insn *joint = &block->insns[block->stretches[k].first - 1];
    if (joint->flow == CT_SOURCE_RET) {
      returns++;
    } else if ((joint->flow == CT_SOURCE_CALL || joint->flow == CT_SOURCE_CALL_INDIRECT) && --returns == 0) {
      return joint;
    }
  }
  return NULL;
}

/* Where the block's last instruction goes; false: that is not known. */
static bool
find_target(const struct ct_block_request *request, struct ct_block *block)
{
  struct ct_source_insn *last = &block->insns[block->count - 1];
  if (!is_indirect(last)) {
    return last->flow == CT_SOURCE_JUMP || last->flow == CT_SOURCE_CALL || goes_there(request, block);
  }
  if (!request->place->records) {
    return false;
  }
  const struct ct_source_insn *call = last->flow == CT_SOURCE_RET ? call_of_return(block) : NULL;
  last->is_certain = call != NULL && is_certain(block, call);
  last->target = call != NULL ? call->pc + call->length
                              : request->source->guess(request->source->context, last->pc + last->length);
  return last->target != 0;
}

static bool
can_follow(const struct ct_block_request *request, struct ct_block *block)
{
  if (block->count == 0) { /* there is no code that can be read */
    return false;
  }
  const struct ct_source_insn *last = &block->insns[block->count - 1];
  bool is_jump_alone = block->count == 1 && !request->place->records; /* of which nothing would be emitted */
  return request->source != NULL && !block->is_open && !is_jump_alone && find_target(request, block) &&
         has_room(request, block) && (request->source->is_hot || !has(block, last->target)) &&
         !ct_block_is_watched(request->place, last->target) && ct_sequence_at(request->place, last->target) == NULL;
}

/* Goes on where the block leads. False: it ends as it is. */
static bool
follow(const struct ct_block_request *request, struct ct_block *block)
{
  enum { RECORD_ROOM = 1024 };
  struct ct_source_insn *last = &block->insns[block->count - 1];
  uint64_t target = last->target;
  size_t size = 0;
  const uint8_t *code = request->source->read(request->source->context, target, block->stretch_count, &size);
  if (code == NULL || block->recording.bytes > RECORD_ROOM) {
    return false;
  }
  uint32_t count = block->count, recorded = block->recorded, sides = block->sides;
  size_t used = block->used;
  struct ct_recording recording = block->recording;
  last->is_side = last->is_taken = last->flow == CT_SOURCE_BRANCH;
  block->sides += last->is_side || (is_indirect(last) && !last->is_certain);
  block->stretches[block->stretch_count++] =
      (struct ct_block_stretch){.pc = target, .code = code, .first = block->count};
  read_stretch(request, size, block);
  if (block->count != count && is_executed_here(&block->insns[count])) {
    return true;
  }
  last->is_side = last->is_taken = false;
  block->count = count;
  block->recorded = recorded;
  block->sides = sides;
  block->used = used;
  block->recording = recording;
  block->stretch_count--;
  block->is_open = block->is_cut = false;
  return false;
}

void
ct_block_read(const struct ct_block_request *request, uint64_t pc, const uint8_t *code, size_t size,
              struct ct_block *block)
{
  block->count = block->recorded = block->sides = 0;
  block->recording = (struct ct_recording){.uses = 0};
  block->stretches[0] = (struct ct_block_stretch){.pc = pc, .code = code};
  block->stretch_count = 1;
  read_stretch(request, size, block);
  while (can_follow(request, block) && follow(request, block)) {
  }
}

/*
 * Does it go forward in its area, with little to record for so much code? Units without a look then write three times
 * an area at most, before there is one or the area ends: less than what a segment has left (recorder.c, set_blocks).
 */
static bool
goes_slowly(const struct ct_block *block)
{
  enum { RECORD_BYTES = 3 }; /* for a byte of code */
  uint64_t pc = block->insns[0].pc;
  const struct ct_source_insn *last = &block->insns[block->count - 1];
  uint64_t end = last->pc + last->length;
  return end >> AREA_SHIFT == pc >> AREA_SHIFT &&
         block->recording.bytes + sizeof(uint32_t) <= RECORD_BYTES * (end - pc);
}

/* Does the block surely go on after the call that ends there, like one instruction? */
static bool
comes_back(const struct ct_block *block, const struct ct_source_insn *call)
{
  const struct ct_source_insn *end = block->insns + block->stretches[block->stretch_count - 1].first;
  for (const struct ct_source_insn *insn = call + 1; insn < end && !insn->is_side; insn++) {
    if (is_indirect(insn) && (!insn->is_certain || insn->target == call->pc + call->length)) {
      return insn->is_certain;
    }
  }
  return false;
}

/* Without such units no program goes on for ever, nor for as long as a few blocks of records. */
bool
ct_block_wants_look(const struct ct_block *block)
{
  if (block->recorded == 0) {
    return false;
  }
  for (uint32_t k = 1; k < block->stretch_count; k++) {
    const struct ct_source_insn *joint = &block->insns[block->stretches[k].first - 1];
    bool is_call = joint->flow == CT_SOURCE_CALL;
    bool is_guessed = is_indirect(joint) && !joint->is_certain;
    if (is_guessed || (is_call ? !comes_back(block, joint) : !joint->is_certain && goes_back_or_far(joint))) {
      return true;
    }
  }
  const struct ct_source_insn *last = &block->insns[block->count - 1];
  switch (last->flow) {
  case CT_SOURCE_JUMP:
  case CT_SOURCE_BRANCH:
  case CT_SOURCE_LOOP:
    return goes_back_or_far(last) || !goes_slowly(block);
  case CT_SOURCE_CALL:
  case CT_SOURCE_CALL_INDIRECT:
  case CT_SOURCE_JUMP_INDIRECT:
  case CT_SOURCE_RET: /* to a return, perhaps, and so on for as many calls as the stack is deep */
    return true;
  default:
    return block->is_cut || !goes_slowly(block);
  }
}
