# While LCM runs. RUN: what runs a command in a container of a control plane: kubectl exec deployment/lcm-control-plane --
# or: docker compose -f deploy/compose.yaml exec -T control-plane. COPY: a new file; it comes through the pipe.
(umask 077; $RUN sh -c 'python -m lcm.control_plane.store.mongo.backup save /tmp/copy >&2 && cat /tmp/copy && rm /tmp/copy' > "$COPY")
