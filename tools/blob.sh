#!/bin/sh
# SPDX-License-Identifier: MIT
# tools/blob.sh ELF FLAT ASM: the agent's flat image, and an assembly file that carries it as
# ct_agent_blob .. ct_agent_blob_end.
set -eu
elf=$1 flat=$2 asm=$3
objcopy -O binary "$elf" "$flat"
path=$(realpath "$flat")
cat >"$asm" <<EOF
/* $(cksum <"$flat") */
  .section .rodata.agent, "a", @progbits
  .balign 4096
  .globl ct_agent_blob
  .type ct_agent_blob, @object
ct_agent_blob:
  .incbin "$path"
  .globl ct_agent_blob_end
ct_agent_blob_end:
  .size ct_agent_blob, . - ct_agent_blob
  .section .note.GNU-stack, "", @progbits
/* There is no code in it that a branch goes to: IBT and SHSTK (x86-64 psABI, program property). */
  .section .note.gnu.property, "a"
  .balign 8
  .long 4, 16, 5
  .asciz "GNU"
  .long 0xc0000002, 4, 3, 0
EOF
