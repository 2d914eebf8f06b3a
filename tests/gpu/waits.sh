#!/usr/bin/env bash
# waits.sh FILE... -- does every kernel that launch() of cuda/launch.cuh starts wait for the kernel before it?  One that does
# not would read what is not yet written, now and then.  FILE: PTX (nvcc --keep) for compute capability 9.0 or later, or
# what cuobjdump --dump-sass prints for such a card.  A kernel that is empty there, since it is for another card, need not
# wait.  Ends with one line; exit code 1 where a kernel does not wait, or was not found.
set -eu
cd "$(dirname "$0")/../.."
calls=$(grep -oE '\blaunch\(' cuda/*.cu | wc -l)
names=$(grep -ohE '\blaunch\(g, "[a-z_]+", [a-z_]+' cuda/*.cu | sed 's/.* //')
[ "$(wc -l <<<"$names")" = "$calls" ] || {
    echo "waits: of $calls calls of launch() only $(wc -l <<<"$names") are launch(g, \"name\", kernel...: cannot check"
    exit 1
}
awk -v names="$(sort -u <<<"$names" | tr '\n' ' ')" '
function finish() { # the kernel before this line is complete
    if (name == "")
        return
    seen[name]++
    kernels += works
    if (works && !waits) {
        printf "waits: %s does not wait for the kernel before it\n", symbol
        bad = 1
    }
    name = ""
}
BEGIN { n = split(names, wanted, " ") }
FNR == 1 || /\.entry / || /Function : / {
    finish()
    symbol = $0
    sub(/.*(\.entry|Function :) /, "", symbol)
    sub(/[^A-Za-z0-9_].*/, "", symbol)
    waits = works = 0
    if (/\.entry / || /Function : /)
        for (i = 1; i <= n; i++)
            if (index(symbol, length(wanted[i]) wanted[i])) # as C++ writes names: the length, then the letters
                name = wanted[i]
}
/^[ \t]+([a-z@]|\/\*)/ && !/^[ \t]+ret;/ { works = 1 } # an instruction
/griddepcontrol\.wait/ || /ACQBULK/ { waits = 1 }
END {
    finish()
    for (i = 1; i <= n; i++)
        if (!seen[wanted[i]]) {
            printf "waits: kernel %s is not in these files\n", wanted[i]
            bad = 1
        }
    printf "waits: %d kernels that %d names stand for, all %s\n", kernels, n, bad ? "but the above wait" : "wait"
    exit bad
}' "$@"
