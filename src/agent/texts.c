/* SPDX-License-Identifier: MIT */
/*
 * The texts that arguments of a call point to, for its record in the detail lane. The thread reads its own memory by
 * process_vm_readv: whatever a pointer is, nothing faults. One call for all of them, and further ones only after what
 * cannot be read.
 */
#include "agent/agent.h"

enum { PIECES_MAX = 2 * CT_DETAIL_TEXTS, LOWEST = 4096 };

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

/* wanted: see CT_DETAIL_WANTED_STRINGS_SHIFT. */
void
agent_read_texts(struct ct_detail_enter *record, uint32_t wanted)
{
  struct ct_detail_texts *texts =
      (struct ct_detail_texts *)((uint8_t *)record + (wanted >> CT_DETAIL_WANTED_OFFSET_SHIFT));
  uint32_t strings = wanted >> CT_DETAIL_WANTED_STRINGS_SHIFT & 0x3f;
  struct piece to[PIECES_MAX], from[PIECES_MAX];
  uint64_t got[PIECES_MAX], had[CT_DETAIL_TEXTS], counts = 0;
  uint32_t arguments[CT_DETAIL_TEXTS], count = 0, rest = 0;
  texts->counts = 0;
  for (uint32_t i = 0; i < 6 && count < CT_DETAIL_TEXTS && !agent_is_silent(); i++) {
    uint64_t address = record->registers[i], in_page = CT_PAGE_BYTES - address % CT_PAGE_BYTES;
    if (((wanted | strings) >> i & 1) == 0 || address < LOWEST) {
      continue;
    }
    from[count] = (struct piece){address, in_page < CT_DETAIL_TEXT_BYTES ? in_page : CT_DETAIL_TEXT_BYTES};
    to[count] = (struct piece){(uint64_t)texts->data[count], from[count].bytes};
    arguments[count++] = i;
  }
  if (count == 0) {
    return;
  }
  read_pieces(to, from, got, (long)count);
  /* What goes on in the next page. */
  uint32_t of[CT_DETAIL_TEXTS];
  for (uint32_t i = 0; i < count; i++) {
    had[i] = got[i];
    if (got[i] == from[i].bytes && got[i] < CT_DETAIL_TEXT_BYTES &&
        ((strings >> arguments[i] & 1) != 0 ? got[i] < 4 * sizeof(uint64_t) : !has_end(texts->data[i], got[i]))) {
      struct piece *more = &from[CT_DETAIL_TEXTS + rest];
      *more = (struct piece){from[i].address + got[i], CT_DETAIL_TEXT_BYTES - got[i]};
      to[CT_DETAIL_TEXTS + rest] = (struct piece){(uint64_t)texts->data[i] + got[i], more->bytes};
      of[rest++] = i;
    }
  }
  read_pieces(&to[CT_DETAIL_TEXTS], &from[CT_DETAIL_TEXTS], &got[CT_DETAIL_TEXTS], (long)rest);
  for (uint32_t i = 0; i < rest; i++) {
    had[of[i]] += got[CT_DETAIL_TEXTS + i];
  }
  uint64_t addresses[CT_DETAIL_TEXTS];
  for (uint32_t i = 0; i < count; i++) {
    addresses[i] = from[i].address;
  }
  count = strings != 0 ? read_indirect(texts, strings, had, arguments, addresses, count) : count;
  for (uint32_t i = 0; i < count; i++) {
    counts |= (uint64_t)CT_DETAIL_TEXT((uint32_t)had[i], arguments[i]) << (16 * i);
  }
  texts->counts = counts;
}
