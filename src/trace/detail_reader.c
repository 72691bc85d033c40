/* SPDX-License-Identifier: MIT */
/*
 * Reading the detail of a thread's calls, in step with its events. A block is taken when its checksums are right and
 * its records fill it exactly; a damaged one is passed over, as far as its header says where it ends.
 */
#include "trace/atf_internal.h"

#include "base/crc32c.h"

#include <contrail/trace.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct ct_details {
  struct ct_atf_details *atf; /* of a trace in ATF V2, in place of all that follows */
  struct ct_block_file *file;
  enum ct_cursor_state state;
  uint64_t offset; /* of the next block */
  ZSTD_DCtx *decompressor;
  uint8_t *input;        /* CT_DETAIL_BLOCK_BYTES */
  uint8_t *records;      /* likewise */
  size_t at, fill;       /* in these */
  uint64_t last_tsc;     /* of these */
  size_t given;          /* where the record lies that was given out */
  struct ct_detail last; /* what was given out */
  uint8_t stack[CT_DETAIL_STACK_BYTES];
};

static int
open_atf(struct ct_trace *trace, uint32_t thread, struct ct_details **out, struct ct_diag *diag)
{
  struct ct_atf_details *atf;
  int err = ct_atf_details_open(trace, thread, &atf, diag);
  if (err != CT_OK) {
    return err;
  }
  struct ct_details *details = calloc(1, sizeof(*details));
  if (details == NULL) {
    ct_atf_details_close(atf);
    return ct_fail(diag, CT_ENOMEM, "out of memory to read the detail of thread %u", thread);
  }
  details->atf = atf;
  *out = details;
  return CT_OK;
}

int
ct_details_open(struct ct_trace *trace, uint32_t thread, struct ct_details **out, struct ct_diag *diag)
{
  struct ct_file_header header;
  if (thread >= trace->thread_count) {
    return ct_fail(diag, CT_ERANGE, "%s has no thread %u", trace->path, thread);
  }
  if (trace->atf != NULL) {
    return open_atf(trace, thread, out, diag);
  }
  struct ct_block_file *file = ct_block_file_open(trace->dir_fd, trace->threads[thread].index, CT_TRACE_DETAIL);
  if (file == NULL) {
    return ct_fail(diag, errno == ENOENT ? CT_ENOENT : CT_EFORMAT, "thread %u has no detail", thread);
  }
  if (ct_block_file_read(file, &header, sizeof(header), 0) != sizeof(header) || header.magic != CT_DETAIL_FILE_MAGIC ||
      !ct_trace_version_ok(header.version) || header.header_bytes != sizeof(header) ||
      header.header_crc != ct_crc32c(0, &header, offsetof(struct ct_file_header, header_crc))) {
    ct_block_file_close(file);
    return ct_fail(diag, CT_EFORMAT, "the detail of thread %u is damaged", thread);
  }
  struct ct_details *details = calloc(1, sizeof(*details));
  if (details != NULL) {
    *details = (struct ct_details){.file = file, .offset = sizeof(header)};
    details->decompressor = ZSTD_createDCtx();
    details->input = malloc(CT_DETAIL_BLOCK_BYTES);
    details->records = malloc(CT_DETAIL_BLOCK_BYTES);
  }
  if (details == NULL || details->decompressor == NULL || details->input == NULL || details->records == NULL) {
    if (details == NULL) {
      ct_block_file_close(file);
    }
    ct_details_close(details);
    return ct_fail(diag, CT_ENOMEM, "out of memory to read the detail of thread %u", thread);
  }
  *out = details;
  return CT_OK;
}

void
ct_details_close(struct ct_details *details)
{
  if (details != NULL) {
    ct_atf_details_close(details->atf);
    ct_block_file_close(details->file);
    ZSTD_freeDCtx(details->decompressor);
    free(details->input);
    free(details->records);
    free(details);
  }
}

enum ct_cursor_state
ct_details_state(const struct ct_details *details)
{
  return details->atf != NULL ? ct_atf_details_state(details->atf) : details->state;
}

static bool
header_ok(const struct ct_detail_block_header *header)
{
  struct ct_detail_block_header copy = *header;
  copy.header_crc = 0;
  return header->magic == CT_DETAIL_BLOCK_MAGIC && header->header_bytes == sizeof(*header) &&
         ct_crc32c(0, &copy, sizeof(copy)) == header->header_crc &&
         header->payload.raw_bytes <= CT_DETAIL_BLOCK_BYTES &&
         header->payload.stored_bytes <= header->payload.raw_bytes;
}

/* The words that texts take, with the one that says how many there are; 0: that makes no sense. */
static size_t
text_words(uint64_t counts, uint32_t last_register, struct ct_detail_text texts[CT_DETAIL_TEXTS_MAX],
           uint32_t *text_count)
{
  size_t words = 1;
  *text_count = 0;
  for (; counts != 0; counts >>= 16) {
    uint32_t bytes = counts & 0xff, argument = (uint32_t)(counts >> 8 & 0x7f);
    if ((counts & 0x8000) == 0 || bytes > CT_DETAIL_TEXT_MAX ||
        (argument & ~CT_DETAIL_TEXT_OF_OBJECT) > last_register || *text_count == CT_DETAIL_TEXTS_MAX) {
      return 0;
    }
    texts[(*text_count)++] = (struct ct_detail_text){.argument = argument, .bytes = bytes};
    words += (bytes + 7) / 8;
  }
  return words;
}

/* The greatest number that a text's register may have. */
static uint32_t
last_register(const struct ct_detail_entry *entry)
{
  return entry->kind == CT_DETAIL_KIND_RETURN ? CT_DETAIL_RAX : CT_DETAIL_R9;
}

/* The words before texts and stack. */
static size_t
head_words(const struct ct_detail_entry *entry)
{
  if (entry->kind == CT_DETAIL_KIND_RETURN) {
    return CT_DETAIL_RETURN_WORDS + ((entry->flags & CT_DETAIL_HAS_ERROR) != 0 ? CT_DETAIL_ERROR_WORDS : 0);
  }
  return CT_DETAIL_CALL_WORDS + ((entry->flags & CT_DETAIL_HAS_VECTORS) != 0 ? CT_DETAIL_VECTOR_WORDS : 0);
}

/* The record at bytes, of which there are `left`. */
static bool
entry_ok(const struct ct_detail_entry *entry, const uint8_t *bytes, size_t left)
{
  if (entry->record_bytes < sizeof(*entry) || entry->record_bytes > left || entry->record_bytes % 8 != 0 ||
      entry->record_bytes > CT_DETAIL_RECORD_MAX) {
    return false;
  }
  size_t words = (entry->record_bytes - sizeof(*entry)) / 8, least = head_words(entry);
  if ((entry->flags & CT_DETAIL_HAS_TEXTS) != 0) {
    struct ct_detail_text texts[CT_DETAIL_TEXTS_MAX];
    uint32_t text_count;
    uint64_t counts;
    if (words <= least) {
      return false;
    }
    memcpy(&counts, bytes + sizeof(*entry) + least * 8, sizeof(counts));
    size_t more = text_words(counts, last_register(entry), texts, &text_count);
    if (more == 0) {
      return false;
    }
    least += more;
  }
  return words >= least &&
         (entry->kind == CT_DETAIL_KIND_CALL || (entry->kind == CT_DETAIL_KIND_RETURN && words == least)) &&
         words - least <= CT_DETAIL_STACK_BYTES / 8;
}

static bool
unpack(struct ct_details *details, const struct ct_detail_block_header *header)
{
  struct ct_section_size size = header->payload;
  if (ct_crc32c(0, details->input, size.stored_bytes) != header->payload_crc) {
    return false;
  }
  if (size.stored_bytes == size.raw_bytes) {
    memcpy(details->records, details->input, size.raw_bytes);
  } else if (ZSTD_decompressDCtx(details->decompressor, details->records, size.raw_bytes, details->input,
                                 size.stored_bytes) != size.raw_bytes) {
    return false;
  }
  size_t at = 0;
  uint32_t records = 0;
  struct ct_detail_entry entry;
  for (; at + sizeof(entry) <= size.raw_bytes; at += entry.record_bytes, records++) {
    memcpy(&entry, details->records + at, sizeof(entry));
    if (!entry_ok(&entry, details->records + at, size.raw_bytes - at)) {
      return false;
    }
  }
  return at == size.raw_bytes && records == header->records;
}

/* The next whole block; false: there is none. */
static bool
load(struct ct_details *details)
{
  struct ct_detail_block_header header;
  while (ct_block_file_read(details->file, &header, sizeof(header), details->offset) == sizeof(header)) {
    if (!header_ok(&header)) {
      details->state = CT_CURSOR_DAMAGED;
      return false;
    }
    size_t stored = header.payload.stored_bytes;
    if (ct_block_file_read(details->file, details->input, stored, details->offset + sizeof(header)) != stored) {
      break;
    }
    details->offset += sizeof(header) + stored;
    if (unpack(details, &header)) {
      details->at = 0;
      details->fill = header.payload.raw_bytes;
      details->last_tsc = header.last_tsc;
      return true;
    }
    details->state = CT_CURSOR_DAMAGED;
  }
  return false;
}

/* The texts that begin with word number `at`; gives that of the first word after them. */
static size_t
give_texts(struct ct_details *details, const struct ct_detail_entry *entry, const uint64_t *words, size_t at)
{
  struct ct_detail *detail = &details->last;
  const uint8_t *data = details->records + details->at + sizeof(*entry) + (at + 1) * 8;
  if ((entry->flags & CT_DETAIL_HAS_TEXTS) == 0) {
    return at;
  }
  at += text_words(words[at], last_register(entry), detail->texts, &detail->text_count);
  for (uint32_t i = 0; i < detail->text_count; i++) {
    detail->texts[i].data = data;
    data += (detail->texts[i].bytes + 7) & ~7u;
  }
  return at;
}

static const struct ct_detail *
give(struct ct_details *details, const struct ct_detail_entry *entry)
{
  uint64_t words[CT_DETAIL_RECORD_MAX / 8];
  size_t bytes = entry->record_bytes - sizeof(*entry);
  memcpy(words, details->records + details->at + sizeof(*entry), bytes);
  struct ct_detail *detail = &details->last;
  *detail = (struct ct_detail){
      .is_return = entry->kind == CT_DETAIL_KIND_RETURN, .tsc = entry->tsc, .sp = words[0], .stack = details->stack};
  if (detail->is_return) {
    detail->rax = words[1];
    detail->rdx = words[2];
    detail->xmm0 = words[3];
    detail->xmm1 = words[4];
    detail->has_error = (entry->flags & CT_DETAIL_HAS_ERROR) != 0;
    detail->error = detail->has_error ? (int)(uint32_t)words[CT_DETAIL_RETURN_WORDS] : 0;
    give_texts(details, entry, words, head_words(entry));
    return detail;
  }
  detail->bp = words[1];
  detail->return_address = words[2];
  memcpy(detail->registers, words + 3, sizeof(detail->registers));
  size_t at = CT_DETAIL_CALL_WORDS;
  detail->has_vectors = (entry->flags & CT_DETAIL_HAS_VECTORS) != 0;
  if (detail->has_vectors) {
    memcpy(detail->vectors, words + at, sizeof(detail->vectors));
    at += CT_DETAIL_VECTOR_WORDS;
  }
  at = give_texts(details, entry, words, at);
  detail->stack_bytes = (uint32_t)(bytes - at * 8);
  memcpy(details->stack, words + at, detail->stack_bytes);
  return detail;
}

void
ct_details_pass(struct ct_details *details, uint64_t tsc)
{
  struct ct_detail_block_header header;
  if (details->atf != NULL || (details->fill != 0 && details->last_tsc >= tsc)) {
    return;
  }
  details->at = details->fill = 0;
  while (ct_block_file_read(details->file, &header, sizeof(header), details->offset) == sizeof(header) &&
         header_ok(&header) && header.last_tsc < tsc) {
    details->offset += sizeof(header) + header.payload.stored_bytes;
  }
}

size_t
ct_details_record(const struct ct_details *details, struct ct_detail_entry *entry, const void **words)
{
  if (details->atf != NULL) {
    return 0;
  }
  memcpy(entry, details->records + details->given, sizeof(*entry));
  *words = details->records + details->given + sizeof(*entry);
  return entry->record_bytes;
}

const struct ct_detail *
ct_details_of(struct ct_details *details, const struct ct_event *event)
{
  bool is_call = event->kind == CT_EV_ENTER || event->kind == CT_EV_TAIL;
  if (details->atf != NULL) {
    return ct_atf_details_of(details->atf, event);
  }
  uint64_t enter_tsc = is_call ? event->tsc : event->enter_tsc;
  uint8_t kind = is_call ? CT_DETAIL_KIND_CALL : CT_DETAIL_KIND_RETURN;
  if (!is_call && event->kind != CT_EV_RETURN) {
    return NULL;
  }
  while (details->at < details->fill || load(details)) {
    struct ct_detail_entry entry;
    memcpy(&entry, details->records + details->at, sizeof(entry));
    bool is_it = entry.kind == kind && entry.fn == event->fn && entry.enter_tsc == enter_tsc;
    if (!is_it && entry.tsc >= event->tsc) {
      return NULL;
    }
    const struct ct_detail *detail = is_it ? give(details, &entry) : NULL;
    details->given = details->at;
    details->at += entry.record_bytes;
    if (is_it) {
      return detail;
    }
  }
  return NULL;
}
