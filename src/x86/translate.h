/* SPDX-License-Identifier: MIT */
/*
 * Translation of machine code, block by block, into code that does the same at another address and never leaves the
 * translated world but through exits. See translate.c. Pure: bytes in, bytes out.
 */
#ifndef CT_X86_TRANSLATE_H
#define CT_X86_TRANSLATE_H

#include "ring/itrace.h"
#include "x86/emit.h"

#include <stdbool.h>
#include <stdint.h>

enum {
  CT_UNIT_INSNS_MAX = 128,
  CT_STRETCH_INSNS_MAX = 64, /* one after the other */
  CT_STRETCH_SOURCE_MAX = CT_STRETCH_INSNS_MAX * 15,
  CT_UNIT_SOURCE_MAX = CT_UNIT_INSNS_MAX * 15,
  CT_UNIT_BYTES_MAX = 16384,
  CT_UNIT_RECORD_MAX = 4096,
  CT_UNIT_SIDES_MAX = 16,
  CT_UNIT_STRETCHES_MAX = 16,
  CT_UNIT_PARTS_MAX = 1 + CT_UNIT_SIDES_MAX,
  CT_UNIT_RETURNS_MAX = CT_UNIT_STRETCHES_MAX + CT_UNIT_SIDES_MAX,
  CT_UNIT_EXITS_MAX = 5 + CT_UNIT_SIDES_MAX,
  CT_RECOVERY_MAX = 8 * (CT_UNIT_INSNS_MAX + CT_UNIT_SIDES_MAX + CT_UNIT_EXITS_MAX),
};

/* Instructions from start up to before end that the kernel restarts at abort. */
struct ct_sequence {
  uint64_t start, end, abort;
};
/*
 * The one whose descriptor (struct rseq_cs) these bytes are; false: they are none. *signature: where it has to be
 * before abort is at abort - 4.
 */
enum { CT_SEQUENCE_BYTES = 32 };
bool ct_sequence_of(const uint8_t bytes[CT_SEQUENCE_BYTES], struct ct_sequence *sequence);
/*
 * The next place in the code at pc, from *at on, that has the address of something which may be a descriptor; false:
 * there is none. *at: after it.
 */
bool ct_sequence_find(uint64_t pc, const uint8_t *code, size_t size, size_t *at, uint64_t *descriptor);

/* "arg1 > 5", "rdi != 0": a register against a number, both with a sign. */
struct ct_condition {
  uint8_t reg; /* enum ct_reg */
  uint8_t op;  /* enum ct_condition_op */
  int64_t value;
};
enum ct_condition_op { CT_ALWAYS, CT_EQUAL, CT_UNEQUAL, CT_LESS, CT_LESS_EQUAL, CT_MORE, CT_MORE_EQUAL };

/* What stands where the translated code is to run. Addresses in the target. */
struct ct_translation_place {
  uint32_t shared;         /* struct ct_itrace_slots and what follows it; below 2 GiB */
  uint64_t leave;          /* the code that asks the tracer (ct_translate_runtime), in reach */
  uint32_t silent_waits;   /* so many waits without a sign of the tracer, and the thread leaves: 1 at least */
  bool records;            /* units append records (ring/itrace_stream.h); between them r11 says where */
  bool has_vectors;        /* with vector registers */
  bool has_bmi2;           /* the processor has: blocks of records are of the smaller kind (ring/itrace.h) */
  const uint64_t *watched; /* addresses, ascending, where the program does not go on without the tracer */
  uint32_t watched_count;
  bool passes_watched;                 /* a unit may begin at one of them, and goes on */
  struct ct_condition condition;       /* without records: it does if that does not hold there */
  const struct ct_sequence *sequences; /* restartable ones of the thread, whose struct rseq is at rseq */
  uint32_t sequence_count, rseq_signature;
  uint64_t rseq;         /* 0: it has none */
  bool asks_at_switches; /* after what moves the stack pointer elsewhere the tracer looks (of units with records) */
};

/*
 * How to make the program's state out of the thread's, from this place of the emitted code on up to the next such note.
 * The registers are the program's own, but for what is said here.
 */
struct ct_recovery {
  uint32_t at;            /* offset in the emitted code, hot or cold */
  uint8_t pc_is : 2;      /* enum ct_recovery_pc */
  uint8_t rcx_is : 2;     /* enum ct_recovery_rcx */
  uint8_t is_waiting : 1; /* the registers that a system call changes are in the slots, and the flags */
  uint8_t rax_is_slot : 1;
  uint8_t flags_are_slot : 1; /* those of lahf, and OF */
  uint8_t borrowed;           /* the register whose value is in slots.spill; CT_NO_REG: none */
  /* Of records: */
  uint8_t r10_is_slot : 1;    /* the program's r10 is in slots.app_r10 */
  uint8_t r11_is_slot : 1;    /* the program's r11 is in slots.app_r11, and the thread's is where the record begins */
  uint8_t rax_is_scratch : 1; /* rax is in the register `scratch` */
  uint8_t is_before : 1;      /* what the instruction at pc is about to load is read, for its record */
  uint8_t is_advanced : 1;    /* the record is complete: the next one begins there */
  uint8_t place_is_slot : 1;  /* where the next record begins is in slots.spill_place */
  uint8_t record;             /* the register whose value is in slots.spill_record, and has that place; or CT_NO_REG */
  uint8_t scratch;            /* the register whose value is in slots.spill_scratch; or CT_NO_REG */
  uint8_t done;               /* instructions of the unit that are executed here */
  uint8_t is_sequence : 1;    /* nothing that was executed is recorded (translate_sequence.c) */
  uint8_t apart : 4; /* bytes of an instruction before pc that is executed, and not recorded; 0: there is none */
  uint8_t part;      /* of the unit, whose record is under way */
  uint32_t unit;     /* the part's id; of the code cache */
  uint64_t pc;
};
enum ct_recovery_pc { CT_PC_KNOWN, CT_PC_TARGET /* in slots.target */, CT_PC_RCX /* pc + what rcx holds */ };
enum ct_recovery_rcx {
  CT_RCX_OWN,
  CT_RCX_SPILLED, /* in slots.spill_rcx */
  CT_RCX_PC,      /* the same as pc */
  CT_RCX_R10      /* in r10, whose own value is in its slot */
};

enum ct_exit_kind {
  CT_EXIT_LINK,     /* to another unit, by a jump that can be made to go there */
  CT_EXIT_STEP,     /* the instruction at target has to be executed where it is */
  CT_EXIT_STALE,    /* the code has changed */
  CT_EXIT_SYSCALL,  /* the system call at target: the tracer looks at it first */
  CT_EXIT_ROOM,     /* the segment of records is full */
  CT_EXIT_WATCHED,  /* the instruction at target is watched: nothing of it is executed yet */
  CT_EXIT_SEQUENCE, /* out of a restartable sequence, which is not recorded */
  CT_EXIT_WRITTEN,  /* the system call has been made, and what it wrote has to be read */
  CT_EXIT_SWITCHED, /* the stack pointer has been moved elsewhere; target comes next */
  CT_EXIT_APART,    /* the instruction before target is executed, and what it did not recorded */
};

struct ct_unit_exit {
  uint8_t kind;     /* enum ct_exit_kind */
  uint32_t field;   /* CT_EXIT_LINK: offset of the rel32 that leads to the exit's code */
  uint32_t code_at; /* offset of the exit's code in the cold code */
  uint64_t target;
  uint32_t
      resume_at; /* CT_EXIT_SYSCALL: offset of the code that makes it all the same; CT_EXIT_WRITTEN: that goes on */
  uint8_t apart; /* CT_EXIT_APART: bytes of that instruction */
};

struct ct_unit {
  uint64_t pc;
  uint32_t insns; /* in all */
  uint32_t entry; /* offset in the hot code where it begins */
  uint32_t id;    /* of its first part; 0: it makes no records */
  /*
   * Records that it may make, of ids that follow each other: that of the whole unit, and those of branches out of it,
   * by which it is left before its end. Each is of the code of its first stretches, of the last of them last_bytes.
   */
  struct ct_unit_part {
    uint8_t stretches, insns;
    uint16_t last_bytes, record_bytes;
    bool is_passed;  /* it is left where the branch at its end is not taken */
    bool is_guessed; /* ... where the indirect branch or return at its end goes elsewhere than was guessed */
  } parts[CT_UNIT_PARTS_MAX];
  uint32_t part_count;
  /* The program's code that it translates. None: what is at pc cannot be translated. */
  struct ct_unit_stretch {
    uint64_t pc;
    const uint8_t *code; /* of the caller's */
    uint32_t bytes;
  } stretches[CT_UNIT_STRETCHES_MAX];
  uint32_t stretch_count;
  uint64_t return_addresses[CT_UNIT_RETURNS_MAX]; /* that it pushes: of its calls */
  uint32_t return_count;
  uint32_t exit_count, recovery_count, hot_count; /* recovery: first those of the hot code, hot_count of them */
  struct ct_unit_exit exits[CT_UNIT_EXITS_MAX];
  struct ct_recovery recovery[CT_RECOVERY_MAX];
};

/*
 * The code at pc, which a unit is about to go on with; it stays as it is up to the next unit. number: 1 .. of the
 * stretch. NULL: it is not to. size: CT_STRETCH_SOURCE_MAX at most.
 */
struct ct_translation_source {
  const uint8_t *(*read)(void *context, uint64_t pc, uint32_t number, size_t *size);
  /* Does it go on where the conditional branch leads that ends there, rather than after it? */
  bool (*is_taken)(void *context, uint64_t end);
  /* Where the indirect branch or return that ends there nearly always goes; 0: nowhere in particular. */
  uint64_t (*guess)(void *context, uint64_t end);
  void *context;
  bool is_hot; /* the unit is executed often: it may be long, and go round a loop */
};

/*
 * Emits the unit of the block at pc (size bytes of code are known) at out's position. It goes on where a jump, a
 * call, a branch that is mostly taken, a return or an indirect branch leads, if source is not NULL. first_exit is the
 * number of its first exit; id of its records, if it makes any. is_checked: the code may change, so it is compared each
 * time. Always ends well: what cannot be translated becomes an exit of kind CT_EXIT_STEP; only out and cold may be too
 * small (overflow). What is hardly ever executed (exits, what a look at the ring finds to do) goes to cold, in reach of
 * out.
 */
void ct_translate_unit(const struct ct_translation_place *place, uint64_t pc, const uint8_t *code, size_t size,
                       bool is_checked, const struct ct_translation_source *source, uint32_t first_exit, uint32_t id,
                       struct ct_code *out, struct ct_code *cold, struct ct_unit *unit);

/*
 * The entry of the unit at unit_address for indirect branches to pc: checks that the target is pc, and goes to next (in
 * the table so far) if not. Fills in recovery (up to CT_ENTRY_RECOVERY notes), returns how many.
 */
enum { CT_ENTRY_RECOVERY = 5, CT_ENTRY_BYTES_MAX = 128 };
uint32_t ct_translate_entry(const struct ct_translation_place *place, uint64_t pc, uint64_t unit_address, uint64_t next,
                            struct ct_code *out, struct ct_recovery recovery[CT_ENTRY_RECOVERY]);

/*
 * The code that waits for the tracer, once for each region. *miss: where indirect branches go that find no entry;
 * *leave: of struct ct_translation_place.
 */
enum { CT_RUNTIME_RECOVERY = 8, CT_RUNTIME_BYTES_MAX = 1024 };
uint32_t ct_translate_runtime(const struct ct_translation_place *place, struct ct_code *out,
                              struct ct_recovery recovery[CT_RUNTIME_RECOVERY], uint64_t *miss, uint64_t *leave);

/* In place of an exit's code: a jump to where no rel32 reaches. */
enum { CT_EXIT_BYTES = 32 };
void ct_translate_far_jump(struct ct_code *out, uint64_t target);

#endif
