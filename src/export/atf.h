/* SPDX-License-Identifier: MIT */
/* The export to ATF V2 in parts: atf2.c events, atf_files.c files, atf_functions.c ids, atf_manifest.c the manifest. */
#ifndef CT_EXPORT_ATF_H
#define CT_EXPORT_ATF_H

#include "export/export.h"
#include "trace/atf.h"

#include <stdio.h>

/* What the format cannot hold, by what became of it. */
enum ct_atf_loss {
  ATF_TAIL,    /* a return and a call */
  ATF_POINT,   /* a call and a return at once */
  ATF_SAMPLED, /* calls that sampled points stand for beside their own */
  ATF_BEFORE,  /* open when the recording or the piece began: calls at that moment */
  ATF_LEFT,    /* ended without return, not by an exception: exceptions */
  ATF_UNSEEN,  /* ended unseen, in a gap, or by a jump out of what is recorded: returns */
  ATF_ORPHAN,  /* returns without a call: returns */
  ATF_SWITCH,  /* left out, as all that follow */
  ATF_EXEC,
  ATF_AWAY,
  ATF_VALUE,
  ATF_LOST,    /* events */
  ATF_COUNTED, /* calls */
  ATF_LOSSES,
};
/* As the manifest has it. */
extern const char *const ct_atf_loss_names[ATF_LOSSES];

/* A file that is written from its begin, with a checksum over all after the header. */
struct ct_atf_file {
  int fd;    /* -1: none */
  int error; /* errno of the first failure; later writes do nothing */
  uint32_t crc;
  uint64_t bytes; /* after the header */
  size_t fill;
  uint8_t buffer[1u << 16];
};
/* Leaves room for a header of 64 bytes. False: it cannot be made, errno. */
bool ct_atf_file_create(struct ct_atf_file *file, int dir_fd, const char *name);
void ct_atf_file_put(struct ct_atf_file *file, const void *data, size_t bytes);
/* All is written but the footer: crc and bytes are final. */
void ct_atf_file_flush(struct ct_atf_file *file);
/* Writes the rest and the footer, then the header at the begin. 0 or errno. */
int ct_atf_file_close(struct ct_atf_file *file, const void *header, const void *footer);

/* The ids of functions: of each of the trace's, and those in order. */
struct ct_atf_ids {
  uint64_t *of;    /* by our id */
  uint32_t *order; /* our ids, in the order of theirs */
  uint32_t count;  /* of order */
};
int ct_atf_ids_create(struct ct_trace *trace, struct ct_atf_ids *out);
void ct_atf_ids_destroy(struct ct_atf_ids *ids);

struct ct_atf_thread {
  uint64_t calls, returns, exceptions, details;
  uint64_t first_ns, last_ns; /* 0: there is no event */
  uint64_t bytes;
  uint64_t losses[ATF_LOSSES];
  bool is_written; /* it was asked for */
};

/* One process that is written. */
struct ct_atf_process {
  struct ct_trace *trace;
  struct ct_atf_ids ids;
  int64_t boot_ns; /* to be added to CLOCK_MONOTONIC */
  bool has_boot;
  int dir_fd;
  struct ct_atf_thread *threads; /* of each thread of the trace */
  uint64_t losses[ATF_LOSSES];
  uint64_t bytes;
  json_t *children; /* those of the manifest that were written with it, amended; NULL: there are none */
};
/* A time of the trace in the files' clock. */
static inline uint64_t
ct_atf_time(const struct ct_atf_process *process, uint64_t tsc)
{
  return ct_trace_ns(process->trace, tsc) + (uint64_t)process->boot_ns;
}

/* Writes functions.tsv and manifest.json. 0, CT_ENOMEM, or CT_EIO with errno. */
int ct_atf_write_functions(struct ct_atf_process *process, json_t *modules);
int ct_atf_write_manifest(struct ct_atf_process *process);

#endif
