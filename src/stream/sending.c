/* SPDX-License-Identifier: MIT */
/* The files of a trace that is sent: which there are, what is new in them, their checksums. */
#include "stream/fanout.h"
#include "stream/sending.h"

#include "base/crc32c.h"
#include "base/file.h"
#include "trace/format.h"

#include <dirent.h>
#include <fcntl.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int
by_name(const void *a, const void *b)
{
  return strcmp(((const struct sent_file *)a)->name, ((const struct sent_file *)b)->name);
}

struct sent_file *
ct_sender_file(struct ct_sender *sender, const char *name, size_t size)
{
  struct sent_file wanted = {.kind = ct_stream_kind(name, size)};
  memcpy(wanted.name, name, size);
  void *found = tfind(&wanted, &sender->files, by_name);
  if (found != NULL) {
    return *(struct sent_file **)found;
  }
  struct sent_file *file = malloc(sizeof(*file));
  if (file != NULL) {
    *file = wanted;
    if (tsearch(file, &sender->files, by_name) == NULL) {
      free(file);
      file = NULL;
    }
  }
  return file;
}

void
ct_sender_again(struct ct_sender *sender, const char *name, size_t size)
{
  struct sent_file *file = ct_sender_file(sender, name, size);
  if (file != NULL) {
    file->offset = file->claimed = 0;
    file->seen.st_ino = 0;
  }
}

static void
forget(const void *node, VISIT visit, void *unused)
{
  (void)unused;
  if (visit == postorder || visit == leaf) {
    struct sent_file *file = *(struct sent_file *const *)node;
    file->offset = file->claimed = 0;
    file->seen.st_ino = 0;
  }
}

void
ct_sender_forget(struct ct_sender *sender)
{
  twalk_r(sender->files, forget, NULL);
}

void
ct_sender_wrong(struct ct_sender *sender, const char *name, size_t size)
{
  struct sent_file wanted = {.kind = CT_STREAM_FOREIGN};
  memcpy(wanted.name, name, size);
  void *found = tfind(&wanted, &sender->files, by_name);
  if (found != NULL) {
    (*(struct sent_file **)found)->is_wrong = true;
  }
}

static void
mend(const void *node, VISIT visit, void *unused)
{
  (void)unused;
  struct sent_file *file = *(struct sent_file *const *)node;
  if ((visit == postorder || visit == leaf) && file->is_wrong) {
    file->is_wrong = false;
    file->offset = file->claimed = 0;
    file->seen.st_ino = 0;
  }
}

void
ct_sender_mend(struct ct_sender *sender)
{
  twalk_r(sender->files, mend, NULL);
}

void
ct_sender_free_files(struct ct_sender *sender)
{
  tdestroy(sender->files, free);
  sender->files = NULL;
}

/* -1 when it is not there. Links are not followed: only what the recorder has made is sent. */
static int
open_file(const struct ct_sender *sender, const char *name)
{
  int fd = openat(sender->dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  struct stat status;
  if (fd >= 0 && (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))) {
    close(fd);
    fd = -1;
  }
  return fd;
}

/* CRC of the first size bytes. *read is less when there are fewer. False: the connection is lost meanwhile. */
static bool
checksum(struct ct_sender *sender, int fd, uint64_t size, uint64_t *read, uint32_t *crc)
{
  uint8_t *piece = malloc(CT_LINK_CHUNK);
  bool good = piece != NULL;
  *read = 0;
  *crc = 0;
  while (good && *read < size) {
    size_t want = size - *read < CT_LINK_CHUNK ? (size_t)(size - *read) : CT_LINK_CHUNK;
    size_t got = ct_read_at(fd, piece, want, *read);
    *crc = ct_crc32c(*crc, piece, got);
    *read += got;
    if (got < want) {
      break;
    }
    good = ct_sender_ping(sender, CT_LINK_PING_MS);
  }
  free(piece);
  return good;
}

/* Where the receiver's part of the file is ours, sending goes on after it. */
static bool
take_claim(struct ct_sender *sender, struct sent_file *file, int fd)
{
  uint64_t read;
  uint32_t crc;
  if (!checksum(sender, fd, file->claimed, &read, &crc)) {
    return false;
  }
  file->offset = read == file->claimed && crc == file->claimed_crc ? read : 0;
  file->claimed = 0;
  return true;
}

static void
begin_claim(const void *node, VISIT visit, void *unused)
{
  (void)unused;
  if (visit == postorder || visit == leaf) {
    (*(struct sent_file *const *)node)->is_claimed = false;
  }
}

void
ct_sender_claim_begin(struct ct_sender *sender)
{
  twalk_r(sender->files, begin_claim, NULL);
}

bool
ct_sender_claim(struct ct_sender *sender, const struct ct_claim *claim)
{
  char name[CT_STREAM_NAME_BYTES];
  snprintf(name, sizeof(name), "%.*s", (int)claim->name_bytes, claim->name);
  int fd = open_file(sender, name);
  struct sent_file *file = fd >= 0 ? ct_sender_file(sender, name, claim->name_bytes) : NULL;
  bool good = true;
  if (file != NULL && file->kind == CT_STREAM_APPENDED) {
    uint64_t read;
    uint32_t crc;
    good = checksum(sender, fd, claim->bytes, &read, &crc);
    uint64_t offset = good && read == claim->bytes && crc == claim->crc ? read : 0;
    file->offset = claim->may_skip || offset < file->offset ? offset : file->offset;
    file->is_claimed = true;
  }
  if (fd >= 0) {
    close(fd);
  }
  return good;
}

static void
end_claim(const void *node, VISIT visit, void *unused)
{
  (void)unused;
  struct sent_file *file = *(struct sent_file *const *)node;
  if ((visit == postorder || visit == leaf) && !file->is_claimed) {
    file->offset = 0;
    file->seen.st_ino = 0;
  }
}

void
ct_sender_claim_end(struct ct_sender *sender)
{
  twalk_r(sender->files, end_claim, NULL);
}

/* A piece of the file in a frame, with what both kinds of it begin with. got: how much of it there was. */
static bool
send_piece(struct ct_sender *sender, const struct sent_file *file, enum ct_frame_type type, int fd, uint64_t offset,
           uint64_t total, uint64_t end, size_t *got)
{
  struct ct_link_frame *frame = &sender->frame;
  ct_frame_begin(frame, type);
  ct_frame_add64(frame, offset);
  ct_frame_add64(frame, total);
  ct_frame_add32(frame, (uint32_t)strlen(file->name));
  ct_frame_add(frame, file->name, strlen(file->name));
  size_t want = end - offset < sender->chunk ? (size_t)(end - offset) : sender->chunk;
  *got = ct_read_at(fd, ct_frame_payload(frame) + frame->bytes, want, offset);
  frame->bytes += (uint32_t)*got;
  return (*got == 0 && want != 0) || ct_sender_put(sender);
}

/* What a file that only grows has more than was sent. */
static bool
send_appended(struct ct_sender *sender, struct sent_file *file)
{
  if (file->wanted == file->offset && file->claimed == 0) {
    return true;
  }
  int fd = open_file(sender, file->name);
  if (fd < 0) {
    return true; /* it has gone; the checks at the end see it */
  }
  bool good = file->claimed == 0 || take_claim(sender, file, fd);
  if (file->wanted < file->offset) { /* it was cut back: a write had failed in its middle */
    file->offset = 0;
  }
  while (good && file->offset < file->wanted && !ct_fanout_is_asked(sender->fanout)) {
    size_t got;
    good = send_piece(sender, file, CT_FRAME_DATA, fd, file->offset, 0, file->wanted, &got);
    if (good) {
      file->offset += got;
    }
    if (got == 0) {
      break;
    }
  }
  close(fd);
  return good;
}

static bool
is_same(const struct stat *a, const struct stat *b)
{
  return a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
         a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* A file that is replaced as a whole, open since the round began. */
static bool
send_replaced(struct ct_sender *sender, const char *name, int fd)
{
  struct stat now;
  struct sent_file *file = fd >= 0 && fstat(fd, &now) == 0 ? ct_sender_file(sender, name, strlen(name)) : NULL;
  if (file == NULL) {
    return fd < 0;
  }
  if (is_same(&now, &file->seen)) {
    return true;
  }
  uint64_t size = (uint64_t)now.st_size, offset = 0;
  do {
    size_t got;
    if (!send_piece(sender, file, CT_FRAME_WHOLE, fd, offset, size, size, &got)) {
      return false;
    }
    if (got == 0 && size != 0) {
      return true; /* shorter than it was: the next round has it */
    }
    offset += got;
  } while (offset < size);
  file->seen = now;
  return true;
}

static bool
send_replaced_now(struct ct_sender *sender, const char *prefix, const char *base)
{
  char name[CT_STREAM_NAME_BYTES];
  snprintf(name, sizeof(name), "%s%s", prefix, base);
  int fd = open_file(sender, name);
  bool good = send_replaced(sender, name, fd);
  if (fd >= 0) {
    close(fd);
  }
  return good;
}

/* A list of files to be sent in this round. */
struct list {
  struct sent_file **files;
  size_t count, room;
};

/* Takes a file's size of now. A file that is not there, or not one, is passed over. False: out of memory. */
static bool
look_at(struct ct_sender *sender, struct list *list, const char *prefix, const char *folder, const char *base)
{
  char name[CT_STREAM_NAME_BYTES];
  struct stat status;
  snprintf(name, sizeof(name), "%s%s%s%s", prefix, folder, folder[0] != '\0' ? "/" : "", base);
  if (fstatat(sender->dir_fd, name, &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(status.st_mode)) {
    return true;
  }
  struct sent_file *file = ct_sender_file(sender, name, strlen(name));
  if (file == NULL) {
    return false;
  }
  file->wanted = (uint64_t)status.st_size;
  if (list->count == list->room) {
    size_t room = list->room == 0 ? 64 : 2 * list->room;
    struct sent_file **more = realloc(list->files, room * sizeof(*more));
    if (more == NULL) {
      return false;
    }
    list->files = more;
    list->room = room;
  }
  list->files[list->count++] = file;
  return true;
}

/* A directory of the trace, "" the trace itself; NULL when it is not there. */
static DIR *
open_folder(const struct ct_sender *sender, const char *prefix)
{
  int fd = openat(sender->dir_fd, prefix[0] != '\0' ? prefix : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
  if (dir == NULL && fd >= 0) {
    close(fd);
  }
  return dir;
}

/* The sizes of the files of a process, functions.tsv last in time and first in the list. */
static bool
look_at_process(struct ct_sender *sender, const char *prefix, struct list *list)
{
  DIR *dir = open_folder(sender, prefix);
  bool good = true;
  struct dirent *entry;
  while (dir != NULL && good && (entry = readdir(dir)) != NULL) {
    const char *name = entry->d_name;
    if (ct_stream_is_numbered(name, strlen(name), CT_TRACE_THREAD_DIR)) {
      good =
          look_at(sender, list, prefix, name, CT_TRACE_INDEX) && look_at(sender, list, prefix, name, CT_TRACE_DETAIL);
    }
  }
  if (dir != NULL) {
    closedir(dir);
  }
  size_t before;
  good = good && look_at(sender, list, prefix, "", CT_TRACE_CAPTURES);
  before = list->count;
  good = good && look_at(sender, list, prefix, "", CT_TRACE_FUNCTIONS);
  if (good && list->count > before && before > 0) {
    struct sent_file *functions = list->files[before];
    list->files[before] = list->files[0];
    list->files[0] = functions;
  }
  return good;
}

/* What is replaced as a whole, the manifest last: it has been opened before all else. */
static bool
send_whole_files(struct ct_sender *sender, const char *prefix, int manifest)
{
  char name[CT_STREAM_NAME_BYTES];
  snprintf(name, sizeof(name), "%s%s", prefix, CT_TRACE_MANIFEST);
  return send_replaced_now(sender, prefix, CT_TRACE_SOURCES) &&
         send_replaced_now(sender, prefix, CT_TRACE_PROTOTYPES) && send_replaced_now(sender, prefix, CT_TRACE_STACKS) &&
         send_replaced_now(sender, prefix, CT_TRACE_CRASH) && send_replaced(sender, name, manifest);
}

static bool
send_process(struct ct_sender *sender, const char *prefix)
{
  char name[CT_STREAM_NAME_BYTES];
  struct list list = {NULL, 0, 0};
  snprintf(name, sizeof(name), "%s%s", prefix, CT_TRACE_MANIFEST);
  int manifest = open_file(sender, name);
  bool good = look_at_process(sender, prefix, &list);
  for (size_t i = 0; good && i < list.count; i++) {
    good = send_appended(sender, list.files[i]);
  }
  free(list.files);
  good = good && (ct_fanout_is_asked(sender->fanout) || send_whole_files(sender, prefix, manifest));
  if (manifest >= 0) {
    close(manifest);
  }
  return good;
}

bool
ct_sender_round(struct ct_sender *sender)
{
  DIR *dir = open_folder(sender, "");
  bool good = send_process(sender, "");
  struct dirent *entry;
  while (dir != NULL && good && (entry = readdir(dir)) != NULL) {
    const char *name = entry->d_name;
    if (ct_stream_is_numbered(name, strlen(name), CT_STREAM_PROCESS_DIR)) {
      char prefix[CT_STREAM_NAME_BYTES];
      snprintf(prefix, sizeof(prefix), "%s/", name);
      good = send_process(sender, prefix);
    }
  }
  if (dir != NULL) {
    closedir(dir);
  }
  return good;
}

struct checking {
  struct ct_sender *sender;
  uint32_t count;
  bool lost;
};

static void
check_file(const void *node, VISIT visit, void *context)
{
  struct checking *checking = context;
  if ((visit != postorder && visit != leaf) || checking->lost) {
    return;
  }
  struct sent_file *file = *(struct sent_file *const *)node;
  struct ct_sender *sender = checking->sender;
  int fd = open_file(sender, file->name);
  if (fd < 0) {
    return; /* not there any more: the receiver removes what is not checked */
  }
  uint64_t size;
  uint32_t crc;
  checking->lost = !checksum(sender, fd, UINT64_MAX, &size, &crc);
  close(fd);
  if (!checking->lost) {
    ct_frame_begin(&sender->frame, CT_FRAME_CHECK);
    ct_frame_add64(&sender->frame, size);
    ct_frame_add32(&sender->frame, crc);
    ct_frame_add(&sender->frame, file->name, strlen(file->name));
    checking->lost = !ct_sender_put(sender);
    checking->count++;
  }
}

bool
ct_sender_check(struct ct_sender *sender, uint32_t *count)
{
  struct checking checking = {.sender = sender};
  twalk_r(sender->files, check_file, &checking);
  *count = checking.count;
  return !checking.lost;
}

struct sums {
  const struct ct_sender *sender;
  uint64_t files, bytes, missing;
};

static void
add_file(const void *node, VISIT visit, void *context)
{
  struct sums *sums = context;
  const struct sent_file *file = *(struct sent_file *const *)node;
  struct stat status;
  if ((visit != postorder && visit != leaf) || sums->sender->dir_fd < 0 ||
      fstatat(sums->sender->dir_fd, file->name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
    return;
  }
  uint64_t size = (uint64_t)status.st_size;
  uint64_t there = file->kind == CT_STREAM_REPLACED ? (is_same(&status, &file->seen) ? size : 0) : file->offset;
  sums->files++;
  sums->bytes += size;
  sums->missing += size > there ? size - there : 0;
}

uint64_t
ct_sender_missing(struct ct_sender *sender)
{
  struct sums sums = {.sender = sender};
  twalk_r(sender->files, add_file, &sums);
  return sums.missing;
}

void
ct_sender_sums(struct ct_sender *sender, struct ct_stream_summary *summary)
{
  struct sums sums = {.sender = sender};
  twalk_r(sender->files, add_file, &sums);
  summary->files = sums.files;
  summary->bytes = sums.bytes;
}
