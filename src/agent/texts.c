/* SPDX-License-Identifier: MIT */
/*
 * The texts that arguments of a call point to, for its record in the detail lane. The thread reads its own memory by
 * process_vm_readv: whatever a pointer is, nothing faults. One call for all of them, and further ones only behind what
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
      got[i] = left; /* behind it nothing was tried */
    }
  }
}

/* wanted: in its lowest byte a bit for each of the six registers, above that how far behind the record the texts are. */
void
agent_read_texts(struct ct_detail_enter *record, uint32_t wanted)
{
  struct ct_detail_texts *texts = (struct ct_detail_texts *)((uint8_t *)record + (wanted >> 8));
  struct piece to[PIECES_MAX], from[PIECES_MAX];
  uint64_t got[PIECES_MAX], had[CT_DETAIL_TEXTS], counts = 0;
  uint32_t arguments[CT_DETAIL_TEXTS], count = 0, rest = 0;
  texts->counts = 0;
  for (uint32_t i = 0; i < 6 && count < CT_DETAIL_TEXTS && !agent_is_silent(); i++) {
    uint64_t address = record->registers[i], in_page = CT_PAGE_BYTES - address % CT_PAGE_BYTES;
    if ((wanted >> i & 1) == 0 || address < LOWEST) {
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
    if (got[i] == from[i].bytes && got[i] < CT_DETAIL_TEXT_BYTES && !has_end(texts->data[i], got[i])) {
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
  for (uint32_t i = 0; i < count; i++) {
    counts |= (uint64_t)CT_DETAIL_TEXT((uint32_t)had[i], arguments[i]) << (16 * i);
  }
  texts->counts = counts;
}
