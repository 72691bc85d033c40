/* SPDX-License-Identifier: MIT */
/* What the files of the translator share. */
#ifndef CT_X86_TRANSLATE_INTERNAL_H
#define CT_X86_TRANSLATE_INTERNAL_H

#include "x86/recorded.h"
#include "x86/translate.h"

enum ct_source_flow {
  CT_SOURCE_NEXT,
  CT_SOURCE_STOP, /* it does not go on: ud2, hlt */
  CT_SOURCE_JUMP,
  CT_SOURCE_BRANCH, /* jcc */
  CT_SOURCE_LOOP,   /* jrcxz, loop and the like: only with one byte of distance */
  CT_SOURCE_XBEGIN,
  CT_SOURCE_CALL,
  CT_SOURCE_JUMP_INDIRECT,
  CT_SOURCE_CALL_INDIRECT,
  CT_SOURCE_RET,
  CT_SOURCE_SYSCALL,
  CT_SOURCE_APART, /* can, but what it does is not recorded: the whole state is, after it (xrstor) */
  CT_SOURCE_STEP,  /* cannot be translated */
};

/* An instruction of the program, as far as the translator has to know. */
struct ct_source_insn {
  const uint8_t *code;
  uint64_t pc, target;
  uint64_t address; /* of a memory operand that is relative to rip */
  uint16_t uses;    /* general registers, bits by enum ct_reg: read, written or part of an address */
  uint16_t ret_bytes;
  uint8_t flow; /* enum ct_source_flow */
  uint8_t cond, length;
  uint8_t modrm_at, disp_at, rex, segment;
  bool has_memory, is_rip, is_lea, is_lea_wide;
  bool cannot_borrow; /* its memory operand cannot have another base in place of rip */
  uint8_t rm;         /* without memory: the register */
  uint8_t imm_bytes;  /* at its end */
  bool is_popf;
  bool is_plain; /* no VEX and the like, and its memory operand is in ModRM */
  /* Of records: */
  struct ct_effects effects;
  struct ct_recorded_value values[CT_VALUES_MAX];
  int value_count;
  bool is_side;    /* a branch after which the unit goes on ... */
  bool is_taken;   /* ... where it leads, as the next stretch */
  bool is_certain; /* a return to the next stretch: nothing in between can have changed the return address */
};

/* What the record of a unit needs. */
struct ct_recording {
  uint32_t uses; /* general registers of its instructions */
  uint32_t bytes;
  bool has_scratch;
};

/* The instructions of a unit. */
struct ct_block {
  struct ct_source_insn insns[CT_UNIT_INSNS_MAX];
  uint32_t count;
  uint32_t recorded; /* those that its record has: all, or all but the last */
  size_t used;       /* bytes of the last stretch's code */
  bool is_open;      /* goes on with the next instruction */
  bool is_cut;       /* which is known to be one */
  bool is_switch;    /* and after which the tracer looks where the stack pointer is */
  uint32_t sides;    /* branches that it goes on after */
  struct ct_recording recording;
  /* Each but the last one ends with a jump or a call to the next one. */
  struct ct_block_stretch {
    uint64_t pc;
    const uint8_t *code;
    uint32_t first; /* instruction */
  } stretches[CT_UNIT_STRETCHES_MAX];
  uint32_t stretch_count;
};

/* What is under way while a unit is being emitted. */
struct ct_writer {
  const struct ct_translation_place *place;
  struct ct_code *out, *hot, *cold; /* out: one of them, in which the unit begins at start */
  struct ct_unit *unit;
  size_t start;
  uint32_t first_exit;
  struct ct_code_label exit_labels[CT_UNIT_EXITS_MAX];
  struct ct_recovery exit_states[CT_UNIT_EXITS_MAX];
  struct ct_code_label literals[CT_UNIT_RETURNS_MAX]; /* of unit->return_addresses */
  struct ct_recovery now;                             /* what notes say at this place, but for at and pc */
  uint8_t record, scratch; /* registers: of the record, and one that is free for values; CT_NO_REG: none */
  uint32_t value_at;       /* where the next value belongs, in the record */
  uint32_t side_count;
  bool has_record; /* it is under way */
  struct ct_writer_side {
    struct ct_code_label label;
    struct ct_recovery now;
    uint8_t record, scratch;
    uint32_t value_at;
    uint64_t target;
    const struct ct_source_insn *indirect; /* it goes elsewhere than was guessed; NULL: a conditional branch */
  } sides[CT_UNIT_SIDES_MAX];
  /* Of the look at the ring (ct_record_look): */
  bool has_look;
  struct ct_recovery look; /* the state there, but for rcx */
  struct ct_code_label to_cold;
  uint64_t back; /* where it goes on */
};

#define CT_SLOT(place, member) ct_mem_absolute((place)->shared + (uint32_t)offsetof(struct ct_itrace_slots, member))

/* The place in the unit's hot or cold code. */
static inline uint32_t
ct_writer_here(const struct ct_writer *w)
{
  return (uint32_t)(w->out->length - w->start);
}

/* From here on the program is at pc, and the rest as w->now says; to be changed by the caller. */
struct ct_recovery *ct_writer_note(struct ct_writer *w, uint64_t pc);
/* The label, of branches in the hot code, is here in the cold code. */
void ct_writer_bind_cold(struct ct_writer *w, const struct ct_code_label *label);
/* Asks the tracer (CT_EXIT_WATCHED) if the condition holds at pc, whose instruction comes next. */
void ct_writer_ask_if(struct ct_writer *w, const struct ct_condition *condition, uint64_t pc);
/* Can an instruction here refer to that address relative to rip? */
bool ct_writer_reaches(const struct ct_writer *w, uint64_t address);
/* The instruction, whose operand is relative to rip and in reach from here. */
void ct_writer_copy_near(struct ct_writer *w, const struct ct_source_insn *insn);

/*
 * Records (translate_record.c), if place->records: their parts are emitted at the unit's head, around each instruction
 * and before its last one, after which nothing is borrowed any more.
 */
/* Finds out what is recorded of an instruction. False: it has to be executed where it is. */
bool ct_record_decode(const struct ct_translation_place *place, struct ct_source_insn *insn);
/* Adds the instruction to the unit's. False: it does not fit, and begins another. */
bool ct_record_takes(const struct ct_source_insn *insn, struct ct_recording *recording);
void ct_record_begin(struct ct_writer *w, const struct ct_recording *recording);
void ct_record_before(struct ct_writer *w, const struct ct_source_insn *insn);
bool ct_record_copy(struct ct_writer *w, const struct ct_source_insn *insn);
void ct_record_after(struct ct_writer *w, const struct ct_source_insn *insn);
void ct_record_end(struct ct_writer *w, uint64_t pc);
/* In place of that, on the way out by that side exit: the record is one of its part. */
void ct_record_end_side(struct ct_writer *w, const struct ct_writer_side *side);
/* At the unit's head, before anything else: is there room? */
void ct_record_look(struct ct_writer *w, uint64_t pc);
/* What belongs to that, in the cold code. room: where it goes when there is none. */
void ct_record_cold(struct ct_writer *w, struct ct_code_label *room);
void ct_record_before_syscall(struct ct_writer *w, uint64_t pc);
/* Behind a system call, in place of ct_record_after and ct_record_end; rcx is free. */
void ct_record_syscall(struct ct_writer *w, uint64_t next);

/* Which instructions belong to the unit at pc (translate_block.c). */
struct ct_block_request {
  const struct ct_translation_place *place;
  const struct ct_translation_source *source; /* NULL: it is of one stretch */
  uint64_t out;                               /* where the translated code will be, about */
  bool is_checked;
};
void ct_block_read(const struct ct_block_request *request, uint64_t pc, const uint8_t *code, size_t size,
                   struct ct_block *block);
/* Without such units no program goes on for ever, nor for as long as a few blocks of records. */
bool ct_block_wants_look(const struct ct_block *block);
bool ct_block_is_watched(const struct ct_translation_place *place, uint64_t pc);

/* One of CT_SOURCE_APART, with which the unit ends; the record of those before it has ended (translate_apart.c). */
void ct_apart_emit(struct ct_writer *w, const struct ct_source_insn *insn);

/* The restartable sequence that begins at pc; NULL: none does. */
const struct ct_sequence *ct_sequence_at(const struct ct_translation_place *place, uint64_t pc);
/* The whole unit of it; code is at its start. False: that cannot be, nothing is emitted. */
bool ct_sequence_emit(struct ct_writer *w, const struct ct_sequence *sequence, const uint8_t *code, size_t size);
/* A jump to the unit of target (CT_EXIT_LINK), or to the tracer, the program being there. */
void ct_translate_leave(struct ct_writer *w, uint64_t target, enum ct_exit_kind kind);

/* False: it is no instruction, or does not end within size. */
bool ct_source_decode(uint64_t pc, const uint8_t *code, size_t size, struct ct_source_insn *insn);

#endif
