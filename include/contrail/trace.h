/* SPDX-License-Identifier: MIT */
/*
 * Reading a trace directory: its threads, modules and functions, and for each thread the stream of decoded events.
 *
 *   struct ct_trace *trace;
 *   struct ct_cursor *cursor;
 *   if (ct_trace_open("contrail.out", &trace, &diag) == 0 && ct_cursor_open(trace, 0, &cursor, &diag) == 0)
 *     while ((event = ct_cursor_next_event(cursor)) != NULL)
 *       ...
 *
 * A reader never trusts the file: every length and offset is checked, a damaged
 * block ends the thread's stream at the last whole block before it (or, with
 * CT_READ_SKIP_DAMAGED, is skipped with a CT_EV_LOST), and says so in ct_cursor_state.
 * A recording that is under way can be read: after the end, a further ct_cursor_next_event looks whether more was
 * written since.
 *
 * Threads: a trace may be used by several at once, each with cursors of its own. A cursor is of one thread at a time.
 * Ownership: what is given as a const pointer is the library's; it lives until ct_trace_close, an event until the next
 * call with its cursor. Cursors are closed before their trace.
 * Units: tsc is the clock of the recording's processor in ticks, an opaque number that only ct_trace_ns and
 * ct_trace_ticks_ns understand; *_ns are nanoseconds of CLOCK_MONOTONIC. Addresses are those of the ELF file.
 * Structures may get fields at their end, enumerations values: look through the pointers that the library gives, make
 * no arrays of them, and pass over what you do not know.
 */
#ifndef CONTRAIL_TRACE_H
#define CONTRAIL_TRACE_H

#include <contrail/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ct_trace; /* opaque */

struct ct_trace_function {
  uint32_t id;
  uint32_t module;      /* index into the modules, UINT32_MAX when unknown */
  uint64_t address;     /* ELF virtual address */
  uint64_t size;        /* bytes */
  const char *raw_name; /* as in the file; never NULL */
  const char *name;     /* demangled on first use through ct_trace_function(), "module+0x1234" for one without a name */
  uint32_t enter_only;  /* mode "enter": its returns are not recorded */
};

struct ct_trace_module {
  uint32_t index;
  uint32_t image;
  const char *path;
  const char *build_id;
  uint64_t base;
};

struct ct_trace_thread {
  uint32_t index;
  uint32_t tid;
  uint32_t pid;
  const char *name; /* "" when unknown */
  uint64_t events;  /* from the manifest, or counted from the block headers when the manifest is not final */
  uint64_t dropped;
  uint64_t file_bytes;
  uint64_t missing; /* of the events, those that the file does not have any more; when the manifest can tell */
  uint64_t end_tsc; /* when it ended, or the trace if it lived then: calls that are open after its last event did too */
  uint32_t exited;  /* it ended by itself, and not with the program */
  uint64_t not_kept; /* events before the first one here, of a trace of the last stretch; not among `events` */
  uint32_t goes_on;  /* it lived on after the end of a trace that was cut (contrail cut) */
};

/* Opens the trace directory dir. *out goes to ct_trace_close. */
int ct_trace_open(const char *dir, struct ct_trace **out, struct ct_diag *diag);
void ct_trace_close(struct ct_trace *trace); /* accepts NULL */
/*
 * Of a recording that goes on: takes in the events, functions, modules and threads that came since the trace was opened
 * or last refreshed, and whether it has ended. Until then cursors give what there was, so each event's function is
 * known. Threads keep their positions, new ones come after them; what pointers to threads, modules, functions and where
 * they are written were given before must not be used any more, their names may. No other thread may use the trace
 * meanwhile. Nothing happens to a trace that is complete, or has a range. CT_ENOMEM, CT_EIO.
 */
int ct_trace_refresh(struct ct_trace *trace, struct ct_diag *diag);

const char *ct_trace_path(const struct ct_trace *trace);
/* True when the recording ended in order (manifest state "complete"). */
bool ct_trace_is_complete(const struct ct_trace *trace);
/*
 * Moves the trace directory `dir`, or the folder of recorded instructions, if there is one, to `dir`.old, in place of what
 * is there of these. 0 also when dir is empty or nothing of ours: nothing is moved then. CT_EEXIST: it is still being
 * recorded, or what has the other name is nothing of ours.
 */
int ct_trace_move_old(const char *dir, struct ct_diag *diag);
/* Bytes of all the files of the trace. */
uint64_t ct_trace_bytes(const struct ct_trace *trace);

/* What is gone, as the manifest knows the files: a line for each that is cut or missing, 0 .. count - 1. */
uint32_t ct_trace_damage_count(const struct ct_trace *trace);
const char *ct_trace_damage(const struct ct_trace *trace, uint32_t n);

/* A trace of the last stretch of a recording (contrail record --last). */
struct ct_trace_kept {
  size_t struct_size;   /* to be set to sizeof(struct ct_trace_kept) */
  bool is_kept;         /* it is one */
  uint64_t not_kept;    /* events that were recorded before what is here, of all threads; 0: there were none */
  uint64_t begin_tsc;   /* everything after that is here; 0: everything */
  uint64_t limit_bytes; /* of memory, as the recording was given ... */
  uint64_t limit_ns;    /* ... and of time; 0: none */
};
/* 0, or CT_EINVAL when struct_size is not set. */
int ct_trace_get_kept(const struct ct_trace *trace, struct ct_trace_kept *kept);

uint32_t ct_trace_thread_count(const struct ct_trace *trace);
const struct ct_trace_thread *ct_trace_thread(const struct ct_trace *trace, uint32_t index);
uint32_t ct_trace_module_count(const struct ct_trace *trace);
const struct ct_trace_module *ct_trace_module(const struct ct_trace *trace, uint32_t index);
/* Function ids are dense from 0. NULL for an id the table does not have. The name is demangled and kept. */
uint32_t ct_trace_function_count(const struct ct_trace *trace);
const struct ct_trace_function *ct_trace_function(struct ct_trace *trace, uint32_t id);
/* The file that a function is written in, and the line (0: not known); NULL when the trace does not say. Any thread. */
const char *ct_trace_function_source(struct ct_trace *trace, uint32_t id, uint32_t *line);
bool ct_trace_has_sources(struct ct_trace *trace); /* it says so of some functions */
/* The last component of a function's module path, "?" when unknown. */
const char *ct_trace_module_name(const struct ct_trace *trace, uint32_t module);

/* CLOCK_MONOTONIC nanoseconds of a tsc value, and tick counts as nanoseconds. */
uint64_t ct_trace_ns(const struct ct_trace *trace, uint64_t tsc);
uint64_t ct_trace_ticks_ns(const struct ct_trace *trace, uint64_t ticks);
uint64_t ct_trace_start_ns(const struct ct_trace *trace);
/*
 * Where the trace ends: when the process had ended or been detached; of a recording that is under way or was cut short,
 * the last event of any thread. Single threads may have events that are a little later.
 */
uint64_t ct_trace_end_tsc(const struct ct_trace *trace);

/*
 * From now on the trace ends at to_tsc, and cursors that are opened give the events from from_tsc on only: first, as
 * entered then, the calls that were open (each with a VALUE of reason CT_VALUE_BEFORE, as of an attach).
 */
int ct_trace_set_range(struct ct_trace *trace, uint64_t from_tsc, uint64_t to_tsc); /* 0 or CT_ENOMEM */
bool ct_trace_has_range(const struct ct_trace *trace);
bool ct_trace_is_cut(const struct ct_trace *trace, uint32_t thread); /* the thread went on after the range */
bool ct_trace_in_range(const struct ct_trace *trace, uint64_t tsc);
/* The time of ns (CLOCK_MONOTONIC). */
uint64_t ct_trace_tsc(const struct ct_trace *trace, uint64_t ns);

/* Stretches of time that were marked while it was recorded (contrail record --on, contrail mark). */
struct ct_trace_window {
  uint64_t begin_tsc, end_tsc;
  uint64_t marks;
  const char *reason; /* of the first mark, NULL: not known */
  uint64_t reason_tsc;
};
size_t ct_trace_window_count(const struct ct_trace *trace);
/* n from 0 on; false when what the manifest says of it makes no sense. */
bool ct_trace_window(const struct ct_trace *trace, size_t n, struct ct_trace_window *window);

enum ct_event_kind {
  CT_EV_RETURN = 0,
  CT_EV_ENTER = 1,
  CT_EV_TAIL = 2,    /* fn takes the place of the closed frame at the same depth */
  CT_EV_POINT = 3,   /* an enter alone, for one call or, of a light hook under sampling, for several */
  CT_EV_UNWOUND = 4, /* frame ended without a return */
  CT_EV_ORPHAN_RETURN = 5,
  CT_EV_LOST = 6,
  CT_EV_SWITCH = 7,
  CT_EV_EXEC = 8,
  CT_EV_VALUE = 10,   /* of the call of fn, at this depth: after its ENTER or TAIL, or before its RETURN */
  CT_EV_INTERVAL = 9, /* of sampling of light hooks, from here on */
  CT_EV_AWAY = 11,    /* the thread did not run its own code from enter_tsc on, for value ticks */
  CT_EV_COUNTED = 12, /* value calls of fn by the thread, some time before, that have no event (a budget) */
};

/* As enum of struct ct_detail's registers. */
enum ct_detail_register {
  CT_DETAIL_RDI = 0,
  CT_DETAIL_RSI = 1,
  CT_DETAIL_RDX = 2,
  CT_DETAIL_RCX = 3,
  CT_DETAIL_R8 = 4,
  CT_DETAIL_R9 = 5,
  CT_DETAIL_RAX = 6, /* of a variadic function: how many vector registers have arguments */
  CT_DETAIL_R10 = 7, /* of a nested function: its frame further out */
};

/* What an argument points to; fewer bytes than the text has where it is longer, or cannot be read. */
#define CT_DETAIL_TEXTS_MAX      3
#define CT_DETAIL_TEXT_OF_OBJECT 8u
struct ct_detail_text {
  uint32_t argument; /* enum ct_detail_register; with CT_DETAIL_TEXT_OF_OBJECT: what the object points to that it
                        points to, a std::string */
  uint32_t bytes;
  const uint8_t *data;
};

/* The detail of a call or a return (contrail record --detail). */
struct ct_detail {
  bool is_return;
  uint64_t tsc; /* as the clock gave it; that of the event may be a little later */
  uint64_t sp;  /* address of the return-address slot: rsp when the function is entered, or has returned to it */
  /* Of a call. */
  uint64_t bp, return_address;
  uint64_t registers[8]; /* enum ct_detail_register */
  bool has_vectors;
  uint64_t vectors[8];  /* the low halves of xmm0 to xmm7 */
  const uint8_t *stack; /* from sp upwards: first the return address's slot, which holds one, then arguments */
  uint32_t stack_bytes;
  /* Of a return what the call has filled, and with CT_DETAIL_RAX what its result points to. */
  struct ct_detail_text texts[CT_DETAIL_TEXTS_MAX];
  uint32_t text_count;
  /* Of a return. */
  uint64_t rax, rdx, xmm0, xmm1; /* low halves of the last two */
  bool has_error;                /* eax was -1, and what errno was then is known: of functions of a shared C library */
  int error;
};

/* Why events did not reach the trace. */
enum ct_drop {
  CT_DROP_OVERWRITTEN = 0, /* the program took a part of the ring again before contrail had read it */
  CT_DROP_NO_SEGMENT = 1,  /* all parts of the ring were in use */
  CT_DROP_NO_STACK = 2,    /* nothing could be found out about the stack */
  CT_DROP_INTERRUPTED = 3, /* the hook was interrupted for too long */
  CT_DROP_NO_SLOT = 4,     /* too many threads at a time */
  CT_DROP_NO_THREAD = 5,   /* too many threads in a trace */
  CT_DROP_DISK_SLOW = 6,   /* as the first two, while contrail waited for the disk */
  CT_DROP_MEMORY = 7,      /* contrail had no memory for their thread */
  CT_DROP_LATE = 8,        /* as the first two, while contrail did not run: it was stopped, or had no processor */
  CT_DROP_COUNT = 9,
};
/* As dropped_by_reason of the manifest has it: "no_stack". What was the matter, in words. "?" for none of them. */
const char *ct_drop_name(enum ct_drop reason);
const char *ct_drop_text(enum ct_drop reason);

enum ct_unwound_reason {
  CT_UNWOUND_JUMP = 1, /* longjmp, exception, cancellation */
  CT_UNWOUND_EXEC = 2,
  CT_UNWOUND_THREAD_EXIT = 3,
  CT_UNWOUND_LOST = 4,
  CT_UNWOUND_SWITCHED = 6, /* its part of the stack was copied or left: what became of it was not seen */
  CT_UNWOUND_UNSEEN = 7,   /* a frame that was open when the recording began: it returned at some time before */
  CT_UNWOUND_TAIL = 5,     /* by a tail call to a function of which only the enter is recorded, or nothing */
};

/*
 * Why a thread was away. The interval ends at the event's time; it may end before, where what says so came later than
 * the thread's next events. Intervals of one thread may overlap: a thread that waits for contrail is off the processor
 * too.
 */
enum ct_away {
  CT_AWAY_PREEMPTED = 1, /* off the processor, although it could have run */
  CT_AWAY_BLOCKED = 2,   /* off the processor, waiting for something */
  CT_AWAY_ROOM = 3,      /* contrail's own: it waited for room for its events */
  CT_AWAY_SOME = 5, /* off the processor for at most so long, at any times since the last of these or the first event */
  CT_AWAY_HELD = 4, /* contrail's own: hooks were put in, it was stopped, or it waited for an answer */
};

enum ct_value {
  CT_VALUE_ARG_1 = 1, /* rdi, rsi: of what is known to take others, or nothing, only as far as it takes these */
  CT_VALUE_ARG_2 = 2,
  CT_VALUE_RESULT = 3, /* rax */
  CT_VALUE_BEFORE = 4, /* no value: the frame was open when the recording began, its ENTER is at that moment */
  /* Further ones, as far as the function takes and gives them. */
  CT_VALUE_INTEGER = 8,   /* 10 to 13: rdx rcx r8 r9; the first two are ARG_1 and ARG_2 */
  CT_VALUE_VECTOR = 16,   /* 16 to 23: the low halves of xmm0 to xmm7 */
  CT_VALUE_RESULT_2 = 24, /* rdx */
  CT_VALUE_RESULT_XMM0 = 25,
  CT_VALUE_RESULT_XMM1 = 26,
  CT_VALUE_ERROR = 27, /* errno, where the result is -1 */
  CT_VALUE_STACK = 32, /* 32 to 63: words of the stack above the return address */
  CT_VALUE_COUNT = 64,
};

struct ct_event {
  uint64_t tsc;
  uint64_t enter_tsc; /* RETURN, UNWOUND, TAIL: when the closed frame was entered; AWAY: begin of the interval */
  uint64_t value;     /* LOST: events; SWITCH: stack context; POINT: calls; INTERVAL: calls to one event; VALUE;
                         AWAY: length of the interval in ticks */
  uint32_t fn;        /* the function entered, or the one whose frame ended; AWAY: of the top frame, or UINT32_MAX */
  uint32_t closed_fn; /* TAIL: the function whose frame ended (UINT32_MAX when the stack was empty) */
  uint32_t depth;     /* of the frame opened or closed, outermost is 0; POINT: depth it would have had */
  uint8_t kind;       /* enum ct_event_kind */
  uint8_t reason;     /* UNWOUND: enum ct_unwound_reason; VALUE: enum ct_value; AWAY: enum ct_away */
  uint8_t uncertain;  /* the closed frame was open when events were lost */
};

struct ct_cursor; /* opaque, one per thread stream */

enum ct_cursor_state { CT_CURSOR_OK = 0, CT_CURSOR_END = 1, CT_CURSOR_DAMAGED = 2 };

/*
 * The detail of a thread's calls, if it has any: *out goes to ct_details_close. CT_ENOENT when there is none,
 * CT_ERANGE, CT_EFORMAT, CT_ENOMEM.
 */
struct ct_details; /* opaque, one per thread stream */
int ct_details_open(struct ct_trace *trace, uint32_t thread, struct ct_details **out, struct ct_diag *diag);
void ct_details_close(struct ct_details *details); /* accepts NULL */
/*
 * The detail of an event: of the function that an ENTER or TAIL enters, or of a RETURN. Events are to be asked about in
 * their order, though not all of them. NULL: it has none. It lives until the next call.
 */
const struct ct_detail *ct_details_of(struct ct_details *details, const struct ct_event *event);
/* CT_CURSOR_DAMAGED: some of the file could not be read, and is passed over. */
enum ct_cursor_state ct_details_state(const struct ct_details *details);

enum ct_read_flags {
  /*
   * Go on after a damaged block: a LOST event (value: events that the block's header announced, 0 when
   * that is damaged too), UNWOUND with reason CT_UNWOUND_LOST for frames that ended in it, ENTER with uncertain
   * set and the true time for frames that began in it, then the next whole block. Stacks of other
   * contexts are forgotten. The state at the end is CT_CURSOR_DAMAGED all the same.
   */
  CT_READ_SKIP_DAMAGED = 1,
};

/*
 * The stream of one thread from its begin. thread: position in the list, 0 .. ct_trace_thread_count - 1; flags: enum
 * ct_read_flags or 0. *out goes to ct_cursor_close. CT_ERANGE, CT_ENOMEM.
 */
int ct_cursor_open(struct ct_trace *trace, uint32_t thread, uint32_t flags, struct ct_cursor **out,
                   struct ct_diag *diag);
void ct_cursor_close(struct ct_cursor *cursor); /* accepts NULL */
/* The next event in order of time, or NULL at the end; see ct_cursor_state. */
const struct ct_event *ct_cursor_next_event(struct ct_cursor *cursor);
enum ct_cursor_state ct_cursor_state(const struct ct_cursor *cursor);

/* A frame that is open where the cursor stands. */
struct ct_open_frame {
  uint32_t fn;
  uint32_t uncertain;
  uint64_t enter_tsc;
};
/* The nth of them, 0 the outermost; NULL ends. For the end of the stream. */
const struct ct_open_frame *ct_cursor_open_frame(const struct ct_cursor *cursor, uint32_t n);

#ifdef __cplusplus
}
#endif

#endif
