#compdef @PROGRAM@
# Completion of the command line of @PROGRAM@ in zsh, made from what it says of itself.

# Loaders that the daemon has open, if it answers at once.
_@PROGRAM@_loaders() {
    local -a names place
    local at=${words[(I)--socket]}
    (( at )) && place=(--socket $words[at+1])
    place+=(${(M)words:#--socket=*})
    names=(${${(f)"$(timeout 1 @PROGRAM@ loaders --wide $place 2>/dev/null)"}%%  *})
    names=(${names:#(NAME|no loaders)})
    compadd -a names
}

_@PROGRAM@_loaders_or_specs() {
    _@PROGRAM@_loaders
    _files -g '*.(yaml|yml)(-.)'
}
#>

_@PROGRAM@() {
    local -a verbs
    verbs=(
@VERBS@
    )
    if (( @HAS_VERBS@ )); then
        if (( CURRENT == 2 )); then
            _describe verb verbs
            return
        fi
        shift words
        (( CURRENT-- ))
    fi
    case $words[1] in
@CASES@
    esac
}

_@PROGRAM@ "$@"
