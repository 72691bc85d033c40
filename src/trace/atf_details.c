/* SPDX-License-Identifier: MIT */
/*
 * The records of a detail.atf in step with the thread's events. A record says which event of the index it belongs to;
 * that event's time, kind and function decide whether it is of the one that is asked about.
 */
#include "trace/atf_internal.h"

#include "base/crc32.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER_BYTES = 2 * (CT_ATF_DETAIL_BYTES_MAX + 1) };

struct ct_atf_details {
  const struct ct_atf *atf;
  int fd;
  struct ct_atf_index index;
  uint64_t offset, end; /* of what is unread; where the records end in the file */
  size_t at, fill;      /* in buffer */
  uint32_t crc, footer_crc;
  bool has_footer;
  enum ct_cursor_state state;
  struct ct_atf_detail record; /* the one at hand, if has_record */
  struct ct_atf_event event;   /* its event */
  bool has_record;
  struct ct_detail last;
  uint8_t buffer[BUFFER_BYTES];
};

/* Where the records end: before the footer, or what is taken for it. */
static void
find_end(struct ct_atf_details *details, uint64_t size)
{
  struct ct_atf_detail_footer footer;
  details->end = size;
  details->state = CT_CURSOR_DAMAGED;
  if (size < details->offset + sizeof(footer) ||
      ct_read_at(details->fd, &footer, sizeof(footer), size - sizeof(footer)) != sizeof(footer) ||
      footer.magic != CT_ATF_DETAIL_FOOTER_MAGIC) {
    return;
  }
  details->end = size - sizeof(footer);
  if (footer.event_bytes == details->end - details->offset) {
    details->has_footer = true;
    details->footer_crc = footer.crc;
    details->state = CT_CURSOR_OK;
  }
}

static bool
open_file(struct ct_trace *trace, uint32_t index, struct ct_atf_details *details)
{
  char name[64];
  struct stat file;
  struct ct_atf_detail_header header;
  snprintf(name, sizeof(name), CT_TRACE_THREAD_DIR "%u/" CT_ATF_DETAIL, index);
  details->fd = openat(trace->dir_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (details->fd < 0) {
    return false;
  }
  if (fstat(details->fd, &file) != 0 || !S_ISREG(file.st_mode) ||
      ct_read_at(details->fd, &header, sizeof(header), 0) != sizeof(header) ||
      header.head.magic != CT_ATF_DETAIL_MAGIC || header.head.endian != CT_ATF_LITTLE_ENDIAN ||
      header.head.version != CT_ATF_FILE_VERSION) {
    errno = EINVAL;
    return false;
  }
  details->offset = sizeof(header);
  find_end(details, (uint64_t)file.st_size);
  return true;
}

int
ct_atf_details_open(struct ct_trace *trace, uint32_t thread, struct ct_atf_details **out, struct ct_diag *diag)
{
  uint32_t index = trace->threads[thread].index;
  struct ct_atf_details *details = calloc(1, sizeof(*details));
  if (details == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory to read the detail of thread %u", thread);
  }
  details->atf = trace->atf;
  details->index.fd = -1;
  if (!open_file(trace, index, details)) {
    int missing = details->fd < 0 && errno == ENOENT;
    ct_atf_details_close(details);
    return missing ? ct_fail(diag, CT_ENOENT, "thread %u has no detail", thread)
                   : ct_fail(diag, CT_EFORMAT, "the detail of thread %u is damaged", thread);
  }
  ct_atf_index_open(trace, index, &details->index);
  *out = details;
  return CT_OK;
}

void
ct_atf_details_close(struct ct_atf_details *details)
{
  if (details != NULL) {
    if (details->fd >= 0) {
      close(details->fd);
    }
    ct_atf_index_close(&details->index);
    free(details);
  }
}

enum ct_cursor_state
ct_atf_details_state(const struct ct_atf_details *details)
{
  return details->state;
}

/* Makes that many bytes from details->at on be in the buffer; false: there are fewer. */
static bool
have(struct ct_atf_details *details, size_t bytes)
{
  if (details->fill - details->at >= bytes) {
    return true;
  }
  memmove(details->buffer, details->buffer + details->at, details->fill - details->at);
  details->fill -= details->at;
  details->at = 0;
  uint64_t left = details->end - details->offset;
  size_t room = sizeof(details->buffer) - details->fill;
  size_t got =
      ct_read_at(details->fd, details->buffer + details->fill, left < room ? (size_t)left : room, details->offset);
  details->crc = ct_crc32(details->crc, details->buffer + details->fill, got);
  details->offset += got;
  details->fill += got;
  return details->fill >= bytes;
}

/* The next record with its event; false: there is none, or it makes no sense. */
static bool
next_record(struct ct_atf_details *details)
{
  struct ct_atf_detail *record = &details->record;
  if (!have(details, sizeof(*record))) {
    bool is_whole = details->has_footer && details->at == details->fill && details->crc == details->footer_crc;
    details->state = is_whole ? details->state : CT_CURSOR_DAMAGED;
    return false;
  }
  memcpy(record, details->buffer + details->at, sizeof(*record));
  if ((record->type != CT_ATF_DETAIL_CALL && record->type != CT_ATF_DETAIL_RETURN) ||
      record->record_bytes != sizeof(*record) + record->stack_bytes || !have(details, record->record_bytes) ||
      record->sequence >= details->index.events ||
      ct_read_at(details->index.fd, &details->event, sizeof(details->event),
                 sizeof(struct ct_atf_index_header) + (uint64_t)record->sequence * sizeof(details->event)) !=
          sizeof(details->event)) {
    details->state = CT_CURSOR_DAMAGED;
    details->end = details->offset;
    details->at = details->fill;
    return false;
  }
  return true;
}

static const struct ct_detail *
give(struct ct_atf_details *details)
{
  const struct ct_atf_detail *record = &details->record;
  struct ct_detail *detail = &details->last;
  *detail = (struct ct_detail){
      .is_return = record->type == CT_ATF_DETAIL_RETURN, .tsc = record->ns, .sp = record->stack_pointer};
  if (detail->is_return) {
    detail->rax = record->registers[0];
    detail->rdx = record->registers[1];
    detail->xmm0 = record->registers[2];
    detail->xmm1 = record->registers[3];
    return detail;
  }
  detail->bp = record->frame_pointer;
  detail->return_address = record->return_address;
  memcpy(detail->registers, record->registers, sizeof(detail->registers));
  detail->stack = details->buffer + details->at + sizeof(*record);
  detail->stack_bytes = record->stack_bytes;
  return detail;
}

const struct ct_detail *
ct_atf_details_of(struct ct_atf_details *details, const struct ct_event *event)
{
  bool is_call = event->kind == CT_EV_ENTER || event->kind == CT_EV_TAIL;
  if (!is_call && event->kind != CT_EV_RETURN) {
    return NULL;
  }
  for (;;) {
    if (!details->has_record && !next_record(details)) {
      return NULL;
    }
    details->has_record = true;
    const struct ct_atf_detail *record = &details->record;
    bool is_it = (record->type == CT_ATF_DETAIL_CALL) == is_call && details->event.ns == event->tsc &&
                 ct_atf_function(details->atf, details->event.function) == event->fn;
    if (!is_it && details->event.ns >= event->tsc) {
      return NULL;
    }
    const struct ct_detail *detail = is_it ? give(details) : NULL;
    details->at += record->record_bytes; /* the stack's bytes stay where they are until the next record is read */
    details->has_record = false;
    if (is_it) {
      return detail;
    }
  }
}
