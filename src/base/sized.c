/* SPDX-License-Identifier: MIT */
/* Structures between programs and libraries of different versions; see sized.h. */
#include "base/sized.h"

#include <string.h>

enum { SIZE_BELIEVED = 1 << 16 }; /* more is a struct_size that was never set */

static size_t
size_of(const void *sized)
{
  size_t size;
  memcpy(&size, sized, sizeof(size));
  return size;
}

static int
check(size_t size, struct ct_diag *diag)
{
  if (size < sizeof(size_t) || size > SIZE_BELIEVED) {
    return ct_fail(diag, CT_EINVAL, "struct_size is not set to the size of the structure");
  }
  return CT_OK;
}

int
ct_sized_take(void *own, size_t own_size, const void *given, struct ct_diag *diag)
{
  size_t size = size_of(given);
  int code = check(size, diag);
  if (code != CT_OK) {
    return code;
  }
  for (size_t i = own_size; i < size; i++) {
    if (((const unsigned char *)given)[i] != 0) {
      return ct_fail(diag, CT_EUNSUPPORTED, "an option is set that this version of the library does not have");
    }
  }
  memset(own, 0, own_size);
  memcpy(own, given, size < own_size ? size : own_size);
  memcpy(own, &own_size, sizeof(own_size));
  return CT_OK;
}

int
ct_sized_give(void *wanted, const void *own, size_t own_size, struct ct_diag *diag)
{
  size_t size = size_of(wanted);
  int code = check(size, diag);
  if (code != CT_OK) {
    return code;
  }
  memset(wanted, 0, size);
  memcpy(wanted, own, size < own_size ? size : own_size);
  memcpy(wanted, &size, sizeof(size));
  return CT_OK;
}
