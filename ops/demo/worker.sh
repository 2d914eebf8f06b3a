# shellcheck shell=bash
# Starts a worker for a script and tells when it is ready; sourced.
#
#   worker_start NAME ARGS...   runs `translate-worker run ARGS` with its log in $WORK/NAME.log, returns once it is in its group
#                               (WORKER_READY_S, 120 seconds at most); fills worker_pid[NAME], worker_http[NAME] (port),
#                               worker_bootstrap[NAME] (embedded cluster)
#   worker_wait NAME            waits for its end, returns its exit code
#
# WORK is a folder for logs, WORKER the binary.

# shellcheck disable=SC2034 # for the scripts that source this
declare -gA worker_pid worker_http worker_bootstrap

# worker_follow NAME: reads the log as it is written until a line says that the group is joined; fails when the log ends before.
worker_follow() {
    local name=$1 line
    while IFS= read -r -t "${WORKER_READY_S:-120}" line <&"$log_fd"; do
        printf '%s\n' "$line" >>"$WORK/$name.log"
        case $line in
        *" event=embedded "*) worker_bootstrap[$name]=$(sed -n 's/.* bootstrap=\([^ ]*\).*/\1/p' <<<"$line") ;;
        *" event=http "*) worker_http[$name]=$(sed -n 's/.* port=\([0-9]*\).*/\1/p' <<<"$line") ;;
        *" event=joined"*) return 0 ;;
        esac
    done
    return 1
}

worker_start() {
    local name=$1 log_fd
    shift
    : >"$WORK/$name.log"
    exec {log_fd}< <(exec "$WORKER" run "$@" 2>&1 >/dev/null)
    worker_pid[$name]=$!
    if ! worker_follow "$name"; then
        echo "the worker '$name' did not become ready; its log:" >&2
        tail -20 "$WORK/$name.log" >&2
        return 1
    fi
    cat <&"$log_fd" >>"$WORK/$name.log" & # the rest of the log, as long as the worker lives
    exec {log_fd}<&-
}

worker_wait() {
    wait "${worker_pid[$1]}"
}
