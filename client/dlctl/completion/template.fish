# Completion of the command line of @PROGRAM@ in fish, made from what it says of itself.

# Loaders that the daemon has open, if it answers at once.
function __@PROGRAM@_loaders
    set -l words (commandline -opc)
    set -l place
    if set -l at (contains -i -- --socket $words)
        set place --socket $words[(math $at + 1)]
    end
    set -a place (string match -- '--socket=*' $words)
    timeout 1 @PROGRAM@ loaders --wide $place 2>/dev/null | string replace -r '  .*' '' |
        string match -v -r '^(NAME|no loaders)$'
end
#>

complete -c @PROGRAM@ -f
@LINES@
