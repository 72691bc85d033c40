/* SPDX-License-Identifier: MIT */
/* Two libraries of the same form, of which one is loaded at a time. */
int
which(int number)
{
#ifdef TWO
  return number * 2 + 1000;
#else
  return number + 1;
#endif
}
