# Completion of the command line of @PROGRAM@ in bash, made from what it says of itself.

@_words()
{
    local word

    for word; do
        [[ $word != "$cur"* ]] || COMPREPLY+=("$word")
    done
}

# PATTERN: such files, and the folders on the way to them.
@_files()
{
    local file start=$cur

    # As they are called, not as they are quoted here.
    case $start in
    [\'\"]*) start=${start:1} ;;
    *) start=${start//\\/} ;;
    esac
    while IFS= read -r file; do
        # shellcheck disable=SC2053 # it is a pattern
        if [[ -d ${file/#\~\//$HOME/} || $file == $1 ]]; then
            COMPREPLY+=("$file")
        fi
    done < <(compgen -f -- "$start")
    compopt -o filenames 2>/dev/null
}

# Loaders that the daemon has open, if it answers at once.
@_loaders()
{
    local i line place=()

    for ((i = 1; i < COMP_CWORD; i++)); do
        [[ ${COMP_WORDS[i]} == --socket ]] || continue
        # Bash takes --option=value apart.
        [[ ${COMP_WORDS[i + 1]} != = ]] || ((++i))
        place=(--socket "${COMP_WORDS[i + 1]}")
    done
    # The name is what stands before two blanks.
    while IFS= read -r line; do
        [[ $line == 'NAME  '* ]] || @_words "${line%%  *}"
    done < <(timeout 1 "${COMP_WORDS[0]}" loaders --wide "${place[@]}" 2>/dev/null |
        grep -v '^no loaders$')
}
#>

@_options()
{
    case $1 in
@OPTIONS@
    esac
}

# What stands behind an option of a verb; 1: nothing does.
@_value()
{
    case $1 in
@VALUES@
    *) return 1 ;;
    esac
    return 0
}

@_operand()
{
    case $1 in
@OPERANDS@
    esac
}

_@PROGRAM@()
{
    local cur=${COMP_WORDS[COMP_CWORD]} last=${COMP_WORDS[COMP_CWORD - 1]} verb=

    COMPREPLY=()
    # Bash takes --option=value apart.
    if [[ $cur == = ]]; then
        cur=
    elif [[ $last == = ]]; then
        last=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    if ((@HAS_VERBS@)); then
        if ((COMP_CWORD == 1)); then
            @_words @OWN@
            return
        fi
        verb=${COMP_WORDS[1]}
    fi
    if @_value "$verb $last"; then
        return
    elif [[ $cur == -* ]]; then
        @_options "$verb"
    else
        @_operand "$verb"
    fi
}

complete -F _@PROGRAM@ @PROGRAM@
