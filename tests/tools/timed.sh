# shellcheck shell=bash
# Sourced by ./dev and .ci/run: what their steps take, by the clock and of a processor. On a machine that others use, too,
# only the latter says what a step costs.

# mark NAME: sets it to the hundredths of a second of the clock, and of a processor for this shell and what it waited for.
mark() {
    local now=${EPOCHREALTIME/[!0-9]/} stat

    read -r -a stat </proc/self/stat
    printf -v "$1" '%d %d' "${now%????}" $((stat[13] + stat[14] + stat[15] + stat[16]))
}

# timed WHAT COMMAND...: runs it, and adds a line to $DLOADER_TIMES, a file, where there is one: beginning, end, hundredths,
# WHAT. In a shell of its own, which waits for nothing that was begun before.
timed() (
    local begin end status=0

    mark begin
    "${@:2}" || status=$?
    mark end
    [[ -z ${DLOADER_TIMES:-} ]] || echo "${begin% *} ${end% *} $((${end#* } - ${begin#* })) $1" >>"$DLOADER_TIMES"
    exit "$status"
)
