# Shared by the tests of the integrations: ranks with torchrun's variables.

# torchrun COMMAND...: `ranks` of them. Its status is that of the last one that failed.
torchrun() {
    local rank port=$((21000 + RANDOM % 10000)) status=0 pids=()
    for ((rank = 0; rank < ranks; rank++)); do
        RANK=$rank WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$@" >"$work/$rank.out" 2>&1 &
        pids[rank]=$!
    done
    for ((rank = 0; rank < ranks; rank++)); do
        wait "${pids[rank]}" || status=$?
    done
    cat "$work"/[0-9].out
    return $status
}
