# SPDX-License-Identifier: MIT
# bash completion for contrail(1). Install as /usr/share/bash-completion/completions/contrail.

_contrail_command() {
  local i
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [[ ${COMP_WORDS[i]} != -* ]]; then
      printf '%s' "${COMP_WORDS[i]}"
      return
    fi
  done
}

# Thread ids of the trace on the command line, or of the default one.
_contrail_tids() {
  local word dir=contrail.out
  for word in "${COMP_WORDS[@]:2}"; do
    [[ -e $word/manifest.json ]] && dir=$word
  done
  [[ -e $dir/manifest.json ]] || return
  contrail info --json "$dir" 2>/dev/null | sed -n 's/^ *"tid": \([0-9]*\),\{0,1\}$/\1/p'
}

# Index of the program's word after `contrail record [OPTION]... [--]`, or nothing while it is not begun.
_contrail_program_index() {
  local i
  for ((i = 2; i < COMP_CWORD; i++)); do
    case ${COMP_WORDS[i]} in
      --)
        printf '%s' $((i + 1))
        return
        ;;
      -o | --output | --ring-size | --child-ring-size | --trace | --mode | --project-root | --exclude | --exclude-from | --max-depth | --max-output | --sample)
        ((i++))
        # bash splits --output=DIR into three words
        [[ ${COMP_WORDS[i]} == = ]] && ((i++))
        ;;
      -*) ;;
      *)
        printf '%s' "$i"
        return
        ;;
    esac
  done
}

_contrail_record() {
  local program options='--output --follow --wait-for-all --ring-size --child-ring-size --lossless --no-wait --int3 --no-cache --trace --project-root --source --exclude --exclude-from --exclude-hot --max-depth --mode --args --no-args --sample --no-sampling --no-output --max-output --verbose --quiet --help --'
  program=$(_contrail_program_index)
  if [[ -n $program ]] && ((COMP_CWORD >= program)); then
    if declare -F _command_offset >/dev/null; then
      _command_offset "$program"
    elif ((COMP_CWORD == program)); then
      mapfile -t COMPREPLY < <(compgen -c -- "$cur")
    else
      mapfile -t COMPREPLY < <(compgen -f -- "$cur")
    fi
    return
  fi
  case $prev in
    -o | --output | --project-root) mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
    --mode) mapfile -t COMPREPLY < <(compgen -W 'full light auto' -- "$cur") ;;
    --trace) mapfile -t COMPREPLY < <(compgen -W '@file: @usercode' -- "$cur") ;;
    --ring-size) mapfile -t COMPREPLY < <(compgen -W '16 64 128 256' -- "$cur") ;;
    --exclude | --max-depth | --max-output) ;;
    --sample) mapfile -t COMPREPLY < <(compgen -W '1 2 4 8 16 32 64 128 256' -- "$cur") ;;
    --exclude-from)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -f -- "$cur")
      ;;
    *)
      if [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
      else
        mapfile -t COMPREPLY < <(compgen -c -- "$cur")
      fi
      ;;
  esac
}

# A process of the user's.
_contrail_process() {
  local options='--help'
  [[ $command == attach ]] && options='--output --follow --for --deadline --ring-size --child-ring-size --lossless --no-wait --max-depth --no-output --max-output --no-cache --trace --mode --args --no-args --sample --no-sampling --project-root --source --exclude --exclude-from --exclude-hot --quiet --help'
  case $prev in
    -o | --output | --project-root) mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
    --mode) mapfile -t COMPREPLY < <(compgen -W 'full light auto' -- "$cur") ;;
    --trace) mapfile -t COMPREPLY < <(compgen -W '@file: @usercode' -- "$cur") ;;
    --for | --deadline | --ring-size | --child-ring-size | --max-depth | --max-output | --exclude | --exclude-from) ;;
    *)
      if [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
      else
        mapfile -t COMPREPLY < <(compgen -W "$(ps -u "$EUID" -o pid= 2>/dev/null)" -- "$cur")
      fi
      ;;
  esac
}

# Ids of the live sessions.
_contrail_sessions() {
  contrail sessions --json 2>/dev/null | sed -n 's/^ *"id": "\(.*\)",$/\1/p'
}

_contrail() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command options
  COMPREPLY=()
  # The value of --option=VALUE comes as the words --option = VALUE.
  if [[ $cur == = ]]; then
    cur=
  elif [[ $prev == = ]]; then
    prev=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  command=$(_contrail_command)
  case $command in
    '')
      mapfile -t COMPREPLY < <(compgen -W 'record attach sessions status pause resume stop trace exclude plan info report replay output exclude-list cache clean help version --help --version' -- "$cur")
      return
      ;;
    record)
      _contrail_record
      return
      ;;
    help)
      mapfile -t COMPREPLY < <(compgen -W 'record attach sessions status pause resume stop trace exclude plan info report replay output exclude-list cache clean help version' -- "$cur")
      return
      ;;
    version) return ;;
    sessions | status | pause | resume | stop)
      if [[ $cur == -* ]]; then
        options='--json --help'
        [[ $command == stop ]] && options+=' --end'
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
      elif [[ $command != sessions ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_contrail_sessions)" -- "$cur")
      fi
      return
      ;;
    trace | exclude)
      if [[ $cur == -* ]]; then
        options='--json --help'
        [[ $command == trace ]] && options+=' --mode'
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
      elif [[ $prev == --mode ]]; then
        mapfile -t COMPREPLY < <(compgen -W 'full light auto' -- "$cur")
      elif ((COMP_CWORD <= 3)) && [[ $prev != add && $prev != remove && $prev != list ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$([[ $prev == "$command" ]] && _contrail_sessions) add remove list" -- "$cur")
      fi
      return
      ;;
    attach | clean)
      _contrail_process
      return
      ;;
    cache)
      mapfile -t COMPREPLY < <(compgen -W '--clear --json --help' -- "$cur")
      return
      ;;
    plan)
      if [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W '--json --int3 --no-cache --trace --mode --project-root --exclude --exclude-from --exclude-hot --help' -- "$cur")
      else
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
      fi
      return
      ;;
    exclude-list) options='--share --json --help' ;;
    info) options='--json --raw --help' ;;
    report) options='--sort --limit --function --module --thread --per-thread --family --source --time --raw --json --quiet --help' ;;
    replay) options='--limit --function --module --thread --depth --no-output --source --time --raw --json --quiet --help' ;;
    output) options='--thread --stdout --stderr --raw --json --help' ;;
    *) return ;;
  esac
  case $prev in
    -s | --sort)
      mapfile -t COMPREPLY < <(compgen -W 'total self off calls min max avg p50 p95 p99 name' -- "$cur")
      ;;
    --time) mapfile -t COMPREPLY < <(compgen -W 'wall cpu' -- "$cur") ;;
    -t | --thread) mapfile -t COMPREPLY < <(compgen -W "$(_contrail_tids)" -- "$cur") ;;
    --share | -n | --limit | -d | --depth | -f | -F | --function | -m | --module) ;;
    *)
      if [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
      else
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -d -- "$cur")
      fi
      ;;
  esac
}

complete -F _contrail contrail
