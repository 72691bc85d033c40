/* SPDX-License-Identifier: MIT */
/* The records of the detail lane: a part of layout.h, whose rules hold for it. */
#ifndef CT_RING_DETAIL_H
#define CT_RING_DETAIL_H

#include <stdint.h>

/*
 * The detail lane: further segments, after those of events, in the same table. A thread has one of them besides that of
 * its events, and appends a record for each enter and each return of a function that is hooked with detail. Then it
 * says where the record is, by an event of its own (CT_OTHER_DETAIL), and then comes that of the enter or return: only
 * by that are records found, so a record says nothing of whether it is whole. The last record of a segment may end
 * after the segment's end, in the half of the stride that is otherwise never touched.
 */
/*
 * In the upper bits of the address in that event is the position of the segment among the thread's, when the event was
 * written. A segment that the thread has taken again since has a later one, and what is in it now is no record of
 * that event's: nothing else tells, one call of a function looks like the next.
 */
#define CT_DETAIL_TAG_SHIFT            48
#define CT_DETAIL_TAG(thread_seq)      ((uint64_t)(uint16_t)(thread_seq) << CT_DETAIL_TAG_SHIFT)
#define CT_DETAIL_ADDRESS(value)       ((value) & (((uint64_t)1 << CT_DETAIL_TAG_SHIFT) - 1))
#define CT_DETAIL_IS_LATER(seq, value) ((int16_t)((uint16_t)(seq) - (uint16_t)((value) >> CT_DETAIL_TAG_SHIFT)) > 0)
struct ct_detail_record {
  uint64_t word; /* as in the event of the enter or return, without a tag */
  uint64_t sp;   /* address of the return-address slot */
  uint64_t bp;
};
struct ct_detail_enter {
  struct ct_detail_record record;
  uint64_t return_address;
  uint64_t registers[8]; /* enum ct_detail_register of <contrail/trace.h> */
  /* With vectors: the low halves of xmm0 to xmm7. With stack bytes: how many there are of them, and as many as that,
   * from sp upwards; fewer than asked for where the stack ends. */
};
struct ct_detail_return {
  struct ct_detail_record record;
  uint64_t rax, rdx, xmm0, xmm1;
  int32_t error;     /* errno, after eax was -1 ... */
  uint32_t is_error; /* ... and this not 0 */
};
_Static_assert(sizeof(struct ct_detail_record) == 24 && sizeof(struct ct_detail_enter) == 96 &&
                   sizeof(struct ct_detail_return) == 64,
               "detail records");
/*
 * After that, with CT_DETAIL_WORD_TEXTS in the record's word: what the first arguments that point to texts point to; of
 * a return what the call has filled, and what its result points to.
 */
#define CT_DETAIL_WORD_TEXTS 1u /* where events have their tag */
#define CT_DETAIL_TEXTS      3u
#define CT_DETAIL_TEXT_BYTES 64u
struct ct_detail_texts {
  uint64_t counts; /* CT_DETAIL_TEXT for each */
  uint8_t data[CT_DETAIL_TEXTS][CT_DETAIL_TEXT_BYTES];
  uint64_t pad;
};
_Static_assert(sizeof(struct ct_detail_texts) == 208, "detail texts");
/*
 * One of 16 bits each: how many bytes are there, and which of rdi rsi rdx rcx r8 r9, or rax, points to them; 0: none.
 * With CT_DETAIL_TEXT_INDIRECT the text is where the first word of what that register points to points to
 * (std::string).
 */
#define CT_DETAIL_TEXT(bytes, argument) (0x8000u | (argument) << 8 | (bytes))
#define CT_DETAIL_TEXT_INDIRECT         8u /* in the argument */
#define CT_DETAIL_TEXT_RESULT           6u /* the argument is the result */
#define CT_DETAIL_TEXT_COUNT(text)      ((text)&0xffu)
#define CT_DETAIL_TEXT_ARGUMENT(text)   ((text) >> 8 & 0x7fu)
/*
 * What agent_read_texts is asked for: bits 0 to 5 which of the six registers point to text, 8 to 13 which to objects as
 * std::string is, pointer and length first, both to structures; from bit 16 on how far after the record the texts are.
 */
#define CT_DETAIL_WANTED_STRINGS_SHIFT 8u
#define CT_DETAIL_WANTED_TEXTS         0x3f3fu
#define CT_DETAIL_WANTED_PENDING       0x40u /* bit 6: the return may ask for what the call has filled */
#define CT_DETAIL_WANTED_OFFSET_SHIFT  16u
/*
 * The same for a return: bits 0 to 2 which register's memory the call has filled, plus 1; 0: none. Bits 3 and 4 how
 * much, bits 5 to 11 how many bytes at most; bit 12: the result points to text; bit 13: a result of 0 is a failure.
 */
#define CT_DETAIL_OUT_REGISTER(out) ((out)&7u)
#define CT_DETAIL_OUT_HOW(out)      ((out) >> 3 & 3u)
#define CT_DETAIL_OUT_BYTES(out)    ((out) >> 5 & 0x7fu)
#define CT_DETAIL_OUT_HOW_SHIFT     3u
#define CT_DETAIL_OUT_BYTES_SHIFT   5u
#define CT_DETAIL_OUT_RESULT_TEXT   0x1000u
#define CT_DETAIL_OUT_ZERO_FAILS    0x2000u
enum ct_detail_out_how { CT_DETAIL_OUT_ALL = 0, CT_DETAIL_OUT_AS_RESULT = 1 };
#define CT_DETAIL_VECTORS     8u
#define CT_DETAIL_STACK_MAX   512u
#define CT_DETAIL_BYTES_MAX   912u
#define CT_DETAIL_SEGMENT_MAX 4096u
/* What is recorded of an enter, the same for all hooks of an image. */
struct ct_detail_form {
  uint16_t stack;   /* bytes, a multiple of 8, up to CT_DETAIL_STACK_MAX */
  uint16_t vectors; /* not 0: xmm0 to xmm7 */
};
/* What its record takes in the segment. */
static inline uint32_t
ct_detail_enter_bytes(struct ct_detail_form form)
{
  uint32_t bytes = (uint32_t)sizeof(struct ct_detail_enter) + (form.vectors != 0 ? CT_DETAIL_VECTORS * 8 : 0);
  bytes += form.stack != 0 ? 8u + form.stack : 0;
  return (bytes + 15) & ~15u;
}

#endif
