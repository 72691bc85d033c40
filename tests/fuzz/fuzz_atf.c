/* SPDX-License-Identifier: MIT */
/*
 * Directories in ATF V2: the reader, details, and the views on it. Headers, footers and checksums are made here, so
 * that what is after them is met; or the input is the file.
 *
 *   input:   flags u8 | bytes of the manifest, of functions.tsv, of the details u16 x 3 | these | the events
 *   flags:   1 no footer    2 the index is the input as it is    4 JSON    8 a range    16 the same of the details
 *            32 another checksum    64 no functions.tsv: tables in the manifest
 *   A manifest of no bytes is one that fits.
 */
#include "fuzz.h"

#include "base/crc32.h"
#include "trace/atf.h"
#include "trace/batch.h"
#include <contrail/info.h>
#include <contrail/replay.h>
#include <contrail/report.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static const char usual[] =
    "{\"format\":\"atf\",\"version\":2,\"pid\":7,\"start_ns\":5,\"start_boot_ns\":9,\"modules\":["
    "{\"id\":1,\"path\":\"/a\",\"functions\":{\"table\":[\"f\",{\"name\":\"g\"}]}}],"
    "\"threads\":[{\"index\":0,\"tid\":8}]}";

static char folder[64];

static void
leave(void)
{
  static const char *const names[] = {"manifest.json", "functions.tsv", "thread_0/index.atf", "thread_0/detail.atf",
                                      "thread_0"};
  char path[128];
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
    snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
    if (unlink(path) != 0) {
      rmdir(path);
    }
  }
  rmdir(folder);
}

static void
enter(void)
{
  char path[128];
  snprintf(folder, sizeof(folder), "/dev/shm/contrail-fuzz-XXXXXX");
  CHECK(mkdtemp(folder) != NULL);
  snprintf(path, sizeof(path), "%s/thread_0", folder);
  CHECK(mkdir(path, 0700) == 0);
  atexit(leave);
}

static int
create(const char *name)
{
  char path[128];
  snprintf(path, sizeof(path), "%s/%s", folder, name);
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  CHECK(fd >= 0);
  return fd;
}

static void
put(int fd, const void *bytes, size_t size)
{
  CHECK(write(fd, bytes, size) == (ssize_t)size);
}

static void
put_index(const uint8_t *events, size_t bytes, uint8_t flags)
{
  int fd = create("thread_0/index.atf");
  struct ct_atf_index_header header = {.head = {CT_ATF_INDEX_MAGIC, CT_ATF_LITTLE_ENDIAN, CT_ATF_FILE_VERSION,
                                                CT_ATF_ARCH_X86_64, CT_ATF_OS_LINUX, 0, 8},
                                       .event_bytes = sizeof(struct ct_atf_event)};
  struct ct_atf_index_footer footer = {.magic = CT_ATF_INDEX_FOOTER_MAGIC,
                                       .crc = ct_crc32(0, events, bytes) ^ (flags & 32),
                                       .event_count = bytes / sizeof(struct ct_atf_event),
                                       .last_ns = 1000,
                                       .event_bytes = bytes};
  if ((flags & 2) == 0) {
    put(fd, &header, sizeof(header));
  }
  put(fd, events, bytes);
  if ((flags & 3) == 0) {
    put(fd, &footer, sizeof(footer));
  }
  close(fd);
}

static void
put_details(const uint8_t *records, size_t bytes, uint8_t flags)
{
  int fd = create("thread_0/detail.atf");
  struct ct_atf_detail_header header = {.head = {CT_ATF_DETAIL_MAGIC, CT_ATF_LITTLE_ENDIAN, CT_ATF_FILE_VERSION,
                                                 CT_ATF_ARCH_X86_64, CT_ATF_OS_LINUX, 0, 8}};
  struct ct_atf_detail_footer footer = {
      .magic = CT_ATF_DETAIL_FOOTER_MAGIC, .crc = ct_crc32(0, records, bytes), .event_bytes = bytes};
  if ((flags & 16) == 0) {
    put(fd, &header, sizeof(header));
  }
  put(fd, records, bytes);
  if ((flags & 16) == 0) {
    put(fd, &footer, sizeof(footer));
  }
  close(fd);
}

static void
check_events(struct ct_trace *trace, uint32_t thread)
{
  struct ct_cursor *cursor;
  struct ct_details *details = NULL;
  const struct ct_event *events;
  size_t count;
  uint64_t before = 0, sum = 0;
  CHECK(ct_cursor_open(trace, thread, 0, &cursor, NULL) == CT_OK);
  ct_details_open(trace, thread, &details, NULL);
  while ((count = ct_cursor_next(cursor, &events)) != 0) {
    for (size_t i = 0; i < count; i++) {
      CHECK(events[i].kind <= CT_EV_COUNTED && events[i].tsc >= before);
      before = events[i].tsc;
      const struct ct_detail *detail = details != NULL ? ct_details_of(details, &events[i]) : NULL;
      for (uint32_t at = 0; detail != NULL && at < detail->stack_bytes; at++) {
        sum += detail->stack[at];
      }
    }
  }
  CHECK(ct_cursor_state(cursor) != CT_CURSOR_OK);
  for (uint64_t at = 0; at < 512; at += 32 + (sum & 31)) {
    CHECK(ct_cursor_seek(cursor, at) == CT_OK);
    (void)ct_cursor_next(cursor, &events);
  }
  ct_details_close(details);
  ct_cursor_close(cursor);
}

static void
check_views(struct ct_trace *trace, int json)
{
  struct ct_view_notes notes = {.struct_size = sizeof(notes)};
  struct ct_info_options info = {.struct_size = sizeof(info), .json = json};
  struct ct_report_options report = {.struct_size = sizeof(report), .json = json, .workers = 1};
  struct ct_filter filter = {.struct_size = sizeof(filter), .limit = 2000};
  struct ct_replay_options replay = {.struct_size = sizeof(replay), .json = json, .filter = &filter};
  for (int view = 0; view < 3; view++) {
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    CHECK(out != NULL);
    (void)(view == 0   ? ct_info_write(trace, &info, out, NULL)
           : view == 1 ? ct_report_write(trace, &report, out, &notes, NULL)
                       : ct_replay_write(trace, &replay, out, &notes, NULL));
    CHECK(fclose(out) == 0);
    free(text);
  }
}

static void
put_whole(const char *name, const void *bytes, size_t size)
{
  int fd = create(name);
  put(fd, bytes, size);
  close(fd);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  char path[128];
  if (folder[0] == 0) {
    enter();
  }
  struct input input = {data, data + (size < 32768 ? size : 32768)};
  uint8_t flags = (uint8_t)input_number(&input, 1);
  size_t manifest_bytes = input_number(&input, 2), function_bytes = input_number(&input, 2);
  size_t detail_bytes = input_number(&input, 2), bytes = SIZE_MAX;
  uint8_t *manifest = input_part(&input, manifest_bytes, &manifest_bytes);
  uint8_t *functions = input_part(&input, function_bytes, &function_bytes);
  uint8_t *details = input_part(&input, detail_bytes, &detail_bytes);
  uint8_t *events = input_part(&input, bytes, &bytes);
  put_whole("manifest.json", manifest_bytes == 0 ? (const void *)usual : manifest,
            manifest_bytes == 0 ? sizeof(usual) - 1 : manifest_bytes);
  put_whole("functions.tsv", functions, function_bytes);
  if (flags & 64) {
    snprintf(path, sizeof(path), "%s/functions.tsv", folder);
    unlink(path);
  }
  put_index(events, bytes, flags);
  put_details(details, detail_bytes, flags);
  struct ct_trace *trace;
  struct ct_diag diag = {""};
  if (ct_trace_open(folder, &trace, &diag) == CT_OK) {
    if (flags & 8) {
      CHECK(ct_trace_set_range(trace, 100, 1000) == CT_OK);
    }
    for (uint32_t i = 0; i < ct_trace_thread_count(trace); i++) {
      check_events(trace, i);
    }
    check_views(trace, (flags & 4) != 0);
    ct_trace_close(trace);
  } else {
    CHECK(diag.text[0] != 0);
  }
  free(manifest);
  free(functions);
  free(details);
  free(events);
  return 0;
}
