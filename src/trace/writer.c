/* SPDX-License-Identifier: MIT */
/*
 * The trace directory: its creation, the function table, the manifest, and the list
 * of encoders. Blocks, the queue and the thread that writes the files are in block.c. See writer.h for the rules.
 */
#include "trace/writer.h"

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/json.h"
#include "base/test_point.h"
#include "trace/detail.h"
#include "trace/writer_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define QUEUE_BYTES_MAX (1u << 30) /* record sizes are 32 bits */

int
ct_writer_fail(struct ct_trace_writer *writer, int code, const char *fmt, ...)
{
  pthread_mutex_lock(&writer->writer_thread.lock);
  int first = ct_writer_error(writer);
  if (first == CT_OK) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(writer->error_diag.text, sizeof(writer->error_diag.text), fmt, ap);
    va_end(ap);
    /* release: pairs with the acquire in ct_trace_writer_error, which reads the text */
    atomic_store_explicit(&writer->error, first = code, memory_order_release);
  }
  pthread_mutex_unlock(&writer->writer_thread.lock);
  return first;
}

int
ct_trace_writer_error(const struct ct_trace_writer *writer, struct ct_diag *diag)
{
  /* acquire: pairs with the release in ct_writer_fail; neither code nor text changes after it */
  int code = atomic_load_explicit(&writer->error, memory_order_acquire);
  if (code != CT_OK && diag != NULL) {
    *diag = writer->error_diag;
  }
  return code;
}

/* ---- the directory ---- */

static bool
is_empty(int fd)
{
  int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *stream = copy < 0 ? NULL : fdopendir(copy);
  if (stream == NULL) {
    if (copy >= 0) {
      close(copy);
    }
    return false;
  }
  bool empty = true;
  for (const struct dirent *entry; empty && (entry = readdir(stream)) != NULL;) {
    empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
  }
  closedir(stream);
  return empty;
}

/* Says which part of the path is the reason. */
static int
directory_failed(struct ct_diag *diag, const char *dir, int err)
{
  const char *slash = strrchr(dir, '/');
  int parent_length = slash == NULL || slash == dir ? 1 : (int)(slash - dir);
  const char *parent = slash == NULL ? "." : dir;
  switch (err) {
  case ENOENT:
    if (parent_length < (int)strlen(dir)) {
      char *above = strndup(parent, (size_t)parent_length);
      bool there = above != NULL && access(above, F_OK) == 0;
      free(above);
      if (there) {
        return ct_fail(diag, CT_ENOENT, "cannot create %s: no directory can be made in %.*s", dir, parent_length,
                       parent);
      }
    }
    return ct_fail(diag, CT_ENOENT, "cannot create %s: its parent directory %.*s does not exist", dir, parent_length,
                   parent);
  case ENOTDIR:
    return ct_fail(diag, CT_ENOENT, "cannot create %s: %.*s is not a directory", dir, parent_length, parent);
  case EACCES:
  case EPERM:
    return ct_fail(diag, CT_EACCES, "cannot create %s: no permission to write in %.*s", dir, parent_length, parent);
  case EROFS:
    return ct_fail(diag, CT_EACCES, "cannot create %s: the file system is read-only", dir);
  default:
    return ct_fail(diag, ct_err_from_errno(err), "cannot create %s: %s", dir, strerror(err));
  }
}

/* path has no slash at its end. */
int
ct_trace_directory_create(const char *path, int *fd_out, bool *made, struct ct_diag *diag)
{
  if (mkdir(path, 0700) == 0) {
    *made = true;
  } else if (errno != EEXIST) {
    return directory_failed(diag, path, errno);
  }
  struct stat info;
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0 && (errno == ENOTDIR || errno == ELOOP)) {
    return ct_fail(diag, CT_EEXIST, "%s already exists and is not a directory%s", path,
                   lstat(path, &info) == 0 && S_ISLNK(info.st_mode) ? ", but a symbolic link" : "");
  }
  if (fd < 0) {
    int err = errno;
    return ct_fail(diag, ct_err_from_errno(err), "cannot open %s: %s", path, strerror(err));
  }
  if (fstat(fd, &info) != 0 || info.st_uid != geteuid()) {
    close(fd);
    return ct_fail(diag, CT_EACCES, "%s belongs to another user, who could change what is written there", path);
  }
  if (!*made && (info.st_mode & 022) != 0) {
    close(fd);
    return ct_fail(diag, CT_EACCES, "others may write to %s; give another name, or take that right away", path);
  }
  if (!*made && !is_empty(fd)) {
    close(fd);
    return ct_fail(diag, CT_EEXIST, "%s already exists and is not empty; give another name or remove it", path);
  }
  *fd_out = fd;
  return CT_OK;
}

/* ---- life ---- */

void
ct_encoder_free(struct ct_encoder *encoder)
{
  ct_detail_free(encoder);
  ct_contexts_clear(&encoder->contexts);
  free(encoder->columns.frames);
  free(encoder->stream);
  free(encoder);
}

static void
writer_free(struct ct_trace_writer *writer)
{
  ct_writer_thread_stop(writer);
  for (uint32_t i = 0; i < writer->encoder_count; i++) {
    ct_encoder_free(writer->encoders[i]);
  }
  for (uint32_t i = 0; i < writer->pool_count; i++) {
    ct_buffers_free(writer->pool[i]);
  }
  free(writer->pool);
  free(writer->encoders);
  free(writer->writer_thread.ring);
  ct_function_lines_free(writer);
  free(writer->captures);
  if (writer->has_values != NULL) {
    munmap(writer->has_values, CT_HAS_VALUES_BYTES);
  }
  ZSTD_freeCCtx(writer->compressor);
  ZSTD_freeCCtx(writer->quick_compressor);
  free(writer->detail_scratch);
  if (writer->functions_fd >= 0) {
    close(writer->functions_fd);
  }
  if (writer->writer_thread.captures_fd >= 0) {
    close(writer->writer_thread.captures_fd);
  }
  if (writer->dir_fd >= 0) {
    close(writer->dir_fd);
  }
  pthread_cond_destroy(&writer->writer_thread.room);
  pthread_cond_destroy(&writer->writer_thread.work);
  pthread_mutex_destroy(&writer->writer_thread.lock);
  ct_store_destroy(writer->store, writer->store_stays);
  ct_pieces_destroy(writer->pieces);
  free(writer->path);
  free(writer);
}

void
ct_trace_writer_set_level(struct ct_trace_writer *writer, int level)
{
  ZSTD_CCtx_setParameter(writer->compressor, ZSTD_c_compressionLevel, level);
  /* Shorter matches in these columns are chance: without them both sides are faster and the file is smaller. */
  ZSTD_CCtx_setParameter(writer->compressor, ZSTD_c_minMatch, level == 1 ? 7 : 0);
}

/* Everything but the directory. The first set of buffers is taken here, so that there always is one. */
static struct ct_trace_writer *
writer_new(const char *dir, uint64_t max_buffer_bytes)
{
  struct ct_trace_writer *writer = calloc(1, sizeof(*writer));
  if (writer == NULL) {
    return NULL;
  }
  writer->dir_fd = writer->functions_fd = writer->writer_thread.captures_fd = -1;
  pthread_mutex_init(&writer->writer_thread.lock, NULL);
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&writer->writer_thread.work, &monotonic);
  pthread_condattr_destroy(&monotonic);
  pthread_cond_init(&writer->writer_thread.room, NULL);
  writer->writer_thread.test_ns = ct_test_duration_ns("CONTRAIL_TEST_DISK_MS", 0);
  uint64_t queue = max_buffer_bytes / 3 < QUEUE_BYTES_MAX ? max_buffer_bytes / 3 : QUEUE_BYTES_MAX;
  queue = queue > QUEUE_BYTES_MIN && writer->writer_thread.test_ns == 0 ? queue : QUEUE_BYTES_MIN;
  uint64_t limit = max_buffer_bytes > queue ? (max_buffer_bytes - queue) / sizeof(struct ct_buffers) : 0;
  writer->pool_limit = limit < 1 ? 1 : limit > 1u << 16 ? 1u << 16 : (uint32_t)limit;
  writer->pool = calloc(writer->pool_limit, sizeof(struct ct_buffers *));
  writer->compressor = ZSTD_createCCtx();
  writer->path = strdup(dir);
  if (writer->pool != NULL && (writer->pool[0] = ct_buffers_new()) != NULL) {
    writer->pool_count = 1;
  }
  if (writer->pool_count == 0 || writer->compressor == NULL || writer->path == NULL ||
      ct_writer_thread_start(writer, queue) != CT_OK) {
    writer_free(writer);
    return NULL;
  }
  void *bits =
      mmap(NULL, CT_HAS_VALUES_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  writer->has_values = bits != MAP_FAILED ? bits : NULL;
  ct_trace_writer_set_level(writer, 1);
  ct_function_lines_begin(writer);
  size_t length = strlen(writer->path);
  while (length > 1 && writer->path[length - 1] == '/') {
    writer->path[--length] = '\0';
  }
  return writer;
}

int
ct_trace_writer_create(const char *dir, uint64_t max_buffer_bytes, struct ct_trace_writer **out, struct ct_diag *diag)
{
  struct ct_trace_writer *writer = writer_new(dir, max_buffer_bytes);
  if (writer == NULL) {
    return ct_fail(
        diag, CT_ENOMEM,
        "out of memory for the buffers of the trace, or no thread for it (the limit of processes, ulimit -u)");
  }
  bool made = false;
  int err = ct_trace_directory_create(writer->path, &writer->dir_fd, &made, diag);
  if (err != CT_OK) {
    goto free_writer;
  }
  writer->functions_fd = openat(writer->dir_fd, CT_TRACE_FUNCTIONS, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (writer->functions_fd < 0) {
    int saved = errno;
    err = ct_fail(diag, ct_err_from_errno(saved), "cannot create a file in %s: %s", writer->path, strerror(saved));
    goto free_writer;
  }
  /* Until the recording ends: contrail recover sees that somebody records. Where there are no locks it cannot. */
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  (void)fcntl(writer->functions_fd, F_OFD_SETLK, &lock);
  *out = writer;
  return CT_OK;

free_writer:
  if (made) {
    rmdir(writer->path);
  }
  writer_free(writer);
  return err;
}

int
ct_trace_writer_directory(const struct ct_trace_writer *writer)
{
  return writer->dir_fd;
}

int
ct_trace_writer_close(struct ct_trace_writer *writer, struct ct_diag *diag)
{
  if (writer == NULL) {
    return CT_OK;
  }
  for (uint32_t i = 0; i < writer->encoder_count; i++) {
    ct_encoder_close(writer->encoders[i]);
  }
  ct_trace_writer_end_detail(writer);
  ct_trace_writer_flush_functions(writer);
  ct_trace_writer_flush_captures(writer);
  ct_writer_thread_stop(writer);
  if (close(writer->functions_fd) != 0 && errno != EINTR) {
    ct_writer_fail(writer, ct_err_from_errno(errno), "%s/%s: %s", writer->path, CT_TRACE_FUNCTIONS, strerror(errno));
  }
  writer->functions_fd = -1;
  int err = ct_trace_writer_error(writer, diag);
  writer_free(writer);
  return err;
}

uint64_t
ct_trace_writer_bytes(const struct ct_trace_writer *writer)
{
  /* relaxed: the writer thread only counts */
  uint64_t unwritten = atomic_load_explicit(&writer->unwritten_bytes, memory_order_relaxed);
  struct ct_pieces_state pieces = {0};
  if (writer->pieces != NULL) {
    ct_pieces_get_state(writer->pieces, &pieces);
  }
  return writer->queued_bytes - unwritten - pieces.gone_bytes + writer->manifest_bytes;
}

uint64_t
ct_trace_writer_cpu_ns(const struct ct_trace_writer *writer)
{
  clockid_t clock;
  const struct ct_writer_thread *thread = &writer->writer_thread;
  return thread->running && pthread_getcpuclockid(thread->thread, &clock) == 0 ? ct_clock_ns(clock) : 0;
}

int
ct_trace_writer_sync(struct ct_trace_writer *writer)
{
  ct_trace_writer_flush_functions(writer);
  ct_trace_writer_flush_captures(writer);
  ct_writer_thread_wait(writer);
  return ct_writer_error(writer);
}

/* ---- what the program wrote ---- */

int
ct_trace_writer_flush_captures(struct ct_trace_writer *writer)
{
  if (writer->captures_fill != 0 && ct_writer_error(writer) == CT_OK) {
    memcpy(ct_writer_thread_reserve(writer, writer->captures_fill), writer->captures, writer->captures_fill);
    ct_writer_thread_commit(writer, CT_WRITER_CAPTURES, NULL, writer->captures_fill, 0);
    writer->captures_fill = 0;
  }
  return ct_writer_error(writer);
}

int
ct_trace_writer_capture(struct ct_trace_writer *writer, struct ct_capture_record *record, const void *data,
                        size_t bytes)
{
  size_t size = sizeof(*record) + bytes;
  if (ct_writer_error(writer) != CT_OK) {
    return ct_writer_error(writer);
  }
  if (writer->captures == NULL && (writer->captures = malloc(CAPTURES_BUFFER)) == NULL) {
    return CT_ENOMEM;
  }
  if (size > CAPTURES_BUFFER - writer->captures_fill) {
    ct_trace_writer_flush_captures(writer);
  }
  if (size > CT_CAPTURE_RECORD_MAX || size > CAPTURES_BUFFER - writer->captures_fill) {
    return CT_ERANGE;
  }
  record->record_bytes = (uint32_t)size;
  uint8_t *to = writer->captures + writer->captures_fill;
  memcpy(to, record, sizeof(*record));
  memcpy(to + sizeof(*record), data, bytes);
  record->crc = ct_crc32c(0, to + sizeof(record->crc), size - sizeof(record->crc));
  memcpy(to, &record->crc, sizeof(record->crc));
  writer->captures_fill += size;
  return CT_OK;
}

/* ---- the manifest ---- */

static bool
is_final(const json_t *manifest)
{
  const char *state = json_string_value(json_object_get(manifest, "state"));
  return state != NULL && strcmp(state, "complete") == 0;
}

/* Until size_limit_restore, a write beyond RLIMIT_FSIZE is EFBIG and nothing else. */
static void
size_limit_block(sigset_t *old)
{
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGXFSZ);
  pthread_sigmask(SIG_BLOCK, &set, old);
}

static void
size_limit_restore(const sigset_t *old)
{
  sigset_t set;
  struct timespec at_once = {0, 0};
  sigemptyset(&set);
  sigaddset(&set, SIGXFSZ);
  while (!sigismember(old, SIGXFSZ) && sigtimedwait(&set, NULL, &at_once) < 0 && errno == EINTR)
    ;
  pthread_sigmask(SIG_SETMASK, old, NULL);
}

int
ct_file_replace(int dir_fd, const char *name, const char *text, size_t size, bool sync)
{
  char temporary[64];
  snprintf(temporary, sizeof(temporary), "%s.tmp", name);
  unlinkat(dir_fd, temporary, 0); /* nothing that is there already is written to */
  int fd = openat(dir_fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) {
    return errno;
  }
  int err = 0;
  size_t written;
  if (!ct_writer_write_at(fd, text, size, 0, &written)) {
    err = errno;
  }
  if (err == 0 && sync && fsync(fd) != 0 && errno != EINVAL) {
    err = errno;
  }
  if (close(fd) != 0 && errno != EINTR && err == 0) {
    err = errno;
  }
  if (err == 0 && renameat(dir_fd, temporary, dir_fd, name) != 0) {
    err = errno;
  }
  if (err != 0) {
    unlinkat(dir_fd, temporary, 0);
  }
  return err;
}

/*
 * Room on the disk for the last manifest, which says that the disk was full: blocks far past the end of the function
 * table, taken while there are some, given up just before it is written. File systems that cannot do this go without.
 */
#define RESERVE_OFFSET (1ll << 36)
#define RESERVE_EXTRA  (16u << 10)

static void
reserve_room(const struct ct_trace_writer *writer, size_t size)
{
  (void)!fallocate(writer->functions_fd, FALLOC_FL_KEEP_SIZE, RESERVE_OFFSET, (off_t)(2 * size + RESERVE_EXTRA));
}

static void
give_up_room(const struct ct_trace_writer *writer)
{
  struct stat file;
  if (fstat(writer->functions_fd, &file) == 0) {
    (void)!ftruncate(writer->functions_fd, file.st_size); /* of what lies past the end */
  }
}

void
ct_writer_list_tables(const struct ct_trace_writer *writer, json_t *files)
{
  if (writer->sources_bytes != 0) {
    ct_json_put(files, CT_TRACE_SOURCES, writer->sources_bytes);
  }
  if (writer->prototypes_bytes != 0) {
    ct_json_put(files, CT_TRACE_PROTOTYPES, writer->prototypes_bytes);
  }
}

/* The files as they are when all is written, so that a reader sees when something of them is gone. */
static json_t *
files_json(const struct ct_trace_writer *writer)
{
  json_t *files = json_object();
  char name[CT_BLOCK_FILE_NAME_BYTES];
  json_object_set_new(files, CT_TRACE_FUNCTIONS, json_integer((json_int_t)writer->writer_thread.functions_bytes));
  if (writer->writer_thread.captures_fd >= 0) {
    json_object_set_new(files, CT_TRACE_CAPTURES, json_integer((json_int_t)writer->writer_thread.captures_bytes));
  }
  ct_writer_list_tables(writer, files);
  for (uint32_t i = 0; i < writer->encoder_count; i++) {
    const struct ct_stream *streams[] = {writer->encoders[i]->stream, ct_detail_stream(writer->encoders[i])};
    for (size_t n = 0; n < 2 && streams[n] != NULL; n++) {
      ct_stream_file_name(streams[n], name);
      json_object_set_new(files, name, json_integer((json_int_t)streams[n]->file_bytes));
    }
  }
  return files;
}

/* "complete" is said of what is on the disk, and only when all of it is there. */
static char *
manifest_text(struct ct_trace_writer *writer, const json_t *manifest, bool final)
{
  struct ct_diag why = {""};
  json_t *whole = (writer->store != NULL || writer->pieces != NULL) && final ? json_deep_copy(manifest)
                                                                             : json_copy((json_t *)manifest);
  /* Their lines first, which else come with the next block: it counts none that stay unnamed for as long. */
  ct_trace_writer_flush_functions(writer);
  json_object_set_new(whole, "function_count", json_integer(ct_function_lines_count(writer)));
  if (final) {
    ct_trace_writer_sync(writer);
  }
  if (final && writer->store != NULL && ct_writer_error(writer) == CT_OK) {
    ct_writer_unload(writer, whole);
  }
  if (ct_trace_writer_error(writer, &why) != CT_OK) {
    json_object_set_new(whole, "state", json_string(final ? "failed" : "recording"));
    json_object_set_new(whole, "error", ct_json_string(why.text));
  } else if (final && writer->pieces != NULL) {
    ct_pieces_amend(writer, whole);
  } else if (final && writer->store == NULL) {
    json_object_set_new(whole, "files", files_json(writer));
  }
  if (final) {
    ct_writer_note_changed(writer, whole);
  }
  char *text = json_dumps(whole, JSON_INDENT(1));
  json_decref(whole);
  return text;
}

/* err: what has gone wrong, 0 for nothing. */
static int
put_manifest(struct ct_trace_writer *writer, const json_t *manifest, bool final, int *err)
{
  char *text = manifest_text(writer, manifest, final);
  if (text == NULL) {
    return ct_writer_fail(writer, CT_ENOMEM, "out of memory for the manifest, or text in it that is not UTF-8");
  }
  size_t size = strlen(text);
  /* Tried even after a failure: on a full disk a small file may still find room, and it says what was lost. */
  sigset_t old;
  size_limit_block(&old);
  if (final) {
    give_up_room(writer);
  }
  *err = ct_file_replace(writer->dir_fd, CT_TRACE_MANIFEST, text, size, final);
  if (*err == ENOSPC && !final &&
      writer->pieces != NULL) { /* that is how such a recording goes on: its files fill the disk */
    give_up_room(writer);
    *err = ct_file_replace(writer->dir_fd, CT_TRACE_MANIFEST, text, size, false);
    *err = *err == ENOSPC && writer->manifest_bytes != 0 ? 0 : *err; /* the one before it stays until the next */
  }
  if (!final) {
    reserve_room(writer, size);
  }
  size_limit_restore(&old);
  free(text);
  writer->manifest_bytes = *err == 0 ? size : writer->manifest_bytes;
  return CT_OK;
}

int
ct_trace_writer_manifest(struct ct_trace_writer *writer, const json_t *manifest)
{
  bool final = is_final(manifest);
  int err, code;
  do { /* the last one has the room of the oldest piece, where nothing could be reserved; nobody else writes then */
    code = put_manifest(writer, manifest, final, &err);
  } while (code == CT_OK && err == ENOSPC && final && ct_pieces_make_room(writer, NULL));
  if (code == CT_OK && err != 0) {
    code = ct_writer_fail(writer, ct_err_from_errno(err), "cannot write %s/%s: %s", writer->path, CT_TRACE_MANIFEST,
                          strerror(err));
  }
  return code != CT_OK ? code : ct_writer_error(writer);
}

int
ct_trace_writer_sources(struct ct_trace_writer *writer, const char *text, size_t size)
{
  sigset_t old;
  size_limit_block(&old);
  int err = ct_file_replace(writer->dir_fd, CT_TRACE_SOURCES, text, size, false);
  size_limit_restore(&old);
  writer->sources_bytes = err == 0 ? size : 0;
  return err == 0 ? CT_OK : ct_err_from_errno(err);
}

int
ct_trace_put_prototypes(int dir_fd, const char *text, size_t size, uint64_t *bytes)
{
  char *whole = NULL;
  int length = asprintf(&whole, "%s%08x\n%s", CT_PROTOTYPES_HEAD, ct_crc32c(0, text, size), text);
  if (length < 0) {
    return CT_ENOMEM;
  }
  sigset_t old;
  size_limit_block(&old);
  int err = ct_file_replace(dir_fd, CT_TRACE_PROTOTYPES, whole, (size_t)length, false);
  size_limit_restore(&old);
  free(whole);
  *bytes = err == 0 ? (uint64_t)length : 0;
  return err == 0 ? CT_OK : ct_err_from_errno(err);
}

int
ct_trace_writer_prototypes(struct ct_trace_writer *writer, const char *text, size_t size)
{
  return ct_trace_put_prototypes(writer->dir_fd, text, size, &writer->prototypes_bytes);
}

bool
ct_trace_writer_has_values(const struct ct_trace_writer *writer, uint32_t fn)
{
  return writer->has_values != NULL && fn <= CT_FUNCTION_ID_MAX &&
         (atomic_load_explicit(&writer->has_values[fn / 8], memory_order_relaxed) >> fn % 8 & 1) != 0;
}

static int
write_json(struct ct_trace_writer *writer, const char *name, const json_t *json)
{
  char *text = json_dumps(json, JSON_INDENT(1));
  if (text == NULL) {
    return CT_ENOMEM;
  }
  sigset_t old;
  size_limit_block(&old);
  int err = ct_file_replace(writer->dir_fd, name, text, strlen(text), false);
  size_limit_restore(&old);
  free(text);
  return err == 0 ? CT_OK : ct_err_from_errno(err);
}

int
ct_trace_writer_crash(struct ct_trace_writer *writer, const json_t *crash)
{
  return write_json(writer, CT_TRACE_CRASH, crash);
}

int
ct_trace_writer_stacks(struct ct_trace_writer *writer, const json_t *stacks)
{
  return write_json(writer, CT_TRACE_STACKS, stacks);
}

void
ct_trace_writer_near_values(struct ct_trace_writer *writer)
{
  writer->has_near = true;
}

/* ---- threads ---- */

static int
remember(struct ct_trace_writer *writer, struct ct_encoder *encoder)
{
  if (writer->encoder_count == writer->encoder_capacity) {
    uint32_t capacity = writer->encoder_capacity == 0 ? 64 : writer->encoder_capacity * 2;
    struct ct_encoder **encoders = realloc(writer->encoders, capacity * sizeof(struct ct_encoder *));
    if (encoders == NULL) {
      return CT_ENOMEM;
    }
    writer->encoders = encoders;
    writer->encoder_capacity = capacity;
  }
  writer->encoders[writer->encoder_count++] = encoder;
  return CT_OK;
}

int
ct_trace_writer_thread(struct ct_trace_writer *writer, uint32_t index, uint32_t tid, uint32_t pid,
                       struct ct_encoder **out)
{
  if (ct_writer_error(writer) != CT_OK) {
    return ct_writer_error(writer);
  }
  struct ct_encoder *encoder = calloc(1, sizeof(*encoder));
  struct ct_stream *stream = calloc(1, sizeof(*stream));
  struct ct_frame *frames = malloc(FRAMES_AT_START * sizeof(*frames));
  if (encoder == NULL || stream == NULL || frames == NULL) {
    goto no_memory;
  }
  encoder->columns.frames = encoder->columns.top = encoder->columns.floor = frames;
  encoder->frame_capacity = FRAMES_AT_START;
  encoder->frames_held = FRAMES_AT_START;
  writer->frames_held += FRAMES_AT_START;
  encoder->writer = writer;
  encoder->has_values = writer->has_values;
  encoder->is_near = writer->has_near && writer->store == NULL && writer->pieces == NULL;
  encoder->stream = stream;
  encoder->tid = tid;
  stream->index = index;
  stream->fd = -1;
  stream->name = CT_TRACE_INDEX;
  if (remember(writer, encoder) != CT_OK) {
    goto no_memory;
  }
  ct_thread_file_create(encoder, pid);
  *out = encoder;
  return CT_OK;

no_memory:
  free(encoder);
  free(stream);
  free(frames);
  return CT_ENOMEM;
}

int
ct_encoder_close(struct ct_encoder *encoder)
{
  if (encoder->closed) {
    return ct_writer_error(encoder->writer);
  }
  ct_encoder_flush(encoder);
  ct_detail_close(encoder);
  ct_writer_thread_reserve(encoder->writer, 0);
  ct_writer_thread_commit(encoder->writer, CT_WRITER_CLOSE, encoder->stream, 0, 0);
  ct_contexts_clear(&encoder->contexts);
  free(encoder->columns.frames);
  encoder->columns.frames = encoder->columns.top = encoder->columns.floor = NULL;
  encoder->frame_capacity = 0;
  encoder->writer->frames_held -= encoder->frames_held;
  encoder->frames_held = 0;
  encoder->closed = 1;
  return ct_writer_error(encoder->writer);
}
