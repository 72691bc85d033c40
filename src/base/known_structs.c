/* SPDX-License-Identifier: MIT */
/*
 * What calls of the C library fill in: the members that are shown of structures, of glibc and musl on x86-64 alike, and
 * how many bytes of each call's result are read. The tests compile offsets and sizes against the headers.
 */
#include "base/known_calls.h"

#include <string.h>

#define LAST                                                                                                           \
  {                                                                                                                    \
    NULL, 0, 0, 0                                                                                                      \
  }

static const struct ct_known_struct structs[] = {
    {"int", 4, {{"", 0, 4, CT_TYPE_SIGNED}, LAST}},
    {"pid_t", 4, {{"", 0, 4, CT_TYPE_SIGNED}, LAST}},
    {"socklen_t", 4, {{"", 0, 4, CT_TYPE_UNSIGNED}, LAST}},
    {"time_t", 8, {{"", 0, 8, CT_TYPE_SIGNED}, LAST}},
    {"off_t", 8, {{"", 0, 8, CT_TYPE_SIGNED}, LAST}},
    {"pthread_t", 8, {{"", 0, 8, CT_TYPE_POINTER}, LAST}},
    {"void *", 8, {{"", 0, 8, CT_TYPE_POINTER}, LAST}},
    {"double", 8, {{"", 0, 8, CT_TYPE_FLOAT}, LAST}},
    {"sigset_t", 8, {{"", 0, 8, CT_TYPE_POINTER}, LAST}},
    {"struct stat",
     64,
     {{"st_mode", 24, 4, CT_TYPE_MODE},
      {"st_size", 48, 8, CT_TYPE_SIGNED},
      {"st_uid", 28, 4, CT_TYPE_UNSIGNED},
      {"st_gid", 32, 4, CT_TYPE_UNSIGNED},
      {"st_ino", 8, 8, CT_TYPE_UNSIGNED},
      {"st_dev", 0, 8, CT_TYPE_UNSIGNED},
      {"st_nlink", 16, 8, CT_TYPE_UNSIGNED},
      LAST}},
    {"struct statfs",
     56,
     {{"f_type", 0, 8, CT_TYPE_POINTER},
      {"f_bsize", 8, 8, CT_TYPE_SIGNED},
      {"f_blocks", 16, 8, CT_TYPE_UNSIGNED},
      {"f_bfree", 24, 8, CT_TYPE_UNSIGNED},
      {"f_bavail", 32, 8, CT_TYPE_UNSIGNED},
      LAST}},
    {"struct statvfs",
     56,
     {{"f_bsize", 0, 8, CT_TYPE_UNSIGNED},
      {"f_frsize", 8, 8, CT_TYPE_UNSIGNED},
      {"f_blocks", 16, 8, CT_TYPE_UNSIGNED},
      {"f_bfree", 24, 8, CT_TYPE_UNSIGNED},
      {"f_bavail", 32, 8, CT_TYPE_UNSIGNED},
      LAST}},
    {"struct timespec", 16, {{"tv_sec", 0, 8, CT_TYPE_SIGNED}, {"tv_nsec", 8, 8, CT_TYPE_SIGNED}, LAST}},
    {"struct timeval", 16, {{"tv_sec", 0, 8, CT_TYPE_SIGNED}, {"tv_usec", 8, 8, CT_TYPE_SIGNED}, LAST}},
    {"struct rlimit", 16, {{"rlim_cur", 0, 8, CT_TYPE_SIGNED}, {"rlim_max", 8, 8, CT_TYPE_SIGNED}, LAST}},
    {"struct rusage",
     40,
     {{"ru_utime.tv_sec", 0, 8, CT_TYPE_SIGNED},
      {"ru_utime.tv_usec", 8, 8, CT_TYPE_SIGNED},
      {"ru_stime.tv_sec", 16, 8, CT_TYPE_SIGNED},
      {"ru_stime.tv_usec", 24, 8, CT_TYPE_SIGNED},
      {"ru_maxrss", 32, 8, CT_TYPE_SIGNED},
      LAST}},
    {"struct tm",
     36,
     {{"tm_year", 20, 4, CT_TYPE_SIGNED},
      {"tm_mon", 16, 4, CT_TYPE_SIGNED},
      {"tm_mday", 12, 4, CT_TYPE_SIGNED},
      {"tm_hour", 8, 4, CT_TYPE_SIGNED},
      {"tm_min", 4, 4, CT_TYPE_SIGNED},
      {"tm_sec", 0, 4, CT_TYPE_SIGNED},
      LAST}},
    {"struct tms",
     32,
     {{"tms_utime", 0, 8, CT_TYPE_SIGNED},
      {"tms_stime", 8, 8, CT_TYPE_SIGNED},
      {"tms_cutime", 16, 8, CT_TYPE_SIGNED},
      {"tms_cstime", 24, 8, CT_TYPE_SIGNED},
      LAST}},
    {"struct sysinfo",
     48,
     {{"uptime", 0, 8, CT_TYPE_SIGNED},
      {"totalram", 32, 8, CT_TYPE_UNSIGNED},
      {"freeram", 40, 8, CT_TYPE_UNSIGNED},
      LAST}},
    {"struct epoll_event", 12, {{"events", 0, 4, CT_TYPE_POINTER}, {"data", 4, 8, CT_TYPE_POINTER}, LAST}},
    {"struct pollfd",
     8,
     {{"fd", 0, 4, CT_TYPE_SIGNED}, {"events", 4, 2, CT_TYPE_POINTER}, {"revents", 6, 2, CT_TYPE_POINTER}, LAST}},
};

const struct ct_known_struct *
ct_known_struct_at(size_t n)
{
  return n < sizeof(structs) / sizeof(structs[0]) ? &structs[n] : NULL;
}

const struct ct_known_struct *
ct_known_struct(const char *pointer, bool is_array)
{
  size_t length = strlen(pointer);
  if (!is_array && (length == 0 || pointer[--length] != '*')) {
    return NULL;
  }
  while (length != 0 && pointer[length - 1] == ' ') {
    length--;
  }
  for (size_t i = 0; i < sizeof(structs) / sizeof(structs[0]); i++) {
    if (strlen(structs[i].name) == length && memcmp(structs[i].name, pointer, length) == 0) {
      return &structs[i];
    }
  }
  return NULL;
}

bool
ct_known_out_parse(const char *word, size_t length, struct ct_parameter *parameter)
{
  static const char *const names[] = {
      [CT_OUT_AS_RESULT] = "filled", [CT_OUT_TEXT] = "text", [CT_OUT_VALUE] = "out", [CT_OUT_SOME] = "some"};
  for (uint8_t i = 1; i < sizeof(names) / sizeof(names[0]); i++) {
    if (strlen(names[i]) == length && memcmp(names[i], word, length) == 0) {
      parameter->out = i;
      return true;
    }
  }
  return false;
}

uint32_t
ct_known_out_bytes(const struct ct_parameter *parameter)
{
  const struct ct_known_struct *known;
  switch (parameter->out) {
  case CT_OUT_AS_RESULT:
  case CT_OUT_TEXT:
    return CT_KNOWN_OUT_BYTES;
  case CT_OUT_VALUE:
  case CT_OUT_SOME:
    known = ct_known_struct(parameter->type.name, parameter->out_count > 1);
    return known == NULL                                               ? 0
           : known->bytes * parameter->out_count <= CT_KNOWN_OUT_BYTES ? known->bytes * parameter->out_count
                                                                       : CT_KNOWN_OUT_BYTES;
  default:
    return 0;
  }
}
