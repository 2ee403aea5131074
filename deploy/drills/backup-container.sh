# While LCM runs. RUN: what runs a command in a container of a control plane: kubectl exec deployment/lcm-control-plane --
# or: docker compose -f deploy/compose.yaml exec -T control-plane. COPY: a new file; it comes through the pipe.
(
  umask 077
  test ! -e "$COPY" || { echo "$COPY already exists: choose another file" >&2; exit 1; }
  $RUN sh -c 'folder=$(mktemp -d) && trap "rm -r $folder" EXIT && trap "exit 1" HUP INT TERM &&
    python -m lcm.control_plane.store.mongo.backup save "$folder/copy" >&2 && cat "$folder/copy"' > "$COPY.part" &&
    mv "$COPY.part" "$COPY" || { rm "$COPY.part"; exit 1; }
)
